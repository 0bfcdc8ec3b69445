//! What must be there before a record is applied.
//!
//! In:    a record.
//! Out:   the keys it waits for, and the keys that its own arrival releases.
//! Never: a need that names a collection nobody keeps: it could not be met.
//!
//! A key is the URI of a record, or `<collection> <field>=<value>` for any
//! record of that collection which says so.

use std::collections::BTreeMap;

use record::links;
use record::value::Value;

use crate::config::Config;
use crate::config::rule::Requires;

/// Keys of one record that are looked at.
const KEYS_MAX: usize = 1000;

/// One requirement of a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    Record {
        path: String,
    },
    Lookup {
        path: String,
        nsid: String,
        field: String,
    },
}

/// Something a record waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// The path of our field.
    pub path: String,
    /// What it names.
    pub target: Target,
}

/// What can be waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The live record of this URI.
    Record(String),
    /// A live record of a collection with this value at that path.
    Like {
        nsid: String,
        field: String,
        value: String,
    },
}

impl Target {
    /// The key under which a record waits for it.
    pub fn key(&self) -> String {
        match self {
            Self::Record(uri) => uri.clone(),
            Self::Like { nsid, field, value } => format!("{nsid} {field}={value}"),
        }
    }
}

/// The requirements of all collections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    by_nsid: BTreeMap<String, Vec<Requirement>>,
    /// Fields by which records of a collection are looked up.
    looked_up: BTreeMap<String, Vec<String>>,
    kept: Vec<String>,
}

impl Needs {
    /// The requirements of a checked configuration.
    pub fn new(config: &Config) -> Self {
        let mut needs = Self {
            kept: config
                .collections
                .values()
                .map(|kept| kept.collection.clone())
                .collect(),
            ..Self::default()
        };
        for collection in config.collections.values() {
            for requires in &collection.requires {
                let requirement = match requires {
                    Requires::Text(path) => Requirement::Record { path: path.clone() },
                    Requires::Table(lookup) => {
                        let Some(nsid) = config.nsid(&lookup.collection) else {
                            continue;
                        };
                        let fields = needs.looked_up.entry(nsid.to_owned()).or_default();
                        fields.push(lookup.field.clone());
                        Requirement::Lookup {
                            path: lookup.path.clone(),
                            nsid: nsid.to_owned(),
                            field: lookup.field.clone(),
                        }
                    }
                };
                let of = needs
                    .by_nsid
                    .entry(collection.collection.clone())
                    .or_default();
                of.push(requirement);
            }
        }
        needs
    }

    /// Whether any collection requires anything.
    pub fn is_empty(&self) -> bool {
        self.by_nsid.is_empty()
    }

    /// Whether records of this collection may have to wait.
    pub fn may_wait(&self, nsid: &str) -> bool {
        self.by_nsid.contains_key(nsid)
    }

    /// Fields by which records of this collection are looked up.
    pub fn fields(&self, nsid: &str) -> &[String] {
        self.looked_up.get(nsid).map_or(&[], Vec::as_slice)
    }

    /// What a record needs. A field that is absent, or names a record of a
    /// collection that is not kept, needs nothing.
    pub fn of(&self, nsid: &str, value: &Value<'_>) -> Vec<Need> {
        let mut found = Vec::new();
        for requirement in self.by_nsid.get(nsid).into_iter().flatten() {
            let (Requirement::Record { path } | Requirement::Lookup { path, .. }) = requirement;
            links::along(value, path, &mut |path, text| {
                let target = match requirement {
                    Requirement::Record { .. } => {
                        let collection = text.split('/').nth(3).unwrap_or_default();
                        if !self.kept.iter().any(|kept| kept == collection) {
                            return;
                        }
                        Target::Record(text.to_owned())
                    }
                    Requirement::Lookup { nsid, field, .. } => Target::Like {
                        nsid: nsid.clone(),
                        field: field.clone(),
                        value: text.to_owned(),
                    },
                };
                if found.len() < KEYS_MAX {
                    found.push(Need {
                        path: path.to_owned(),
                        target,
                    });
                }
            });
        }
        found
    }

    /// The keys that the arrival of a record releases.
    pub fn released_by(&self, nsid: &str, uri: &str, value: Option<&Value<'_>>) -> Vec<String> {
        let mut keys = vec![uri.to_owned()];
        for field in self.fields(nsid) {
            let Some(value) = value else { break };
            links::along(value, field, &mut |_, text| {
                if keys.len() < KEYS_MAX {
                    keys.push(
                        Target::Like {
                            nsid: nsid.to_owned(),
                            field: field.clone(),
                            value: text.to_owned(),
                        }
                        .key(),
                    );
                }
            });
        }
        keys
    }
}
