//! Merged feeds, resolved: which records form groups, and how they are shown.
//!
//! In:    the configuration of a feed whose targets have `merge`; then records.
//! Out:   for each record, the group it belongs to and what it brings there.
//! Never: a part that depends on another record.
//!
//! A merged feed has one lane for all its targets. Records are not in it
//! themselves: groups of them are, each under the keys of all its members.

use std::collections::{BTreeMap, BTreeSet};

use record::value::Value;

use crate::config::Config;
use crate::config::feed::Feed;
use crate::config::merge::Shown;
use crate::expression::Scope;

use super::page::Row;
use super::plan::{Lane, LaneId, Plan};

/// A merged feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    pub lane: LaneId,
    pub window_us: i64,
    pub shown: Shown,
    /// Where each filter reads.
    pub readings: BTreeMap<String, Through>,
    /// The activity's type by the collection of its first record.
    pub types: BTreeMap<String, String>,
}

/// One target of a merged feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MergedTarget {
    pub(super) lane: LaneId,
    pub(super) window_us: i64,
    pub(super) thing_max: usize,
    /// Which records, under which keys.
    pub(super) rule: Lane,
    pub(super) merge: String,
    pub(super) union: Vec<String>,
}

/// What one record brings to a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub lane: LaneId,
    pub window_us: i64,
    /// Records of one author and merge key that are merged.
    pub thing_max: usize,
    /// The record's collection.
    pub nsid: String,
    /// The key of whoever wrote it.
    pub author: String,
    /// The merge key; `None` is the record's own URI.
    pub merge: Option<String>,
    pub keys: Vec<String>,
    pub union: Vec<String>,
}

/// One entry of a merged feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activity {
    /// The record it begins with.
    pub first: Row,
    /// The URIs of its members, first to last.
    pub members: Vec<String>,
    /// Whether there are more members than are named.
    pub is_cut: bool,
    /// The key of whoever wrote them.
    pub author: String,
    /// What they add, each once, in the order first seen.
    pub union: Vec<String>,
    /// What they are about.
    pub merge: String,
}

/// Bytes of the records that one activity shows of its union.
pub const UNION_RECORDS_BYTES_MAX: usize = 256 << 10;

/// What the activities of a page name beside themselves, read in the page's own snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    /// Subjects and unions by URI; a record that is not here is absent.
    pub records: BTreeMap<String, Row>,
    /// Records of unions that are here, and too large to be shown.
    pub omitted: BTreeSet<String>,
    /// Handles of authors by DID, as far as they are known.
    pub handles: BTreeMap<String, String>,
}

/// Where a filter reads in the subject of an activity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Through {
    /// The one collection whose records have the field; `None`: any.
    pub of: Option<String>,
    /// Dotted path within the subject.
    pub path: String,
    /// What a subject without the field counts as.
    pub absent: Option<String>,
}

/// The subject of an activity, opened.
#[derive(Debug)]
pub struct Opened<'a> {
    collection: &'a str,
    value: Option<Value<'a>>,
}

impl Activity {
    /// Whether it is about the record that it begins with.
    pub fn is_about_itself(&self) -> bool {
        self.merge == self.first.uri
    }

    /// The record that it is about, if it is here.
    pub fn subject<'a>(&'a self, named: &'a Named) -> Option<&'a Row> {
        match self.is_about_itself() {
            true => Some(&self.first),
            false => named.records.get(&self.merge),
        }
    }
}

impl<'a> Opened<'a> {
    /// Opens a subject. One that is not here has no fields.
    pub fn new(subject: Option<&'a Row>) -> Self {
        Self {
            collection: subject.map_or("", |row| &row.collection),
            value: subject.and_then(|row| record::json::from_json(&row.body).ok()),
        }
    }
}

impl Opened<'_> {
    /// What a filter finds here.
    pub fn read<'o>(&'o self, through: &'o Through) -> Option<&'o str> {
        let has = |of: &String| of == self.collection;
        let value = self.value.as_ref();
        let found = value.filter(|_| through.of.as_ref().is_none_or(has));
        let text = found.and_then(|value| value.at(&through.path)?.text());
        text.or(through.absent.as_deref())
    }
}

/// Which activities are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActivityFilter {
    /// Collections of the first record; `None`: any.
    pub first: Option<Vec<String>>,
    /// Where it reads, and the value that must be found there.
    pub through: Vec<(Through, String)>,
}

impl ActivityFilter {
    /// Whether it lets everything through.
    pub fn is_empty(&self) -> bool {
        self.first.is_none() && self.through.is_empty()
    }

    /// Whether it lets activities through that begin with a record of this collection.
    pub fn admits_first(&self, nsid: &str) -> bool {
        let first = self.first.as_ref();
        first.is_none_or(|wanted| wanted.iter().any(|it| it == nsid))
    }

    /// Whether it lets an activity about this subject through.
    pub fn admits(&self, subject: Option<&Row>) -> bool {
        let opened = Opened::new(subject);
        let mut through = self.through.iter();
        through.all(|(through, value)| opened.read(through) == Some(value))
    }
}

/// A page of activities, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActivityPage {
    pub activities: Vec<Activity>,
    pub named: Named,
    /// Where the next page begins; `None` only when everything was seen.
    pub next: Option<super::page::Position>,
    /// How many there are in all, if that was asked and could be counted within `scan_max`.
    pub total: Option<usize>,
}

