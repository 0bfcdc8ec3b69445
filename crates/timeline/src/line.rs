//! Lines: all that a push touches, one cache line for each reader.
//!
//! In:    record numbers, nearly always newer than all before.
//! Out:   the newest numbers of a ring, and where its older ones lie.
//! Never: a number out of order; a second line of memory for a usual push.
//!
//! Nearly all of a push is the wait for memory. So the newest numbers wait in
//! the line that says how new they are, and every eighth push moves eight of
//! them to the ring's body together, where they fill half a cache line.
//!
//! A push may be made while others read. It writes a number where nobody looks
//! yet, and then says that there is one more; who reads takes one look at the
//! whole line and goes on with that. All other changes are made alone.

use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, Ordering};

const NONE: u32 = u32::MAX;
const BARE: u32 = u32::MAX - 1;
const KIND_SHIFT: u32 = 27;
const RING: u32 = (1 << KIND_SHIFT) - 1;
const DROPPED: u16 = 1 << 15;

/// Numbers a line holds; they fill it.
pub(crate) const STAGED_MAX: usize = 11;
/// Numbers that go to the body together.
pub(crate) const SPILL: usize = 8;
/// Numbers that may stay behind when the others go.
pub(crate) const KEPT_MAX: usize = STAGED_MAX - SPILL;

/// The head of a ring, and its newest numbers.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Line {
    newest_us: AtomicI64,
    /// Slab in the high bits, ring in the low ones.
    place: u32,
    /// Where the body's next entry goes.
    end: u16,
    /// Entries of the body, and whether one was ever dropped.
    body: u16,
    staged: AtomicU16,
    /// Numbers beyond which the line spills.
    limit: u16,
    /// Oldest first.
    numbers: [AtomicU32; STAGED_MAX],
}

impl Default for Line {
    /// A closed one: nothing is newer than its newest, so no push is taken.
    fn default() -> Self {
        Self {
            newest_us: i64::MAX.into(),
            place: NONE,
            end: 0,
            body: 0,
            staged: 0.into(),
            limit: STAGED_MAX as u16,
            numbers: Default::default(),
        }
    }
}

/// A line as one look found it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// How many of the numbers are there.
    staged: u16,
    /// Entries of the body, and whether one was ever dropped.
    body: u16,
    /// Where the body's next entry goes.
    pub(crate) end: u16,
    numbers: [u32; STAGED_MAX],
}

impl Line {
    /// An open line without entries and without body.
    ///
    /// A post to millions finds all their lines alike; with limits that differ
    /// from slot to slot it does not make all of them spill at once.
    pub(crate) fn open(slot: u32) -> Self {
        Self {
            newest_us: i64::MIN.into(),
            place: BARE,
            limit: (SPILL + slot as usize % (KEPT_MAX + 1)) as u16,
            ..Self::default()
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.place != NONE
    }

    /// Slab and ring of the body, if there is one.
    #[inline]
    pub(crate) fn place(&self) -> Option<(usize, u32)> {
        (self.place < BARE).then_some(((self.place >> KIND_SHIFT) as usize, self.place & RING))
    }

    pub(crate) fn set_place(&mut self, kind: usize, ring: u32) {
        self.place = (kind as u32) << KIND_SHIFT | ring;
    }

    pub(crate) fn set_newest_us(&mut self, newest_us: i64) {
        *self.newest_us.get_mut() = newest_us;
    }

    /// Where the body's next entry goes.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        usize::from(self.end)
    }

    /// Entries of the body.
    #[inline]
    pub(crate) fn body(&self) -> usize {
        usize::from(self.body & !DROPPED)
    }

    /// The body holds `entries`, and its next goes to `end`.
    pub(crate) fn set_body(&mut self, entries: usize, end: usize) {
        self.body = entries as u16 | self.body & DROPPED;
        self.end = end as u16;
    }

    pub(crate) fn set_dropped(&mut self) {
        self.body |= DROPPED;
    }

    /// The line as it is now.
    #[inline]
    pub(crate) fn look(&self) -> Seen {
        // Before the numbers: those that it counts are there.
        let staged = self.staged.load(Ordering::Acquire);
        let numbers = self.numbers.each_ref();
        Seen {
            staged,
            body: self.body,
            end: self.end,
            numbers: numbers.map(|one| one.load(Ordering::Relaxed)),
        }
    }

    /// The numbers in the line, newest first, and how many they are.
    #[inline]
    pub(crate) fn newest(&self) -> (usize, impl Iterator<Item = u32>) {
        let staged = usize::from(self.staged.load(Ordering::Relaxed));
        let cells = self.numbers.get(..staged).unwrap_or(&[]).iter().rev();
        (staged, cells.map(|cell| cell.load(Ordering::Relaxed)))
    }

