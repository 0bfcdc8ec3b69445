//! A ring: what one look at it finds, and a walk down its entries.
//!
//! In:    a line, and the body it names.
//! Out:   the numbers of a reader, newest first, and how deep they are complete.
//! Never: a second look at the line: what is pushed meanwhile belongs to the next page.
//!
//! Cells may change while they are read; the line's version tells, when the page is made.

use crate::line::Seen;
use crate::records::Records;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Entries a late record is compared with before its place is searched by halves.
const STEPS_MAX: usize = 4;

/// A record for a ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Push {
    pub(crate) slot: u32,
    pub(crate) number: u32,
    pub(crate) time_us: i64,
}

/// How far down a ring is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingFloor {
    /// Complete for times after this one.
    pub(crate) after_us: i64,
    /// And, if entries were dropped, only down to this record, itself included.
    pub(crate) oldest: Option<u32>,
}

/// A ring as one look found it. What is pushed later is not in it.
#[derive(Debug)]
pub(crate) struct Ring<'a> {
    pub(crate) line: Seen,
    /// The body's.
    pub(crate) cells: &'a [AtomicU32],
    /// The floor that was written down.
    pub(crate) after_us: i64,
    pub(crate) items_max: usize,
}

impl<'a> Ring<'a> {
    pub(crate) fn len(&self) -> usize {
        self.line.total().min(self.items_max)
    }

    /// The number `back` places behind the newest.
    #[inline]
    pub(crate) fn nth(&self, back: usize) -> Option<u32> {
        if back >= self.len() {
            return None;
        }
        let staged = self.line.staged();
        if let Some(at) = staged.len().checked_sub(back + 1) {
            return staged.get(at).copied();
        }
        let (back, end) = (back - staged.len(), self.line.end());
        let cell = match end.checked_sub(back + 1) {
            Some(cell) => cell,
            None => (self.cells.len() + end).checked_sub(back + 1)?,
        };
        self.cells.get(cell).map(|cell| cell.load(Relaxed))
    }

    /// Whether an entry was ever let go.
    pub(crate) fn has_dropped(&self) -> bool {
        self.line.has_dropped(self.items_max)
    }

    pub(crate) fn floor(&self) -> RingFloor {
        let last = self.len().checked_sub(1).filter(|_| self.has_dropped());
        RingFloor {
            after_us: self.after_us,
            oldest: last.and_then(|last| self.nth(last)),
        }
    }

    /// How many entries of the ring are newer than a record for it, if `low` are.
    #[cold]
    pub(crate) fn newer_than(&self, push: Push, mut low: usize, records: &Records) -> usize {
        let mut high = self.len();
        let near = high.min(low + STEPS_MAX);
        let is_newer = |back: usize| {
            self.nth(back)
                .is_some_and(|one| records.is_newer(one, push.number, push.time_us))
        };
        while low < near {
            if !is_newer(low) {
                return low;
            }
            low += 1;
        }
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

    /// All entries that the cap shows, newest first.
    pub(crate) fn walk(&self) -> RingWalk<'a> {
        let cells = self.cells;
        let (young, old) = cells
            .split_at_checked(self.line.end())
            .unwrap_or((&[], &[]));
        RingWalk {
            line: self.line,
            staged: self.line.staged().len(),
            parts: [young, old],
            left: self.len(),
        }
    }
}

/// The entries of a ring, newest first.
#[derive(Debug, Clone)]
pub(crate) struct RingWalk<'a> {
    line: Seen,
    /// How many in the line are left.
    staged: usize,
    /// Newer before older, but each one oldest first, as it lies in memory.
    parts: [&'a [AtomicU32]; 2],
    left: usize,
}

impl RingWalk<'_> {
    /// Passes over the `count` newest.
    pub(crate) fn pass(&mut self, count: usize) {
        self.left = self.left.saturating_sub(count);
        let mut count = count;
        let staged = self.staged;
        self.staged = staged.saturating_sub(count);
        count = count.saturating_sub(staged);
        for part in &mut self.parts {
            let kept = part.len().saturating_sub(count);
            count = count.saturating_sub(part.len());
            *part = part.get(..kept).unwrap_or(&[]);
        }
    }
}

impl Iterator for RingWalk<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        if let Some(staged) = self.staged.checked_sub(1) {
            self.staged = staged;
            return self.line.staged().get(staged).copied();
        }
        for part in &mut self.parts {
            if let Some((newest, older)) = part.split_last() {
                *part = older;
                return Some(newest.load(Relaxed));
            }
        }
        None
    }
}
