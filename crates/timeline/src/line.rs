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
//! The one writer writes while others read. A push writes a number where nobody
//! looks yet, and then says that there is one more; who reads takes one look at
//! the whole line and goes on with that. All other changes are made in *turns*:
//! the turn is odd while one is made, so a look in the midst of one is thrown
//! away, and a page whose ring had a turn meanwhile begins anew.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU16, AtomicU32, fence};

const NONE: u32 = u32::MAX;
const BARE: u32 = u32::MAX - 1;
const KIND_SHIFT: u32 = 27;
const RING: u32 = (1 << KIND_SHIFT) - 1;
/// The shape of a body: its end in the low bits, its entries above, both in eights.
const ENTRIES_SHIFT: u32 = 12;
const EIGHTS: u32 = (1 << ENTRIES_SHIFT) - 1;
const DROPPED: u32 = 1 << 24;

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
    place: AtomicU32,
    /// The body's.
    shape: AtomicU32,
    staged: AtomicU8,
    /// Numbers beyond which the line spills.
    limit: AtomicU8,
    /// Odd while the line changes otherwise than by a push.
    turn: AtomicU16,
    /// Oldest first.
    numbers: [AtomicU32; STAGED_MAX],
}

impl Default for Line {
    /// A closed one: nothing is newer than its newest, so no push is taken.
    fn default() -> Self {
        Self {
            newest_us: AtomicI64::new(i64::MAX),
            place: AtomicU32::new(NONE),
            shape: AtomicU32::new(0),
            staged: AtomicU8::new(0),
            limit: AtomicU8::new(STAGED_MAX as u8),
            turn: AtomicU16::new(0),
            numbers: Default::default(),
        }
    }
}

/// A line as one look found it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    place: u32,
    shape: u32,
    /// How many of the numbers are there.
    staged: u8,
    pub(crate) turn: u16,
    numbers: [u32; STAGED_MAX],
}

impl Line {
    /// The line as it is now; what the one writer looks at, or what a look is made of.
    #[inline]
    pub(crate) fn seen(&self) -> Seen {
        let turn = self.turn.load(Acquire);
        // Before the numbers: those that it counts are there.
        let staged = self.staged.load(Acquire);
        let numbers = self.numbers.each_ref();
        Seen {
            place: self.place.load(Relaxed),
            shape: self.shape.load(Relaxed),
            staged,
            turn,
            numbers: numbers.map(|one| one.load(Relaxed)),
        }
    }

    /// One look at the line; `None` in the midst of a turn.
    #[inline]
    pub(crate) fn look(&self) -> Option<Seen> {
        let seen = self.seen();
        (seen.turn.is_multiple_of(2) && self.is_still(seen.turn)).then_some(seen)
    }

    /// Whether no turn was made since.
    #[inline]
    pub(crate) fn is_still(&self, turn: u16) -> bool {
        fence(Acquire);
        self.turn.load(Relaxed) == turn
    }
}

/// What the one writer does. All but [`Line::push`] is done within a turn.
impl Line {
    /// Makes changes that whoever looks meanwhile must not believe.
    pub(crate) fn turn<T>(&self, change: impl FnOnce(&Self) -> T) -> T {
        let turn = self.turn.load(Relaxed);
        self.turn.store(turn.wrapping_add(1), Relaxed);
        fence(Release);
        let outcome = change(self);
        self.turn.store(turn.wrapping_add(2), Release);
        outcome
    }

    /// Opens the line, without entries and without body.
    ///
    /// A post to millions finds all their lines alike; with limits that differ
    /// from slot to slot it does not make all of them spill at once.
    pub(crate) fn open(&self, slot: u32) {
        self.newest_us.store(i64::MIN, Relaxed);
        self.place.store(BARE, Relaxed);
        self.shape.store(0, Relaxed);
        self.staged.store(0, Relaxed);
        let limit = (SPILL + slot as usize % (KEPT_MAX + 1)) as u8;
        self.limit.store(limit, Relaxed);
    }

