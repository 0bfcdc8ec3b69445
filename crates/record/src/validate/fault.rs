//! The fault: where a record breaks its lexicon, and how.
//!
//! Made only when a record is bad, so it may be as wordy as it likes; but it
//! is kept with the dead record, so what it quotes is cut short.

use std::fmt;

use crate::value::Value;

/// Characters quoted from a record.
const QUOTE_CHARS_MAX: usize = 80;

/// The first thing wrong with a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Names of fields and numbers of list items, from the top down.
    pub path: Vec<String>,
    /// What the lexicon asks for.
    pub expected: String,
    /// What stands there.
    pub received: String,
    /// All of it in one line.
    pub message: String,
}

impl Fault {
    /// A fault under construction, made at its place and handed upwards.
    #[cold]
    pub(super) fn new(expected: impl Into<String>, received: impl AsRef<str>) -> Box<Self> {
        Box::new(Self {
            path: Vec::new(),
            expected: expected.into(),
            received: match received.as_ref() {
                "" => "\"\"".to_owned(),
                text => cut(text),
            },
            message: String::new(),
        })
    }

    /// A fault that quotes the value.
    #[cold]
    pub(super) fn of(expected: impl Into<String>, value: &Value<'_>) -> Box<Self> {
        match value {
            Value::Text(text) => Self::new(expected, format!("\"{}\"", cut(text))),
            Value::Int(int) => Self::new(expected, int.to_string()),
            Value::Bool(bool) => Self::new(expected, bool.to_string()),
            other => Self::new(expected, other.kind()),
        }
    }

    /// A fault of kind: only the name of what stands there is told.
    #[cold]
    pub(super) fn kind(expected: impl Into<String>, value: &Value<'_>) -> Box<Self> {
        Self::new(expected, value.kind())
    }

    /// Called on the way up, so the path grows from its end.
    #[cold]
    pub(super) fn under(mut self: Box<Self>, step: impl Into<String>) -> Box<Self> {
        self.path.push(step.into());
        self
    }

    /// Turns the path round and writes the message.
    #[cold]
    pub(super) fn finish(mut self) -> Self {
        self.path.reverse();
        let place = if self.path.is_empty() {
            "record".to_owned()
        } else {
            self.path.join(".")
        };
        self.message = format!(
            "{place}: expected {}, received {}",
            self.expected, self.received
        );
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

fn cut(text: &str) -> String {
    match text.char_indices().nth(QUOTE_CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}
