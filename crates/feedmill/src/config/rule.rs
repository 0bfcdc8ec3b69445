//! `[[collections.<short>.rule]]` and `requires`: what a record must satisfy
//! beyond its lexicon, and what must be there before it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Collection;
use super::fault::Found;
use super::form::TextOr;
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
///
/// A text is the path of a field that names the record; a table looks for a record of another
/// collection that says the same as we do.
pub type Requires = TextOr<Lookup>;

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

    fn faults(&self, key: &str, found: &mut Found) {
        found.unless(!self.name.is_empty(), format!("{key}.name"), || {
            "must not be empty".into()
        });
        let taken = |name: &String| ["record", "did", "rkey"].contains(&name.as_str());
        found.unless(!self.with.keys().any(taken), format!("{key}.with"), || {
            "record, did and rkey are taken".into()
        });
        if let Err((part, problem)) = self.compile() {
            found.add(format!("{key}.{part}"), problem);
        }
    }
}

/// Rules and requirements that make no sense.
pub(super) fn faults(
    short: &str,
    collection: &Collection,
    collections: &BTreeMap<String, Collection>,
    found: &mut Found,
) {
    for (index, rule) in collection.rules.iter().enumerate() {
        rule.faults(&format!("collections.{short}.rule.{index}"), found);
    }
    for (index, requires) in collection.requires.iter().enumerate() {
        let key = || format!("collections.{short}.requires.{index}");
        let (path, field) = match requires {
            Requires::Text(path) => (path, path),
            Requires::Table(lookup) => {
                let named = &lookup.collection;
                found.unless(collections.contains_key(named), key(), || {
                    format!("{named:?} is not a collection's short name")
                });
                (&lookup.path, &lookup.field)
            }
        };
        found.unless(!path.is_empty() && !field.is_empty(), key(), || {
            "a path must not be empty".into()
        });
    }
}
