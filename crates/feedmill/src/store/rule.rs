//! Business rules, compiled: what must be true of a record beyond its lexicon.
//!
//! In:    a record, and for some rules the records it refers to.
//! Out:   nothing, or what a dead letter says about the first broken rule.
//! Never: a rule that passes because it could not be evaluated.
//!
//! Rules over the record alone are held when it is checked. Those that bind
//! other records (`with`) can only be held where those records are: in the
//! transaction that applies it.

use record::value::Value;

use super::batch::DeadLetter;
use crate::config;
use crate::expression::failing::Failing;
use crate::expression::{Expression, Scope, Unsure};

/// Characters of the received value that a dead letter repeats.
const RECEIVED_CHARS_MAX: usize = 200;

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub name: String,
    when: Option<Expression>,
    expect: Expression,
    message: String,
    path: String,
    /// Further names, each with the path of the field that refers to its record.
    pub with: Vec<(String, String)>,
}

impl Rule {
    /// The rule of a configuration; `None` for one that a checked configuration cannot hold.
    pub fn new(rule: &config::rule::Rule) -> Option<Self> {
        let (when, expect) = rule.compile().ok()?;
        Some(Self {
            name: rule.name.clone(),
            when,
            expect,
            message: rule.message.clone(),
            path: rule.path.clone(),
            with: rule
                .with
                .iter()
                .map(|(name, path)| (name.clone(), path.clone()))
                .collect(),
        })
    }

    /// Whether it binds records that ours refers to.
    pub fn is_linked(&self) -> bool {
        !self.with.is_empty()
    }

    /// What is wrong with a record, if the rule is for it and it breaks it.
    pub fn broken(&self, scope: &Scope, record: &Value<'_>) -> Option<DeadLetter> {
        if let Some(when) = &self.when
            && when.holds(scope) != Ok(true)
        {
            return None;
        }
        let held = self.expect.holds(scope);
        let failing = match held {
            // To look for the part at fault would cost as much again.
            Ok(true) | Err(Unsure::TooCostly | Unsure::FrameTooCostly) => Failing::default(),
            _ => self.expect.failing(scope),
        };
        let message = match held {
            Ok(true) => return None,
            Ok(false) => self.message.clone(),
            Err(unsure) => format!(
                "{} (the rule could not be evaluated: {unsure})",
                self.message
            ),
        };
        let own = self.path.split('.').filter(|step| !step.is_empty());
        let path = failing
            .path
            .unwrap_or_else(|| own.map(str::to_owned).collect());
        Some(DeadLetter {
            received: received(record, &path),
            stage: "rule".into(),
            rule: self.name.clone(),
            message,
            path,
            expected: failing
                .expected
                .unwrap_or_else(|| self.expect.text().to_owned()),
            ..DeadLetter::default()
        })
    }
}

/// The value at a path, in which a number is the index of an element.
fn received(record: &Value<'_>, path: &[String]) -> String {
    let mut at = Some(record);
    for step in path {
        at = at.and_then(|value| match value {
            Value::List(items) => items.get(step.parse::<usize>().ok()?),
            Value::Map(fields) => fields
                .iter()
                .find(|(name, _)| *name == **step)
                .map(|(_, it)| it),
            _ => None,
        });
    }
    let Some(value) = at else {
        return "nothing".into();
    };
    let mut text = String::new();
    record::json::to_json(value, &mut text);
    text.chars().take(RECEIVED_CHARS_MAX).collect()
}
