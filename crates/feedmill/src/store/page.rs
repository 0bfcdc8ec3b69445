//! Pages: positions in the one order, and rows as they are served.
//!
//! The order is time, then URI, both descending, everywhere.

use std::cmp::Ordering;

use super::filter::Filter;
use super::plan::{LaneId, SourceId};
use crate::clock::Micros;

/// A place in the order; everything after it is strictly smaller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    pub time_us: Micros,
    pub uri: String,
}

impl Ord for Position {
    fn cmp(&self, other: &Self) -> Ordering {
        self.time_us
            .cmp(&other.time_us)
            .then_with(|| self.uri.cmp(&other.uri))
    }
}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A record as it is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub id: i64,
    pub uri: String,
    pub did: String,
    pub collection: String,
    pub rkey: String,
    pub cid: Option<String>,
    pub time_us: Micros,
    /// JSON text.
    pub body: String,
}

impl Row {
    /// Its place in the order.
    pub fn position(&self) -> Position {
        Position {
            time_us: self.time_us,
            uri: self.uri.clone(),
        }
    }
}

/// Which page of a collection.
#[derive(Debug, Clone)]
pub struct ListQuery {
    pub lane: LaneId,
    /// Only this author's.
    pub did: Option<String>,
    pub before: Option<Position>,
    pub limit: usize,
    /// Only what passes all of them.
    pub filters: Vec<Filter>,
    /// Entries looked at before the page is returned short.
    pub scan_max: usize,
}

/// Which page of a feed.
#[derive(Debug, Clone)]
pub struct FeedQuery {
    pub reader: String,
    /// Lanes merged into one order; with a cap, only that many newest visible entries exist.
    pub lanes: Vec<(LaneId, Option<usize>)>,
    pub follows: Vec<SourceId>,
    pub hides: Vec<SourceId>,
    pub include_self: bool,
    pub before: Option<Position>,
    pub limit: usize,
    /// Only what passes all of them; caps count before that.
    pub filters: Vec<Filter>,
    /// Entries looked at before the page is returned short.
    pub scan_max: usize,
}

/// Records that name one parent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Children {
    pub count: i64,
    /// The newest of them, as many as were asked for.
    pub rows: Vec<Row>,
}

/// A page, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    pub rows: Vec<Row>,
    /// Where the next page begins; `None` only when everything was seen.
    pub next: Option<Position>,
}
