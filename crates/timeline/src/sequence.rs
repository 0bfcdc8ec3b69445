//! Sequences: record numbers kept in the order of the feed.
//!
//! In:    numbers, nearly always newer than all before; sometimes late ones.
//! Out:   a walk from the newest, or from a cursor, backwards.
//! Never: an insertion whose cost grows with the sequence; a writer that waits
//!        for a walk.
//!
//! An outbox (the records of one key) and the whole window of a target are
//! both sequences. Blocks keep a late record's insertion local; the window of
//! ten million records is only a longer list of blocks.
//!
//! A walk may go on while the one writer writes. What is added at the new end
//! does not disturb it; anything else may, and then it has to begin anew:
//! [`Sequence::version`] tells.

use crate::block::{BLOCK_MAX, Block, CROWDED};
use crate::records::{Position, Records};
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicI64, AtomicU32};
use crate::version::Version;
use sdd::{AtomicOwned, AtomicShared, Guard, Owned, Shared, Tag};
use std::cmp::Ordering;
use std::ops::Range;

/// Record numbers, oldest first, in blocks.
///
/// The newest block stands in the sequence itself: most outboxes have no other. Two sequences are
/// one cache line.
#[derive(Debug)]
#[repr(align(32))]
pub(crate) struct Sequence {
    older: AtomicOwned<Vec<Shared<Block>>>,
    /// None or empty only if everything is.
    newest: AtomicShared<Block>,
    /// No record here is later.
    newest_us: AtomicI64,
    /// Another one after numbers moved.
    version: Version,
    /// What the URI of the newest record began with; in an outbox the next will as well.
    prefix: AtomicU32,
}

impl Default for Sequence {
    fn default() -> Self {
        Self {
            older: AtomicOwned::null(),
            newest: AtomicShared::null(),
            newest_us: AtomicI64::new(i64::MIN),
            version: Version::default(),
            prefix: AtomicU32::new(u32::MAX),
        }
    }
}

/// The blocks of a sequence as one look found them.
#[derive(Debug, Clone, Copy)]
struct Blocks<'g> {
    older: &'g [Shared<Block>],
    newest: Option<&'g Block>,
}

impl<'g> Blocks<'g> {
    /// The number of the newest.
    #[inline]
    fn last(&self) -> usize {
        self.older.len()
    }

    #[inline]
    fn block(&self, at: usize) -> Option<&'g Block> {
        match self.older.get(at) {
            Some(block) => Some(block),
            None => self.newest,
        }
    }

    /// The first block whose last element satisfies `late_enough`, else the newest.
    fn block_where(&self, late_enough: impl Fn(u32) -> bool) -> usize {
        let is_early = |block: &Shared<Block>| block.last().is_some_and(|last| !late_enough(last));
        self.older.partition_point(is_early)
    }

    /// The block and the place in it where `number` is or belongs.
    ///
    /// Records from a network are late by moments, so the newest entries are
    /// asked first; halving ten million would touch memory nobody has used lately.
    fn place_of(&self, number: u32, records: &Records) -> (usize, usize) {
        let time_us = records.time_us(number);
        let is_older = |one: u32| records.compare_at(one, number, time_us) == Ordering::Less;
        let newest = self.last();
        // The first of a block may be the one.
        let near = (newest.saturating_sub(1)..=newest).rev().find(|&at| {
            let first = self.block(at).and_then(Block::first);
            first.is_some_and(|first| first == number || is_older(first))
        });
        let at = near.unwrap_or_else(|| self.block_where(|last| !is_older(last)));
        let block = self.block(at);
        (
            at,
            block.map_or(0, |block| block.len() - newer_than(block, is_older)),
        )
    }
}

/// A walk towards older records.
///
/// It goes by cells, not by places: the oldest may be taken out meanwhile.
#[derive(Debug, Clone)]
pub(crate) struct Walk<'g> {
    blocks: Blocks<'g>,
    at: usize,
    /// The cells of this block that are left.
    cells: Range<usize>,
}

