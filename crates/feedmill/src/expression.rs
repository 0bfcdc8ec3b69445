//! Expressions: CEL over one record.
//!
//! In:    the text of an expression, once; then records.
//! Out:   whether it holds, or why that cannot be said.
//! Never: an unknown name found out only when a record comes; an evaluation
//!        whose cost a record's author can choose; a panic.
//!
//! Expressions see `record`, `did` and `rkey`, and, where a rule binds them,
//! the records that this one refers to. CEL has no loops but its macros, so
//! every turn of one is counted, and what functions walk too; too much ends the evaluation.

// What an evaluation costs.
mod cost;
// Where an expression fails.
pub mod failing;

pub use cost::of_frame;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, MapExpr, StructExpr,
};
use cel::objects::{Key, Map};
use cel::{Context, Env, ExecutionError};
use cost::{Meter, Over, TURNS_MAX};
use failing::Failing;
use record::value::Value;

/// Macros (`all`, `exists`, `map`, `filter`) within one another.
const NESTING_MAX: u32 = 3;
/// Bytes of an expression's text.
const TEXT_BYTES_MAX: usize = 10_000;
/// The functions that count them, by the depth of uncounted macros within each turn. No
/// expression can be written that calls one.
const TURN: [&str; NESTING_MAX as usize + 1] = ["@turn0", "@turn1", "@turn2", "@turn3"];

/// Names that a rule may use.
const RULE_NAMES: &[&str] = &["record", "did", "rkey"];
/// Names that a feed's conditions may use: they see only the record and its author.
const FEED_NAMES: &[&str] = &["record", "did"];
/// Names of CEL itself: types, and the prefixes of functions.
const WORDS: &[&str] = &[
    "bool",
    "bytes",
    "double",
    "int",
    "list",
    "lists",
    "map",
    "null_type",
    "string",
    "strings",
    "type",
    "uint",
];

/// Why an expression cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    #[error("not a CEL expression: {0}")]
    Syntax(String),
    #[error("{name:?} is not a name here; expressions see {known}")]
    Unknown { name: String, known: String },
    #[error("macros are nested deeper than {NESTING_MAX}")]
    Nested,
    #[error("longer than {TEXT_BYTES_MAX} bytes")]
    Long,
}

/// Why it cannot be said whether an expression holds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsure {
    /// A field is missing, or of another kind than the expression thinks.
    #[error("{0}")]
    Failed(String),
    #[error("it gives {0}, not true or false")]
    NotBoolean(String),
    #[error("it takes more than {TURNS_MAX} turns over the record's lists and texts")]
    TooCostly,
    #[error("the records of one commit take too many turns over their lists and texts together")]
    FrameTooCostly,
}

/// An expression, compiled.
#[derive(Debug, Clone)]
pub struct Expression {
    text: String,
    tree: Arc<IdedExpr>,
    /// Depth of macros whose turns cannot be counted one by one (`map`, `filter`).
    uncounted: u32,
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}

/// One record as expressions see it.
pub struct Scope {
    context: Context<'static, 'static>,
    longest: u64,
    meter: Meter,
    /// `longest`, as the counting functions see it.
    weight: Arc<AtomicU64>,
}

impl std::fmt::Debug for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope")
            .field("longest", &self.longest)
            .finish_non_exhaustive()
    }
}

fn environment() -> Arc<Env> {
    static ENVIRONMENT: OnceLock<Arc<Env>> = OnceLock::new();
    let environment = ENVIRONMENT.get_or_init(|| {
        let mut env = Env::stdlib();
        env.add_extension(cel::extensions::strings)
            .expect("the standard library and the strings extension share no name");
        env.add_extension(cel::extensions::lists)
            .expect("the standard library and the lists extension share no name");
        Arc::new(env)
    });
    Arc::clone(environment)
}

impl Expression {
    /// Compiles a feed's condition, over `record` and `did`.
    pub fn condition(text: &str) -> Result<Self, ExpressionError> {
        Self::over(text, FEED_NAMES, &[])
    }

