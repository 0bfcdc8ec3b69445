//! The part of a record for which an expression fails.
//!
//! In:    an expression that does not hold, and the record.
//! Out:   the path of that part, with indexes into lists, and what was expected of it, in words
//!        that need no knowledge of the expression's macros.
//! Never: a cost beyond that of the expression itself, times the depth of its macros; a part that is
//!        named although it is not sure.
//!
//! A rule over a list is `list.all(x, ...)`. Its failure is that of the first element for which the
//! inner part does not hold; the same is done within that element. Of `a && b` the first that does
//! not hold is looked at, and of `!has(x) || a` the second, for the first only asks whether there
//! is anything to expect.

use cel::Context;
use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr};

use super::Scope;
use super::cost::bare;

const AND: &str = "_&&_";
const OR: &str = "_||_";
const NOT: &str = "!_";
const INDEX: &str = "_[_]";
/// Operators as they are written.
const OPERATORS: &[(&str, &str)] = &[
    (AND, "and"),
    (OR, "or"),
    ("_==_", "=="),
    ("_!=_", "!="),
    ("_<_", "<"),
    ("_<=_", "<="),
    ("_>_", ">"),
    ("_>=_", ">="),
    ("_+_", "+"),
    ("_-_", "-"),
    ("_*_", "*"),
    ("_/_", "/"),
    ("_%_", "%"),
    ("@in", "in"),
];

/// Where an expression fails, and what it expects there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failing {
    /// Fields and indexes, from the record on; `None` where no element of a list is at fault.
    pub path: Option<Vec<String>>,
    /// `None` where it cannot be said without the expression's macros.
    pub expected: Option<String>,
}

/// What a name within a macro is.
enum Bound {
    /// A part of the record.
    Part(Vec<String>),
    /// A number, perhaps the index of an element.
    Number(i64),
}

struct Search<'s> {
    scope: &'s Scope,
    bound: Vec<(String, Bound)>,
    path: Option<Vec<String>>,
}

pub(super) fn find(tree: &IdedExpr, scope: &Scope) -> Failing {
    scope.meter.begin();
    let mut search = Search {
        scope,
        bound: Vec::new(),
        path: None,
    };
    let expected = search.descend(tree, &scope.context);
    // Where the evaluation was cut short, what did not hold may not be what is at fault.
    if scope.meter.is_over().is_some() {
        return Failing::default();
    }
    Failing {
        path: search.path,
        expected,
    }
}