impl Iterator for Walk<'_> {
    type Item = u32;

    /// The next older number.
    #[inline]
    fn next(&mut self) -> Option<u32> {
        loop {
            if let Some(cell) = self.cells.next_back() {
                return Some(self.blocks.block(self.at)?.cell(cell));
            }
            self.at = self.at.checked_sub(1)?;
            self.cells = self.blocks.block(self.at)?.cells();
        }
    }
}

impl Sequence {
    #[inline]
    fn blocks<'g>(&self, guard: &'g Guard) -> Blocks<'g> {
        let older = self.older.load(Acquire, guard).as_ref();
        Blocks {
            older: older.map_or(&[], Vec::as_slice),
            newest: self.newest.load(Acquire, guard).as_ref(),
        }
    }

    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self, guard: &Guard) -> bool {
        self.newest(guard).is_none()
    }

    pub(crate) fn newest(&self, guard: &Guard) -> Option<u32> {
        self.newest_block(guard)?.last()
    }

    #[inline]
    pub(crate) fn newest_block<'g>(&self, guard: &'g Guard) -> Option<&'g Block> {
        self.newest.load(Acquire, guard).as_ref()
    }

    pub(crate) fn oldest(&self, guard: &Guard) -> Option<u32> {
        self.blocks(guard).block(0)?.first()
    }

    /// What the URI of the newest record began with.
    pub(crate) fn prefix(&self) -> u32 {
        self.prefix.load(Relaxed)
    }

    /// The version before a walk.
    pub(crate) fn version(&self) -> u32 {
        self.version.now()
    }

    /// Whether nothing but the ends moved since that version.
    pub(crate) fn is_still(&self, version: u32) -> bool {
        self.version.is_still(version)
    }

    /// A walk from the newest, or from the first older than `before`.
    pub(crate) fn walk<'g>(
        &self,
        before: Option<&Position>,
        records: &Records,
        guard: &'g Guard,
    ) -> Walk<'g> {
        let blocks = self.blocks(guard);
        let Some(before) = before else {
            return Walk {
                blocks,
                at: blocks.last(),
                cells: blocks.newest.map_or(0..0, Block::cells),
            };
        };
        let at = blocks.block_where(|last| !records.is_older(last, before));
        let older = |block: &Block| block.cells_where(|one| records.is_older(one, before));
        Walk {
            blocks,
            at,
            cells: blocks.block(at).map_or(0..0, older),
        }
    }
}

/// What the one writer does.
impl Sequence {
    /// Puts `number` in its place; false if it was there.
    pub(crate) fn insert(&self, number: u32, records: &Records, guard: &Guard) -> bool {
        let prefix = records.prefix(number).unwrap_or(u32::MAX);
        self.prefix.store(prefix, Relaxed);
        let time_us = records.time_us(number);
        if time_us > self.newest_us.load(Relaxed) || self.is_empty(guard) {
            let newest_us = self.newest_us.load(Relaxed).max(time_us);
            self.newest_us.store(newest_us, Relaxed);
            self.append(number, guard);
            return true;
        }
        let blocks = self.blocks(guard);
        let (at, place) = blocks.place_of(number, records);
        let Some(block) = blocks.block(at) else {
            return false;
        };
        if block.get(place) == Some(number) {
            return false;
        }
        self.version
            .change(|| self.insert_at(&blocks, at, place, number));
        true
    }

    fn insert_at(&self, blocks: &Blocks<'_>, at: usize, place: usize, number: u32) {
        let Some(block) = blocks.block(at) else {
            return;
        };
        if at == 0 && place == 0 && block.len() >= BLOCK_MAX {
            // Loading walks backwards in time; a full block at the old end needs no split.
            self.edit_older(blocks, |older| {
                older.insert(0, Shared::new(Block::last_of(number)))
            });
        } else if block.len() >= CROWDED {
            let half = block.len() / 2;
            let (lower, upper) = (block.part(0, half), block.part(half, block.len()));
            let put = match place.checked_sub(half) {
                Some(place) => upper.insert(place, number),
                None => lower.insert(place, number),
            };
            debug_assert!(put, "a half has room");
            self.replace(blocks, at, upper);
            // The list may be another one now, but what is at `at` still belongs there.
            let guard = Guard::new();
            let blocks = self.blocks(&guard);
            self.edit_older(&blocks, |older| older.insert(at, Shared::new(lower)));
        } else if !block.insert(place, number) {
            let roomier = block.roomier(place == 0);
            let put = roomier.insert(place, number);
            debug_assert!(put, "it was made roomier");
            self.replace(blocks, at, roomier);
        }
    }

