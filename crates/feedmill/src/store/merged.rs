//! Merged feeds, resolved: which records form groups, and how they are shown.
//!
//! In:    the configuration of a feed whose targets have `merge`; then records.
//! Out:   for each record, the group it belongs to and what it brings there.
//! Never: a part that depends on another record.
//!
//! A merged feed has one lane for all its targets. Records are not in it
//! themselves: groups of them are, each under the keys of all its members.

use std::collections::BTreeMap;

use crate::config::merge::Shown;

use super::page::Row;
use super::plan::{Lane, LaneId};

/// A merged feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    pub lane: LaneId,
    pub window_us: i64,
    pub shown: Shown,
    /// The activity's type by the collection of its first record.
    pub types: BTreeMap<String, String>,
}

/// One target of a merged feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MergedTarget {
    pub(super) lane: LaneId,
    pub(super) window_us: i64,
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
    /// The record's collection.
    pub nsid: String,
    /// The key of whoever wrote it.
    pub author: String,
    /// The merge key; `None` is the record's own URI.
    pub merge: Option<String>,
    pub keys: Vec<String>,
    pub union: Vec<String>,
}

/// One entry of a merged feed, with its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activity {
    /// The members, first to last.
    pub members: Vec<Row>,
    /// What they add, each once, in the order first seen.
    pub union: Vec<String>,
    /// What they are about.
    pub merge: String,
    /// The record that `merge` names, if it is here.
    pub subject: Option<Row>,
}

/// A value that the subject of an activity must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Through {
    /// Dotted path within the subject.
    pub path: String,
    pub value: String,
    /// Whether a subject without the field passes.
    pub absent: bool,
}

/// Which activities are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActivityFilter {
    /// Collections of the first record; `None`: any.
    pub first: Option<Vec<String>>,
    pub through: Vec<Through>,
}

impl ActivityFilter {
    /// Whether it lets everything through.
    pub fn is_empty(&self) -> bool {
        self.first.is_none() && self.through.is_empty()
    }

    /// Whether it lets this activity through. A subject that is not here has no fields.
    pub fn admits(&self, activity: &Activity) -> bool {
        let first = activity.members.first();
        let typed = self
            .first
            .as_ref()
            .is_none_or(|wanted| first.is_some_and(|row| wanted.contains(&row.collection)));
        if !typed || self.through.is_empty() {
            return typed;
        }
        let body = activity.subject.as_ref().map_or("null", |row| &row.body);
        let parsed = record::json::from_json(body).ok();
        self.through.iter().all(|through| {
            let found = parsed.as_ref().and_then(|value| value.at(&through.path));
            match found.and_then(record::value::Value::text) {
                Some(text) => text == through.value,
                None => through.absent,
            }
        })
    }
}

/// A page of activities, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActivityPage {
    pub activities: Vec<Activity>,
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