/// Which page of a merged feed.
#[derive(Debug, Clone)]
pub struct ActivityQuery {
    /// Whose, from where, how many; its one lane is the merged one.
    pub feed: super::page::FeedQuery,
    pub filter: ActivityFilter,
    /// Activities passed over first.
    pub skip: usize,
    pub count: bool,
}

/// What a lane decides about one record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Judged {
    /// The condition that does not hold for it.
    pub fails: Option<String>,
    /// The rule that replaced its keys.
    pub rule: Option<String>,
    pub keys: Vec<String>,
}

impl Plan {
    /// The one lane of a merged feed, and what its targets bring to it.
    pub(super) fn merged(&mut self, config: &Config, feed: &Feed) -> Option<Merged> {
        let window_us = feed.window_us()?;
        let mut parts = Vec::new();
        let mut types = BTreeMap::new();
        let thing_max = feed.thing_max.get();
        let mut spec = format!("merged within {window_us}, {thing_max} at most");
        for target in feed.targets() {
            let Some(nsid) = config.nsid(&target.collection) else {
                continue;
            };
            let condition = target.condition.as_deref();
            let rule = Lane::new(
                self.spec(nsid, &target.keys, condition, feed.rules()),
                nsid,
                &target.keys,
                condition,
                feed.rules(),
            );
            let merge = target.merge.unwrap_or_else(|| "uri".to_owned());
            spec.push_str(&format!(
                " | {}{} by {merge} with {}",
                rule.spec,
                rule.listed(),
                target.union.join(" ")
            ));
            types.insert(nsid.to_owned(), target.activity);
            parts.push((rule, merge, target.union));
        }
        let known = self.lanes.iter().position(|lane| lane.spec == spec);
        let lane = LaneId(known.unwrap_or(self.lanes.len()));
        if known.is_none() {
            self.lanes.push(Lane::new(spec, "", &[], None, &[]));
            for (rule, merge, union) in parts {
                let merges = self.merges.entry(rule.nsid.clone()).or_default();
                merges.push(MergedTarget {
                    lane,
                    window_us,
                    thing_max,
                    rule,
                    merge,
                    union,
                });
            }
        }
        let shown = feed.activity.clone().unwrap_or_default();
        let readings = shown.filter.iter().map(|(name, reading)| {
            let of = reading.of.as_ref();
            let through = Through {
                of: of.and_then(|short| Some(config.nsid(short)?.to_owned())),
                path: reading.path.clone(),
                absent: reading.absent.clone(),
            };
            (name.clone(), through)
        });
        Some(Merged {
            lane,
            window_us,
            readings: readings.collect(),
            shown,
            types,
        })
    }

    /// The collections whose records are in a lane.
    pub fn collections_of(&self, lane: LaneId) -> Vec<&str> {
        let plain = self.lanes.get(lane.0).map(|lane| lane.nsid.as_str());
        let merges = self.merges.iter();
        let merged = merges.filter(|(_, targets)| targets.iter().any(|target| target.lane == lane));
        plain
            .filter(|nsid| !nsid.is_empty())
            .into_iter()
            .chain(merged.map(|(nsid, _)| nsid.as_str()))
            .collect()
    }

    /// What a lane decides about a record; `None` if the lane is not for its collection.
    pub fn judge(&self, lane: LaneId, nsid: &str, did: &str, value: &Value<'_>) -> Option<Judged> {
        let merges = self.merges.get(nsid).into_iter().flatten();
        let merged = merges
            .filter(|target| target.lane == lane)
            .map(|target| &target.rule);
        let plain = self.lanes.get(lane.0).filter(|lane| lane.nsid == nsid);
        let scope = Scope::new(did, "", value);
        let mut fails = None;
        for rule in merged.chain(plain) {
            if let Some(condition) = &rule.condition
                && condition.holds(&scope) != Ok(true)
            {
                fails = Some(condition.text().to_owned());
                continue;
            }
            let mut rules = rule.rules.iter();
            let replaced = rules.find(|(when, _)| when.holds(&scope) == Ok(true));
            return Some(Judged {
                fails: None,
                rule: replaced.map(|(when, _)| when.text().to_owned()),
                keys: self.keys(rule, did, value).unwrap_or_default(),
            });
        }
        fails.map(|condition| Judged {
            fails: Some(condition),
            ..Judged::default()
        })
    }

    /// What a record brings to its group in one lane; `None` if it is not there.
    ///
    /// Of two targets of one feed that want the same record, the first has it.
    pub(super) fn part_in(
        &self,
        lane: LaneId,
        (nsid, did): (&str, &str),
        value: &Value<'_>,
    ) -> Option<Part> {
        let merges = self.merges.get(nsid).into_iter().flatten();
        let mut merges = merges.filter(|target| target.lane == lane);
        merges.find_map(|target| self.part(target, did, value))
    }

    /// What a record brings to its group; `None` if it is not in the feed.
    pub(super) fn part(&self, target: &MergedTarget, did: &str, value: &Value<'_>) -> Option<Part> {
        let nsid = &target.rule.nsid;
        // A record without keys reaches nobody by itself, but is part of its group.
        let keys = self.keys(&target.rule, did, value)?;
        let mut union: Vec<String> = Vec::new();
        for path in &target.union {
            union.extend(self.named(nsid, path, value));
        }
        Some(Part {
            lane: target.lane,
            window_us: target.window_us,
            thing_max: target.thing_max,
            nsid: nsid.clone(),
            author: self.author(nsid, did, value)?,
            // A record without its merge key is about itself.
            merge: match target.merge.as_str() {
                "uri" => None,
                path => self.named(nsid, path, value),
            },
            keys,
            union,
        })
    }
}