    /// A word of the line, to have it at hand.
    #[inline]
    pub(crate) fn touch(&self) -> u32 {
        u32::from(self.staged.load(Ordering::Relaxed))
    }

    /// Adds a number newer than all others, and tells how many entries there were; `None` if it is
    /// not newer, or no room is left. One at a time may push, and others may look meanwhile.
    #[inline]
    pub(crate) fn push(&self, number: u32, time_us: i64) -> Option<usize> {
        let staged = self.staged.load(Ordering::Relaxed);
        if time_us <= self.newest_us.load(Ordering::Relaxed) || staged >= self.limit {
            return None;
        }
        let cell = self.numbers.get(usize::from(staged))?;
        cell.store(number, Ordering::Relaxed);
        self.newest_us.store(time_us, Ordering::Relaxed);
        self.staged.store(staged + 1, Ordering::Release);
        Some(self.body() + usize::from(staged))
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.staged.load(Ordering::Relaxed) >= self.limit
    }

    /// Puts a number below the `newer` newest, where `newer` are in the line.
    /// The line must have room.
    pub(crate) fn insert(&mut self, newer: usize, number: u32) {
        let end = usize::from(*self.staged.get_mut());
        let place = end.saturating_sub(newer);
        if let Some(cells) = self.numbers.get_mut(place..=end) {
            cells.rotate_right(1);
            if let Some(cell) = cells.first_mut() {
                *cell.get_mut() = number;
            }
            *self.staged.get_mut() += 1;
        }
    }

    /// Takes the oldest out of a full line.
    pub(crate) fn spill(&mut self) -> [u32; SPILL] {
        let mut oldest = [0; SPILL];
        let (spilt, kept) = self.numbers.split_at_mut(SPILL);
        for (number, cell) in oldest.iter_mut().zip(spilt.iter_mut()) {
            *number = *cell.get_mut();
        }
        for (cell, number) in spilt.iter_mut().zip(kept) {
            *cell.get_mut() = *number.get_mut();
        }
        let staged = self.staged.get_mut();
        *staged = staged.saturating_sub(SPILL as u16);
        oldest
    }

    /// Holds exactly these, oldest first; at most [`STAGED_MAX`].
    pub(crate) fn set_staged(&mut self, oldest_first: &[u32]) {
        *self.staged.get_mut() = 0;
        for (cell, &number) in self.numbers.iter_mut().zip(oldest_first) {
            *cell.get_mut() = number;
            *self.staged.get_mut() += 1;
        }
    }
}

impl Seen {
    /// Entries in line and body, of which the cap may show fewer.
    #[inline]
    pub(crate) fn total(&self) -> usize {
        usize::from(self.body & !DROPPED) + usize::from(self.staged)
    }

    /// Whether an entry below those of `items_max` was ever let go.
    pub(crate) fn has_dropped(&self, items_max: usize) -> bool {
        self.body & DROPPED != 0 || self.total() > items_max
    }

    /// The numbers in the line, oldest first.
    #[inline]
    pub(crate) fn staged(&self) -> &[u32] {
        self.numbers
            .split_at_checked(usize::from(self.staged))
            .map_or(&[], |(staged, _)| staged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_cache_line() {
        assert_eq!(size_of::<Line>(), 64);
        assert_eq!(align_of::<Line>(), 64);
    }

    #[test]
    fn neighbours_do_not_spill_at_once() {
        let lines = [0, 1, 2, 3].map(Line::open);
        let full = |number: u32, line: &Line| line.push(number, i64::from(number)).is_none();
        let mut first = lines
            .iter()
            .map(|line| (0..20).find(|&number| full(number, line)).unwrap());
        assert!(first.by_ref().eq(8..12));
    }

    #[test]
    fn a_closed_line_takes_nothing() {
        let line = Line::default();
        assert_eq!(line.push(1, i64::MAX), None);
        assert!(!line.is_open());
        assert_eq!(line.look().total(), 0);
    }

    #[test]
    fn a_full_line_spills_its_oldest() {
        let mut line = Line::open(3);
        for number in 0..10 {
            assert_eq!(line.push(number, i64::from(number)), Some(number as usize));
        }
        assert_eq!(line.push(10, 9), None, "not newer than the newest");
        line.insert(3, 77);
        assert!(line.is_full());
        assert_eq!(line.push(11, 11), None, "no room");
        assert_eq!(line.spill(), [0, 1, 2, 3, 4, 5, 6, 77]);
        assert_eq!(line.look().staged(), [7, 8, 9]);
        line.insert(0, 10);
        line.insert(4, 6);
        assert_eq!(line.look().staged(), [6, 7, 8, 9, 10]);
    }
}
