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
//!
//! Most followed keys have one active reader and nothing else to remember, so
//! that reader stands in the index itself and only the others have a [`Key`].

use crate::ahead::ask;
use crate::column::OwnColumn;
use crate::shards::Quick;
use crate::sorted::Sorted;
use sdd::{AtomicOwned, Guard, Owned, Tag};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::fence;

/// What the index holds of a key: nobody, the slot of its only reader, or the
/// number of its [`Key`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seat(u32);

const NOBODY: Seat = Seat(u32::MAX);
const MANY: u32 = 1 << 31;

impl Default for Seat {
    fn default() -> Self {
        NOBODY
    }
}

impl Seat {
    /// The number of the key's [`Key`], if it has one.
    #[inline]
    fn many(self) -> Option<u32> {
        (self != NOBODY && self.0 & MANY != 0).then_some(self.0 & !MANY)
    }

    /// The only reader, if there is just one; as a slice, because fan-outs walk slices.
    #[inline]
    fn alone(&self) -> &[u32] {
        if self.0 & MANY == 0 {
            std::slice::from_ref(&self.0)
        } else {
            &[]
        }
    }
}

/// A followed key with more to it than one reader, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Key {
    readers: Sorted,
    pulled: bool,
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

/// The readers of one key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Followers<'a> {
    alone: &'a [u32],
    many: Option<&'a Sorted>,
}

impl<'a> Followers<'a> {
    pub(crate) fn len(&self) -> usize {
        self.alone.len() + self.many.map_or(0, Sorted::len)
    }

    /// All of them from a slot on, ascending, in slices.
    pub(crate) fn slices_from(self, slot: u32) -> impl Iterator<Item = &'a [u32]> {
        let alone = self.alone.iter().filter(move |&&one| one >= slot);
        let many = self.many.map(|many| many.slices_from(slot));
        alone
            .map(std::slice::from_ref)
            .chain(many.into_iter().flatten())
    }

    /// Asks for what tells who they are.
    #[inline]
    pub(crate) fn ask_list(&self) {
        ask(self.many);
    }

    /// Asks for some of them.
    #[inline]
    pub(crate) fn ask_some(&self) {
        if let Some(many) = self.many {
            many.ask_first();
        }
    }
}

/// Keys, to be searched.
pub(crate) type KeySet = HashSet<u32, Quick>;

/// The keys whose outboxes must be merged into every read that follows them, as pages see them.
///
/// The set is replaced as a whole, and is never absent: a page that holds a guard knows by the
/// address alone whether it is the same one.
#[derive(Debug)]
pub(crate) struct Merged {
    keys: AtomicOwned<KeySet>,
}

impl Merged {
    pub(crate) fn keys<'g>(&self, guard: &'g Guard) -> Option<&'g KeySet> {
        self.keys.load(Acquire, guard).as_ref()
    }

    /// Whether this is still the set, for whoever holds the guard it was found under.
    pub(crate) fn is_still(&self, keys: Option<&KeySet>, guard: &Guard) -> bool {
        fence(Acquire);
        let now = self.keys(guard).map(std::ptr::from_ref);
        now == keys.map(std::ptr::from_ref)
    }
}

/// All followed keys of one feed, as their one writer knows them.
#[derive(Debug)]
pub(crate) struct Audience {
    seats: OwnColumn<Seat>,
    keys: OwnColumn<Key>,
    keys_free: Vec<u32>,
    keys_next: u32,
    merged: KeySet,
    /// The same for pages.
    shown: Arc<Merged>,
    pull_above: usize,
    edges: u64,
}

impl Audience {
    pub(crate) fn new(pull_above: usize) -> Self {
        Self {
            seats: OwnColumn::default(),
            keys: OwnColumn::default(),
            keys_free: Vec::new(),
            keys_next: 0,
            merged: KeySet::default(),
            shown: Arc::new(Merged {
                keys: AtomicOwned::new(KeySet::default()),
            }),
            pull_above,
            edges: 0,
        }
    }

