//! A page that is being filled: candidates in order, those that may not be seen left out.

use std::collections::HashSet;

use decide::ids::{IndexId, KeyId};
use decide::value::Value;

use super::budget::{Budget, larger};
use super::filter::Filter;
use super::place::Place;
use super::row::{Page, Row};
use super::stream::{Found, Next, Streams};
use super::visibility::{Under, is_muted, is_visible, placed};
use crate::error::StoreError;
use crate::port::Snapshot;

/// The first chunk of a page with a filter, at least.
const FILTERED_CHUNK: usize = 200;

/// Which candidates are on the page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'w> {
    pub(super) filter: &'w Filter<'w>,
    /// Authors that the reader does not want to see.
    pub(super) hidden: &'w HashSet<KeyId>,
    /// The index and keys a record must be under, where the streams do not say so already.
    pub(super) under: Option<(IndexId, Under<'w>)>,
    pub(super) before: Option<&'w Place>,
    /// How many visible candidates of each stream exist for this page; none for streams without an end.
    pub(super) caps: &'w [Option<usize>],
    pub(super) budget: Budget<'w>,
}

/// A record on the page, and what was derived from it.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    pub(super) row: Row,
    pub(super) placed: Option<String>,
}

impl From<Found> for Shown {
    fn from(found: Found) -> Self {
        let record = found.stored.record;
        Self {
            row: Row {
                id: record.id,
                author: record.author,
                uri: found.place.uri,
                time_us: found.place.time_us,
                cid: record.cid,
                body: record.body.unwrap_or_default(),
            },
            placed: record.placed,
        }
    }
}

/// A page in the making.
#[derive(Debug, Default)]
pub(super) struct Filled {
    pub(super) shown: Vec<Shown>,
    pub(super) next: Option<Place>,
    pub(super) next_value: Option<Value>,
    bytes: usize,
}

impl From<Filled> for Page {
    fn from(filled: Filled) -> Self {
        Self {
            rows: filled.shown.into_iter().map(|shown| shown.row).collect(),
            next: filled.next,
            next_value: filled.next_value,
        }
    }
}

impl Filled {
    /// Whether no row may be added.
    pub(super) fn is_full(&self, budget: &Budget<'_>) -> bool {
        let rows = self.shown.len();
        rows >= budget.limit || (rows > 0 && self.bytes >= budget.bytes_max)
    }

    /// Whether the page is as long as it can be.
    pub(super) fn is_whole(&self, budget: &Budget<'_>) -> bool {
        self.next.is_none() || self.is_full(budget)
    }

    pub(super) fn push(&mut self, shown: Shown) {
        self.bytes += shown.row.bytes();
        self.shown.push(shown);
    }

    /// The page as it is; the next one begins after its last row.
    pub(super) fn ended(self) -> Self {
        let next = self.shown.last().map(|shown| shown.row.place());
        Self { next, ..self }
    }
}

impl Wanted<'_> {
    /// Whether a candidate may be seen at all.
    pub(super) fn is_seen(&self, found: &Found) -> Result<bool, StoreError> {
        if !is_visible(&found.stored) || is_muted(self.hidden, &found.stored)? {
            return Ok(false);
        }
        match self.under {
            Some((index, under)) => Ok(under.holds(index, &placed(&found.stored)?)),
            None => Ok(true),
        }
    }

    /// Whether a visible record passes the filter.
    pub(super) fn admits(&self, shown: &Shown, too_few: &HashSet<String>) -> bool {
        let admits = self.filter.admits;
        !too_few.contains(&shown.row.uri) && admits.is_none_or(|admits| admits(&shown.row))
    }

    /// Whether everything that may be seen is on the page.
    fn is_plain(&self) -> bool {
        self.filter.is_plain() && self.under.is_none()
    }

    /// The page. One round trip for each chunk, as far as the streams need no more.
    pub(super) fn fill(
        &self,
        snapshot: &dyn Snapshot,
        streams: &mut Streams<'_>,
    ) -> Result<Filled, StoreError> {
        // One more than asked tells whether there is more.
        let first = self.budget.limit.saturating_add(1);
        let (mut chunk, budget) = match self.is_plain() {
            true => (first, self.budget.plain()),
            false => (first.max(FILTERED_CHUNK), self.budget),
        };
        let caps = self.caps.iter();
        let mut left: Vec<usize> = caps.map(|cap| cap.unwrap_or(usize::MAX)).collect();
        for (number, _) in left.iter().enumerate().filter(|(_, left)| **left == 0) {
            streams.end(number);
        }
        let mut filled = Filled::default();
        let mut looked = 0;
        loop {
            budget.check()?;
            looked += streams.load(snapshot, chunk)?;
            let too_few = self.too_few(snapshot, streams)?;
            loop {
                let (found, numbers) = match streams.next() {
                    Next::End => return Ok(filled),
                    Next::Unread(place) if looked >= budget.scan_max => {
                        filled.next = place;
                        return Ok(filled);
                    }
                    Next::Unread(_) => break,
                    Next::Found(found, numbers) => (found, numbers),
                };
                let is_below = self.before.is_none_or(|before| found.place < *before);
                looked += usize::from(is_below);
                let last = (looked >= budget.scan_max && is_below).then(|| found.place.clone());
                if self.is_seen(&found)? && count(&mut left, streams, &numbers) && is_below {
                    let shown = Shown::from(found);
                    if self.admits(&shown, &too_few) {
                        if filled.is_full(&budget) {
                            return Ok(filled.ended());
                        }
                        filled.push(shown);
                    }
                }
                if last.is_some() {
                    filled.next = last;
                    return Ok(filled);
                }
            }
            chunk = larger(chunk);
        }
    }

    fn too_few(
        &self,
        snapshot: &dyn Snapshot,
        streams: &Streams<'_>,
    ) -> Result<HashSet<String>, StoreError> {
        if self.filter.counts.is_empty() {
            return Ok(HashSet::new());
        }
        let read = streams.read();
        let records: Vec<(&str, KeyId)> = read
            .map(|found| (found.place.uri.as_str(), found.stored.record.author))
            .collect();
        self.filter.too_few(snapshot, &records)
    }
}

/// Counts a visible candidate in the streams that have it; whether one of them has not ended
/// before it.
fn count(left: &mut [usize], streams: &mut Streams<'_>, numbers: &[usize]) -> bool {
    let mut is_within = false;
    for number in numbers {
        let Some(left) = left.get_mut(*number).filter(|left| **left > 0) else {
            continue;
        };
        is_within = true;
        *left -= 1;
        if *left == 0 {
            streams.end(*number);
        }
    }
    is_within
}
