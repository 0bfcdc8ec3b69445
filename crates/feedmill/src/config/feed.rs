//! `[feeds.<name>]`: where follows come from, which records are targets, and
//! under which keys each target is published.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Collection;
use super::merge::{Shown, span_us};
use crate::expression::Expression;

/// One feed as it was typed; [`Feed::follows`] and [`Feed::targets`] say what it means.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Feed {
    #[serde(default = "follow")]
    follow: OneOrMany<FollowForm>,
    targets: Vec<TargetForm>,
    /// Entries held in memory per reader and target, unless a target says otherwise.
    #[serde(default = "items")]
    max_items: u32,
    /// What lies beyond `max_items`: the store, or the end of the feed.
    #[serde(default)]
    pub beyond: Beyond,
    /// The reader's own records are in the feed.
    #[serde(default)]
    pub include_self: bool,
    /// One order over all targets, instead of one target per request.
    #[serde(default)]
    pub mixed: bool,
    /// Collections of mutes and blocks: records whose subject the reader hides.
    #[serde(default)]
    hide: Vec<FollowForm>,
    /// The first whose `when` is true replaces a record's keys.
    #[serde(default, rename = "rule")]
    rules: Vec<KeyRule>,
    /// How long a group of merged records stays open after its first, e.g. `2m`.
    #[serde(default)]
    window: Option<String>,
    /// How merged records are shown.
    #[serde(default)]
    pub activity: Option<Shown>,
    /// The URI of the `app.bsky.feed.generator` record under which Bluesky clients know it.
    #[serde(default)]
    pub publish_as: Option<String>,
}

/// `[[feeds.<name>.rule]]`: other keys for some records.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRule {
    /// CEL; a record for which it cannot be evaluated does not match.
    pub when: String,
    /// `author`, or dotted paths.
    pub keys: Vec<String>,
}

/// What a reader meets after `max_items` entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Beyond {
    /// The feed goes on to the very first record.
    #[default]
    Store,
    /// Each target shows its newest `max_items` visible records.
    End,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    // The list first: a table can be read from a list of its values too, and would be.
    Many(Vec<T>),
    One(T),
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(untagged)]
enum FollowForm {
    Short(String),
    Full(Follow),
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(untagged)]
enum TargetForm {
    Short(String),
    Full(TargetTable),
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct TargetTable {
    collection: String,
    keys: Option<Vec<String>>,
    max_items: Option<u32>,
    #[serde(rename = "where")]
    condition: Option<String>,
    merge: Option<String>,
    #[serde(default)]
    union: Vec<String>,
    activity: Option<String>,
}

/// A collection whose records are follows (or mutes): the author follows what `subject` names.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Follow {
    /// Short name of the collection.
    pub collection: String,
    /// Dotted path of the followed key.
    #[serde(default = "subject")]
    pub subject: String,
}

/// A collection whose records are delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Short name of the collection.
    pub collection: String,
    /// `author`, or dotted paths of fields that name a key.
    pub keys: Vec<String>,
    /// Entries held in memory per reader.
    pub max_items: u32,
    /// CEL: only records for which it is true are delivered.
    pub condition: Option<String>,
    /// Records of one author with the same value here are merged: `uri`, which is the record's
    /// own, or a dotted path.
    pub merge: Option<String>,
    /// Dotted paths of what a record adds to its activity.
    pub union: Vec<String>,
    /// The type of its activities in a merged feed.
    pub activity: String,
}

/// How long a group of merged records stays open where the file does not say.
const WINDOW: &str = "2m";

fn follow() -> OneOrMany<FollowForm> {
    OneOrMany::One(FollowForm::Short("follow".into()))
}

fn subject() -> String {
    "subject".into()
}

fn items() -> u32 {
    200
}

impl FollowForm {
    fn meant(&self) -> Follow {
        match self {
            Self::Short(collection) => Follow {
                collection: collection.clone(),
                subject: subject(),
            },
            Self::Full(follow) => follow.clone(),
        }
    }
}

impl Feed {
    /// Where follows come from.
    pub fn follows(&self) -> Vec<Follow> {
        match &self.follow {
            OneOrMany::One(form) => vec![form.meant()],
            OneOrMany::Many(forms) => forms.iter().map(FollowForm::meant).collect(),
        }
    }

    /// Where mutes and blocks come from.
    pub fn hides(&self) -> Vec<Follow> {
        self.hide.iter().map(FollowForm::meant).collect()
    }

    /// Which records are delivered.
    pub fn targets(&self) -> Vec<Target> {
        self.targets
            .iter()
            .map(|form| match form {
                TargetForm::Short(collection) => Target {
                    collection: collection.clone(),
                    keys: vec!["author".into()],
                    max_items: self.max_items,
                    condition: None,
                    merge: None,
                    union: Vec::new(),
                    activity: collection.clone(),
                },
                TargetForm::Full(table) => Target {
                    collection: table.collection.clone(),
                    keys: table.keys.clone().unwrap_or_else(|| vec!["author".into()]),
                    max_items: table.max_items.unwrap_or(self.max_items),
                    condition: table.condition.clone(),
                    merge: table.merge.clone(),
                    union: table.union.clone(),
                    activity: table.activity.as_ref().unwrap_or(&table.collection).clone(),
                },
            })
            .collect()
    }

