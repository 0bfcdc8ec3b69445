//! Blocks: short strips of record numbers, oldest first.
//!
//! In:    numbers for a place, and removals.
//! Out:   the numbers between the strip's two ends.
//! Never: a strip that moves or grows; who needs more room makes another.
//!
//! The one writer changes a strip while others read it. What is added at the
//! new end or taken from the old one disturbs nobody who began before; a number
//! put between others moves its neighbours, and whoever reads them meanwhile
//! must find that out and begin anew.

use crate::ahead::ask;
use crate::sync::{AtomicU32, Ordering};
use std::ops::Range;

/// Numbers after which another block is begun. With few, the list of blocks is long, which is copied
/// when one comes or goes; with many, a number put between others moves many. Where tests are run
/// they are short, or no test would meet a second one.
pub(crate) const BLOCK_MAX: usize = if cfg!(debug_assertions) { 8 } else { 1 << 13 };
/// Numbers a block may hold: late ones come to it when the next has begun already.
pub(crate) const CROWDED: usize = BLOCK_MAX + BLOCK_MAX / 8;

/// What a number takes in a sequence: its cell, with the room that strips have, and its share of
/// what a block takes besides: itself, what keeps it, and where it is found.
pub(crate) const CELL_BYTES: usize = 5 + (size_of::<Block>() + 32).div_ceil(BLOCK_MAX);

/// Cells of a short strip, which is one cache line with all that belongs to it.
const SHORT: usize = 6;

/// A strip of cells, of which those from `start` to `end` hold numbers.
#[derive(Debug)]
pub(crate) struct Block {
    start: AtomicU32,
    end: AtomicU32,
    /// Most outboxes need no more.
    short: [AtomicU32; SHORT],
    /// Empty if the short ones are used.
    long: Box<[AtomicU32]>,
}

impl Block {
    /// These numbers, with `before` free cells in front of them and `behind` or more after them.
    fn with_room(
        numbers: impl ExactSizeIterator<Item = u32>,
        before: usize,
        behind: usize,
    ) -> Self {
        let end = before + numbers.len();
        let long = match end + behind {
            cells if cells <= SHORT => 0,
            cells => cells,
        };
        let block = Self {
            start: AtomicU32::new(before as u32),
            end: AtomicU32::new(end as u32),
            short: Default::default(),
            long: (0..long).map(|_| AtomicU32::new(0)).collect(),
        };
        for (at, number) in (before..end).zip(numbers) {
            block.set(at, number);
        }
        block
    }

    #[inline]
    fn strip(&self) -> &[AtomicU32] {
        if self.long.is_empty() {
            &self.short
        } else {
            &self.long
        }
    }

    /// One number, with a little room behind it.
    pub(crate) fn of(number: u32) -> Self {
        Self::with_room(std::iter::once(number), 0, SHORT - 1)
    }

    /// One number, with all the room there can be in front of it.
    pub(crate) fn last_of(number: u32) -> Self {
        Self::with_room(std::iter::once(number), BLOCK_MAX - 1, 0)
    }

    /// The same numbers, with more room where the next goes.
    pub(crate) fn roomier(&self, in_front: bool) -> Self {
        let room = (self.len() / 2).min(CROWDED.saturating_sub(self.len()));
        let room = room.max(2);
        let (before, behind) = if in_front { (room, 0) } else { (0, room) };
        Self::with_room(self.iter(), before, behind)
    }

    /// The numbers of a range, with room behind them.
    pub(crate) fn part(&self, from: usize, to: usize) -> Self {
        let numbers = self.iter().skip(from).take(to.saturating_sub(from));
        Self::with_room(numbers, 0, BLOCK_MAX / 8)
    }

    #[inline]
    fn ends(&self) -> (usize, usize) {
        let end = self.end.load(Ordering::Acquire) as usize;
        (self.start.load(Ordering::Relaxed) as usize, end)
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        let (start, end) = self.ends();
        end.saturating_sub(start)
    }

    /// What a cell holds.
    #[inline]
    pub(crate) fn cell(&self, at: usize) -> u32 {
        self.strip()
            .get(at)
            .map_or(0, |cell| cell.load(Ordering::Relaxed))
    }

    fn set(&self, at: usize, number: u32) {
        if let Some(cell) = self.strip().get(at) {
            cell.store(number, Ordering::Relaxed);
        }
    }

