//! A fault: the path and the reason why a record is invalid.
//!
//! Faults are rare, so their messages may be long; but they are stored with dead
//! letters, so quoted values are truncated.

use std::fmt;

use crate::value::Value;

/// Characters quoted from a record.
const QUOTE_CHARS_MAX: usize = 80;

/// The first violation found in a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Names of fields and indexes of lists, from the top down.
    pub path: Vec<String>,
    /// The constraint of the lexicon.
    pub expected: String,
    /// The value in the record.
    pub received: String,
    /// Path, constraint and value in one line.
    pub message: String,
}

impl Fault {
    /// A fault without its path, which callers add.
    #[cold]
    pub(super) fn new(expected: impl Into<String>, received: impl AsRef<str>) -> Box<Self> {
        Box::new(Self {
            path: Vec::new(),
            expected: expected.into(),
            received: match received.as_ref() {
                "" => "\"\"".to_owned(),
                text => truncate(text),
            },
            message: String::new(),
        })
    }

    /// A fault that quotes the value.
    #[cold]
    pub(super) fn of(expected: impl Into<String>, value: &Value<'_>) -> Box<Self> {
        match value {
            Value::Text(text) => Self::new(expected, format!("\"{}\"", truncate(text))),
            Value::Int(int) => Self::new(expected, int.to_string()),
            Value::Bool(bool) => Self::new(expected, bool.to_string()),
            other => Self::new(expected, other.kind()),
        }
    }

    /// A fault that names only the type of the value.
    #[cold]
    pub(super) fn kind(expected: impl Into<String>, value: &Value<'_>) -> Box<Self> {
        Self::new(expected, value.kind())
    }

    /// Adds a step to the path. Callers add theirs last, so the path is reversed.
    #[cold]
    pub(super) fn under(mut self: Box<Self>, step: impl Into<String>) -> Box<Self> {
        self.path.push(step.into());
        self
    }

    /// Puts the path in order and writes the message.
    #[cold]
    pub(super) fn finish(mut self) -> Self {
        self.path.reverse();
        let path = if self.path.is_empty() {
            "record".to_owned()
        } else {
            self.path.join(".")
        };
        self.message = format!(
            "{path}: expected {}, received {}",
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

fn truncate(text: &str) -> String {
    match text.char_indices().nth(QUOTE_CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}