    /// Makes another block stand at `at`.
    fn replace(&self, blocks: &Blocks<'_>, at: usize, block: Block) {
        if at < blocks.last() {
            self.edit_older(blocks, |older| {
                if let Some(place) = older.get_mut(at) {
                    *place = Shared::new(block);
                }
            });
        } else {
            drop(
                self.newest
                    .swap((Some(Shared::new(block)), Tag::None), Release),
            );
        }
    }

    /// Makes another list of all blocks but the newest.
    fn edit_older(&self, blocks: &Blocks<'_>, edit: impl FnOnce(&mut Vec<Shared<Block>>)) {
        let mut older = Vec::with_capacity(blocks.last() + 1);
        older.extend_from_slice(blocks.older);
        edit(&mut older);
        let older = (!older.is_empty()).then(|| Owned::new(older));
        drop(self.older.swap((older, Tag::None), Release));
    }

    fn append(&self, number: u32, guard: &Guard) {
        let Some(newest) = self.newest.load(Relaxed, guard).as_ref() else {
            let first = Shared::new(Block::of(number));
            drop(self.newest.swap((Some(first), Tag::None), Release));
            return;
        };
        if newest.len() >= BLOCK_MAX {
            self.version.change(|| {
                let next = Shared::new(Block::of(number));
                let (full, _) = self.newest.swap((Some(next), Tag::None), Release);
                self.edit_older(&self.blocks(guard), |older| older.extend(full));
            });
        } else if !newest.append(number) {
            // Who walks the old one does not miss what was added after it began.
            let roomier = newest.roomier(false);
            let put = roomier.append(number);
            debug_assert!(put, "it was made roomier");
            drop(
                self.newest
                    .swap((Some(Shared::new(roomier)), Tag::None), Release),
            );
        }
    }

    fn drop_empty(&self, blocks: &Blocks<'_>, at: usize) {
        if at < blocks.last() {
            self.edit_older(blocks, |older| {
                older.remove(at);
            });
        } else {
            let newest = blocks.older.last().cloned();
            drop(self.newest.swap((newest, Tag::None), Release));
            self.edit_older(blocks, |older| {
                older.pop();
            });
        }
    }

    /// Takes out the oldest. A walk under way does not notice.
    pub(crate) fn pop_oldest(&self, guard: &Guard) -> Option<u32> {
        let blocks = self.blocks(guard);
        let block = blocks.block(0)?;
        let number = block.first()?;
        if block.len() == 1 {
            self.version.change(|| {
                block.remove(0);
                self.drop_empty(&blocks, 0);
            });
        } else {
            block.remove(0);
        }
        Some(number)
    }

    /// Takes out `number` wherever it is; false if it is not there.
    pub(crate) fn remove(&self, number: u32, records: &Records, guard: &Guard) -> bool {
        let blocks = self.blocks(guard);
        let (at, place) = blocks.place_of(number, records);
        let Some(block) = blocks.block(at) else {
            return false;
        };
        if block.get(place) != Some(number) {
            return false;
        }
        self.version.change(|| {
            block.remove(place);
            if block.len() == 0 {
                self.drop_empty(&blocks, at);
            }
        });
        true
    }

    /// Lets go of everything; it must be empty.
    pub(crate) fn clear(&self) {
        drop(self.older.swap((None, Tag::None), Release));
        drop(self.newest.swap((None, Tag::None), Release));
        self.newest_us.store(i64::MIN, Relaxed);
        self.prefix.store(u32::MAX, Relaxed);
    }
}