    /// Pairs of key and reader.
    pub(crate) fn edges(&self) -> u64 {
        self.edges
    }

    pub(crate) fn followers(&self, key: u32) -> Followers<'_> {
        let seat = self.seats.get(key);
        let many = seat.and_then(|seat| seat.many());
        Followers {
            alone: seat.map_or(&[], Seat::alone),
            many: many
                .and_then(|many| self.keys.get(many))
                .map(|key| &key.readers),
        }
    }

    /// Asks for what the index says of a key.
    #[inline]
    pub(crate) fn ask(&self, key: u32) {
        ask(self.seats.get(key));
    }

    /// Whether the key's records are left to reads.
    #[inline]
    pub(crate) fn is_pulled(&self, key: u32) -> bool {
        self.key(key).is_some_and(|key| key.pulled)
    }

    fn key(&self, key: u32) -> Option<&Key> {
        self.keys.get(self.seats.get(key)?.many()?)
    }

    fn key_mut(&mut self, key: u32) -> Option<&mut Key> {
        self.keys.get_mut(self.seats.get(key)?.many()?)
    }

    /// The [`Key`] of `key`, made if it was in the index alone.
    fn widened(&mut self, key: u32) -> &mut Key {
        let seat = self.seats.slot(key);
        let number = seat.many().unwrap_or_else(|| {
            let number = self.keys_free.pop().unwrap_or_else(|| {
                self.keys_next += 1;
                self.keys_next - 1
            });
            let readers = Sorted::from_unsorted(seat.alone().to_vec());
            *seat = Seat(MANY | number);
            self.keys.slot(number).readers = readers;
            number
        });
        self.keys.slot(number)
    }

    /// Puts a key back into the index if that can hold it.
    fn narrow(&mut self, key: u32) {
        let Some(seat) = self.seats.get_mut(key) else {
            return;
        };
        let Some(number) = seat.many() else {
            return;
        };
        let Some(entry) = self.keys.get_mut(number) else {
            return;
        };
        if entry.is_merged() || entry.readers.len() > 1 {
            return;
        }
        *seat = entry.readers.iter().next().map_or(NOBODY, Seat);
        *entry = Key::default();
        self.keys_free.push(number);
    }

    /// The keys whose outboxes must be merged into every read that follows them.
    pub(crate) fn merged(&self) -> &KeySet {
        &self.merged
    }

    /// The same as pages see them.
    pub(crate) fn shown(&self) -> Arc<Merged> {
        Arc::clone(&self.shown)
    }

    /// Shows a set that changed. There are few such keys, and they change seldom.
    fn show(&self) {
        let keys = Owned::new(self.merged.clone());
        drop(self.shown.keys.swap((Some(keys), Tag::None), Release));
        // Who sees a ring that was built for the new set sees the new set.
        fence(Release);
    }

    fn note(&mut self, key: u32) {
        let merged = self.key(key).is_some_and(Key::is_merged);
        let changed = if merged {
            self.merged.insert(key)
        } else {
            self.merged.remove(&key)
        };
        if changed {
            self.show();
        }
        if !merged {
            self.narrow(key);
        }
    }

    /// Asks for what joining these keys will need, so that the waits overlap.
    pub(crate) fn warm(&self, keys: &[u32]) {
        keys.iter().for_each(|&key| self.ask(key));
        let found = keys.iter().map(|&key| self.key(key));
        found.clone().for_each(ask);
        found.flatten().for_each(|key| key.readers.ask_last());
    }

    pub(crate) fn join(&mut self, key: u32, slot: u32) {
        let seat = self.seats.slot(key);
        if *seat == NOBODY && self.pull_above > 0 {
            *seat = Seat(slot);
            self.edges += 1;
            return;
        }
        if *seat == Seat(slot) {
            return;
        }
        let pull_above = self.pull_above;
        let entry = self.widened(key);
        if !entry.readers.insert(slot) {
            return;
        }
        let turns = !entry.pulled && entry.readers.len() > pull_above;
        entry.pulled |= turns;
        self.edges += 1;
        if turns {
            self.note(key);
        }
    }

    /// Takes a reader out. True if the key is pushed again from now on; then
    /// the caller owes [`Audience::not_pushed`] the key's newest time.
    pub(crate) fn leave(&mut self, key: u32, slot: u32) -> bool {
        if let Some(seat) = self.seats.get_mut(key)
            && *seat == Seat(slot)
        {
            *seat = NOBODY;
            self.edges -= 1;
            return false;
        }
        let pull_above = self.pull_above;
        let Some(entry) = self.key_mut(key) else {
            return false;
        };
        if !entry.readers.remove(slot) {
            return false;
        }
        let turns = entry.pulled && entry.readers.len() <= pull_above / 2;
        entry.pulled &= !turns;
        self.edges -= 1;
        if !turns {
            self.narrow(key);
        }
        turns
    }

    /// Records of `key` up to this moment may be in no ring.
    pub(crate) fn not_pushed(&mut self, key: u32, until_us: Option<i64>) {
        if let Some(until_us) = until_us {
            let entry = self.widened(key);
            entry.unpushed_until_us = entry.unpushed_until_us.max(until_us);
        }
        self.note(key);
    }

    pub(crate) fn fanout_begins(&mut self, key: u32) {
        self.widened(key).unfinished += 1;
        self.note(key);
    }

    pub(crate) fn fanout_ends(&mut self, key: u32) {
        if let Some(entry) = self.key_mut(key) {
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
            if let Some(entry) = self.key_mut(key) {
                entry.unpushed_until_us = i64::MIN;
            }
            self.note(key);
        }
    }

    /// Memory of the index and of keys with more than one reader; lists not counted.
    pub(crate) fn bytes(&self) -> usize {
        self.seats.bytes() + self.keys.bytes()
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
        assert!(audience.is_pulled(9));
        assert!(audience.merged().contains(&9));
        assert!(!audience.leave(9, 0));
        assert!(!audience.leave(9, 1));
        assert!(audience.leave(9, 2), "at half it turns back");
        audience.not_pushed(9, Some(100));
        assert!(!audience.is_pulled(9));
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

    fn readers(audience: &Audience, key: u32) -> Vec<u32> {
        let slices = audience.followers(key).slices_from(0);
        slices.flatten().copied().collect()
    }

    #[test]
    fn a_lone_reader_stands_in_the_index_and_is_moved_out_and_back() {
        let mut audience = Audience::new(4);
        assert_eq!(readers(&audience, 3), []);
        audience.join(3, 0);
        audience.join(3, 0);
        assert_eq!((readers(&audience, 3), audience.edges()), (vec![0], 1));
        assert_eq!(audience.keys_next, 0, "no key was made for one reader");
        audience.join(3, 7);
        assert_eq!((readers(&audience, 3), audience.edges()), (vec![0, 7], 2));
        assert!(!audience.leave(3, 0));
        assert_eq!(readers(&audience, 3), [7]);
        assert_eq!(audience.keys_free, [0], "and given back");
        let above = audience.followers(3).slices_from(8);
        assert_eq!(above.flatten().count(), 0);
        // What is to be remembered of a lone reader's key is.
        audience.not_pushed(3, Some(50));
        assert!(audience.merged().contains(&3));
        assert_eq!(readers(&audience, 3), [7]);
        assert!(!audience.leave(3, 7));
        audience.join(3, 9);
        audience.settle(50);
        assert!(audience.merged().is_empty());
        assert_eq!((readers(&audience, 3), audience.edges()), (vec![9], 1));
        assert_eq!(audience.keys_free, [0]);
    }
}
