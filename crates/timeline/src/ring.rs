//! Rings: the newest records of each active reader, and the floor below them.
//!
//! In:    a record number for a reader, nearly always newer than all it has.
//! Out:   the reader's numbers, newest first, and how deep they are complete.
//! Never: a number twice in a ring; an order other than (time, uri); a record
//!        missing above the floor.
//!
//! A full ring overwrites its oldest entry. Writing down a floor each time
//! would mean looking up the record that fell out, a second miss per push, so
//! the floor of a ring that has ever dropped an entry is the oldest one it
//! still has, and the written floor is needed only when the sweep takes
//! entries out. A ring starts small and moves to one twice as wide when full.

use crate::column::Column;
use crate::records::Records;
use crate::slab::Slab;
use std::cmp::Ordering;

const NONE: u32 = u32::MAX;
const KIND_SHIFT: u32 = 27;
const PLACE: u32 = (1 << KIND_SHIFT) - 1;
const DROPPED: u16 = 1 << 15;
const NARROWEST: usize = 8;
/// Entries a late record is compared with before its place is searched by halves.
const STEPS_MAX: usize = 12;

/// Widest ring there is; a length must leave one bit of its sixteen free.
pub const RING_ITEMS_MAX: usize = 32_767;

/// What a push looks at: sixteen bytes for each reader.
#[derive(Debug, Clone, Copy)]
struct Head {
    newest_us: i64,
    /// Slab in the high bits, ring in the low ones.
    place: u32,
    /// Where the next entry goes.
    end: u16,
    /// Entries, and whether one was ever dropped.
    len: u16,
}

impl Default for Head {
    fn default() -> Self {
        Self {
            newest_us: i64::MIN,
            place: NONE,
            end: 0,
            len: 0,
        }
    }
}

impl Head {
    fn kind(self) -> usize {
        (self.place >> KIND_SHIFT) as usize
    }

    fn ring(self) -> u32 {
        self.place & PLACE
    }

    fn entries(self) -> usize {
        usize::from(self.len & !DROPPED)
    }

    fn has_dropped(self) -> bool {
        self.len & DROPPED != 0
    }
}

/// How far down a ring is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingFloor {
    /// Complete for times after this one.
    pub(crate) after_us: i64,
    /// And, if entries were dropped, only down to this record, itself included.
    pub(crate) oldest: Option<u32>,
}

/// The rings of one target, by reader slot.
#[derive(Debug)]
pub(crate) struct Rings {
    heads: Column<Head>,
    floors: Column<i64>,
    slabs: Vec<Slab>,
    /// The width of the last slab.
    widest: usize,
    entries: u64,
    rings: u64,
}

