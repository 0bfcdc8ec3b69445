//! Pages in the order of a value.
//!
//! In:    a sort index, a direction, and the value and place where the page begins.
//! Out:   the page, and the value and place where the next one begins.
//! Never: a record skipped because others have its value.
//!
//! Values go up or down as asked; within one value the order is that of time
//! and URI, as everywhere. Records without a value come last, whichever way
//! the others go. Two round trips for each chunk: rows of the index, then
//! their records.

use std::cmp::Ordering;

use decide::derived::{Placed, SortKey};
use decide::ids::{Micros, RecordId, SortId};
use decide::rows::Sorted;
use decide::table::Row as _;
use decide::value::{Cell as _, Damaged, Value};

use super::budget::{Budget, larger};
use super::fill::{Filled, Shown, Wanted};
use super::filter::Sort;
use super::place::{Place, uri};
use super::stream::Found;
use crate::error::StoreError;
use crate::port::{Range, Snapshot, dangling};

/// The value of a record that has none; after all others.
fn missing() -> Value {
    Value::Blob(Vec::new())
}

/// What a record is sorted by, as a cell.
pub(super) fn value_of(key: &SortKey) -> Value {
    match key {
        SortKey::Missing => missing(),
        SortKey::Number(number) => Value::Int(*number),
        SortKey::Text(text) => Value::Text(text.clone()),
    }
}

/// A page of the records in a sort index.
pub(super) fn sorted(
    snapshot: &dyn Snapshot,
    wanted: &Wanted<'_>,
    sort: &Sort,
    collection: &str,
) -> Result<Filled, StoreError> {
    let budget = wanted.budget;
    let mut walk = Walk::begin(sort, wanted.before, collection);
    let mut chunk = budget.limit.saturating_add(1);
    let mut filled = Filled::default();
    let mut last: Option<Value> = None;
    let mut looked = 0;
    while let Some(rows) = walk.next(snapshot, chunk)? {
        budget.check()?;
        let ids: Vec<RecordId> = rows.iter().map(|row| row.record).collect();
        let records = match ids.is_empty() {
            true => Vec::new(),
            false => snapshot.records(&ids)?,
        };
        let mut found = Vec::with_capacity(rows.len());
        for (row, stored) in rows.into_iter().zip(records) {
            let place = Place {
                time_us: row.time_us,
                uri: uri(collection, &row.tail),
            };
            let stored = stored.ok_or_else(dangling)?;
            found.push((row.value, Found { place, stored }));
        }
        let asked = found
            .iter()
            .map(|(_, found)| (found.place.uri.as_str(), found.stored.record.author));
        let too_few = wanted
            .filter
            .too_few(snapshot, &asked.collect::<Vec<_>>())?;
        for (value, found) in found {
            looked += 1;
            let cut = (looked >= budget.scan_max).then(|| found.place.clone());
            if wanted.is_seen(&found)? {
                let shown = Shown::from(found);
                if wanted.admits(&shown, &too_few) {
                    if filled.is_full(&budget) {
                        filled.next_value = last;
                        return Ok(filled.ended());
                    }
                    filled.push(shown);
                    last = Some(value.clone());
                }
            }
            if cut.is_some() {
                filled.next = cut;
                filled.next_value = Some(value);
                return Ok(filled);
            }
        }
        chunk = larger(chunk);
    }
    Ok(filled)
}

/// A walk along a sort index.
#[derive(Debug)]
struct Walk {
    sort: SortId,
    descending: bool,
    at: At,
}

/// Where a walk goes on.
#[derive(Debug)]
enum At {
    /// After a value; `None`: with the first one.
    Values(Option<Value>),
    /// After a row, down through its value and the lower ones.
    Row(Value, Micros, String),
    /// Within one value, newest first, below a place.
    Within(Value, Option<(Micros, String)>),
    End,
}

impl Walk {
    fn begin(sort: &Sort, before: Option<&Place>, collection: &str) -> Self {
        let below = before.map(|place| (place.time_us, place.tail(collection)));
        let at = match (&sort.from, below, sort.descending) {
            (None, _, _) => At::Values(None),
            (Some(value), Some((time_us, tail)), true) if *value != missing() => {
                At::Row(value.clone(), time_us, tail)
            }
            (Some(value), below, _) => At::Within(value.clone(), below),
        };
        Self {
            sort: sort.sort,
            descending: sort.descending,
            at,
        }
    }