    /// Compiles a rule's expression, over `record`, `did`, `rkey` and the further records `bound`.
    pub fn rule(text: &str, bound: &[&str]) -> Result<Self, ExpressionError> {
        Self::over(text, RULE_NAMES, bound)
    }

    fn over(text: &str, names: &[&str], bound: &[&str]) -> Result<Self, ExpressionError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(ExpressionError::Long);
        }
        let program = environment().compile(text).map_err(|errors| {
            let first = errors.errors.first();
            ExpressionError::Syntax(first.map_or_else(
                || "it cannot be parsed".into(),
                |error| format!("column {}: {}", error.pos.1, error.msg),
            ))
        })?;
        let mut walk = Walk {
            known: names
                .iter()
                .chain(bound)
                .map(|name| (*name).to_owned())
                .collect(),
            unknown: None,
            deepest: 0,
        };
        let mut tree = program.expression().clone();
        let uncounted = walk.visit(&mut tree, 0);
        if let Some(name) = walk.unknown {
            let known = walk.known.join(", ");
            return Err(ExpressionError::Unknown { name, known });
        }
        if walk.deepest > NESTING_MAX {
            return Err(ExpressionError::Nested);
        }
        Ok(Self {
            text: text.to_owned(),
            tree: Arc::new(tree),
            uncounted,
        })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it holds.
    pub fn holds(&self, scope: &Scope) -> Result<bool, Unsure> {
        if scope.longest.saturating_pow(self.uncounted) > TURNS_MAX {
            return Err(Unsure::TooCostly);
        }
        scope.weight.store(scope.longest, Ordering::Relaxed);
        scope.meter.begin();
        let result = resolve(&self.tree, &scope.context);
        match scope.meter.is_over() {
            Some(Over::Expression) => return Err(Unsure::TooCostly),
            Some(Over::Frame) => return Err(Unsure::FrameTooCostly),
            None => {}
        }
        match result {
            Some(Ok(cel::Value::Bool(holds))) => Ok(holds),
            Some(Ok(other)) => Err(Unsure::NotBoolean(other.type_of().to_string())),
            Some(Err(error)) => Err(Unsure::Failed(error.to_string())),
            None => Err(Unsure::Failed("the evaluation broke down".into())),
        }
    }

    /// The part of a record for which it does not hold.
    pub fn failing(&self, scope: &Scope) -> Failing {
        failing::find(&self.tree, scope)
    }
}

/// What an expression gives; `None` if the evaluator, which is not ours, broke down over a stranger's record.
fn resolve(
    tree: &IdedExpr,
    context: &Context<'_, 'static>,
) -> Option<Result<cel::Value, ExecutionError>> {
    catch_unwind(AssertUnwindSafe(|| cel::Value::resolve(tree, context))).ok()
}

impl Scope {
    /// A record at its place.
    pub fn new(did: &str, rkey: &str, record: &Value<'_>) -> Self {
        Self::metered(did, rkey, record, Meter::default())
    }

    /// The same for rules, whose cost is charged to the frame that brought the record.
    pub fn of_rules(did: &str, rkey: &str, record: &Value<'_>) -> Self {
        Self::metered(did, rkey, record, Meter::of_frame())
    }

    fn metered(did: &str, rkey: &str, record: &Value<'_>, meter: Meter) -> Self {
        let mut scope = Self {
            context: Context::with_env(environment()),
            longest: 1,
            meter,
            weight: Arc::default(),
        };
        for (exponent, name) in (0..).zip(TURN) {
            let (meter, weight) = (scope.meter.clone(), Arc::clone(&scope.weight));
            let turn = move |go_on: bool| {
                let cost = weight.load(Ordering::Relaxed).saturating_pow(exponent);
                meter.charge(name, cost).map(|()| go_on)
            };
            let added = scope.context.add_function(name, turn);
            added.expect("no function of CEL begins with @");
        }
        scope.meter.add_to(&mut scope.context);
        scope.bind("record", Some(record));
        scope.context.add_variable_from_value("did", did);
        scope.context.add_variable_from_value("rkey", rkey);
        scope
    }

