//! `[collections.<short>]`: a kind of record that is kept.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::fault::Found;
use super::rule::{Requires, Rule};

/// One collection.
#[derive(Debug, Clone, Deserialize, Serialize)]
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
    /// The queue in which its records wait when there are too many.
    #[serde(default = "default_queue")]
    pub queue: String,
    /// Written over HTTP by an app; what the network says about it is not of interest.
    #[serde(default)]
    pub direct: bool,
    /// Records of other collections that name this one's, by name: counted and shown with it.
    #[serde(default)]
    pub relations: BTreeMap<String, Relation>,
    /// Dotted paths of the fields that a search looks in.
    #[serde(default)]
    pub searchable: Vec<String>,
    /// Records that this one's name, by name: shown with it.
    #[serde(default)]
    pub references: BTreeMap<String, Reference>,
}

/// A record that a field names.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Short name of the named record's collection.
    pub collection: String,
    /// Dotted path of the field that names it.
    pub field: String,
}

/// Records that name a parent.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Relation {
    /// Short name of the children's collection.
    pub collection: String,
    /// Dotted path of the child's field that names its parent.
    #[serde(default = "subject_uri")]
    pub field: String,
    /// What of the parent it names.
    #[serde(default, rename = "match")]
    pub by: Match,
    /// Whose children count once, however many there are.
    #[serde(default)]
    pub count_distinct: Option<Distinct>,
    /// Dotted path of the child's field by which children are grouped.
    #[serde(default)]
    pub group_by: Option<String>,
    /// Groups by name, with the text that the field holds in each.
    #[serde(default)]
    pub groups: BTreeMap<String, String>,
}

impl Relation {
    /// The condition under which a child is in a group; for `None`, in no group.
    pub fn condition(&self, group: Option<&str>) -> Option<String> {
        let path = self.group_by.as_ref()?;
        let field = format!("record.{path}");
        if let Some(group) = group {
            return Some(format!("{field} == {:?}", self.groups.get(group)?));
        }
        // A field is there only if everything on the way to it is.
        let mut absent = String::new();
        let mut so_far = String::from("record");
        for part in path.split('.') {
            so_far.push('.');
            so_far.push_str(part);
            absent.push_str(&format!("!has({so_far}) || "));
        }
        let texts: Vec<String> = self
            .groups
            .values()
            .map(|text| format!("{text:?}"))
            .collect();
        Some(format!("{absent}!({field} in [{}])", texts.join(", ")))
    }

    fn faults(&self, key: &str, found: &mut Found) {
        let together = self.group_by.is_some() != self.groups.is_empty();
        found.unless(together, format!("{key}.group_by"), || {
            "group_by and groups are set together or not at all".into()
        });
        for name in self.groups.keys() {
            let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric());
            found.unless(plain, format!("{key}.groups"), || {
                format!("{name:?} is not a group's name: letters and digits")
            });
        }
    }
}

/// What of its parent a child names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Match {
    /// Its URI; the id of a record that was written directly.
    #[default]
    Uri,
    /// Its author.
    Did,
}

/// By what children of one parent are told apart when they are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Distinct {
    /// Their authors.
    Did,
}

/// Which field tells a record's time.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(
    untagged,
    expecting = "takes a field name, or false for the moment of first sight"
)]
pub enum TimeField {
    /// A dotted path.
    Path(String),
    /// `false`: the moment of first sight.
    Seen(bool),
}

/// A method of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub enum Method {
    #[serde(rename = "listRecords")]
    ListRecords,
    #[serde(rename = "getRecord")]
    GetRecord,
}

impl Method {
    /// As it is asked for, after the collection's short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::ListRecords => "listRecords",
            Self::GetRecord => "getRecord",
        }
    }
}

/// How a field is compared.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Queryable {
    /// `range` also offers `<field>Min` and `<field>Max`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// What is compared: a caller who types something else is told so. Unless set, the record's value decides.
    #[serde(rename = "as")]
    pub compared: Option<Compared>,
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Compared {
    Text,
    Number,
    Boolean,
    Time,
}

impl Queryable {
    /// Whether it may be asked by least and greatest.
    pub fn ranged(&self) -> bool {
        self.kind.is_some()
    }
}

fn created_at() -> TimeField {
    TimeField::Path("createdAt".into())
}

fn default_queue() -> String {
    super::queue::DEFAULT.into()
}

fn subject_uri() -> String {
    "subject.uri".into()
}

/// Relations and references that name no collection, and NSIDs with two short names.
pub(super) fn faults(collections: &BTreeMap<String, Collection>, found: &mut Found) {
    for (short, collection) in collections {
        let relations = collection.relations.iter();
        for (name, relation) in relations.clone() {
            relation.faults(&format!("collections.{short}.relations.{name}"), found);
        }
        let relations = relations.map(|(name, it)| ("relations", name, &it.collection));
        let references = collection.references.iter();
        let references = references.map(|(name, it)| ("references", name, &it.collection));
        for (table, name, named) in relations.chain(references) {
            let key = format!("collections.{short}.{table}.{name}.collection");
            found.unless(collections.contains_key(named), key, || {
                format!("{named:?} is not a collection's short name")
            });
        }
        let same = |(other, it): &(&String, &Collection)| {
            *other < short && it.collection == collection.collection
        };
        if let Some((other, _)) = collections.iter().find(same) {
            let nsid = &collection.collection;
            let problem = format!(
                "{nsid} has a short name already, {other:?}; a collection has one, so remove one of the two"
            );
            found.add(format!("collections.{short}.collection"), problem);
        }
    }
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

    pub(super) fn faults(&self, short: &str, found: &mut Found) {
        let at = |key: &str| format!("collections.{short}.{key}");
        let mut chars = short.chars();
        let first = chars.next().is_some_and(|c| c.is_ascii_alphabetic());
        let plain = first && chars.all(|c| c.is_ascii_alphanumeric());
        found.unless(plain, format!("collections.{short}"), || {
            "a short name is letters and digits, beginning with a letter".into()
        });
        let is_nsid = record::ids::Nsid::parse(&self.collection).is_ok();
        found.unless(is_nsid, at("collection"), || {
            format!("{:?} is not an NSID", self.collection)
        });
        found.unless(self.time != TimeField::Seen(true), at("time"), || {
            "takes a field name, or false for the moment of first sight".into()
        });
        for (field, queryable) in &self.queryable {
            if let Some(kind) = &queryable.kind {
                found.unless(kind == "range", at(&format!("queryable.{field}")), || {
                    format!("{kind:?} is not a type; leave it out, or use \"range\"")
                });
            }
        }
    }
}
