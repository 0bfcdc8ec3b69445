//! Rings: the newest records of each active reader, and the floor below them.
//!
//! In:    a record number for a reader, nearly always newer than all it has.
//! Out:   the reader's numbers, newest first, and how deep they are complete.
//! Never: a number twice in a ring; an order other than (time, uri); a record
//!        missing above the floor.
//!
//! A ring is a line with the newest numbers and a body with the older ones,
//! which is made when the line first overflows. A full body overwrites its
//! oldest entries. Writing down a floor each time would mean looking up the
//! record that fell out, a miss per push, so the floor of a ring that has ever
//! dropped an entry is the oldest one it still has, and the written floor is
//! needed only when the sweep takes entries out. A body starts small and moves
//! to one twice as wide when full. It holds a multiple of eight entries always.
//!
//! What a line takes by itself may be pushed while others read ([`Rings::push_ahead`]).
//! What needs more is put off until the writer is alone.

use crate::ahead::fetch;
use crate::column::Column;
use crate::line::{KEPT_MAX, Line, SPILL, STAGED_MAX};
use crate::records::Records;
use crate::ring::{Push, Ring};
use crate::slab::Slab;
use std::cmp::Ordering;
use std::ops::AddAssign;

/// Entries of the first body a ring gets.
const NARROWEST: usize = 16;
/// Pushes whose lines are fetched together; as many as a processor has under way.
const BLOCK: usize = 256;

/// Widest ring there is; a length must leave one bit of its sixteen free.
pub const RING_ITEMS_MAX: usize = 32_760;

/// Pushes that lines took by themselves.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Pushed {
    written: u64,
    /// How many entries there are more by them.
    more: u64,
}

impl AddAssign for Pushed {
    fn add_assign(&mut self, other: Self) {
        self.written += other.written;
        self.more += other.more;
    }
}

