//! `[collections.<short>]`: a kind of record that is kept.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::rule::{Requires, Rule};

/// One collection.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Collection {
    /// The NSID of its records.
    pub collection: String,
    /// The field that holds a record's time; `false` in the file means first sight.
    #[serde(default = "created_at")]
    pub time: TimeField,
    /// Check records against their lexicon. A collection without a lexicon is an error at start.
    #[serde(default = "yes")]
    pub validate: bool,
    /// Methods served for it.
    #[serde(default = "both")]
    pub methods: Vec<Method>,
    /// Fields that may be filtered and sorted by.
    #[serde(default)]
    pub queryable: BTreeMap<String, Queryable>,
    /// Dotted paths of further fields that refer to records, beside those the lexicon shows.
    #[serde(default)]
    pub links: Vec<String>,
    /// What must be true of its records, beyond their lexicon.
    #[serde(default, rename = "rule")]
    pub rules: Vec<Rule>,
    /// What must be there before one of its records is applied.
    #[serde(default)]
    pub requires: Vec<Requires>,
}

/// Which field tells a record's time.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum TimeField {
    /// A dotted path.
    Path(String),
    /// `false`: the moment of first sight.
    Seen(bool),
}

/// A method of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Method {
    #[serde(rename = "listRecords")]
    ListRecords,
    #[serde(rename = "getRecord")]
    GetRecord,
}

/// How a field is compared.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Queryable {
    /// `range` also offers `<field>Min` and `<field>Max`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
}

fn created_at() -> TimeField {
    TimeField::Path("createdAt".into())
}

fn yes() -> bool {
    true
}

fn both() -> Vec<Method> {
    vec![Method::ListRecords, Method::GetRecord]
}

impl Collection {
    /// The dotted path of the time field, if it has one.
    pub fn time_path(&self) -> Option<&str> {
        match &self.time {
            TimeField::Path(path) => Some(path),
            TimeField::Seen(_) => None,
        }
    }

    pub(super) fn fault(&self, short: &str) -> Option<(String, String)> {
        let at = |key: &str, problem: String| Some((format!("collections.{short}.{key}"), problem));
        let mut chars = short.chars();
        let first = chars.next().is_some_and(|c| c.is_ascii_alphabetic());
        if !first || !chars.all(|c| c.is_ascii_alphanumeric()) {
            return Some((
                format!("collections.{short}"),
                "a short name is letters and digits, beginning with a letter".into(),
            ));
        }
        if record::ids::Nsid::parse(&self.collection).is_err() {
            return at(
                "collection",
                format!("{:?} is not an NSID", self.collection),
            );
        }
        if self.time == TimeField::Seen(true) {
            return at(
                "time",
                "takes a field name, or false for the moment of first sight".into(),
            );
        }
        for (field, queryable) in &self.queryable {
            if let Some(kind) = &queryable.kind
                && kind != "range"
            {
                return at(
                    &format!("queryable.{field}"),
                    format!("{kind:?} is not a type; leave it out, or use \"range\""),
                );
            }
        }
        None
    }
}
