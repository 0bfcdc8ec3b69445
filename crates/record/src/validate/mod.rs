//! Validation: checking a record against the lexicon of its collection.
//!
//! In:    a collection's name and a record.
//! Out:   nothing, or the first [`Fault`] with its path in the record.
//! Never: a panic, an allocation for a valid record, recursion deeper than
//!        [`DEPTH_MAX`], a change to the record.
//!
//! Values that are not described are accepted: unknown fields, members of open
//! unions that were not loaded, objects of type `unknown`. They are checked
//! against the data model only, so every valid record can be written as JSON and
//! read as the same record again. Known values and defaults are hints for
//! clients and are not checked.

mod fault;
mod scalar;
mod walk;

pub use fault::Fault;

use crate::json::DEPTH_MAX;
use crate::lexicon::Catalog;
use crate::value::Value;
use walk::Walk;

impl Catalog {
    /// Checks a record of the collection `nsid`. Without a lexicon for it no
    /// record is valid; where that can happen, call [`Catalog::describes`] first.
    pub fn validate(&self, nsid: &str, record: &Value<'_>) -> Result<(), Fault> {
        let Some(collection) = self.collection(nsid) else {
            return Err(Fault::new("a collection with a lexicon", nsid).finish());
        };
        match record.get("$type") {
            Some(Value::Text(name)) if *name == *nsid => {}
            Some(other) => {
                let expected = format!("\"{nsid}\"");
                return Err(Fault::of(expected, other).under("$type").finish());
            }
            None if matches!(record, Value::Map(_)) => {
                let expected = format!("\"{nsid}\"");
                return Err(Fault::new(expected, "nothing").under("$type").finish());
            }
            None => return Err(Fault::of("object", record).finish()),
        }
        Walk { catalog: self }
            .check(collection.node, record, DEPTH_MAX)
            .map_err(|fault| fault.finish())
    }

    /// Checks the key of a record against the key type of its collection.
    pub fn validate_key(&self, nsid: &str, rkey: &str) -> Result<(), Fault> {
        match self.key_type(nsid) {
            Some(key) if key.accepts(rkey) => Ok(()),
            Some(key) => Err(Fault::new(format!("record key of type {key}"), rkey).finish()),
            None => Err(Fault::new("a collection with a lexicon", nsid).finish()),
        }
    }

    /// Checks a value against any definition, such as `app.bsky.feed.defs#postView`.
    pub fn validate_def(&self, name: &str, value: &Value<'_>) -> Result<(), Fault> {
        let Some(node) = self.def(name) else {
            return Err(Fault::new("a definition in a loaded lexicon", name).finish());
        };
        Walk { catalog: self }
            .check(node, value, DEPTH_MAX)
            .map_err(|fault| fault.finish())
    }

    /// Checks the output of a query or procedure.
    pub fn validate_output(&self, nsid: &str, body: &Value<'_>) -> Result<(), Fault> {
        let Some(node) = self.method(nsid).and_then(|method| method.output) else {
            return Err(Fault::new("a method with a described output", nsid).finish());
        };
        Walk { catalog: self }
            .check(node, body, DEPTH_MAX)
            .map_err(|fault| fault.finish())
    }

    /// Checks the input of a procedure.
    pub fn validate_input(&self, nsid: &str, body: &Value<'_>) -> Result<(), Fault> {
        let Some(node) = self.method(nsid).and_then(|method| method.input) else {
            return Err(Fault::new("a method with a described input", nsid).finish());
        };
        Walk { catalog: self }
            .check(node, body, DEPTH_MAX)
            .map_err(|fault| fault.finish())
    }
}

/// Checks a value against the data model alone: for collections without a
/// lexicon.
pub fn check_model(value: &Value<'_>) -> Result<(), Fault> {
    walk::model(value, DEPTH_MAX).map_err(|fault| fault.finish())
}
