//! The audience: which active readers a key has, and how they are reached.
//!
//! In:    readers joining and leaving keys; fan-outs begun and finished.
//! Out:   the readers of a key in ascending order; whether new records are
//!        pushed; the keys whose outboxes a read must merge.
//! Never: a key that is neither fully pushed nor in that set of merged keys.
//!
//! A key with very many readers is pulled: its records stay in its outbox and
//! each read merges it. When readers leave and it is pushed again, what was
//! not pushed meanwhile lies at or before `unpushed_until_us`; until the window
//! has moved past that moment reads go on merging. Merging a key needlessly
//! costs time only, so when in doubt it is merged.

use crate::column::Column;
use crate::shards::Quick;
use crate::sorted::Sorted;
use std::collections::HashSet;
use std::hint::black_box;

/// A followed key, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Key {
    pub(crate) readers: Sorted,
    pub(crate) pulled: bool,
    unfinished: u32,
    unpushed_until_us: i64,
}

impl Default for Key {
    fn default() -> Self {
        Self {
            readers: Sorted::default(),
            pulled: false,
            unfinished: 0,
            unpushed_until_us: i64::MIN,
        }
    }
}

impl Key {
    fn is_merged(&self) -> bool {
        self.pulled || self.unfinished > 0 || self.unpushed_until_us > i64::MIN
    }
}

/// All followed keys of one feed.
#[derive(Debug)]
pub(crate) struct Audience {
    keys: Column<Option<Box<Key>>>,
    merged: HashSet<u32, Quick>,
    pull_above: usize,
    edges: u64,
}

impl Audience {
    pub(crate) fn new(pull_above: usize) -> Self {
        Self {
            keys: Column::default(),
            merged: HashSet::default(),
            pull_above,
            edges: 0,
        }
    }

    /// Pairs of key and reader.
    pub(crate) fn edges(&self) -> u64 {
        self.edges
    }

    pub(crate) fn key(&self, key: u32) -> Option<&Key> {
        self.keys.get(key)?.as_deref()
    }

    /// The keys whose outboxes must be merged into every read that follows them.
    pub(crate) fn merged(&self) -> &HashSet<u32, Quick> {
        &self.merged
    }

    fn note(&mut self, key: u32) {
        let merged = self.key(key).is_some_and(Key::is_merged);
        if merged {
            self.merged.insert(key);
        } else {
            self.merged.remove(&key);
        }
    }

    /// Fetches what joining these keys will need, so that the waits overlap.
    pub(crate) fn warm(&self, keys: &[u32]) {
        let found = |key: &u32| self.key(*key);
        let mut seen = keys.iter().filter(|key| found(key).is_some()).count();
        seen ^= keys
            .iter()
            .filter_map(found)
            .map(|key| key.readers.len())
            .sum::<usize>();
        let lasts = keys
            .iter()
            .filter_map(found)
            .map(|key| key.readers.touch_last());
        black_box((seen, lasts.fold(0, |seen, last| seen ^ last)));
    }

    pub(crate) fn join(&mut self, key: u32, slot: u32) {
        let entry = self.keys.slot(key).get_or_insert_default();
        if !entry.readers.insert(slot) {
            return;
        }
        self.edges += 1;
        if !entry.pulled && entry.readers.len() > self.pull_above {
            entry.pulled = true;
            self.note(key);
        }
    }

    /// Takes a reader out. True if the key is pushed again from now on; then
    /// the caller owes [`Audience::not_pushed`] the key's newest time.
    pub(crate) fn leave(&mut self, key: u32, slot: u32) -> bool {
        let Some(Some(entry)) = self.keys.get_mut(key) else {
            return false;
        };
        if !entry.readers.remove(slot) {
            return false;
        }
        self.edges -= 1;
        if entry.pulled && entry.readers.len() <= self.pull_above / 2 {
            entry.pulled = false;
            return true;
        }
        false
    }

    /// Records of `key` up to this moment may be in no ring.
    pub(crate) fn not_pushed(&mut self, key: u32, until_us: Option<i64>) {
        if let Some(Some(entry)) = self.keys.get_mut(key)
            && let Some(until_us) = until_us
        {
            entry.unpushed_until_us = entry.unpushed_until_us.max(until_us);
        }
        self.note(key);
    }

    pub(crate) fn fanout_begins(&mut self, key: u32) {
        if let Some(Some(entry)) = self.keys.get_mut(key) {
            entry.unfinished += 1;
            self.merged.insert(key);
        }
    }

    pub(crate) fn fanout_ends(&mut self, key: u32) {
        if let Some(Some(entry)) = self.keys.get_mut(key) {
            entry.unfinished = entry.unfinished.saturating_sub(1);
        }
        self.note(key);
    }

    /// Stops merging the keys whose unpushed records have left the window.
    pub(crate) fn settle(&mut self, window_floor_us: i64) {
        let settled: Vec<u32> = self
            .merged
            .iter()
            .copied()
            .filter(|&key| {
                self.key(key)
                    .is_some_and(|entry| entry.unpushed_until_us <= window_floor_us)
            })
            .collect();
        for key in settled {
            if let Some(Some(entry)) = self.keys.get_mut(key) {
                entry.unpushed_until_us = i64::MIN;
            }
            self.note(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_cache_line() {
        assert_eq!(size_of::<Key>(), 64);
    }

    #[test]
    fn a_key_is_merged_until_what_was_not_pushed_has_left_the_window() {
        let mut audience = Audience::new(4);
        for slot in 0..5 {
            audience.join(9, slot);
        }
        assert!(audience.key(9).unwrap().pulled);
        assert!(audience.merged().contains(&9));
        assert!(!audience.leave(9, 0));
        assert!(!audience.leave(9, 1));
        assert!(audience.leave(9, 2), "at half it turns back");
        audience.not_pushed(9, Some(100));
        assert!(!audience.key(9).unwrap().pulled);
        assert!(audience.merged().contains(&9));
        audience.settle(99);
        assert!(audience.merged().contains(&9));
        audience.settle(100);
        assert!(!audience.merged().contains(&9));
    }

    #[test]
    fn a_key_is_merged_while_its_fanout_is_unfinished() {
        let mut audience = Audience::new(4);
        audience.join(1, 1);
        audience.fanout_begins(1);
        audience.fanout_begins(1);
        audience.fanout_ends(1);
        assert!(audience.merged().contains(&1));
        audience.fanout_ends(1);
        assert!(audience.merged().is_empty());
    }
}
