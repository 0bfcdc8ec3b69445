//! Records as they are shown, in memory.
//!
//! In:    records read from the store, with the outbox position they were read at.
//! Out:   the same, without asking the store.
//! Never: a record of another moment than the timelines beside it.
//!
//! What is held here is what the store held at the position the engine has
//! drawn to, and nothing else: a record enters only if it was read at that
//! very position, and leaves under the engine's lock when a change of it is
//! drawn. So a page whose ids come from the engine and whose records all come
//! from here is the page of one instant.

use std::sync::Arc;

use metrics::{Counter, counter};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::metrics as names;
use crate::store::shown::Shown;

/// About how large a record is shown; only a hint for the cache's tables.
const SHOWN_BYTES: usize = 900;

#[derive(Debug, Clone)]
struct ByBytes;

impl Weighter<i64, Arc<Shown>> for ByBytes {
    fn weight(&self, _: &i64, shown: &Arc<Shown>) -> u64 {
        shown.bytes() as u64
    }
}

/// A bounded number of shown records.
pub(super) struct Bodies {
    shown: Option<Cache<i64, Arc<Shown>, ByBytes>>,
    hits: Counter,
    misses: Counter,
}

impl std::fmt::Debug for Bodies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let held = self.shown.as_ref().map_or(0, Cache::len);
        f.debug_struct("Bodies")
            .field("held", &held)
            .finish_non_exhaustive()
    }
}

impl Bodies {
    /// At most about `bytes_max` of them; 0 holds none.
    pub(super) fn new(bytes_max: usize) -> Self {
        let records = bytes_max / SHOWN_BYTES;
        Self {
            shown: (bytes_max > 0)
                .then(|| Cache::with_weighter(records.max(1), bytes_max as u64, ByBytes)),
            hits: counter!(names::RECORD_CACHE, "result" => "hit"),
            misses: counter!(names::RECORD_CACHE, "result" => "miss"),
        }
    }

    /// Those of these records that are held, each at its place.
    pub(super) fn get(&self, ids: impl Iterator<Item = i64>) -> Vec<Option<Arc<Shown>>> {
        let Some(cache) = &self.shown else {
            return ids.map(|_| None).collect();
        };
        ids.map(|id| cache.get(&id)).collect()
    }

    /// Counts what was found and what was not.
    pub(super) fn count(&self, hits: usize, misses: usize) {
        self.hits.increment(hits as u64);
        self.misses.increment(misses as u64);
    }

    /// Holds a record; only under the engine's lock, at its very position.
    pub(super) fn hold(&self, shown: &Arc<Shown>) {
        if let Some(cache) = &self.shown {
            cache.insert(shown.id, Arc::clone(shown));
        }
    }

    /// A change of this record was drawn.
    pub(super) fn forget(&self, id: i64) {
        if let Some(cache) = &self.shown {
            cache.remove(&id);
        }
    }

    /// The engine begins anew.
    pub(super) fn clear(&self) {
        if let Some(cache) = &self.shown {
            cache.clear();
        }
    }
}
