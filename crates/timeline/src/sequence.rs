//! Sequences: record numbers kept in the order of the feed.
//!
//! In:    numbers, nearly always newer than all before; sometimes late ones.
//! Out:   a walk from the newest, or from a cursor, backwards.
//! Never: an insertion whose cost grows with the sequence.
//!
//! An outbox (the records of one key) and the whole window of a target are
//! both sequences. Blocks keep a late record's insertion local; the window of
//! ten million records is only a longer list of blocks.

use crate::records::{Position, Records};
use crate::sorted::room_after;
use std::cmp::Ordering;
use std::collections::VecDeque;

const BLOCK_MAX: usize = 1024;

/// Record numbers, oldest first, in blocks.
///
/// The newest block stands in the sequence itself: most outboxes have no other.
#[derive(Debug)]
#[expect(
    clippy::box_collection,
    reason = "a field of one word instead of three or four, in millions of places"
)]
pub(crate) struct Sequence {
    /// Boxed, because few have it and all would pay for its length.
    older: Option<Box<VecDeque<VecDeque<u32>>>>,
    /// Empty only if everything is.
    newest: VecDeque<u32>,
    /// No record here is later.
    newest_us: i64,
}

impl Default for Sequence {
    fn default() -> Self {
        Self {
            older: None,
            newest: VecDeque::new(),
            newest_us: i64::MIN,
        }
    }
}

/// A place in a [`Sequence`], walking towards older records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walk {
    block: usize,
    /// One past the next element to give.
    end: usize,
}

impl Sequence {
    pub(crate) fn is_empty(&self) -> bool {
        self.newest.is_empty()
    }

    pub(crate) fn newest(&self) -> Option<u32> {
        self.newest.back().copied()
    }

    pub(crate) fn oldest(&self) -> Option<u32> {
        self.block(0).front().copied()
    }

    /// How many blocks there are besides the newest.
    #[inline]
    fn older(&self) -> usize {
        self.older.as_ref().map_or(0, |older| older.len())
    }

    #[inline]
    fn block(&self, at: usize) -> &VecDeque<u32> {
        let older = self.older.as_ref().and_then(|older| older.get(at));
        older.unwrap_or(&self.newest)
    }

    fn block_mut(&mut self, at: usize) -> &mut VecDeque<u32> {
        let older = self.older.as_mut().and_then(|older| older.get_mut(at));
        older.unwrap_or(&mut self.newest)
    }

    /// The first block whose last element satisfies `late_enough`, else the newest.
    fn block_where(&self, late_enough: impl Fn(u32) -> bool) -> usize {
        self.older.as_ref().map_or(0, |older| {
            older.partition_point(|block| block.back().is_some_and(|&last| !late_enough(last)))
        })
    }

    /// The block and the place in it where `number` is or belongs.
    ///
    /// Records from a network are late by moments, so the newest entries are
    /// asked first; halving ten million would touch memory nobody has used lately.
    fn place_of(&self, number: u32, records: &Records) -> (usize, usize) {
        let time_us = records.time_us(number);
        let is_older = |one: u32| records.compare_at(one, number, time_us) == Ordering::Less;
        let newest = self.older();
        let near = (newest.saturating_sub(1)..=newest).rev().find(|&at| {
            let first = self.block(at).front();
            first.is_some_and(|&first| is_older(first))
        });
        let at = near.unwrap_or_else(|| self.block_where(|last| !is_older(last)));
        let block = self.block(at);
        (at, block.len() - newer_than(block, is_older))
    }

    /// Puts `number` in its place; false if it was there.
    pub(crate) fn insert(&mut self, number: u32, records: &Records) -> bool {
        let time_us = records.time_us(number);
        if time_us > self.newest_us || self.is_empty() {
            self.newest_us = self.newest_us.max(time_us);
            self.append(number);
            return true;
        }
        let (at, place) = self.place_of(number, records);
        let block = self.block_mut(at);
        if block.get(place) == Some(&number) {
            return false;
        }
        if at == 0 && place == 0 && block.len() >= BLOCK_MAX {
            // Loading walks backwards in time; a full block at the old end needs no split.
            let older = self.older.get_or_insert_default();
            older.push_front(VecDeque::from([number]));
            return true;
        }
        block.insert(place, number);
        if block.len() > BLOCK_MAX {
            let upper = block.split_off(BLOCK_MAX / 2);
            let older = self.older.get_or_insert_default();
            if at < older.len() {
                older.insert(at + 1, upper);
            } else {
                older.push_back(std::mem::replace(&mut self.newest, upper));
            }
        }
        true
    }

