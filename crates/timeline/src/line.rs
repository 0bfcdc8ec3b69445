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
//! the whole line and goes on with that. All other changes give the line another
//! version: a look in the midst of one is thrown away, and a page whose ring has
//! another version in the end begins anew.

use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicI64, AtomicU32};
use crate::version::Version;

const NONE: u32 = u32::MAX;
const BARE: u32 = u32::MAX - 1;
const KIND_SHIFT: u32 = 27;
const RING: u32 = (1 << KIND_SHIFT) - 1;
/// The shape of a ring: the end of the body in the low bits, its entries above, both in eights;
/// whether entries were dropped; the numbers in the line; and how many more than a spill it takes.
const ENTRIES_SHIFT: u32 = 12;
const EIGHTS: u32 = (1 << ENTRIES_SHIFT) - 1;
const DROPPED: u32 = 1 << 24;
const STAGED_SHIFT: u32 = 25;
const STAGED: u32 = 15 << STAGED_SHIFT;
const ONE_STAGED: u32 = 1 << STAGED_SHIFT;
const LIMIT_SHIFT: u32 = 29;
const LIMIT: u32 = 3 << LIMIT_SHIFT;

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
    /// All counts in one word, so that a push looks at one and writes one.
    shape: AtomicU32,
    /// Another one after a change that is not a push.
    version: Version,
    /// Oldest first.
    numbers: [AtomicU32; STAGED_MAX],
}

impl Default for Line {
    /// A closed one: nothing is newer than its newest, so no push is taken.
    fn default() -> Self {
        Self {
            newest_us: AtomicI64::new(i64::MAX),
            place: AtomicU32::new(NONE),
            shape: AtomicU32::new(LIMIT),
            version: Version::default(),
            numbers: Default::default(),
        }
    }
}

/// A line as one look found it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    place: u32,
    shape: u32,
    pub(crate) version: u32,
    numbers: [u32; STAGED_MAX],
}

impl Line {
    /// The line as it is now; what the one writer looks at, or what a look is made of.
    #[inline]
    pub(crate) fn seen(&self) -> Seen {
        let version = self.version.now();
        // Before the numbers: those that it counts are there.
        let shape = self.shape.load(Acquire);
        let numbers = self.numbers.each_ref();
        Seen {
            place: self.place.load(Relaxed),
            shape,
            version,
            numbers: numbers.map(|one| one.load(Relaxed)),
        }
    }

    /// One look at the line; `None` in the midst of a change.
    #[inline]
    pub(crate) fn look(&self) -> Option<Seen> {
        let seen = self.seen();
        self.is_still(seen.version).then_some(seen)
    }

    /// Whether nothing but pushes was done since that version.
    #[inline]
    pub(crate) fn is_still(&self, version: u32) -> bool {
        self.version.is_still(version)
    }
}