    /// Closes it; no push is taken.
    pub(crate) fn close(&self) {
        self.newest_us.store(i64::MAX, Relaxed);
        self.place.store(NONE, Relaxed);
        self.shape.store(0, Relaxed);
        self.staged.store(0, Relaxed);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.place.load(Relaxed) != NONE
    }

    /// Slab and ring of the body, if there is one.
    #[inline]
    pub(crate) fn place(&self) -> Option<(usize, u32)> {
        unpack(self.place.load(Relaxed))
    }

    pub(crate) fn set_place(&self, kind: usize, ring: u32) {
        self.place
            .store((kind as u32) << KIND_SHIFT | ring, Relaxed);
    }

    pub(crate) fn set_newest_us(&self, newest_us: i64) {
        self.newest_us.store(newest_us, Relaxed);
    }

    /// Where the body's next entry goes.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        end_of(self.shape.load(Relaxed))
    }

    /// Entries of the body.
    #[inline]
    pub(crate) fn body(&self) -> usize {
        entries_of(self.shape.load(Relaxed))
    }

    /// The body holds `entries`, and its next goes to `end`; both are multiples of eight.
    pub(crate) fn set_body(&self, entries: usize, end: usize) {
        let dropped = self.shape.load(Relaxed) & DROPPED;
        let (entries, end) = (entries as u32 / 8, end as u32 / 8);
        let shape = entries << ENTRIES_SHIFT | end;
        self.shape.store(dropped | shape, Relaxed);
    }

    /// Whether an entry below those of `items_max` was ever let go.
    #[inline]
    pub(crate) fn has_dropped(&self, items_max: usize) -> bool {
        let shape = self.shape.load(Relaxed);
        let staged = usize::from(self.staged.load(Relaxed));
        shape & DROPPED != 0 || entries_of(shape) + staged > items_max
    }

    pub(crate) fn set_dropped(&self) {
        let shape = self.shape.load(Relaxed);
        self.shape.store(shape | DROPPED, Relaxed);
    }

    /// The numbers in the line, newest first, and how many they are.
    #[inline]
    pub(crate) fn newest(&self) -> (usize, impl Iterator<Item = u32>) {
        let staged = usize::from(self.staged.load(Relaxed));
        let cells = self.numbers.get(..staged).unwrap_or(&[]).iter().rev();
        (staged, cells.map(|cell| cell.load(Relaxed)))
    }

    /// Adds a number newer than all others, and tells how many entries there were; `None` if it is
    /// not newer, or no room is left.
    #[inline]
    pub(crate) fn push(&self, number: u32, time_us: i64) -> Option<usize> {
        let staged = self.staged.load(Relaxed);
        if time_us <= self.newest_us.load(Relaxed) || staged >= self.limit.load(Relaxed) {
            return None;
        }
        let cell = self.numbers.get(usize::from(staged))?;
        cell.store(number, Relaxed);
        self.newest_us.store(time_us, Relaxed);
        self.staged.store(staged + 1, Release);
        Some(self.body() + usize::from(staged))
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.staged.load(Relaxed) >= self.limit.load(Relaxed)
    }

    /// Puts a number below the `newer` newest, where `newer` are in the line.
    /// The line must have room.
    pub(crate) fn insert(&self, newer: usize, number: u32) {
        let end = usize::from(self.staged.load(Relaxed));
        let place = end.saturating_sub(newer);
        let Some(cells) = self.numbers.get(place..=end) else {
            return;
        };
        let mut carried = number;
        for cell in cells {
            let here = cell.load(Relaxed);
            cell.store(carried, Relaxed);
            carried = here;
        }
        self.staged.store(end as u8 + 1, Relaxed);
    }

    /// Takes the oldest out of a full line.
    pub(crate) fn spill(&self) -> [u32; SPILL] {
        let mut oldest = [0; SPILL];
        let (spilt, kept) = self.numbers.split_at(SPILL);
        for (number, cell) in oldest.iter_mut().zip(spilt) {
            *number = cell.load(Relaxed);
        }
        for (cell, number) in spilt.iter().zip(kept) {
            cell.store(number.load(Relaxed), Relaxed);
        }
        let staged = self.staged.load(Relaxed).saturating_sub(SPILL as u8);
        self.staged.store(staged, Relaxed);
        oldest
    }

    /// Holds exactly these, oldest first; at most [`STAGED_MAX`].
    pub(crate) fn set_staged(&self, oldest_first: &[u32]) {
        for (cell, &number) in self.numbers.iter().zip(oldest_first) {
            cell.store(number, Relaxed);
        }
        let staged = oldest_first.len().min(STAGED_MAX) as u8;
        self.staged.store(staged, Relaxed);
    }
}