    fn append(&mut self, number: u32) {
        if self.newest.len() >= BLOCK_MAX {
            let full = std::mem::take(&mut self.newest);
            self.older.get_or_insert_default().push_back(full);
        }
        if self.newest.len() == self.newest.capacity() {
            self.newest
                .reserve_exact(room_after(self.newest.len()) - self.newest.len());
        }
        self.newest.push_back(number);
    }

    fn drop_empty(&mut self, at: usize) {
        let Some(older) = &mut self.older else {
            self.newest = VecDeque::new();
            return;
        };
        if at < older.len() {
            older.remove(at);
        } else {
            self.newest = older.pop_back().unwrap_or_default();
        }
    }

    /// Takes out the oldest.
    pub(crate) fn pop_oldest(&mut self) -> Option<u32> {
        let block = self.block_mut(0);
        let number = block.pop_front();
        if block.is_empty() {
            self.drop_empty(0);
        }
        number
    }

    /// Takes out `number` wherever it is; false if it is not there.
    pub(crate) fn remove(&mut self, number: u32, records: &Records) -> bool {
        let (at, place) = self.place_of(number, records);
        let block = self.block_mut(at);
        if block.get(place) != Some(&number) {
            return false;
        }
        block.remove(place);
        if block.is_empty() {
            self.drop_empty(at);
        }
        true
    }

    /// A walk from the newest, or from the first older than `before`.
    pub(crate) fn walk(&self, before: Option<&Position>, records: &Records) -> Walk {
        let Some(before) = before else {
            return Walk {
                block: self.older(),
                end: self.newest.len(),
            };
        };
        let block = self.block_where(|last| !records.is_older(last, before));
        let end = self
            .block(block)
            .partition_point(|&one| records.is_older(one, before));
        Walk { block, end }
    }

    /// The next older number.
    #[inline]
    pub(crate) fn back(&self, walk: &mut Walk) -> Option<u32> {
        while walk.end == 0 {
            walk.block = walk.block.checked_sub(1)?;
            walk.end = self.block(walk.block).len();
        }
        walk.end -= 1;
        self.block(walk.block).get(walk.end).copied()
    }
}

/// How many of a block are not older, searched from its new end by doubling
/// steps and then by halves, so that the cost is that of how late a record is.
fn newer_than(block: &VecDeque<u32>, is_older: impl Fn(u32) -> bool) -> usize {
    let length = block.len();
    let is_newer = |back: usize| {
        let one = length.checked_sub(back + 1).and_then(|at| block.get(at));
        one.is_some_and(|&one| !is_older(one))
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

    fn records(times: &[i64]) -> (Records, Vec<u32>) {
        let mut records = Records::default();
        let numbers = times
            .iter()
            .enumerate()
            .map(|(at, &time)| {
                records.add(at as u64, time, &format!("at://a/b/{at:09}"), 1, &[1], None)
            })
            .collect();
        (records, numbers)
    }

    fn walked(sequence: &Sequence, records: &Records, before: Option<&Position>) -> Vec<u32> {
        let mut walk = sequence.walk(before, records);
        std::iter::from_fn(|| sequence.back(&mut walk)).collect()
    }

    #[test]
    fn any_order_of_arrival_gives_one_order() {
        let times: Vec<i64> = (0..6_000).map(|at| (at * 7_919) % 2_000).collect();
        let (records, numbers) = records(&times);
        let mut sequence = Sequence::default();
        for &number in &numbers {
            assert!(sequence.insert(number, &records));
            assert!(!sequence.insert(number, &records));
        }
        let mut expected = numbers.clone();
        expected.sort_by(|one, other| records.compare(*other, *one));
        assert_eq!(walked(&sequence, &records, None), expected);
        for at in [0, 1, 999, 5_999] {
            let before = records.position(expected[at]);
            assert_eq!(
                walked(&sequence, &records, Some(&before)),
                expected[at + 1..]
            );
        }
        for &number in expected.iter().step_by(3) {
            assert!(sequence.remove(number, &records));
            assert!(!sequence.remove(number, &records));
        }
        let rest: Vec<u32> = expected
            .iter()
            .enumerate()
            .filter(|(at, _)| at % 3 != 0)
            .map(|(_, n)| *n)
            .collect();
        assert_eq!(walked(&sequence, &records, None), rest);
        let mut oldest_first: Vec<u32> = std::iter::from_fn(|| sequence.pop_oldest()).collect();
        oldest_first.reverse();
        assert_eq!(oldest_first, rest);
        assert!(sequence.is_empty());
    }

    #[test]
    fn loading_backwards_gives_the_same_order() {
        let times: Vec<i64> = (0..4_000).rev().collect();
        let (records, numbers) = records(&times);
        let mut sequence = Sequence::default();
        for &number in &numbers {
            sequence.insert(number, &records);
        }
        assert_eq!(walked(&sequence, &records, None), numbers);
    }
}