/// What the one writer does. All but [`Line::push`] is done within [`Line::change`].
impl Line {
    /// Makes changes that whoever looks meanwhile must not believe.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&Self) -> T) -> T {
        self.version.change(|| change(self))
    }

    /// Opens the line, without entries and without body.
    ///
    /// A post to millions finds all their lines alike; with limits that differ
    /// from slot to slot it does not make all of them spill at once.
    pub(crate) fn open(&self, slot: u32) {
        self.newest_us.store(i64::MIN, Relaxed);
        self.place.store(BARE, Relaxed);
        let limit = slot % (KEPT_MAX as u32 + 1);
        self.shape.store(limit << LIMIT_SHIFT, Relaxed);
    }

    /// Closes it; no push is taken.
    pub(crate) fn close(&self) {
        self.newest_us.store(i64::MAX, Relaxed);
        self.place.store(NONE, Relaxed);
        self.shape.store(LIMIT, Relaxed);
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
        let rest = self.shape.load(Relaxed) & (DROPPED | STAGED | LIMIT);
        let (entries, end) = (entries as u32 / 8, end as u32 / 8);
        let body = entries << ENTRIES_SHIFT | end;
        self.shape.store(rest | body, Relaxed);
    }

    /// Whether an entry below those of `items_max` was ever let go.
    #[inline]
    pub(crate) fn has_dropped(&self, items_max: usize) -> bool {
        let shape = self.shape.load(Relaxed);
        shape & DROPPED != 0 || entries_of(shape) + staged_of(shape) > items_max
    }

    pub(crate) fn set_dropped(&self) {
        let shape = self.shape.load(Relaxed);
        self.shape.store(shape | DROPPED, Relaxed);
    }

    /// The numbers in the line, newest first, and how many they are.
    #[inline]
    pub(crate) fn newest(&self) -> (usize, impl Iterator<Item = u32>) {
        let staged = staged_of(self.shape.load(Relaxed));
        let cells = self.numbers.get(..staged).unwrap_or(&[]).iter().rev();
        (staged, cells.map(|cell| cell.load(Relaxed)))
    }

    /// Adds a number newer than all others, and tells how many entries there were; `None` if it is
    /// not newer, or no room is left.
    #[inline]
    pub(crate) fn push(&self, number: u32, time_us: i64) -> Option<usize> {
        let shape = self.shape.load(Relaxed);
        let staged = staged_of(shape);
        if time_us <= self.newest_us.load(Relaxed) || staged >= limit_of(shape) {
            return None;
        }
        let cell = self.numbers.get(staged)?;
        cell.store(number, Relaxed);
        self.newest_us.store(time_us, Relaxed);
        self.shape.store(shape + ONE_STAGED, Release);
        Some(entries_of(shape) + staged)
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        let shape = self.shape.load(Relaxed);
        staged_of(shape) >= limit_of(shape)
    }

    fn set_staged_count(&self, staged: usize) {
        let rest = self.shape.load(Relaxed) & !STAGED;
        self.shape
            .store(rest | (staged as u32) << STAGED_SHIFT, Relaxed);
    }

    /// Puts a number below the `newer` newest, where `newer` are in the line.
    /// The line must have room.
    pub(crate) fn insert(&self, newer: usize, number: u32) {
        let end = staged_of(self.shape.load(Relaxed));
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
        self.set_staged_count(end + 1);
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
        let staged = staged_of(self.shape.load(Relaxed));
        self.set_staged_count(staged.saturating_sub(SPILL));
        oldest
    }

    /// Holds exactly these, oldest first; at most [`STAGED_MAX`].
    pub(crate) fn set_staged(&self, oldest_first: &[u32]) {
        for (cell, &number) in self.numbers.iter().zip(oldest_first) {
            cell.store(number, Relaxed);
        }
        self.set_staged_count(oldest_first.len().min(STAGED_MAX));
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

#[inline]
fn staged_of(shape: u32) -> usize {
    ((shape & STAGED) >> STAGED_SHIFT) as usize
}

/// Numbers beyond which the line spills.
#[inline]
fn limit_of(shape: u32) -> usize {
    SPILL + (shape >> LIMIT_SHIFT) as usize
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
        entries_of(self.shape) + staged_of(self.shape)
    }

    /// Whether an entry below those of `items_max` was ever let go.
    pub(crate) fn has_dropped(&self, items_max: usize) -> bool {
        self.shape & DROPPED != 0 || self.total() > items_max
    }

    /// The numbers in the line, oldest first.
    #[inline]
    pub(crate) fn staged(&self) -> &[u32] {
        self.numbers
            .split_at_checked(staged_of(self.shape))
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
        line.change(|line| line.open(slot));
        line
    }

    #[test]
    fn a_look_in_the_midst_of_a_change_is_thrown_away() {
        let line = opened(3);
        let version = line.look().unwrap().version;
        line.push(1, 1);
        assert!(line.is_still(version), "a push is no such change");
        line.change(|line| assert!(line.look().is_none()));
        assert!(!line.is_still(version));
        assert_eq!(line.look().unwrap().staged(), [1]);
    }

    #[test]
    fn a_body_of_any_shape_is_told_as_it_was_set() {
        let line = opened(3);
        line.push(7, 7);
        for (entries, end) in [(0, 0), (8, 8), (32_760, 0), (504, 32_752)] {
            line.set_body(entries, end);
            assert_eq!((line.body(), line.end()), (entries, end));
            assert_eq!(line.seen().staged(), [7]);
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