/// The rings of one target, by reader slot.
#[derive(Debug)]
pub(crate) struct Rings {
    lines: Column<Line>,
    floors: Column<i64>,
    slabs: Vec<Slab>,
    items_max: usize,
    entries: u64,
    rings: u64,
    /// Pushes that need more than their line; empty between calls.
    put_off: Vec<Push>,
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
            entries: 0,
            rings: 0,
            put_off: Vec::with_capacity(2 * BLOCK),
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
        self.items_max
    }

    pub(crate) fn bytes(&self) -> usize {
        let cells: usize = self.slabs.iter().map(Slab::bytes).sum();
        cells + self.lines.bytes() + self.floors.bytes()
    }

    /// Adds a record to many rings, as far as their lines take it by themselves; the rest is put
    /// off. Others may read meanwhile. [`Rings::land`] must follow before anything else changes.
    pub(crate) fn push_ahead(
        &self,
        slots: &[u32],
        number: u32,
        time_us: i64,
        put_off: &mut Vec<Push>,
    ) -> Pushed {
        let mut pushed = Pushed::default();
        for block in slots.chunks(BLOCK) {
            let block = block.iter().map(|&slot| Push {
                slot,
                number,
                time_us,
            });
            pushed += self.push_block(block, put_off);
        }
        pushed
    }

    /// Makes the pushes that were put off, and counts those that were not; how many were written.
    pub(crate) fn land(&mut self, pushed: Pushed, put_off: &[Push], records: &Records) -> u64 {
        self.entries += pushed.more;
        pushed.written + self.push_put_off(put_off, records)
    }

    /// Adds records to rings; how many were written.
    pub(crate) fn push_each(&mut self, pushes: &[Push], records: &Records) -> u64 {
        let mut put_off = std::mem::take(&mut self.put_off);
        let mut written = 0;
        for block in pushes.chunks(BLOCK) {
            let pushed = self.push_block(block.iter().copied(), &mut put_off);
            self.entries += pushed.more;
            written += pushed.written;
            if put_off.len() >= BLOCK {
                written += self.push_put_off(&put_off, records);
                put_off.clear();
            }
        }
        written += self.push_put_off(&put_off, records);
        put_off.clear();
        self.put_off = put_off;
        written
    }

    /// The product's inner loop.
    ///
    /// A branch taken wrongly throws away the fetches begun behind it. So the
    /// lines of a block are fetched without any, then what a line takes by
    /// itself is written, and the rest is put off until there is a block of it.
    #[inline]
    fn push_block(
        &self,
        block: impl Iterator<Item = Push> + Clone,
        put_off: &mut Vec<Push>,
    ) -> Pushed {
        let lines = block.clone().map(|push| self.lines.get(push.slot));
        fetch(lines.map(|line| line.map_or(0, Line::touch)));
        let before = put_off.len();
        let (mut made, mut more) = (0, 0);
        for push in block {
            let entries = self
                .lines
                .get(push.slot)
                .and_then(|line| line.push(push.number, push.time_us));
            made += 1;
            match entries {
                Some(entries) => more += u64::from(entries < self.items_max),
                None => put_off.push(push),
            }
        }
        Pushed {
            written: made - (put_off.len() - before) as u64,
            more,
        }
    }

    /// Does what was put off, in its order. A full line puts off all that follows, and a late
    /// record finds its place whenever it comes; so nothing could pass it meanwhile.
    fn push_put_off(&mut self, put_off: &[Push], records: &Records) -> u64 {
        let mut written = 0;
        for block in put_off.chunks(BLOCK) {
            fetch(block.iter().map(|push| self.touch_slow(push.slot)));
            for &push in block {
                written += u64::from(self.push_slow(push, records));
            }
        }
        written
    }

    /// What a push that its line did not take looks at next, to have it at hand: what a full line
    /// spills over, or the newest of the body, with which a late one may be compared.
    #[inline]
    fn touch_slow(&self, slot: u32) -> u32 {
        let Some(line) = self.lines.get(slot) else {
            return 0;
        };
        let cells = self.cells(line);
        let cell = match (line.is_full(), line.end().checked_sub(1)) {
            (true, _) => cells.get(line.end()),
            (false, Some(newest)) => cells.get(newest),
            (false, None) => cells.last(),
        };
        cell.copied().unwrap_or(0)
    }

    /// Adds a record to a ring whose line is full, or that has newer ones; true if it was written.
    fn push_slow(&mut self, push: Push, records: &Records) -> bool {
        self.spill_if_full(push.slot);
        let Some(line) = self.lines.get(push.slot) else {
            return false;
        };
        if let Some(entries) = line.push(push.number, push.time_us) {
            self.entries += u64::from(entries < self.items_max);
            return true;
        }
        self.push_late(push, records)
    }

    /// Moves the oldest numbers of a full line to the body.
    fn spill_if_full(&mut self, slot: u32) {
        let Some(line) = self.lines.get_mut(slot).filter(|line| line.is_full()) else {
            return;
        };
        let widest = self.slabs.len().saturating_sub(1);
        let has_room = line.place().is_some_and(|(kind, _)| {
            let slab = self.slabs.get(kind);
            kind == widest || slab.is_some_and(|slab| line.body() < slab.width())
        });
        if !has_room {
            widen(&mut self.slabs, line);
        }
        let Some((kind, ring)) = line.place() else {
            return;
        };
        let Some(slab) = self.slabs.get_mut(kind) else {
            return;
        };
        let (width, end) = (slab.width(), line.end());
        if line.body() == width {
            line.set_dropped();
        }
        if let Some(cells) = slab.cells_mut(ring).get_mut(end..end + SPILL) {
            cells.copy_from_slice(&line.spill());
        }
        let end = if end + SPILL >= width { 0 } else { end + SPILL };
        line.set_body((line.body() + SPILL).min(width), end);
    }

    /// Puts a record that is not newer than all others in its place.
    fn push_late(&mut self, push: Push, records: &Records) -> bool {
        let Push {
            slot,
            number,
            time_us,
        } = push;
        let Some(line) = self.lines.get(slot).filter(|line| line.is_open()) else {
            return false;
        };
        if time_us <= self.floor_us(slot) {
            return false;
        }
        // Late records are seldom very late: most belong among the newest.
        let (staged, newest) = line.newest();
        let entries = (line.body() + staged).min(self.items_max);
        let mut newer = 0;
        let mut there = None;
        for one in newest.take(entries) {
            if !records.is_newer(one, number, time_us) {
                there = Some(one);
                break;
            }
            newer += 1;
        }
        if newer == staged
            && let Some(ring) = self.ring(slot)
        {
            newer = ring.newer_than(push, newer, records);
            there = ring.nth(newer);
        }
        if there == Some(number) {
            return false;
        }
        let Some(line) = self.lines.get_mut(slot) else {
            return false;
        };
        let full = entries >= self.items_max;
        if newer == entries && (full || line.look().has_dropped(self.items_max)) {
            // Older than a floor that is, or now becomes, the oldest entry.
            line.set_dropped();
            return false;
        }
        if newer == 0 {
            line.set_newest_us(time_us);
        }
        self.entries += u64::from(!full);
        self.make_room(slot, newer, number);
        true
    }

    /// Writes `number` below the `newer` newest entries; the line has room.
    ///
    /// In the body those above it move up by one, and the topmost goes to the line.
    fn make_room(&mut self, slot: u32, newer: usize, number: u32) {
        let Some(line) = self.lines.get_mut(slot) else {
            return;
        };
        let staged = line.look().staged().len();
        if newer <= staged {
            line.insert(newer, number);
            return;
        }
        let Some((kind, ring)) = line.place() else {
            return;
        };
        let Some(slab) = self.slabs.get_mut(kind) else {
            return;
        };
        let width = slab.width();
        let cells = slab.cells_mut(ring);
        // Walks down from the newest cell, carrying what each one gives up.
        let below = |at: usize| at.checked_sub(1).unwrap_or(width - 1);
        let mut at = below(line.end());
        let topmost = cells.get(at).copied().unwrap_or_default();
        for _ in 1..newer - staged {
            let under = below(at);
            let moved = cells.get(under).copied().unwrap_or_default();
            if let Some(cell) = cells.get_mut(at) {
                *cell = moved;
            }
            at = under;
        }
        if let Some(cell) = cells.get_mut(at) {
            *cell = number;
        }
        line.insert(staged, topmost);
    }

    /// The cells of a ring's body; none without one.
    fn cells(&self, line: &Line) -> &[u32] {
        let slab = line
            .place()
            .and_then(|(kind, ring)| Some((self.slabs.get(kind)?, ring)));
        slab.map_or(&[], |(slab, ring)| slab.cells(ring))
    }

    /// Makes the ring of `slot` hold exactly this list, newest first.
    ///
    /// `more` says that older records exist within the window; then the list
    /// must be as long as a ring can be.
    pub(crate) fn build(&mut self, slot: u32, newest_first: &[u32], more: bool, records: &Records) {
        self.close(slot);
        let mut list = newest_first.to_vec();
        list.reverse();
        let mut line = Line::open(slot);
        if let Some(&newest) = list.last() {
            line.set_newest_us(records.time_us(newest));
        }
        if more {
            line.set_dropped();
        }
        let old = if list.len() <= STAGED_MAX {
            0
        } else {
            (list.len() - KEPT_MAX) / SPILL * SPILL
        };
        let (body, staged) = list.split_at_checked(old).unwrap_or((&[], &list));
        line.set_staged(staged);
        if !body.is_empty() {
            let kind = self.slabs.iter().position(|slab| slab.width() >= old);
            let kind = kind.unwrap_or(self.slabs.len().saturating_sub(1));
            if let Some(slab) = self.slabs.get_mut(kind) {
                let ring = slab.take();
                for (cell, &number) in slab.cells_mut(ring).iter_mut().zip(body) {
                    *cell = number;
                }
                line.set_place(kind, ring);
                line.set_body(old, if old == slab.width() { 0 } else { old });
            }
        }
        self.entries += list.len() as u64;
        self.rings += 1;
        *self.lines.slot(slot) = line;
        *self.floors.slot(slot) = i64::MIN;
    }

    /// Frees the ring of `slot`; pushes to it are dropped from now on.
    pub(crate) fn close(&mut self, slot: u32) {
        let Some(line) = self.lines.get_mut(slot).filter(|line| line.is_open()) else {
            return;
        };
        let old = std::mem::take(line);
        self.entries -= old.look().total().min(self.items_max) as u64;
        self.rings -= 1;
        if let Some((kind, ring)) = old.place()
            && let Some(slab) = self.slabs.get_mut(kind)
        {
            slab.give_back(ring);
        }
    }

    /// The ring of a slot as it is now; `None` if it has none.
    pub(crate) fn ring(&self, slot: u32) -> Option<Ring<'_>> {
        let line = self.lines.get(slot)?;
        line.is_open().then(|| Ring {
            line: line.look(),
            cells: self.cells(line),
            after_us: self.floor_us(slot),
            items_max: self.items_max,
        })
    }

    /// The floor that was written down.
    fn floor_us(&self, slot: u32) -> i64 {
        self.floors.get(slot).copied().unwrap_or(i64::MIN)
    }

    /// Adds `newest_first`, the records of a key just followed.
    pub(crate) fn merge(
        &mut self,
        slot: u32,
        newest_first: impl Iterator<Item = u32>,
        records: &Records,
    ) {
        let Some(ring) = self.ring(slot) else {
            return;
        };
        let floor = ring.floor();
        let above = |number: u32| {
            records.time_us(number) > floor.after_us
                && floor
                    .oldest
                    .is_none_or(|oldest| records.compare(number, oldest) != Ordering::Less)
        };
        let items_max = self.items_max;
        // One more than fits, so that what does not fit is noticed.
        let added: Vec<u32> = newest_first
            .take_while(|&number| above(number))
            .take(items_max + 1)
            .collect();
        if added.is_empty() {
            return;
        }
        let mut list: Vec<u32> = ring.walk().chain(added).collect();
        list.sort_unstable_by(|one, other| records.compare(*other, *one));
        list.dedup();
        let dropped = ring.has_dropped() || list.len() > items_max;
        list.truncate(items_max);
        self.build(slot, &list, dropped, records);
        *self.floors.slot(slot) = floor.after_us;
    }

    /// Moves the ring to a lower free place, if there is one, so that the chunks
    /// above can be returned.
    pub(crate) fn sink(&mut self, slot: u32) {
        if let Some(line) = self.lines.get_mut(slot)
            && let Some((kind, ring)) = line.place()
            && let Some(slab) = self.slabs.get_mut(kind)
            && let Some(lower) = slab.sink(ring)
        {
            line.set_place(kind, lower);
        }
    }

    /// Drops the entries that are gone; true if there were any.
    pub(crate) fn compact(&mut self, slot: u32, records: &Records) -> bool {
        let Some(ring) = self.ring(slot) else {
            return false;
        };
        if !ring.walk().any(|number| records.is_gone(number)) {
            return false;
        }
        let floor = ring.floor();
        let live = ring.walk().filter(|&number| !records.is_gone(number));
        let list: Vec<u32> = live.collect();
        self.build(slot, &list, false, records);
        // The oldest entry may be leaving, so its time is written down first.
        *self.floors.slot(slot) = floor.oldest.map_or(floor.after_us, |oldest| {
            floor.after_us.max(records.time_us(oldest))
        });
        true
    }
}

/// Moves a full body to one twice as wide, or makes the first.
///
/// Only the widest ever wraps, so the cells of a full one are in order.
fn widen(slabs: &mut [Slab], line: &mut Line) {
    let Some((old, ring)) = line.place() else {
        if let Some(slab) = slabs.first_mut() {
            line.set_place(0, slab.take());
        }
        return;
    };
    let Some((narrow, wide)) = slabs.split_at_mut_checked(old + 1) else {
        return;
    };
    if let (Some(from), Some(to)) = (narrow.last_mut(), wide.first_mut()) {
        let place = to.take();
        let cells = to.cells_mut(place);
        for (cell, &number) in cells.iter_mut().zip(from.cells(ring)) {
            *cell = number;
        }
        from.give_back(ring);
        line.set_place(old + 1, place);
        line.set_body(from.width(), from.width());
    }
}

#[cfg(test)]
mod tests;