    /// Binds a further record; `null` where there is none.
    pub fn bind(&mut self, name: &str, record: Option<&Value<'_>>) {
        let value = record.map_or(cel::Value::Null, |record| seen(record, &mut self.longest));
        self.context.add_variable_from_value(name, value);
    }
}

/// A value as CEL sees it; bytes and links as they are in JSON's place.
fn seen(value: &Value<'_>, longest: &mut u64) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(bool) => cel::Value::Bool(*bool),
        Value::Int(int) => cel::Value::Int(*int),
        Value::Text(text) => cel::Value::String(Arc::new(text.clone().into_owned())),
        Value::Bytes(bytes) => cel::Value::Bytes(Arc::new(bytes.clone().into_owned())),
        Value::Link(cid) => {
            let link = cel::Value::String(Arc::new(cid.to_string()));
            map([("$link".to_owned(), link)].into_iter())
        }
        Value::List(items) => {
            *longest = (*longest).max(items.len() as u64);
            cel::Value::List(Arc::new(
                items.iter().map(|item| seen(item, longest)).collect(),
            ))
        }
        Value::Map(fields) => {
            *longest = (*longest).max(fields.len() as u64);
            map(fields
                .iter()
                .map(|(name, field)| (name.clone().into_owned(), seen(field, longest))))
        }
    }
}

fn map(fields: impl Iterator<Item = (String, cel::Value)>) -> cel::Value {
    let map: HashMap<Key, cel::Value> = fields
        .map(|(name, field)| (Key::String(Arc::new(name)), field))
        .collect();
    cel::Value::Map(Map { map: Arc::new(map) })
}

/// Looks through an expression before it is ever run, and has its turns counted.
struct Walk {
    known: Vec<String>,
    unknown: Option<String>,
    deepest: u32,
}

impl Walk {
    /// `depth` macros are around this; returns how deep uncounted ones are nested in it.
    fn visit(&mut self, expression: &mut IdedExpr, depth: u32) -> u32 {
        match &mut expression.expr {
            Expr::Ident(name) => {
                let known = self.known.iter().any(|known| known == name);
                if !known && !WORDS.contains(&name.as_str()) && self.unknown.is_none() {
                    self.unknown = Some(name.clone());
                }
                0
            }
            Expr::Call(call) => {
                let target = call.target.as_deref_mut().into_iter();
                let deepest = self.each(target.chain(&mut call.args), depth);
                cost::charged(call, WORDS);
                deepest
            }
            Expr::Select(select) => self.visit(&mut select.operand, depth),
            Expr::List(list) => self.each(list.elements.iter_mut(), depth),
            Expr::Map(MapExpr { entries }) | Expr::Struct(StructExpr { entries, .. }) => {
                let entries = entries.iter_mut().flat_map(|entry| match &mut entry.expr {
                    EntryExpr::StructField(field) => vec![&mut field.value],
                    EntryExpr::MapEntry(entry) => vec![&mut entry.key, &mut entry.value],
                });
                self.each(entries, depth)
            }
            Expr::Comprehension(turns) => self.turns(turns, depth),
            Expr::Literal(_) | Expr::Unspecified => 0,
        }
    }