impl Rings {
    pub(crate) fn new(items_max: usize) -> Self {
        let widest = items_max.clamp(1, RING_ITEMS_MAX);
        let mut slabs = Vec::new();
        let mut width = NARROWEST;
        while width < widest {
            slabs.push(Slab::new(width));
            width *= 2;
        }
        slabs.push(Slab::new(widest));
        Self {
            heads: Column::default(),
            floors: Column::default(),
            slabs,
            widest,
            entries: 0,
            rings: 0,
        }
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    pub(crate) fn rings(&self) -> u64 {
        self.rings
    }

    /// The most entries a ring holds.
    pub(crate) fn items_max(&self) -> usize {
        self.widest
    }

    pub(crate) fn bytes(&self) -> usize {
        let cells: usize = self.slabs.iter().map(Slab::bytes).sum();
        cells + self.heads.bytes() + self.floors.bytes()
    }

    /// Adds a record to many rings; how many it was written to.
    ///
    /// Nothing in one push waits for another, so the processor has many of
    /// them under way at once; looking ahead by hand was measured and slower.
    pub(crate) fn push_all(
        &mut self,
        slots: &[u32],
        number: u32,
        time_us: i64,
        records: &Records,
    ) -> u64 {
        let mut pushes = 0;
        for &slot in slots {
            pushes += u64::from(self.push(slot, number, time_us, records));
        }
        pushes
    }

    /// Adds a record to the ring of `slot`; true if it was written.
    ///
    /// The first branch is the product's inner loop: one head, one cell.
    #[inline]
    pub(crate) fn push(&mut self, slot: u32, number: u32, time_us: i64, records: &Records) -> bool {
        let Some(place) = self.heads.get_mut(slot) else {
            return false;
        };
        // Read once, written once: a load that overlaps a store still under way
        // waits for every cache miss before it, which makes a push ten times dearer.
        let mut head = *place;
        let widest = self.widest;
        if time_us > head.newest_us
            && let Some(slab) = self.slabs.get_mut(head.kind())
        {
            let width = slab.width();
            let end = usize::from(head.end);
            if head.entries() < width {
                head.len += 1;
                self.entries += 1;
            } else if width == widest {
                head.len |= DROPPED;
            } else {
                self.widen(slot);
                return self.push(slot, number, time_us, records);
            }
            head.newest_us = time_us;
            head.end = if end + 1 == width { 0 } else { head.end + 1 };
            *place = head;
            if let Some(cell) = slab.cell_mut(head.ring(), end) {
                *cell = number;
            }
            return true;
        }
        self.push_late(slot, number, time_us, records)
    }

    /// Puts a record that is not newer than all others in its place.
    #[cold]
    fn push_late(&mut self, slot: u32, number: u32, time_us: i64, records: &Records) -> bool {
        let Some(&head) = self.heads.get(slot) else {
            return false;
        };
        if head.place == NONE || time_us <= self.floors.get(slot).copied().unwrap_or(i64::MIN) {
            return false;
        }
        if head.entries() == self.width(head) && self.width(head) < self.items_max() {
            self.widen(slot);
            return self.push_late(slot, number, time_us, records);
        }
        let newer = self.newer_than(slot, head, number, records);
        if self.nth(slot, newer) == Some(number) {
            return false;
        }
        let full = head.entries() >= self.items_max();
        if newer == head.entries() && (full || head.has_dropped()) {
            // Older than a floor that is, or now becomes, the oldest entry.
            if let Some(head) = self.heads.get_mut(slot) {
                head.len |= DROPPED;
            }
            return false;
        }
        self.make_room(slot, newer, number, full);
        if newer == 0
            && let Some(head) = self.heads.get_mut(slot)
        {
            head.newest_us = time_us;
        }
        true
    }

    /// How many entries of the ring are newer than `number`.
    ///
    /// Late records are seldom very late, so the newest entries are asked one
    /// by one before the rest is halved.
    fn newer_than(&self, slot: u32, head: Head, number: u32, records: &Records) -> usize {
        let is_newer = |back: usize| {
            self.nth(slot, back)
                .is_some_and(|one| records.compare(one, number) == Ordering::Greater)
        };
        let near = head.entries().min(STEPS_MAX);
        let Some(at) = (0..near).find(|&back| !is_newer(back)) else {
            let (mut low, mut high) = (near, head.entries());
            while low < high {
                let middle = low.midpoint(high);
                if is_newer(middle) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            return low;
        };
        at
    }

    /// Moves the `newer` newest entries up by one and writes `number` below them.
    fn make_room(&mut self, slot: u32, newer: usize, number: u32, full: bool) {
        let Some(head) = self.heads.get_mut(slot) else {
            return;
        };
        let Some(slab) = self.slabs.get_mut(head.kind()) else {
            return;
        };
        let width = slab.width();
        let cells = slab.cells_mut(head.ring());
        let mut to = usize::from(head.end);
        for _ in 0..newer {
            let from = to.checked_sub(1).unwrap_or(width - 1);
            let moved = cells.get(from).copied().unwrap_or_default();
            if let Some(cell) = cells.get_mut(to) {
                *cell = moved;
            }
            to = from;
        }
        if let Some(cell) = cells.get_mut(to) {
            *cell = number;
        }
        head.end = if usize::from(head.end) + 1 == width {
            0
        } else {
            head.end + 1
        };
        if full {
            head.len |= DROPPED;
        } else {
            head.len += 1;
            self.entries += 1;
        }
    }

    fn width(&self, head: Head) -> usize {
        self.slabs.get(head.kind()).map_or(0, Slab::width)
    }

    fn oldest_first(&self, head: Head) -> Vec<u32> {
        let mut list: Vec<u32> = self.newest_first(head).collect();
        list.reverse();
        list
    }

    fn newest_first(&self, head: Head) -> impl Iterator<Item = u32> + '_ {
        let cells = match self.slabs.get(head.kind()) {
            Some(slab) if head.place != NONE => slab.cells(head.ring()),
            _ => &[],
        };
        let (young, old) = cells
            .split_at_checked(usize::from(head.end))
            .unwrap_or((&[], &[]));
        young
            .iter()
            .rev()
            .chain(old.iter().rev())
            .copied()
            .take(head.entries())
    }

    /// Overwrites a ring with a list that is already in order.
    fn write(&mut self, slot: u32, oldest_first: &[u32], dropped: bool, records: &Records) {
        let Some(head) = self.heads.get_mut(slot) else {
            return;
        };
        let (kind, ring) = (head.kind(), head.ring());
        let Some(slab) = self.slabs.get_mut(kind) else {
            return;
        };
        self.entries = self.entries + oldest_first.len() as u64 - head.entries() as u64;
        let flag = if dropped { DROPPED } else { 0 };
        head.len = oldest_first.len() as u16 | flag;
        head.end = if oldest_first.len() == slab.width() {
            0
        } else {
            oldest_first.len() as u16
        };
        head.newest_us = oldest_first
            .last()
            .map_or(i64::MIN, |&one| records.time_us(one));
        for (cell, &number) in slab.cells_mut(ring).iter_mut().zip(oldest_first) {
            *cell = number;
        }
    }

    #[cold]
    fn widen(&mut self, slot: u32) {
        let Some(&head) = self.heads.get(slot) else {
            return;
        };
        let list = self.oldest_first(head);
        let (old, new) = (head.kind(), head.kind() + 1);
        let Some(wider) = self.slabs.get_mut(new) else {
            return;
        };
        let ring = wider.take();
        for (cell, &number) in wider.cells_mut(ring).iter_mut().zip(&list) {
            *cell = number;
        }
        if let Some(slab) = self.slabs.get_mut(old) {
            slab.give_back(head.ring());
        }
        if let Some(head) = self.heads.get_mut(slot) {
            head.place = (new as u32) << KIND_SHIFT | ring;
            head.end = list.len() as u16;
        }
    }

    /// Makes the ring of `slot` hold exactly this list, newest first.
    ///
    /// `more` says that older records exist within the window; then the list
    /// must be as long as a ring can be.
    pub(crate) fn build(&mut self, slot: u32, newest_first: &[u32], more: bool, records: &Records) {
        self.close(slot);
        let mut list = newest_first.to_vec();
        list.reverse();
        let kind = self
            .slabs
            .iter()
            .position(|slab| slab.width() >= list.len())
            .unwrap_or(self.slabs.len().saturating_sub(1));
        let Some(slab) = self.slabs.get_mut(kind) else {
            return;
        };
        let ring = slab.take();
        *self.heads.slot(slot) = Head {
            place: (kind as u32) << KIND_SHIFT | ring,
            ..Head::default()
        };
        *self.floors.slot(slot) = i64::MIN;
        self.rings += 1;
        self.write(slot, &list, more, records);
    }

    /// Frees the ring of `slot`; pushes to it are dropped from now on.
    pub(crate) fn close(&mut self, slot: u32) {
        let Some(head) = self.heads.get_mut(slot) else {
            return;
        };
        if head.place == NONE {
            return;
        }
        let old = std::mem::take(head);
        self.entries -= old.entries() as u64;
        self.rings -= 1;
        if let Some(slab) = self.slabs.get_mut(old.kind()) {
            slab.give_back(old.ring());
        }
    }

    /// The ring's numbers, newest first; `None` if the slot has no ring.
    pub(crate) fn walk(&self, slot: u32) -> Option<impl Iterator<Item = u32> + '_> {
        let head = *self.heads.get(slot)?;
        (head.place != NONE).then(|| self.newest_first(head))
    }

