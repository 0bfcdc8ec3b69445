//! What an evaluation costs: turns of macros, and the texts and lists that its functions walk.
//!
//! In:    each turn of a macro, and each value just before a function walks through it.
//! Out:   an error as soon as the expression, or the frame with all its records and rules, has cost too much.
//! Never: a value walked by a function before its cost is charged; a function that makes more out of a value than is
//!        charged for it.
//!
//! One turn is the unit; `WALKED_BYTES` that a function walks cost as much. The functions that charge have names that
//! no expression can contain, and are put around parts of the tree when it is compiled.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cel::common::ast::{CallExpr, Expr, IdedExpr};
use cel::{Context, ExecutionError, Value};

/// Turns of one evaluation.
pub(super) const TURNS_MAX: u64 = 20_000;
/// Turns of all evaluations over the records of one frame.
const FRAME_TURNS_MAX: u64 = 60_000;
/// Bytes that a function walks at the cost of a turn, and those that a regular expression does.
const WALKED_BYTES: u64 = 1024;
const MATCHED_BYTES: u64 = 64;
/// Turns that it costs to make a regular expression.
const PATTERN_TURNS: u64 = 20;
/// Bytes of an element beside its texts.
const ELEMENT_BYTES: u64 = 16;

/// Charges a value that a function walks, one that is matched, and a number of elements to be made.
const WALK: &str = "@walk";
const MATCH: &str = "@match";
const RANGE: &str = "@range";
/// Charges what a replacement may make: the text, as often as it has characters.
const REPLACE: &str = "@replace";

thread_local! {
    /// Turns left for the frame that this thread works on.
    static FRAME: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Gives back what the thread had before, also after a panic.
struct Restore(Option<u64>);

impl Drop for Restore {
    fn drop(&mut self) {
        FRAME.set(self.0);
    }
}

/// Does work over the records of one frame, whose rules share one budget. What feeds derive from a record has none: it
/// must be the same when it is derived again.
pub fn of_frame<T>(work: impl FnOnce() -> T) -> T {
    let _restore = Restore(FRAME.replace(Some(FRAME_TURNS_MAX)));
    work()
}

/// Counts the turns of one evaluation after the other.
#[derive(Debug, Clone, Default)]
pub(super) struct Meter {
    turns: Arc<AtomicU64>,
    /// Those of earlier evaluations.
    before: Arc<AtomicU64>,
    /// They are charged to the frame too.
    framed: bool,
}

impl Meter {
    /// One that is charged to the frame that the thread works on, too.
    pub(super) fn of_frame() -> Self {
        Self {
            framed: true,
            ..Self::default()
        }
    }

    fn frame(&self) -> Option<u64> {
        FRAME.get().filter(|_| self.framed)
    }

    /// Begins an evaluation.
    pub(super) fn begin(&self) {
        let turns = self.turns.swap(0, Ordering::Relaxed);
        self.before.fetch_add(turns, Ordering::Relaxed);
    }

    /// Charges turns; an error where there are none left.
    pub(super) fn charge(&self, function: &str, turns: u64) -> Result<(), ExecutionError> {
        let own = self
            .turns
            .fetch_add(turns, Ordering::Relaxed)
            .saturating_add(turns);
        let left = self.frame().map(|left| left.saturating_sub(turns));
        if left.is_some() {
            FRAME.set(left);
        }
        if own > TURNS_MAX || left == Some(0) {
            return Err(ExecutionError::function_error(function, "too many turns"));
        }
        Ok(())
    }

    /// Whether the evaluation was ended by its own cost, or by that of its frame.
    pub(super) fn is_over(&self) -> Option<Over> {
        if self.turns.load(Ordering::Relaxed) > TURNS_MAX {
            return Some(Over::Expression);
        }
        (self.frame() == Some(0)).then_some(Over::Frame)
    }

    /// Turns of all evaluations so far.
    #[cfg(test)]
    pub(super) fn spent(&self) -> u64 {
        self.before.load(Ordering::Relaxed) + self.turns.load(Ordering::Relaxed)
    }

    /// Adds the functions that charge.
    pub(super) fn add_to(&self, context: &mut Context<'static, 'static>) {
        let known = "no function of CEL begins with @";
        let meter = self.clone();
        let walk = move |value: Value| {
            meter.charge(WALK, bytes(&value) / WALKED_BYTES)?;
            Ok::<Value, ExecutionError>(value)
        };
        context.add_function(WALK, walk).expect(known);
        let meter = self.clone();
        let matched = move |value: Value| {
            meter.charge(MATCH, PATTERN_TURNS + bytes(&value) / MATCHED_BYTES)?;
            Ok::<Value, ExecutionError>(value)
        };
        context.add_function(MATCH, matched).expect(known);
        let meter = self.clone();
        let range = move |value: Value| {
            let elements = match &value {
                Value::Int(elements) => u64::try_from(*elements).unwrap_or(0),
                Value::UInt(elements) => *elements,
                _ => 0,
            };
            meter.charge(RANGE, elements.saturating_mul(ELEMENT_BYTES) / WALKED_BYTES)?;
            Ok::<Value, ExecutionError>(value)
        };
        context.add_function(RANGE, range).expect(known);
        let meter = self.clone();
        let replace = move |text: Value, by: Value| {
            let made = (bytes(&text) + 1).saturating_mul(bytes(&by) + 1);
            meter.charge(REPLACE, made / WALKED_BYTES)?;
            Ok::<Value, ExecutionError>(by)
        };
        context.add_function(REPLACE, replace).expect(known);
    }
}

/// What was too costly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    Expression,
    Frame,
}