    fn each<'e>(&mut self, parts: impl Iterator<Item = &'e mut IdedExpr>, depth: u32) -> u32 {
        parts
            .map(|part| self.visit(part, depth))
            .max()
            .unwrap_or_default()
    }

    fn turns(&mut self, turns: &mut ComprehensionExpr, depth: u32) -> u32 {
        let outside = self.each(
            [&mut turns.iter_range, &mut turns.accu_init].into_iter(),
            depth,
        );
        let outer = self.known.len();
        self.known.push(turns.iter_var.clone());
        self.known.extend(turns.iter_var2.clone());
        self.known.push(turns.accu_var.clone());
        self.deepest = self.deepest.max(depth + 1);
        // A literal condition marks the macros that only append or count, which the evaluator
        // runs in a way of its own.
        let counted = !matches!(turns.loop_cond.expr, Expr::Literal(_));
        let parts = [
            &mut turns.loop_cond,
            &mut turns.loop_step,
            &mut turns.result,
        ];
        let inside = self.each(parts.into_iter(), depth + 1);
        self.known.truncate(outer);
        let name = TURN.get(inside as usize).filter(|_| counted);
        if let Some(name) = name {
            let condition = std::mem::take(&mut turns.loop_cond);
            turns.loop_cond = IdedExpr {
                id: condition.id,
                expr: Expr::Call(CallExpr {
                    func_name: (*name).to_owned(),
                    target: None,
                    args: vec![condition],
                }),
            };
        }
        outside.max(inside + u32::from(!counted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, record: &str, expected: Result<bool, ()>) {
        let value = record::json::from_json(record).unwrap();
        let scope = Scope::new("did:web:a.test", "1", &value);
        let got = Expression::rule(text, &[]).unwrap().holds(&scope);
        assert_eq!(got.clone().map_err(|_| ()), expected, "{got:?}");
    }

    #[test]
    fn an_expression_sees_the_record_and_its_place() {
        check("record.a < record.b", r#"{"a":1,"b":2}"#, Ok(true));
        check("did == 'did:web:a.test' && rkey == '1'", "{}", Ok(true));
        check("size(bytes(record.t)) == 2", r#"{"t":"é"}"#, Ok(true));
        check("record.l.all(x, x > 0)", r#"{"l":[1,0]}"#, Ok(false));
        check(
            "lists.range(size(record.l) - 1).all(i, record.l[i] < record.l[i + 1])",
            r#"{"l":[1,2,5]}"#,
            Ok(true),
        );
    }

    #[test]
    fn a_missing_field_gives_no_answer() {
        check("record.a == 1", "{}", Err(()));
        check("has(record.a) && record.a == 1", "{}", Ok(false));
        check("record.a", r#"{"a":1}"#, Err(()));
        check("record.a / 0 == 1", r#"{"a":1}"#, Err(()));
        check("record.a + 1 > 0", r#"{"a":9223372036854775807}"#, Err(()));
    }

    #[test]
    fn an_unknown_name_is_refused_before_any_record_comes() {
        let error = Expression::rule("recrod.a == 1", &[]).unwrap_err();
        assert!(matches!(error, ExpressionError::Unknown { name, .. } if name == "recrod"));
        assert!(Expression::rule("parent.a == 1", &["parent"]).is_ok());
    }

    #[test]
    fn a_syntax_error_is_refused() {
        assert!(matches!(
            Expression::rule("record.a ==", &[]).unwrap_err(),
            ExpressionError::Syntax(_)
        ));
    }

    #[test]
    fn a_record_cannot_choose_the_cost_of_an_expression() {
        let list = vec!["1"; 3000].join(",");
        let record = format!("{{\"l\":[{list}]}}");
        check("record.l.all(x, x == 1)", &record, Ok(true));
        check("record.l.all(x, record.l.all(y, x == y))", &record, Err(()));
        check(
            "record.l.all(x, size(record.l.map(y, y)) > 0)",
            &record,
            Err(()),
        );
        check(
            "size(record.l.map(x, record.l.map(y, y))) > 0",
            &record,
            Err(()),
        );
        check(
            "record.l.filter(x, x > 0).all(x, x == 1)",
            &record,
            Ok(true),
        );
        let deep = "record.l.all(a, record.l.all(b, record.l.all(c, record.l.all(d, true))))";
        assert_eq!(
            Expression::rule(deep, &[]).unwrap_err(),
            ExpressionError::Nested
        );
    }

    /// A segmentation of so many tokens, as published configurations check it.
    fn segmentation(tokens: usize) -> String {
        let token = |at: usize| format!("{{\"span\":{{\"start\":{at},\"end\":{}}}}}", at + 1);
        let tokens: Vec<String> = (0..tokens).map(token).collect();
        format!("{{\"parts\":[{{\"tokens\":[{}]}}]}}", tokens.join(","))
    }

    /// Turns that its rules cost, all of which hold.
    fn turns_of(tokens: usize) -> u64 {
        let text = segmentation(tokens);
        let value = record::json::from_json(&text).unwrap();
        let scope = Scope::of_rules("did:web:a.test", "1", &value);
        for rule in [
            "record.parts.all(t, t.tokens.all(k, !has(k.span) || k.span.start < k.span.end))",
            "record.parts.all(t, lists.range(size(t.tokens)).all(i, i == 0 || !has(t.tokens[i].span) || !has(t.tokens[i - 1].span) || t.tokens[i - 1].span.start < t.tokens[i].span.start))",
            "[9000].all(n, record.parts.all(t, has(t.other) || t.tokens.all(k, !has(k.span) || k.span.end <= n)))",
        ] {
            let rule = Expression::rule(rule, &[]).unwrap();
            assert_eq!(of_frame(|| rule.holds(&scope)), Ok(true), "{}", rule.text());
        }
        scope.meter.spent()
    }

    #[test]
    fn a_segmentation_costs_in_proportion_to_its_tokens() {
        let (few, many) = (turns_of(900), turns_of(9000));
        assert!(
            many <= 11 * few,
            "{few} turns for 900 tokens, {many} for 9000"
        );
        assert!(many < 60_000, "{many} turns do not fit into one frame");
    }

    #[test]
    fn texts_that_functions_walk_are_charged() {
        let list = vec!["\"x\""; 500].join(",");
        let record = format!("{{\"l\":[{list}],\"t\":\"{}\"}}", "y".repeat(100_000));
        check("record.t.contains('x')", &record, Ok(false));
        check("record.t == record.t", &record, Ok(true));
        for costly in [
            "record.l.all(x, !record.t.contains(x))",
            "record.l.all(x, size(record.t) > 0)",
            "record.l.all(x, record.t + x != record.t)",
            "record.l.all(x, record.t == record.t)",
            "record.l.all(x, !(x in [record.t]))",
            "record.l.map(x, record.t).join(',') != ''",
            "record.l.exists(x, record.t.matches('^(y+)+$') && x == 'z')",
            "record.t.replace('y', record.t) != ''",
            "size(lists.range(1000000 * size(record.l))) > 0",
        ] {
            let value = record::json::from_json(&record).unwrap();
            let scope = Scope::new("did:web:a.test", "1", &value);
            let got = Expression::rule(costly, &[]).unwrap().holds(&scope);
            assert_eq!(got, Err(Unsure::TooCostly), "{costly}");
        }
    }

    #[test]
    fn the_records_of_one_frame_share_a_budget() {
        let list = vec!["1"; 9000].join(",");
        let record = format!("{{\"l\":[{list}]}}");
        let value = record::json::from_json(&record).unwrap();
        let rule = Expression::rule("record.l.all(x, x == 1)", &[]).unwrap();
        let holds = || rule.holds(&Scope::of_rules("did:web:a.test", "1", &value));
        let within = || of_frame(|| (0..10).filter(|_| holds() == Ok(true)).count());
        assert_eq!(within(), 6);
        assert_eq!(within(), 6, "the next frame has a budget of its own");
        assert_eq!((0..10).filter(|_| holds() == Ok(true)).count(), 10);
        let all: Vec<_> = of_frame(|| (0..10).map(|_| holds()).collect());
        assert_eq!(all.last(), Some(&Err(Unsure::FrameTooCostly)));
    }
}
