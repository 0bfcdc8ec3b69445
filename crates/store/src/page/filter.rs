//! Which records a caller wants to see, and in what order.
//!
//! What a filter means is the caller's matter: a page asks it about each
//! record. The caller also says where to look, if a sort index knows: an
//! equality has all its records under few values of it.

use std::collections::{HashMap, HashSet};

use decide::ids::{IndexId, KeyId, SortId};
use decide::rows::Counter;
use decide::table::Row as _;
use decide::value::{Cell, Value};

use super::row::Row;
use crate::error::StoreError;
use crate::port::{Asked, Range, Snapshot};

/// Which records, in what order.
#[derive(Clone, Copy, Default)]
pub struct Filter<'f> {
    /// Whether a record passes.
    pub admits: Option<&'f dyn Fn(&Row) -> bool>,
    /// Values of sort indexes: every record that passes has one of them. It only says where to
    /// look; `admits` decides.
    pub equal: &'f [(SortId, Value)],
    /// How many children a record must have.
    pub counts: &'f [CountMin],
    /// Another order than that of time.
    pub sort: Option<&'f Sort>,
}

impl std::fmt::Debug for Filter<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = formatter.debug_struct("Filter");
        debug.field("admits", &self.admits.is_some());
        debug.field("equal", &self.equal);
        debug.field("counts", &self.counts);
        debug.field("sort", &self.sort);
        debug.finish()
    }
}

/// How many children a record must have in a counted index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountMin {
    pub index: IndexId,
    pub of: CountOf,
    pub min: i64,
}

/// What children name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountOf {
    /// The record, by its URI.
    Record,
    /// Its account, by its DID.
    Account,
}

/// An order by a value; within one value by time and URI as ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sort {
    pub sort: SortId,
    pub descending: bool,
    /// The value at which the page begins, at the query's place within it.
    pub from: Option<Value>,
}

impl Filter<'_> {
    /// Whether every record passes.
    pub(super) fn is_plain(&self) -> bool {
        self.admits.is_none() && self.counts.is_empty()
    }

    /// Whether it is answered by a sort index.
    pub(super) fn is_indexed(&self) -> bool {
        self.sort.is_some() || !self.equal.is_empty()
    }

    /// The URIs of those records, given by URI and account, that have too few children. Two round
    /// trips where children are counted, else none.
    pub(super) fn too_few(
        &self,
        snapshot: &dyn Snapshot,
        records: &[(&str, KeyId)],
    ) -> Result<HashSet<String>, StoreError> {
        let mut too_few = HashSet::new();
        if self.counts.is_empty() || records.is_empty() {
            return Ok(too_few);
        }
        let by_uri = |one: &CountMin| one.of == CountOf::Record;
        let keys = match self.counts.iter().any(by_uri) {
            true => {
                let keys = records.iter().map(|(uri, _)| *uri).collect();
                let asked = Asked {
                    keys,
                    ..Asked::default()
                };
                snapshot.names(&asked)?.keys
            }
            false => HashMap::new(),
        };
        let key = |wanted: &CountMin, (uri, account): &(&str, KeyId)| match wanted.of {
            CountOf::Record => keys.get(*uri).copied(),
            CountOf::Account => Some(*account),
        };
        let mut asked: Vec<(IndexId, KeyId)> = Vec::new();
        for wanted in self.counts {
            let of_one = records.iter().filter_map(|record| key(wanted, record));
            asked.extend(of_one.map(|key| (wanted.index, key)));
        }
        asked.sort();
        asked.dedup();
        let counts = counts(snapshot, &asked)?;
        for wanted in self.counts {
            for record in records {
                let at = key(wanted, record).map(|key| (wanted.index, key));
                let n = at.and_then(|at| counts.get(&at)).copied();
                if n.unwrap_or_default() < wanted.min {
                    too_few.insert(record.0.to_owned());
                }
            }
        }
        Ok(too_few)
    }
}

/// How many children are counted under some keys; keys without any are absent. One round trip.
pub(super) fn counts(
    snapshot: &dyn Snapshot,
    asked: &[(IndexId, KeyId)],
) -> Result<HashMap<(IndexId, KeyId), i64>, StoreError> {
    let range = |(index, key): &(IndexId, KeyId)| {
        Range::of::<Counter>(vec![index.to_value(), key.to_value()])
    };
    let ranges: Vec<Range> = asked.iter().map(range).collect();
    let mut counts = HashMap::with_capacity(asked.len());
    for rows in snapshot.range(&ranges)? {
        for row in rows.iter() {
            let counter = Counter::from_values(row)?;
            counts.insert((counter.index, counter.key), counter.n);
        }
    }
    Ok(counts)
}