/// Bytes that a function may walk in a value.
fn bytes(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Bytes(bytes) => bytes.len() as u64,
        Value::List(items) => items.iter().map(|it| ELEMENT_BYTES + bytes(it)).sum(),
        Value::Map(map) => {
            let fields = map.map.values();
            fields.map(|it| 2 * ELEMENT_BYTES + bytes(it)).sum()
        }
        _ => 0,
    }
}

/// Puts functions that charge around what a call walks through.
pub(super) fn charged(call: &mut CallExpr, words: &[&str]) {
    // The sum of a macro is its own: no expression can name it, and each turn that adds to it is counted.
    let is_sum = |arg: &IdedExpr| matches!(&arg.expr, Expr::Ident(name) if name.starts_with('@'));
    if call.args.first().is_some_and(is_sum) {
        return;
    }
    let name = call.func_name.clone();
    match name.as_str() {
        "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" => {
            // No more is compared than the shorter side has.
            let short = call.args.iter().any(|arg| !may_be_long(arg, words));
            if let Some(left) = call.args.first_mut().filter(|_| !short) {
                wrap(WALK, left);
            }
        }
        "_+_" | "@in" | "size" => each(WALK, call, words),
        "range" => {
            let args = call.args.iter_mut();
            args.filter(|arg| !matches!(arg.expr, Expr::Literal(_)))
                .for_each(|arg| wrap(RANGE, arg));
        }
        "matches" => each(MATCH, call, words),
        "replace" => {
            let text = call.target.as_deref().cloned();
            each(WALK, call, words);
            if let (Some(text), Some(by)) = (text, call.args.get_mut(1)) {
                let own = std::mem::take(by);
                by.id = own.id;
                by.expr = Expr::Call(CallExpr {
                    func_name: REPLACE.to_owned(),
                    target: None,
                    args: vec![text, own],
                });
            }
        }
        _ if name.starts_with(|c: char| c.is_ascii_alphabetic()) => each(WALK, call, words),
        _ => {}
    }
}

fn each(function: &str, call: &mut CallExpr, words: &[&str]) {
    let parts = call.target.as_deref_mut().into_iter().chain(&mut call.args);
    for part in parts.filter(|part| may_be_long(part, words)) {
        wrap(function, part);
    }
}

/// Whether a part may be long because of the record; a name of CEL itself is no value.
fn may_be_long(part: &IdedExpr, words: &[&str]) -> bool {
    match &part.expr {
        Expr::Literal(_) => false,
        Expr::Ident(name) => !words.contains(&name.as_str()),
        Expr::Call(call) => !matches!(
            call.func_name.as_str(),
            "size" | "_-_" | "_*_" | "_/_" | "_%_"
        ),
        _ => true,
    }
}

fn wrap(function: &str, part: &mut IdedExpr) {
    let own = std::mem::take(part);
    part.id = own.id;
    part.expr = Expr::Call(CallExpr {
        func_name: function.to_owned(),
        target: None,
        args: vec![own],
    });
}

/// A part as it was written.
pub(super) fn bare(part: &IdedExpr) -> &IdedExpr {
    match &part.expr {
        Expr::Call(call) if [WALK, MATCH, RANGE].contains(&call.func_name.as_str()) => {
            call.args.first().unwrap_or(part)
        }
        _ => part,
    }
}
