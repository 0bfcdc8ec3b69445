//! Lines: all that a push touches, one cache line for each reader.
//!
//! In:    record numbers, nearly always newer than all before.
//! Out:   the newest numbers of a ring, and where its older ones lie.
//! Never: a number out of order; a second line of memory for a usual push.
//!
//! Nearly all of a push is the wait for memory. So the newest numbers wait in
//! the line that says how new they are, and every eighth push moves eight of
//! them to the ring's body together, where they fill half a cache line.

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
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Line {
    newest_us: i64,
    /// Slab in the high bits, ring in the low ones.
    place: u32,
    /// Where the body's next entry goes.
    end: u16,
    /// Entries of the body, and whether one was ever dropped.
    body: u16,
    staged: u16,
    /// Numbers beyond which the line spills.
    limit: u16,
    /// Oldest first.
    numbers: [u32; STAGED_MAX],
}

impl Default for Line {
    /// A closed one: nothing is newer than its newest, so no push is taken.
    fn default() -> Self {
        Self {
            newest_us: i64::MAX,
            place: NONE,
            end: 0,
            body: 0,
            staged: 0,
            limit: STAGED_MAX as u16,
            numbers: [0; STAGED_MAX],
        }
    }
}

impl Line {
    /// An open line without entries and without body.
    ///
    /// A post to millions finds all their lines alike; with limits that differ
    /// from slot to slot it does not make all of them spill at once.
    pub(crate) fn open(slot: u32) -> Self {
        Self {
            newest_us: i64::MIN,
            place: BARE,
            limit: (SPILL + slot as usize % (KEPT_MAX + 1)) as u16,
            ..Self::default()
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.place != NONE
    }

    /// Slab and ring of the body, if there is one.
    pub(crate) fn place(&self) -> Option<(usize, u32)> {
        (self.place < BARE).then_some(((self.place >> KIND_SHIFT) as usize, self.place & RING))
    }

    pub(crate) fn set_place(&mut self, kind: usize, ring: u32) {
        self.place = (kind as u32) << KIND_SHIFT | ring;
    }

    pub(crate) fn set_newest_us(&mut self, newest_us: i64) {
        self.newest_us = newest_us;
    }

    /// Where the body's next entry goes.
    pub(crate) fn end(&self) -> usize {
        usize::from(self.end)
    }

    /// Entries of the body.
    pub(crate) fn body(&self) -> usize {
        usize::from(self.body & !DROPPED)
    }

    /// The body holds `entries`, and its next goes to `end`.
    pub(crate) fn set_body(&mut self, entries: usize, end: usize) {
        self.body = entries as u16 | self.body & DROPPED;
        self.end = end as u16;
    }

    /// Entries in line and body, of which the cap may show fewer.
    #[inline]
    pub(crate) fn total(&self) -> usize {
        self.body() + usize::from(self.staged)
    }

    /// Whether an entry below those of `items_max` was ever let go.
    pub(crate) fn has_dropped(&self, items_max: usize) -> bool {
        self.body & DROPPED != 0 || self.total() > items_max
    }

    pub(crate) fn set_dropped(&mut self) {
        self.body |= DROPPED;
    }

    /// The numbers in the line, oldest first.
    pub(crate) fn staged(&self) -> &[u32] {
        self.numbers
            .split_at_checked(usize::from(self.staged))
            .map_or(&[], |(staged, _)| staged)
    }

    /// A word of the line, to have it at hand.
    #[inline]
    pub(crate) fn touch(&self) -> u32 {
        u32::from(self.staged)
    }

    /// Adds a number newer than all others; false if it is not, or no room is left.
    #[inline]
    pub(crate) fn push(&mut self, number: u32, time_us: i64) -> bool {
        if time_us <= self.newest_us || self.staged >= self.limit {
            return false;
        }
        let Some(cell) = self.numbers.get_mut(usize::from(self.staged)) else {
            return false;
        };
        *cell = number;
        self.staged += 1;
        self.newest_us = time_us;
        true
    }

    pub(crate) fn is_full(&self) -> bool {
        self.staged >= self.limit
    }

    /// Puts a number below the `newer` newest, where `newer` are in the line.
    /// The line must have room.
    pub(crate) fn insert(&mut self, newer: usize, number: u32) {
        let end = usize::from(self.staged);
        let place = end.saturating_sub(newer);
        if let Some(cells) = self.numbers.get_mut(place..=end) {
            cells.rotate_right(1);
            if let Some(cell) = cells.first_mut() {
                *cell = number;
            }
            self.staged += 1;
        }
    }

    /// Takes the oldest out of a full line.
    pub(crate) fn spill(&mut self) -> [u32; SPILL] {
        let mut oldest = [0; SPILL];
        let (from, _) = self.numbers.split_at(SPILL);
        oldest.copy_from_slice(from);
        self.numbers.copy_within(SPILL.., 0);
        self.staged = self.staged.saturating_sub(SPILL as u16);
        oldest
    }

    /// Holds exactly these, oldest first; at most [`STAGED_MAX`].
    pub(crate) fn set_staged(&mut self, oldest_first: &[u32]) {
        self.staged = 0;
        for (cell, &number) in self.numbers.iter_mut().zip(oldest_first) {
            *cell = number;
            self.staged += 1;
        }
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
        let mut lines = [0, 1, 2, 3].map(Line::open);
        let full = |number: u32, line: &mut Line| !line.push(number, i64::from(number));
        let mut first = lines
            .iter_mut()
            .map(|line| (0..20).find(|&number| full(number, line)).unwrap());
        assert!(first.by_ref().eq(8..12));
    }

    #[test]
    fn a_closed_line_takes_nothing() {
        let mut line = Line::default();
        assert!(!line.push(1, i64::MAX));
        assert!(!line.is_open());
        assert_eq!(line.total(), 0);
    }

    #[test]
    fn a_full_line_spills_its_oldest() {
        let mut line = Line::open(3);
        for number in 0..10 {
            assert!(line.push(number, i64::from(number)));
        }
        assert!(!line.push(10, 9), "not newer than the newest");
        line.insert(3, 77);
        assert!(line.is_full());
        assert!(!line.push(11, 11), "no room");
        assert_eq!(line.spill(), [0, 1, 2, 3, 4, 5, 6, 77]);
        assert_eq!(line.staged(), [7, 8, 9]);
        line.insert(0, 10);
        line.insert(4, 6);
        assert_eq!(line.staged(), [6, 7, 8, 9, 10]);
    }
}