impl Search<'_> {
    /// Looks for the part at fault; returns what was expected of it.
    fn descend(&mut self, tree: &IdedExpr, context: &Context<'_, 'static>) -> Option<String> {
        match &tree.expr {
            Expr::Call(call) if call.func_name == AND => {
                let mut parts = call.args.iter();
                match parts.find(|part| !holds(part, context)) {
                    Some(part) => self.descend(part, context),
                    None => self.text(tree, context),
                }
            }
            Expr::Call(call) if call.func_name == OR => {
                let mut parts = Vec::new();
                alternatives(call, &mut parts);
                parts.retain(|part| !is_guard(part));
                match parts.as_slice() {
                    [] => self.text(tree, context),
                    [only] => self.descend(only, context),
                    several => {
                        let texts = several.iter().map(|part| self.text(part, context));
                        Some(texts.collect::<Option<Vec<String>>>()?.join(" or "))
                    }
                }
            }
            Expr::Comprehension(macro_) => match body_of_all(macro_) {
                Some(body) => self.element(macro_, body, context),
                None => None,
            },
            _ => self.text(tree, context),
        }
    }

    /// The first element for which the body does not hold.
    fn element(
        &mut self,
        macro_: &ComprehensionExpr,
        body: &IdedExpr,
        context: &Context<'_, 'static>,
    ) -> Option<String> {
        let Ok(cel::Value::List(items)) = super::resolve(&macro_.iter_range, context)? else {
            return None;
        };
        let list = self.path_of(&macro_.iter_range);
        for (index, item) in items.iter().enumerate() {
            self.scope.meter.charge("all", 1).ok()?;
            let mut inner = context.new_inner_scope();
            inner.add_variable_from_value(macro_.iter_var.as_str(), item.clone());
            if holds(body, &inner) {
                continue;
            }
            let bound = match (&list, item) {
                (Some(list), _) => {
                    let mut path = list.clone();
                    path.push(index.to_string());
                    self.path = Some(path.clone());
                    Bound::Part(path)
                }
                (None, cel::Value::Int(number)) => Bound::Number(*number),
                (None, _) => return self.text(body, &inner),
            };
            self.bound.push((macro_.iter_var.clone(), bound));
            if list.is_none() {
                self.path = self.indexed(body, &macro_.iter_var).or(self.path.take());
            }
            return self.descend(body, &inner);
        }
        None
    }

    /// The path of a part of the record, where an expression names one.
    fn path_of(&self, tree: &IdedExpr) -> Option<Vec<String>> {
        let tree = bare(tree);
        match &tree.expr {
            Expr::Ident(name) if name == "record" => Some(Vec::new()),
            Expr::Ident(name) => match self.bound.iter().rev().find(|(known, _)| known == name)? {
                (_, Bound::Part(path)) => Some(path.clone()),
                (_, Bound::Number(_)) => None,
            },
            Expr::Select(select) if !select.test => {
                let mut path = self.path_of(&select.operand)?;
                path.push(select.field.clone());
                Some(path)
            }
            Expr::Call(call) if call.func_name == INDEX => {
                let [list, index] = call.args.as_slice() else {
                    return None;
                };
                let Expr::Ident(name) = &index.expr else {
                    return None;
                };
                let known = self.bound.iter().rev().find(|(known, _)| known == name)?;
                let (_, Bound::Number(index)) = known else {
                    return None;
                };
                let mut path = self.path_of(list)?;
                path.push(index.to_string());
                Some(path)
            }
            _ => None,
        }
    }

    /// The element that `list[name]` is somewhere in an expression.
    fn indexed(&self, tree: &IdedExpr, name: &str) -> Option<Vec<String>> {
        let tree = bare(tree);
        match &tree.expr {
            Expr::Call(call) => {
                let is_it =
                    |index: &IdedExpr| matches!(&bare(index).expr, Expr::Ident(it) if it == name);
                if call.func_name == INDEX && call.args.last().is_some_and(is_it) {
                    return self.path_of(tree);
                }
                let mut parts = call.target.as_deref().into_iter().chain(&call.args);
                parts.find_map(|part| self.indexed(part, name))
            }
            Expr::Select(select) => self.indexed(&select.operand, name),
            _ => None,
        }
    }

    /// An expression in words, with the parts of the record that its names are.
    fn text(&self, tree: &IdedExpr, context: &Context<'_, 'static>) -> Option<String> {
        let tree = bare(tree);
        if let Some(path) = self.path_of(tree) {
            return Some(shown(&path));
        }
        match &tree.expr {
            Expr::Ident(name) => Some(match self.bound.iter().rev().find(|(it, _)| it == name) {
                Some((_, Bound::Number(number))) => number.to_string(),
                _ => name.clone(),
            }),
            Expr::Literal(_) => match super::resolve(tree, context)?.ok()? {
                cel::Value::String(text) => Some(format!("{text:?}")),
                cel::Value::Int(number) => Some(number.to_string()),
                cel::Value::UInt(number) => Some(number.to_string()),
                cel::Value::Float(number) => Some(number.to_string()),
                cel::Value::Bool(it) => Some(it.to_string()),
                cel::Value::Null => Some("null".into()),
                _ => None,
            },
            Expr::Select(select) => {
                let operand = self.text(&select.operand, context)?;
                let whole = format!("{operand}.{}", select.field);
                Some(match select.test {
                    true => format!("{whole} is there"),
                    false => whole,
                })
            }
            Expr::Call(call) => self.call(call, context),
            _ => None,
        }
    }

    fn call(&self, call: &CallExpr, context: &Context<'_, 'static>) -> Option<String> {
        let args: Option<Vec<String>> = call.args.iter().map(|it| self.text(it, context)).collect();
        let args = args?;
        let operator = OPERATORS.iter().find(|(name, _)| *name == call.func_name);
        match (operator, args.as_slice()) {
            (Some((_, operator)), [left, right]) => Some(format!("{left} {operator} {right}")),
            (None, [it]) if call.func_name == NOT => Some(format!("not ({it})")),
            (None, [list, index]) if call.func_name == INDEX => Some(format!("{list}[{index}]")),
            (None, _)
                if call
                    .func_name
                    .starts_with(|c: char| c.is_ascii_alphabetic()) =>
            {
                let args = args.join(", ");
                let call_of = match &call.target {
                    Some(target) => format!("{}.", self.text(target, context)?),
                    None => String::new(),
                };
                Some(format!("{call_of}{}({args})", call.func_name))
            }
            _ => None,
        }
    }
}

fn holds(tree: &IdedExpr, context: &Context<'_, 'static>) -> bool {
    let resolved = super::resolve(tree, context);
    matches!(resolved, Some(Ok(cel::Value::Bool(true))))
}

/// The parts of `a || b || c`.
fn alternatives<'e>(call: &'e CallExpr, parts: &mut Vec<&'e IdedExpr>) {
    for part in &call.args {
        match &part.expr {
            Expr::Call(inner) if inner.func_name == OR => alternatives(inner, parts),
            _ => parts.push(part),
        }
    }
}