    /// The next rows in order, at most `max`; `None` at the end. One round trip.
    fn next(
        &mut self,
        snapshot: &dyn Snapshot,
        max: usize,
    ) -> Result<Option<Vec<Sorted>>, StoreError> {
        let range = |prefix: Vec<Value>, after: Vec<Value>, descending| Range {
            table: Sorted::TABLE,
            index: "",
            prefix,
            after,
            inclusive: false,
            descending,
            max,
        };
        let sort = self.sort.to_value();
        let at = std::mem::replace(&mut self.at, At::End);
        let range = match &at {
            At::End => return Ok(None),
            At::Values(after) if self.descending => {
                let after = after.clone().unwrap_or_else(missing);
                range(vec![sort], vec![after], true)
            }
            At::Values(after) => range(vec![sort], after.iter().cloned().collect(), false),
            At::Row(value, time_us, tail) => range(
                vec![sort],
                vec![value.clone(), time_us.to_value(), tail.to_value()],
                true,
            ),
            At::Within(value, below) => {
                let after = below.as_ref().map_or_else(Vec::new, |(time_us, tail)| {
                    vec![time_us.to_value(), tail.to_value()]
                });
                range(vec![sort, value.clone()], after, true)
            }
        };
        let mut found = snapshot.range(&[range])?;
        let rows = found.pop().map(|rows| rows.typed::<Sorted>());
        let rows = rows.transpose()?.unwrap_or_default();
        let is_last = rows.len() < max;
        Ok(Some(match at {
            At::Within(value, _) => self.within(value, rows, is_last),
            At::Values(_) if !self.descending => self.upwards(rows, is_last),
            At::Values(_) | At::Row(..) | At::End => self.downwards(rows, is_last),
        }))
    }

    /// Rows of one value.
    fn within(&mut self, value: Value, rows: Vec<Sorted>, is_last: bool) -> Vec<Sorted> {
        self.at = match (rows.last(), is_last) {
            (Some(last), false) => At::Within(value, Some((last.time_us, last.tail.clone()))),
            _ if value == missing() => At::End,
            _ => At::Values(Some(value)),
        };
        rows
    }

    /// Rows of several values, which came in the order they are shown in.
    fn downwards(&mut self, rows: Vec<Sorted>, is_last: bool) -> Vec<Sorted> {
        self.at = match (rows.last(), is_last) {
            (Some(last), false) => At::Row(last.value.clone(), last.time_us, last.tail.clone()),
            _ => At::Within(missing(), None),
        };
        rows
    }

    /// Rows of several values, which came oldest first within each value. The last value may have
    /// more rows than these: then it is read on its own.
    fn upwards(&mut self, mut rows: Vec<Sorted>, is_last: bool) -> Vec<Sorted> {
        self.at = match rows.last().map(|row| row.value.clone()) {
            Some(value) if !is_last => {
                rows.retain(|row| row.value != value);
                At::Within(value, None)
            }
            _ => At::End,
        };
        let groups = rows.chunk_by_mut(|a, b| a.value == b.value);
        groups.for_each(<[Sorted]>::reverse);
        rows
    }
}

/// The same page of a feed that ends: all of it was read, and is sorted here.
pub(super) fn arranged(
    whole: Filled,
    sort: &Sort,
    before: Option<&Place>,
    budget: &Budget<'_>,
) -> Result<Filled, StoreError> {
    let mut all = Vec::with_capacity(whole.shown.len());
    for shown in whole.shown {
        all.push((own_value(sort.sort, &shown)?, shown));
    }
    all.sort_by(|(a, one), (b, other)| {
        let by_place = || other.row.place().cmp(&one.row.place());
        order(sort.descending, a, b).then_with(by_place)
    });
    let mut filled = Filled::default();
    let mut last: Option<Value> = None;
    for (value, shown) in all {
        if let (Some(from), Some(before)) = (&sort.from, before) {
            let along = order(sort.descending, &value, from);
            if along.is_lt() || (along.is_eq() && shown.row.place() >= *before) {
                continue;
            }
        }
        if filled.is_full(budget) {
            filled.next_value = last;
            return Ok(filled.ended());
        }
        filled.push(shown);
        last = Some(value);
    }
    Ok(filled)
}

/// What a record was sorted by when it came.
fn own_value(sort: SortId, shown: &Shown) -> Result<Value, StoreError> {
    let placed = Placed::from_column(shown.placed.as_deref()).map_err(|_| Damaged {
        table: "record",
        column: "placed",
    })?;
    let own = placed.sorts.iter().find(|(other, _)| *other == sort);
    Ok(own.map_or_else(missing, |(_, key)| value_of(key)))
}

/// The order of two values; records without one come last either way.
fn order(descending: bool, a: &Value, b: &Value) -> Ordering {
    match *a == missing() || *b == missing() || !descending {
        true => a.cmp(b),
        false => b.cmp(a),
    }
}