fn unpack(place: u32) -> Option<(usize, u32)> {
    (place < BARE).then_some(((place >> KIND_SHIFT) as usize, place & RING))
}

#[inline]
fn end_of(shape: u32) -> usize {
    (shape & EIGHTS) as usize * 8
}

#[inline]
fn entries_of(shape: u32) -> usize {
    (shape >> ENTRIES_SHIFT & EIGHTS) as usize * 8
}

impl Seen {
    pub(crate) fn is_open(&self) -> bool {
        self.place != NONE
    }

    /// Slab and ring of the body, if there is one.
    #[inline]
    pub(crate) fn place(&self) -> Option<(usize, u32)> {
        unpack(self.place)
    }

    /// Where the body's next entry goes.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        end_of(self.shape)
    }

    /// Entries in line and body, of which the cap may show fewer.
    #[inline]
    pub(crate) fn total(&self) -> usize {
        entries_of(self.shape) + usize::from(self.staged)
    }

    /// Whether an entry below those of `items_max` was ever let go.
    pub(crate) fn has_dropped(&self, items_max: usize) -> bool {
        self.shape & DROPPED != 0 || self.total() > items_max
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

    fn opened(slot: u32) -> Line {
        let line = Line::default();
        line.turn(|line| line.open(slot));
        line
    }

    #[test]
    fn a_look_in_the_midst_of_a_turn_is_thrown_away() {
        let line = opened(3);
        let turn = line.look().unwrap().turn;
        line.push(1, 1);
        assert!(line.is_still(turn), "a push is no turn");
        line.turn(|line| assert!(line.look().is_none()));
        assert!(!line.is_still(turn));
        assert_eq!(line.look().unwrap().staged(), [1]);
    }

    #[test]
    fn a_body_of_any_shape_is_told_as_it_was_set() {
        let line = opened(3);
        for (entries, end) in [(0, 0), (8, 8), (32_760, 0), (504, 32_752)] {
            line.set_body(entries, end);
            assert_eq!((line.body(), line.end()), (entries, end));
        }
        line.set_dropped();
        line.set_body(16, 8);
        assert_eq!((line.body(), line.end()), (16, 8));
        assert!(line.seen().has_dropped(100));
    }

    #[test]
    fn neighbours_do_not_spill_at_once() {
        let lines = [0, 1, 2, 3].map(opened);
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
        assert_eq!(line.seen().total(), 0);
    }

    #[test]
    fn a_full_line_spills_its_oldest() {
        let line = opened(3);
        for number in 0..10 {
            assert_eq!(line.push(number, i64::from(number)), Some(number as usize));
        }
        assert_eq!(line.push(10, 9), None, "not newer than the newest");
        line.insert(3, 77);
        assert!(line.is_full());
        assert_eq!(line.push(11, 11), None, "no room");
        assert_eq!(line.spill(), [0, 1, 2, 3, 4, 5, 6, 77]);
        assert_eq!(line.seen().staged(), [7, 8, 9]);
        line.insert(0, 10);
        line.insert(4, 6);
        assert_eq!(line.seen().staged(), [6, 7, 8, 9, 10]);
    }
}