/// How many of a block are not older, searched from its new end by doubling
/// steps and then by halves, so that the cost is that of how late a record is.
fn newer_than(block: &Block, is_older: impl Fn(u32) -> bool) -> usize {
    let length = block.len();
    let is_newer = |back: usize| {
        let one = length.checked_sub(back + 1).and_then(|at| block.get(at));
        one.is_some_and(|one| !is_older(one))
    };
    let (mut low, mut high) = (0, 1);
    while is_newer(high - 1) {
        low = high;
        high *= 2;
    }
    // `low` are newer; the one `high - 1` back is not, or there is none.
    high = high.min(length + 1) - 1;
    while low < high {
        let middle = low.midpoint(high);
        if is_newer(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::RecordsWriter;

    fn records(times: &[i64]) -> (Records, Vec<u32>) {
        let records = Records::default();
        let mut writer = RecordsWriter::default();
        let numbers = times
            .iter()
            .enumerate()
            .map(|(at, &time)| {
                let uri = format!("at://a/b/{at:09}");
                writer.add(&records, at as u64, time, &uri, 1, &[1], None)
            })
            .collect();
        (records, numbers)
    }

    fn walked(sequence: &Sequence, records: &Records, before: Option<&Position>) -> Vec<u32> {
        sequence.walk(before, records, &Guard::new()).collect()
    }

    #[test]
    fn any_order_of_arrival_gives_one_order() {
        let times: Vec<i64> = (0..20_000).map(|at| (at * 7_919) % 2_000).collect();
        let (records, numbers) = records(&times);
        let sequence = Sequence::default();
        let guard = Guard::new();
        for &number in &numbers {
            assert!(sequence.insert(number, &records, &guard));
            assert!(!sequence.insert(number, &records, &guard));
        }
        let mut expected = numbers.clone();
        expected.sort_by(|one, other| records.compare(*other, *one));
        assert_eq!(walked(&sequence, &records, None), expected);
        for at in [0, 1, 999, 19_999] {
            let before = records.position(expected[at]);
            assert_eq!(
                walked(&sequence, &records, Some(&before)),
                expected[at + 1..]
            );
        }
        for &number in expected.iter().step_by(3) {
            assert!(sequence.remove(number, &records, &guard));
            assert!(!sequence.remove(number, &records, &guard));
        }
        let rest: Vec<u32> = expected
            .iter()
            .enumerate()
            .filter(|(at, _)| at % 3 != 0)
            .map(|(_, n)| *n)
            .collect();
        assert_eq!(walked(&sequence, &records, None), rest);
        let mut oldest_first: Vec<u32> =
            std::iter::from_fn(|| sequence.pop_oldest(&guard)).collect();
        oldest_first.reverse();
        assert_eq!(oldest_first, rest);
        assert!(sequence.is_empty(&guard));
    }

    #[test]
    fn the_first_of_a_block_is_found() {
        let times: Vec<i64> = (0..3 * BLOCK_MAX as i64).collect();
        let (records, numbers) = records(&times);
        let sequence = Sequence::default();
        let guard = Guard::new();
        for &number in &numbers {
            assert!(sequence.insert(number, &records, &guard));
        }
        for first in [2 * BLOCK_MAX, BLOCK_MAX, 0] {
            assert!(!sequence.insert(numbers[first], &records, &guard));
            assert!(sequence.remove(numbers[first], &records, &guard));
        }
    }

    #[test]
    fn two_sequences_are_one_cache_line() {
        assert_eq!(size_of::<Sequence>(), 32);
    }

    #[test]
    fn loading_backwards_gives_the_same_order() {
        let times: Vec<i64> = (0..14_000).rev().collect();
        let (records, numbers) = records(&times);
        let sequence = Sequence::default();
        let guard = Guard::new();
        for &number in &numbers {
            sequence.insert(number, &records, &guard);
        }
        assert_eq!(walked(&sequence, &records, None), numbers);
    }
}
