//! Rings: the newest records of each active reader, and the floor below them.
//!
//! In:    a record number for a reader, nearly always newer than all it has.
//! Out:   the reader's numbers, newest first, and how deep they are complete.
//! Never: a number twice in a ring; an order other than (time, uri); a record
//!        missing above the floor; a writer that waits for who reads a ring.
//!
//! A ring is a line with the newest numbers and a body with the older ones,
//! which is made when the line first overflows. A full body overwrites its
//! oldest entries. Writing down a floor each time would mean looking up the
//! record that fell out, a miss per push, so the floor of a ring that has ever
//! dropped an entry is the oldest one it still has, and the written floor is
//! needed only when the sweep takes entries out. A body starts small and moves
//! to one twice as wide when full. It holds a multiple of eight entries always.

use crate::column::Column;
use crate::line::{Line, SPILL};
use crate::ring::Ring;
use crate::slab::Slab;
use sdd::Guard;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU32};

/// Entries of the first body a ring gets.
const NARROWEST: usize = 16;
/// Widest ring there is; a line has twelve bits for its length in eights.
pub const RING_ITEMS_MAX: usize = 32_760;

/// The rings of one target, by reader slot.
#[derive(Debug)]
pub(crate) struct Rings {
    pub(crate) lines: Column<Line>,
    pub(crate) floors: Column<AtomicI64>,
    /// Bodies, the narrowest first.
    pub(crate) slabs: Vec<Slab>,
    /// The most entries a ring holds.
    pub(crate) items_max: usize,
}

/// What a page finds of a ring.
#[derive(Debug)]
pub(crate) enum Look<'g> {
    Open(Ring<'g>),
    /// There is none.
    Closed,
    /// It changes just now.
    Turning,
}

impl Rings {
    pub(crate) fn new(items_max: usize) -> Self {
        let items_max = items_max.clamp(1, RING_ITEMS_MAX);
        let widest = items_max.next_multiple_of(SPILL);
        let mut slabs = Vec::new();
        let mut width = NARROWEST;
        while width < widest {
            slabs.push(Slab::new(width));
            width *= 2;
        }
        slabs.push(Slab::new(widest));
        Self {
            lines: Column::default(),
            floors: Column::default(),
            slabs,
            items_max,
        }
    }

    /// The ring of a slot at one look.
    pub(crate) fn look<'g>(&self, slot: u32, guard: &'g Guard) -> Look<'g> {
        let Some(line) = self.lines.get(slot) else {
            return Look::Closed;
        };
        match line.look() {
            Some(seen) if seen.is_open() => Look::Open(Ring {
                line: seen,
                cells: self.cells(seen.place(), guard),
                after_us: self.floor_us(slot),
                items_max: self.items_max,
            }),
            Some(_) => Look::Closed,
            None => Look::Turning,
        }
    }

    /// Whether nothing but pushes was done to a ring since a look at this version of its line.
    pub(crate) fn is_still(&self, slot: u32, version: u32) -> bool {
        let line = self.lines.get(slot);
        line.is_some_and(|line| line.is_still(version))
    }

    /// The ring of a slot as the one writer left it; `None` if it has none.
    pub(crate) fn ring<'g>(&self, slot: u32, guard: &'g Guard) -> Option<Ring<'g>> {
        let line = self.lines.get(slot)?;
        line.is_open().then(|| Ring {
            line: line.seen(),
            cells: self.cells(line.place(), guard),
            after_us: self.floor_us(slot),
            items_max: self.items_max,
        })
    }

    /// The cells of a ring's body; none without one.
    fn cells<'g>(&self, place: Option<(usize, u32)>, guard: &'g Guard) -> &'g [AtomicU32] {
        let slab = place.and_then(|(kind, ring)| Some((self.slabs.get(kind)?, ring)));
        slab.map_or(&[], |(slab, ring)| slab.cells(ring, guard))
    }

    /// The floor that was written down.
    pub(crate) fn floor_us(&self, slot: u32) -> i64 {
        let floor = self.floors.get(slot);
        floor.map_or(i64::MIN, |floor| floor.load(Relaxed))
    }
}