    /// The window of a merged feed; `None` if nothing is merged in it.
    pub fn window_us(&self) -> Option<i64> {
        let merged = self.targets().iter().any(|target| target.merge.is_some());
        let window = self.window.as_deref().unwrap_or(WINDOW);
        span_us(window).filter(|_| merged)
    }

    /// Entries held in memory for a reader of a merged feed.
    pub fn items_max(&self) -> u32 {
        self.max_items
    }

    /// What makes no sense about merging, with its key.
    fn merge_fault(&self, collections: &BTreeMap<String, Collection>) -> Option<(String, String)> {
        let at = |key: &str, problem: &str| Some((key.to_owned(), problem.to_owned()));
        let window = self.window.as_deref().unwrap_or(WINDOW);
        if span_us(window).is_none() {
            return at(
                "window",
                "is a number and its unit, such as \"90s\", \"2m\" or \"1h\"",
            );
        }
        if self.window_us().is_some() {
            if self.mixed {
                return at("mixed", "a merged feed is one order already; leave it out");
            }
            let tables = self.targets.iter();
            let capped = |form: &TargetForm| matches!(form, TargetForm::Full(table) if table.max_items.is_some());
            if tables.into_iter().any(capped) {
                return at("targets", "a merged feed has one max_items, its own");
            }
            let (key, problem) = self.activity.as_ref()?.fault(collections)?;
            return Some((format!("activity.{key}"), problem));
        }
        if self.window.is_some() || self.activity.is_some() {
            let key = if self.window.is_some() {
                "window"
            } else {
                "activity"
            };
            return at(key, "needs a target with `merge`");
        }
        let named = |form: &TargetForm| matches!(form, TargetForm::Full(table) if !table.union.is_empty() || table.activity.is_some());
        self.targets.iter().any(named).then(|| {
            let problem = "union and activity need a target with `merge`";
            ("targets".to_owned(), problem.to_owned())
        })
    }

    /// Other keys for some records, in order.
    pub fn rules(&self) -> &[KeyRule] {
        &self.rules
    }

    /// The first expression that cannot be used, with its key.
    fn expression_fault(&self) -> Option<(String, String)> {
        for (index, rule) in self.rules.iter().enumerate() {
            if rule.keys.is_empty() {
                return Some((format!("rule.{index}.keys"), "names no key".into()));
            }
            if let Err(error) = Expression::condition(&rule.when) {
                return Some((format!("rule.{index}.when"), error.to_string()));
            }
        }
        self.targets()
            .iter()
            .enumerate()
            .find_map(|(index, target)| {
                let error = Expression::condition(target.condition.as_ref()?).err()?;
                Some((format!("targets.{index}.where"), error.to_string()))
            })
    }

    pub(super) fn fault(
        &self,
        name: &str,
        collections: &BTreeMap<String, Collection>,
    ) -> Option<(String, String)> {
        let known = || {
            let names: Vec<&str> = collections.keys().map(String::as_str).collect();
            names.join(", ")
        };
        let at = |key: &str, problem: String| Some((format!("feeds.{name}.{key}"), problem));
        if let Some(uri) = &self.publish_as {
            let record = uri.strip_prefix("at://did:");
            if !record.is_some_and(|rest| rest.contains("/app.bsky.feed.generator/")) {
                let example = "at://did:plc:abc/app.bsky.feed.generator/name";
                return at(
                    "publish_as",
                    format!("{uri:?} is not a URI such as {example:?}"),
                );
            }
        }
        if self.targets.is_empty() {
            return at("targets", "names no collection".into());
        }
        for (key, follows) in [("follow", self.follows()), ("hide", self.hides())] {
            for follow in follows {
                if !collections.contains_key(&follow.collection) {
                    let short = follow.collection;
                    return at(
                        key,
                        format!("{short:?} is not a collection's short name ({})", known()),
                    );
                }
            }
        }
        for target in self.targets() {
            let short = &target.collection;
            if !collections.contains_key(short) {
                return at(
                    "targets",
                    format!("{short:?} is not a collection's short name ({})", known()),
                );
            }
            if target.keys.is_empty() {
                return at("targets", format!("{short:?} is published under no key"));
            }
            if target.max_items == 0 || target.max_items > 100_000 {
                return at("max_items", "must lie between 1 and 100000".into());
            }
        }
        self.expression_fault()
            .or_else(|| self.merge_fault(collections))
            .and_then(|(key, problem)| at(&key, problem))
    }
}