    /// The number `place` places above the oldest.
    #[inline]
    pub(crate) fn get(&self, place: usize) -> Option<u32> {
        let (start, end) = self.ends();
        let at = start + place;
        (at < end).then(|| self.cell(at))
    }

    pub(crate) fn first(&self) -> Option<u32> {
        self.get(0)
    }

    pub(crate) fn last(&self) -> Option<u32> {
        let (start, end) = self.ends();
        (start < end).then(|| self.cell(end - 1))
    }

    /// Those at hand now, oldest first.
    fn iter(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        let (start, end) = self.ends();
        (start..end).map(|at| self.cell(at))
    }

    /// The cells that hold numbers now.
    pub(crate) fn cells(&self) -> Range<usize> {
        let (start, end) = self.ends();
        start..end
    }

    /// Those of the oldest whose numbers satisfy `is_older`, which the others do not.
    pub(crate) fn cells_where(&self, is_older: impl Fn(u32) -> bool) -> Range<usize> {
        let (start, end) = self.ends();
        let (mut low, mut high) = (start, end.max(start));
        while low < high {
            let middle = low.midpoint(high);
            if is_older(self.cell(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        start..low
    }

    /// Asks for the cell at the new end.
    #[inline]
    pub(crate) fn ask_end(&self) {
        let (_, end) = self.ends();
        ask(self.long.get(end));
    }

    /// Adds a number at the new end; false if there is no room.
    pub(crate) fn append(&self, number: u32) -> bool {
        let (_, end) = self.ends();
        if end >= self.strip().len() {
            return false;
        }
        self.set(end, number);
        self.end.store(end as u32 + 1, Ordering::Release);
        true
    }

    /// Puts a number below those above `place`; false if there is no room.
    pub(crate) fn insert(&self, place: usize, number: u32) -> bool {
        let (start, end) = self.ends();
        let at = start + place;
        let (below, above) = (place, end.saturating_sub(at));
        let (room_below, room_above) = (start > 0, end < self.strip().len());
        if room_above && (above <= below || !room_below) {
            for to in (at + 1..=end).rev() {
                self.set(to, self.cell(to - 1));
            }
            self.set(at, number);
            self.end.store(end as u32 + 1, Ordering::Release);
        } else if room_below {
            for to in start - 1..at - 1 {
                self.set(to, self.cell(to + 1));
            }
            self.set(at - 1, number);
            self.start.store(start as u32 - 1, Ordering::Release);
        } else {
            return false;
        }
        true
    }

    /// Takes out what stands at `place`.
    pub(crate) fn remove(&self, place: usize) {
        let (start, end) = self.ends();
        let at = start + place;
        if at >= end {
            return;
        }
        if place < end - at {
            for to in (start + 1..=at).rev() {
                self.set(to, self.cell(to - 1));
            }
            self.start.store(start as u32 + 1, Ordering::Release);
        } else {
            for to in at..end - 1 {
                self.set(to, self.cell(to + 1));
            }
            self.end.store(end as u32 - 1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_block_is_one_cache_line_with_what_keeps_it() {
        assert_eq!(size_of::<Block>() + 2 * size_of::<usize>(), 64);
    }

    #[test]
    fn a_block_agrees_with_a_list_at_both_ends_and_between() {
        let mut ours = Block::of(7);
        let mut theirs = vec![7];
        let mut state = 7u64;
        for number in 0..30_000u32 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let place = (state >> 33) as usize % (theirs.len() + 1);
            match state >> 61 {
                0..3 if theirs.len() > 1 => {
                    let place = place.min(theirs.len() - 1);
                    ours.remove(place);
                    theirs.remove(place);
                }
                3 | 4 if theirs.len() < BLOCK_MAX => {
                    if !ours.append(number) {
                        ours = ours.roomier(false);
                        assert!(ours.append(number));
                    }
                    theirs.push(number);
                }
                _ if theirs.len() < BLOCK_MAX => {
                    if !ours.insert(place, number) {
                        ours = ours.roomier(place == 0);
                        assert!(ours.insert(place, number));
                    }
                    theirs.insert(place, number);
                }
                _ => {}
            }
            assert_eq!(ours.len(), theirs.len());
            assert_eq!(ours.get(place), theirs.get(place).copied());
            assert_eq!(ours.last(), theirs.last().copied());
        }
        assert!(ours.iter().eq(theirs.iter().copied()));
        let half = ours.part(1, theirs.len() / 2);
        assert!(half.iter().eq(theirs[1..theirs.len() / 2].iter().copied()));
    }
}
