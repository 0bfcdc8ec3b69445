//! What is wrong with a configuration: every fault, with its key and its place.

use std::fmt;

/// One thing to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub place: Place,
    /// The dotted key; empty where the text is not TOML.
    pub key: String,
    /// Why it was refused.
    pub problem: String,
}

/// Where a value was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The line in the file, from 1.
    Line(usize),
    /// The option and environment variable that replaced what the file says.
    Override(&'static str),
}

/// Every fault of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Line(line) => write!(f, "line {line}: ")?,
            Place::Override(name) => return write!(f, "{name}: {}", self.problem),
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.problem)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [fault] => fault.fmt(f),
            faults => {
                write!(f, "{} errors", faults.len())?;
                faults.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
            }
        }
    }
}

/// The keys that make no sense, each with the reason, while a configuration is checked.
#[derive(Debug, Default)]
pub(super) struct Found(pub(super) Vec<(String, String)>);

impl Found {
    pub(super) fn add(&mut self, key: impl Into<String>, problem: impl Into<String>) {
        self.0.push((key.into(), problem.into()));
    }

    /// A check that a value must pass.
    pub(super) fn unless(
        &mut self,
        holds: bool,
        key: impl Into<String>,
        problem: impl FnOnce() -> String,
    ) {
        if !holds {
            self.add(key, problem());
        }
    }
}
