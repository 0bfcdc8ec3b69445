//! `[[collections.<short>.rule]]` and `requires`: what a record must satisfy
//! beyond its lexicon, and what must be there before it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Collection;
use crate::expression::Expression;

/// One business rule.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Named in the dead letter of a record that breaks it.
    pub name: String,
    /// CEL: the rule is for records for which this is true; for all where absent.
    /// A record for which it cannot be evaluated is not its business.
    pub when: Option<String>,
    /// CEL: what must be true. A record for which it cannot be evaluated breaks the rule.
    pub expect: String,
    /// What to tell the author of a record that breaks it.
    pub message: String,
    /// Dotted path of the field at fault.
    #[serde(default)]
    pub path: String,
    /// Further names: each the record that the field at this path refers to, `null` if it is not here.
    #[serde(default)]
    pub with: BTreeMap<String, String>,
}

/// One thing that must be there before a record of the collection is applied.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Requires {
    /// The record that the field at this path names.
    Path(String),
    /// A record of another collection that says the same as we do.
    Lookup(Lookup),
}

/// `{ path = "expression", in = "segmentation", field = "expression" }`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Lookup {
    /// Dotted path of our field.
    pub path: String,
    /// Short name of the other collection.
    #[serde(rename = "in")]
    pub collection: String,
    /// Dotted path of its field.
    pub field: String,
}

impl Rule {
    /// Compiles `when` and `expect`.
    pub fn compile(&self) -> Result<(Option<Expression>, Expression), (&'static str, String)> {
        let bound: Vec<&str> = self.with.keys().map(String::as_str).collect();
        let compiled = |key, text: &String| {
            Expression::rule(text, &bound).map_err(|error| (key, error.to_string()))
        };
        let when = self
            .when
            .as_ref()
            .map(|text| compiled("when", text))
            .transpose()?;
        Ok((when, compiled("expect", &self.expect)?))
    }

    fn fault(&self) -> Option<(&'static str, String)> {
        if self.name.is_empty() {
            return Some(("name", "must not be empty".into()));
        }
        if self
            .with
            .keys()
            .any(|name| ["record", "did", "rkey"].contains(&name.as_str()))
        {
            return Some(("with", "record, did and rkey are taken".into()));
        }
        self.compile().err()
    }
}

/// The first rule or requirement that makes no sense: its key and why.
pub(super) fn fault(
    short: &str,
    collection: &Collection,
    collections: &BTreeMap<String, Collection>,
) -> Option<(String, String)> {
    let at = |key: String, problem| (format!("collections.{short}.{key}"), problem);
    for (index, rule) in collection.rules.iter().enumerate() {
        if let Some((key, problem)) = rule.fault() {
            return Some(at(format!("rule.{index}.{key}"), problem));
        }
    }
    for requires in &collection.requires {
        let (path, field) = match requires {
            Requires::Path(path) => (path, path),
            Requires::Lookup(lookup) => {
                if !collections.contains_key(&lookup.collection) {
                    let problem =
                        format!("{:?} is not a collection's short name", lookup.collection);
                    return Some(at("requires".into(), problem));
                }
                (&lookup.path, &lookup.field)
            }
        };
        if path.is_empty() || field.is_empty() {
            return Some(at("requires".into(), "a path must not be empty".into()));
        }
    }
    None
}
