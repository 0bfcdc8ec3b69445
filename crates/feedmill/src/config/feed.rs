//! `[feeds.<name>]`: where follows come from, which records are targets, and
//! under which keys each target is published.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};

use super::Collection;
use super::fault::Found;
use super::form::{OneOrMany, TextOr};
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
    /// Records of one author and merge key that are merged, the oldest first; each of the others is
    /// an activity of its own.
    #[serde(default = "thing")]
    pub thing_max: NonZeroUsize,
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

/// The collection's short name, or all there is to say.
type FollowForm = TextOr<Follow>;
type TargetForm = TextOr<TargetTable>;

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

/// The collections whose records a Bluesky client shows in a feed.
pub const POST: &str = "app.bsky.feed.post";
pub const REPOST: &str = "app.bsky.feed.repost";

/// How long a group of merged records stays open where the file does not say.
const WINDOW: &str = "2m";

fn table(form: &TargetForm) -> Option<&TargetTable> {
    match form {
        TargetForm::Text(_) => None,
        TargetForm::Table(table) => Some(table),
    }
}

fn follow() -> OneOrMany<FollowForm> {
    OneOrMany::One(FollowForm::Text("follow".into()))
}

fn subject() -> String {
    "subject".into()
}

fn items() -> u32 {
    200
}

/// A thing is read whole when one of its records changes, so this bounds what one author costs.
const THING_MAX: usize = 100_000;

fn thing() -> NonZeroUsize {
    NonZeroUsize::new(1000).expect("it is not zero")
}

fn meant(form: &FollowForm) -> Follow {
    match form {
        FollowForm::Text(collection) => Follow {
            collection: collection.clone(),
            subject: subject(),
        },
        FollowForm::Table(follow) => follow.clone(),
    }
}

impl Feed {
    /// Where follows come from.
    pub fn follows(&self) -> Vec<Follow> {
        match &self.follow {
            OneOrMany::One(form) => vec![meant(form)],
            OneOrMany::Many(forms) => forms.iter().map(meant).collect(),
        }
    }

    /// Where mutes and blocks come from.
    pub fn hides(&self) -> Vec<Follow> {
        self.hide.iter().map(meant).collect()
    }