    /// The number `back` places behind the newest.
    #[inline]
    pub(crate) fn nth(&self, slot: u32, back: usize) -> Option<u32> {
        let head = *self.heads.get(slot)?;
        if head.place == NONE || back >= head.entries() {
            return None;
        }
        let slab = self.slabs.get(head.kind())?;
        let end = usize::from(head.end);
        let cell = if back < end {
            end - back - 1
        } else {
            slab.width() + end - back - 1
        };
        slab.cells(head.ring()).get(cell).copied()
    }

    pub(crate) fn len(&self, slot: u32) -> usize {
        self.heads.get(slot).map_or(0, |head| head.entries())
    }

    pub(crate) fn floor(&self, slot: u32) -> RingFloor {
        let head = self.heads.get(slot).copied().unwrap_or_default();
        let oldest = if head.has_dropped() {
            head.entries()
                .checked_sub(1)
                .and_then(|last| self.nth(slot, last))
        } else {
            None
        };
        RingFloor {
            after_us: self.floors.get(slot).copied().unwrap_or(i64::MIN),
            oldest,
        }
    }

    /// Adds `newest_first`, the records of a key just followed.
    pub(crate) fn merge(
        &mut self,
        slot: u32,
        newest_first: impl Iterator<Item = u32>,
        records: &Records,
    ) {
        let Some(&head) = self.heads.get(slot) else {
            return;
        };
        if head.place == NONE {
            return;
        }
        let floor = self.floor(slot);
        let above = |number: u32| {
            records.time_us(number) > floor.after_us
                && floor
                    .oldest
                    .is_none_or(|oldest| records.compare(number, oldest) != Ordering::Less)
        };
        let items_max = self.items_max();
        // One more than fits, so that what does not fit is noticed.
        let added: Vec<u32> = newest_first
            .take_while(|&number| above(number))
            .take(items_max + 1)
            .collect();
        if added.is_empty() {
            return;
        }
        let mut list: Vec<u32> = self.newest_first(head).chain(added).collect();
        list.sort_unstable_by(|one, other| records.compare(*other, *one));
        list.dedup();
        let dropped = head.has_dropped() || list.len() > items_max;
        list.truncate(items_max);
        self.build(slot, &list, dropped, records);
        *self.floors.slot(slot) = floor.after_us;
    }

    /// Moves the ring to a lower free place, if there is one, so that the chunks
    /// above can be returned.
    pub(crate) fn sink(&mut self, slot: u32) {
        let Some(head) = self.heads.get_mut(slot) else {
            return;
        };
        if head.place == NONE {
            return;
        }
        let kind = head.kind();
        if let Some(slab) = self.slabs.get_mut(kind)
            && let Some(lower) = slab.sink(head.ring())
        {
            head.place = (kind as u32) << KIND_SHIFT | lower;
        }
    }

    /// Drops the entries that are gone; true if there were any.
    pub(crate) fn compact(&mut self, slot: u32, records: &Records) -> bool {
        let Some(&head) = self.heads.get(slot) else {
            return false;
        };
        if !self
            .newest_first(head)
            .any(|number| records.is_gone(number))
        {
            return false;
        }
        let floor = self.floor(slot);
        let mut list: Vec<u32> = self.newest_first(head).collect();
        list.retain(|&number| !records.is_gone(number));
        self.build(slot, &list, false, records);
        // The oldest entry may be leaving, so its time is written down first.
        *self.floors.slot(slot) = floor.oldest.map_or(floor.after_us, |oldest| {
            floor.after_us.max(records.time_us(oldest))
        });
        true
    }
}
