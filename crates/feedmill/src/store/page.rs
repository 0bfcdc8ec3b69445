//! Pages: positions in the one order, and rows as they are served.
//!
//! The order is time, then URI, both descending, everywhere.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::sync::Arc;

use super::filter::Filter;
use super::plan::{LadderId, LaneId, SourceId};
use super::{StoreError, budget};
use crate::clock::Micros;
use crate::config::collection::Match;

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

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.body.len() + 2 * self.uri.len()
    }
}

/// Records that may belong on a page, in its order, from one snapshot of an index.
///
/// None that belongs is missing as of `position`; some may not belong.
pub trait Candidates: Send + Sync + Debug {
    /// The outbox position of the snapshot.
    fn position(&self) -> i64;

    /// The next of them.
    fn next(&self) -> Result<Hits, StoreError>;
}

/// Some candidates, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hits {
    /// Record and place.
    pub found: Vec<(i64, Position)>,
    /// All that stand here or above have been given; `None`: all there are.
    pub reached: Option<Position>,
    /// What finding them cost, in entries looked at.
    pub looked: usize,
}

/// Which of the records are looked at, and in what order.
#[derive(Debug, Clone, Default)]
pub struct Lens {
    /// Only what passes all of them.
    pub filters: Vec<Filter>,
    /// An index that knows where to look, if there is one for these filters.
    pub among: Option<Arc<dyn Candidates>>,
    /// Only what has that many children, by the lane they stand in.
    pub counts: Vec<CountMin>,
    /// Another order than that of time.
    pub sort: Option<Sort>,
}

impl Lens {
    /// Whether everything is shown, in the order of time.
    pub fn is_plain(&self) -> bool {
        self.filters.is_empty() && self.counts.is_empty() && self.sort.is_none()
    }
}

/// How many children a record must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountMin {
    pub lane: LaneId,
    pub by: Match,
    pub min: i64,
}

/// An order by a value, and within one value by time and URI as ever.
#[derive(Debug, Clone, PartialEq)]
pub struct Sort {
    pub ladder: LadderId,
    pub descending: bool,
    /// The value at which the page begins, at the query's position within it.
    pub from: Option<Rung>,
}

/// A value by which records are sorted. Numbers stand before texts; records without one come last.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rung {
    Number(i64),
    Text(String),
    Missing,
}

/// Which page of a collection.
#[derive(Debug, Clone)]
pub struct ListQuery {
    pub lane: LaneId,
    /// Only this author's.
    pub did: Option<String>,
    pub before: Option<Position>,
    pub limit: usize,
    pub lens: Lens,
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
    /// Caps count before its filters.
    pub lens: Lens,
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
    /// Of a sorted page, the value at which the next one begins.
    pub next_rung: Option<Rung>,
    /// Bytes of its rows.
    pub(super) bytes: usize,
}

impl Page {
    /// Whether no row may be added: there are as many as were asked for, or their bytes are as
    /// many as the budget of the read allows. The first row is shown however large it is.
    pub(super) fn is_full(&self, limit: usize) -> bool {
        let rows = self.rows.len();
        rows >= limit || (rows > 0 && budget::is_page_full(self.bytes))
    }

    pub(super) fn push(&mut self, row: Row) {
        self.bytes += row.bytes();
        self.rows.push(row);
    }

    /// The page as it is; the next one begins after its last row.
    pub(super) fn ended(self) -> Self {
        Self {
            next: self.rows.last().map(Row::position),
            ..self
        }
    }
}