    /// Which records are delivered.
    pub fn targets(&self) -> Vec<Target> {
        self.targets
            .iter()
            .map(|form| match form {
                TargetForm::Text(collection) => Target {
                    collection: collection.clone(),
                    keys: vec!["author".into()],
                    max_items: self.max_items,
                    condition: None,
                    merge: None,
                    union: Vec::new(),
                    activity: collection.clone(),
                },
                TargetForm::Table(table) => Target {
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

    /// What makes no sense about merging, with the key within the feed.
    fn merge_faults(&self, collections: &BTreeMap<String, Collection>, found: &mut Found) {
        let window = self.window.as_deref().unwrap_or(WINDOW);
        found.unless(span_us(window).is_some(), "window", || {
            "is a number and its unit, such as \"90s\", \"2m\" or \"1h\"".into()
        });
        let few = self.thing_max.get() <= THING_MAX;
        found.unless(few, "thing_max", || "must lie between 1 and 100000".into());
        let tables = || self.targets.iter().filter_map(table);
        if tables().any(|table| table.merge.is_some()) {
            found.unless(!self.mixed, "mixed", || {
                "a merged feed is one order already; leave it out".into()
            });
            found.unless(
                tables().all(|table| table.max_items.is_none()),
                "targets",
                || "a merged feed has one max_items, its own".into(),
            );
            if let Some(shown) = &self.activity {
                shown.faults(collections, found);
            }
            return;
        }
        for (key, is_set) in [
            ("window", self.window.is_some()),
            ("activity", self.activity.is_some()),
        ] {
            found.unless(!is_set, key, || "needs a target with `merge`".into());
        }
        let names = |table: &TargetTable| !table.union.is_empty() || table.activity.is_some();
        found.unless(!tables().any(names), "targets", || {
            "union and activity need a target with `merge`".into()
        });
    }

    /// Other keys for some records, in order.
    pub fn rules(&self) -> &[KeyRule] {
        &self.rules
    }

    /// Expressions that cannot be used, with the key within the feed.
    fn expression_faults(&self, found: &mut Found) {
        for (index, rule) in self.rules.iter().enumerate() {
            found.unless(!rule.keys.is_empty(), format!("rule.{index}.keys"), || {
                "names no key".into()
            });
            if let Err(error) = Expression::condition(&rule.when) {
                found.add(format!("rule.{index}.when"), error.to_string());
            }
        }
        for (index, target) in self.targets().iter().enumerate() {
            let condition = target.condition.as_deref();
            if let Some(Err(error)) = condition.map(Expression::condition) {
                found.add(format!("targets.{index}.where"), error.to_string());
            }
        }
    }

    /// What a Bluesky client cannot show of a feed that it is to show.
    fn publish_faults(&self, collections: &BTreeMap<String, Collection>, found: &mut Found) {
        let Some(uri) = &self.publish_as else {
            return;
        };
        let record = uri.strip_prefix("at://did:");
        if !record.is_some_and(|rest| rest.contains("/app.bsky.feed.generator/")) {
            let example = "at://did:plc:abc/app.bsky.feed.generator/name";
            let problem = format!("{uri:?} is not a URI such as {example:?}");
            found.add("publish_as", problem);
        }
        if self.window_us().is_some() {
            let problem = "a Bluesky client shows posts and reposts, and this feed is merged";
            found.add("publish_as", problem);
            return;
        }
        // A feed that is not mixed shows its first target there.
        let count = if self.mixed { usize::MAX } else { 1 };
        for target in self.targets().iter().take(count) {
            let Some(collection) = collections.get(&target.collection) else {
                continue; // said of `targets`
            };
            let nsid = collection.collection.as_str();
            found.unless([POST, REPOST].contains(&nsid), "publish_as", || {
                format!("a Bluesky client shows {POST} and {REPOST}, and this feed shows {nsid}")
            });
        }
    }

    pub(super) fn faults(
        &self,
        name: &str,
        collections: &BTreeMap<String, Collection>,
        found: &mut Found,
    ) {
        let mut within = Found::default();
        self.publish_faults(collections, &mut within);
        self.name_faults(collections, &mut within);
        self.expression_faults(&mut within);
        self.merge_faults(collections, &mut within);
        for (key, problem) in within.0 {
            found.add(format!("feeds.{name}.{key}"), problem);
        }
    }

    /// Collections that are not there, and targets that show nothing.
    fn name_faults(&self, collections: &BTreeMap<String, Collection>, found: &mut Found) {
        let unknown = |short: &str| {
            let known: Vec<&str> = collections.keys().map(String::as_str).collect();
            let known = known.join(", ");
            format!("{short:?} is not a collection's short name ({known})")
        };
        found.unless(!self.targets.is_empty(), "targets", || {
            "names no collection".into()
        });
        for (key, follows) in [("follow", self.follows()), ("hide", self.hides())] {
            for follow in follows {
                let short = &follow.collection;
                found.unless(collections.contains_key(short), key, || unknown(short));
            }
        }
        let targets = self.targets();
        for (index, target) in targets.iter().enumerate() {
            let short = &target.collection;
            let mut before = targets.iter().take(index);
            found.unless(
                before.all(|other| other.collection != *short),
                "targets",
                || {
                    format!(
                        "names {short:?} twice; name it once with all its keys, \
                         and give some records other keys by `rule`"
                    )
                },
            );
            found.unless(collections.contains_key(short), "targets", || {
                unknown(short)
            });
            found.unless(!target.keys.is_empty(), "targets", || {
                format!("{short:?} is published under no key")
            });
            found.unless(
                (1..=100_000).contains(&target.max_items),
                "max_items",
                || "must lie between 1 and 100000".into(),
            );
        }
    }
}