/// Whether it asks only if there is anything to expect: `!has(x)`, or whether this is the first element.
fn is_guard(tree: &IdedExpr) -> bool {
    let Expr::Call(call) = &tree.expr else {
        return matches!(&tree.expr, Expr::Select(select) if select.test);
    };
    match (call.func_name.as_str(), call.args.as_slice()) {
        (NOT, [it]) => matches!(&it.expr, Expr::Select(select) if select.test),
        ("_==_", [it, to]) => {
            matches!(&bare(it).expr, Expr::Ident(_)) && matches!(&to.expr, Expr::Literal(_))
        }
        _ => false,
    }
}

/// The part of `all(x, part)`, if the macro is one.
fn body_of_all(macro_: &ComprehensionExpr) -> Option<&IdedExpr> {
    let Expr::Call(step) = &macro_.loop_step.expr else {
        return None;
    };
    let [so_far, body] = step.args.as_slice() else {
        return None;
    };
    let begins = matches!(macro_.accu_init.expr, Expr::Literal(_));
    let goes_on = matches!(&so_far.expr, Expr::Ident(name) if *name == macro_.accu_var);
    (begins && goes_on && step.func_name == AND && macro_.iter_var2.is_none()).then_some(body)
}

/// A path as people write it.
fn shown(path: &[String]) -> String {
    let mut text = String::new();
    for step in path {
        match step.parse::<usize>() {
            Ok(index) => text.push_str(&format!("[{index}]")),
            Err(_) if text.is_empty() => text.push_str(step),
            Err(_) => {
                text.push('.');
                text.push_str(step);
            }
        }
    }
    match text.is_empty() {
        true => "record".into(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Expression;
    use super::*;

    #[track_caller]
    fn check(text: &str, record: &str, path: Option<&str>, expected: Option<&str>) {
        let value = record::json::from_json(record).unwrap();
        let scope = Scope::new("did:web:a.test", "1", &value);
        let expression = Expression::rule(text, &[]).unwrap();
        assert_ne!(expression.holds(&scope), Ok(true));
        let failing = expression.failing(&scope);
        assert_eq!(failing.path.map(|path| path.join(".")).as_deref(), path);
        assert_eq!(failing.expected.as_deref(), expected);
    }

    #[test]
    fn without_lists_the_comparison_that_fails_is_what_was_expected() {
        check(
            "has(record.a) && record.a < record.b",
            r#"{"a":3,"b":2}"#,
            None,
            Some("a < b"),
        );
        check(
            "!has(record.a) || record.a == 'x'",
            r#"{"a":3}"#,
            None,
            Some("a == \"x\""),
        );
        check(
            "record.a.b.startsWith('at://')",
            r#"{"a":{"b":"x"}}"#,
            None,
            Some("a.b.startsWith(\"at://\")"),
        );
    }

    #[test]
    fn the_first_element_that_fails_is_named_however_deep_it_is() {
        let record =
            r#"{"l":[{"t":[{"s":1,"e":2}]},{"t":[{"s":1,"e":2},{},{"s":5,"e":4},{"s":9,"e":1}]}]}"#;
        check(
            "record.l.all(x, x.t.all(k, !has(k.s) || k.s < k.e))",
            record,
            Some("l.1.t.2"),
            Some("l[1].t[2].s < l[1].t[2].e"),
        );
        check(
            "[7].all(n, record.l.all(x, x.t.all(k, !has(k.e) || k.e > 1 || k.e > n)))",
            record,
            Some("l.1.t.3"),
            Some("l[1].t[3].e > 1 or l[1].t[3].e > 7"),
        );
    }

    #[test]
    fn elements_that_are_found_by_their_index_are_named_too() {
        check(
            "lists.range(size(record.l)).all(i, i == 0 || record.l[i - 1] < record.l[i])",
            r#"{"l":[1,2,2,7]}"#,
            Some("l.2"),
            Some("l[2 - 1] < l[2]"),
        );
    }

    #[test]
    fn a_field_that_is_missing_in_an_element_names_the_element() {
        check(
            "record.l.all(x, x.a > 0)",
            r#"{"l":[{"a":1},{}]}"#,
            Some("l.1"),
            Some("l[1].a > 0"),
        );
    }

    #[test]
    fn what_cannot_be_said_without_macros_is_not_said() {
        check("record.l.exists(x, x > 3)", r#"{"l":[1]}"#, None, None);
        check(
            "record.l.all(x, x.exists(y, y > 3))",
            r#"{"l":[[5],[1]]}"#,
            Some("l.1"),
            None,
        );
    }
}
