//! Numbers for the operator. Three round trips.

use std::collections::BTreeMap;

use decide::ids::{CollectionId, Micros};
use decide::rows::{Account, Cursor, Dead, Held, Kept, Outcomes, Parked};
use decide::table::Row as _;

use super::record::Texts;
use crate::error::StoreError;
use crate::port::{Asked, Range, Rows, Snapshot};

/// How many rows there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Total {
    pub n: usize,
    /// There may be more: counting ended here.
    pub is_cut: bool,
}

impl Total {
    /// Counts some ranges, each up to `max`. One round trip.
    pub(super) fn of(
        snapshot: &dyn Snapshot,
        ranges: &[Range],
        max: usize,
    ) -> Result<Vec<Self>, StoreError> {
        let ranges = ranges.iter().map(|range| Range {
            max,
            ..range.clone()
        });
        let counts = snapshot.count(&ranges.collect::<Vec<_>>())?;
        let total = |n| Self {
            n,
            is_cut: n >= max,
        };
        Ok(counts.into_iter().map(total).collect())
    }
}

/// What a store holds, and what became of everything that came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Live records by collection.
    pub records: BTreeMap<String, i64>,
    /// Units by source and outcome.
    pub outcomes: BTreeMap<String, BTreeMap<String, i64>>,
    /// How far each source was read.
    pub cursors: BTreeMap<String, i64>,
    /// When the first parked record is tried again.
    pub due_us: Option<Micros>,
    pub accounts: Option<Total>,
    /// Dead letters kept.
    pub dead: Option<Total>,
    /// Frames held for accounts whose chain broke.
    pub held: Option<Total>,
}

/// The numbers as they are; tables without a counter are counted up to `count_max`.
pub fn status(snapshot: &dyn Snapshot, count_max: usize) -> Result<Status, StoreError> {
    let ranges = [
        Range::of::<Kept>(Vec::new()),
        Range::of::<Outcomes>(Vec::new()),
        Range::of::<Cursor>(Vec::new()),
        Range {
            index: "parked_by_due",
            max: 1,
            ..Range::of::<Parked>(Vec::new())
        },
    ];
    let mut rows = snapshot.range(&ranges)?.into_iter();
    let mut next = || rows.next().unwrap_or_else(|| Rows::of(Kept::TABLE));
    let kept = next().typed::<Kept>()?;
    let mut status = Status::default();
    for row in next().typed::<Outcomes>()? {
        let of_source = status.outcomes.entry(row.source).or_default();
        of_source.insert(row.outcome, row.n);
    }
    for row in next().typed::<Cursor>()? {
        status.cursors.insert(row.source, row.cursor);
    }
    status.due_us = next()
        .typed::<Parked>()?
        .pop()
        .and_then(|parked| parked.due_us);
    let collection_ids: Vec<CollectionId> = kept.iter().map(|row| row.collection).collect();
    let asked = Asked {
        collection_ids,
        ..Asked::default()
    };
    let texts = Texts::from(snapshot.names(&asked)?);
    for row in kept {
        if let Some(nsid) = texts.collection(row.collection) {
            status.records.insert(nsid.to_owned(), row.n);
        }
    }
    let counted = [
        Range::of::<Account>(Vec::new()),
        Range::of::<Dead>(Vec::new()),
        Range::of::<Held>(Vec::new()),
    ];
    let mut totals = Total::of(snapshot, &counted, count_max)?.into_iter();
    status.accounts = totals.next();
    status.dead = totals.next();
    status.held = totals.next();
    Ok(status)
}
