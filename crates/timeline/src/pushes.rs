//! Pushes: the one writer of rings.
//!
//! In:    records for readers, nearly always newer than all they have; lists that
//!        rings are to be built of.
//! Out:   [`Rings`] as pages see them, and how many entries there are.
//! Never: a wait for who reads a ring; a change but a push without another version.
//!
//! Nearly all of a push is the wait for memory. So the lines of later pushes are
//! asked for while earlier ones are written; and a push that needs more than its
//! line asks for that and is put off until it has come.

use crate::ahead::ask;
use crate::column::ColumnWriter;
use crate::line::{KEPT_MAX, Line, SPILL, STAGED_MAX, Seen};
use crate::records::Records;
use crate::ring::{Push, Ring};
use crate::rings::Rings;
use crate::slab::SlabWriter;
use std::cmp::Ordering;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Lines that are asked for before the first of them is needed; as many as a processor has under way.
const AHEAD: usize = 32;
/// Pushes that are put off until what they need has come.
const PUT_OFF: usize = if cfg!(debug_assertions) { 3 } else { 64 };

/// What the one writer knows of rings.
#[derive(Debug)]
pub(crate) struct RingsWriter {
    lines: ColumnWriter<Line>,
    slabs: Vec<SlabWriter>,
    entries: u64,
    rings: u64,
    /// Pushes that need more than their line; empty between calls.
    put_off: Vec<Push>,
}

impl RingsWriter {
    pub(crate) fn new(rings: &Rings) -> Self {
        Self {
            lines: ColumnWriter::default(),
            slabs: rings.slabs.iter().map(SlabWriter::new).collect(),
            entries: 0,
            rings: 0,
            put_off: Vec::with_capacity(PUT_OFF),
        }
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    pub(crate) fn rings(&self) -> u64 {
        self.rings
    }

    pub(crate) fn bytes(&self, rings: &Rings) -> usize {
        let cells: usize = self.slabs.iter().map(SlabWriter::bytes).sum();
        cells + rings.lines.bytes() + rings.floors.bytes()
    }

    /// Adds records to rings, each as `push` tells; how many were written.
    pub(crate) fn push_each<T>(
        &mut self,
        rings: &Rings,
        pushes: &[T],
        push: impl Fn(&T) -> Push,
        records: &Records,
    ) -> u64 {
        let mut put_off = std::mem::take(&mut self.put_off);
        let (mut written, mut more) = (0, 0);
        let mut ahead = pushes.iter().map(&push);
        for later in ahead.by_ref().take(AHEAD) {
            ask(self.lines.get(later.slot));
        }
        for push in pushes.iter().map(&push) {
            if let Some(later) = ahead.next() {
                ask(self.lines.get(later.slot));
            }
            let line = self.lines.get(push.slot);
            if let Some(entries) = line.and_then(|line| line.push(push.number, push.time_us)) {
                written += 1;
                more += u64::from(entries < rings.items_max);
                continue;
            }
            ask(line.and_then(|line| self.next_cell(line)));
            put_off.push(push);
            if put_off.len() >= PUT_OFF {
                written += self.push_put_off(rings, &put_off, records);
                put_off.clear();
            }
        }
        written += self.push_put_off(rings, &put_off, records);
        put_off.clear();
        self.put_off = put_off;
        self.entries += more;
        written
    }

    /// Does what was put off, in its order. A full line puts off all that follows, and a late
    /// record finds its place whenever it comes; so nothing could pass it meanwhile.
    fn push_put_off(&mut self, rings: &Rings, put_off: &[Push], records: &Records) -> u64 {
        let mut written = 0;
        for &push in put_off {
            written += u64::from(self.push_slow(rings, push, records));
        }
        written
    }

    /// What a push that its line did not take looks at next: what a full line spills over, or the
    /// newest of the body, with which a late one may be compared.
    #[inline]
    fn next_cell(&self, line: &Line) -> Option<&AtomicU32> {
        let (kind, ring) = line.place()?;
        let slab = self.slabs.get(kind)?;
        let (end, last) = (line.end(), slab.width().wrapping_sub(1));
        let newest = end.wrapping_sub(1).min(last);
        slab.cell(ring, if line.is_full() { end } else { newest })
    }

    /// The cells of a ring's body; none without one.
    #[inline]
    fn cells(&self, place: Option<(usize, u32)>) -> &[AtomicU32] {
        let slab = place.and_then(|(kind, ring)| Some((self.slabs.get(kind)?, ring)));
        slab.map_or(&[], |(slab, ring)| slab.cells(ring))
    }

    /// The ring of a slot; `None` if it has none.
    fn ring(&self, rings: &Rings, slot: u32) -> Option<Ring<'_>> {
        let line = self.lines.get(slot)?;
        line.is_open().then(|| Ring {
            line: line.seen(),
            cells: self.cells(line.place()),
            after_us: rings.floor_us(slot),
            items_max: rings.items_max,
        })
    }

    /// Adds a record to a ring whose line is full, or that has newer ones; true if it was written.
    fn push_slow(&mut self, rings: &Rings, push: Push, records: &Records) -> bool {
        let is_full = |line: &Line| line.is_full();
        if self.lines.get(push.slot).is_some_and(is_full) {
            self.spill(rings, push.slot);
        }
        let Some(line) = self.lines.get(push.slot) else {
            return false;
        };
        if let Some(entries) = line.push(push.number, push.time_us) {
            self.entries += u64::from(entries < rings.items_max);
            return true;
        }
        self.push_late(rings, push, records)
    }

    /// Moves the oldest numbers of a full line to the body.
    fn spill(&mut self, rings: &Rings, slot: u32) {
        let Some(line) = self.lines.get(slot) else {
            return;
        };
        let widest = self.slabs.len().saturating_sub(1);
        let has_room = line.place().is_some_and(|(kind, _)| {
            let slab = self.slabs.get(kind);
            kind == widest || slab.is_some_and(|slab| line.body() < slab.width())
        });
        if !has_room {
            self.widen(rings, slot);
        }
        let Some(line) = self.lines.get(slot) else {
            return;
        };
        let cells = self.cells(line.place());
        let (width, end) = (cells.len(), line.end());
        line.change(|line| {
            if line.body() == width {
                line.set_dropped();
            }
            let place = cells.get(end..end + SPILL).unwrap_or(&[]);
            for (cell, number) in place.iter().zip(line.spill()) {
                cell.store(number, Relaxed);
            }
            let end = if end + SPILL >= width { 0 } else { end + SPILL };
            line.set_body((line.body() + SPILL).min(width), end);
        });
    }

    /// Moves a full body to one twice as wide, or makes the first.
    ///
    /// Only the widest ever wraps, so the cells of a full one are in order.
    fn widen(&mut self, rings: &Rings, slot: u32) {
        let old = self.lines.get(slot).and_then(Line::place);
        let kind = old.map_or(0, |(kind, _)| kind + 1);
        let (Some(place), Some(line)) = (self.take(rings, kind), self.lines.get(slot)) else {
            return;
        };
        let from = self.cells(old);
        let to = self.cells(Some((kind, place)));
        for (to, from) in to.iter().zip(from) {
            to.store(from.load(Relaxed), Relaxed);
        }
        line.change(|line| {
            line.set_body(from.len(), from.len());
            line.set_place(kind, place);
        });
        if let Some((narrow, ring)) = old {
            self.give_back(rings, narrow, ring);
        }
    }

    fn take(&mut self, rings: &Rings, kind: usize) -> Option<u32> {
        let slab = rings.slabs.get(kind)?;
        Some(self.slabs.get_mut(kind)?.take(slab))
    }

    fn give_back(&mut self, rings: &Rings, kind: usize, ring: u32) {
        if let (Some(writer), Some(slab)) = (self.slabs.get_mut(kind), rings.slabs.get(kind)) {
            writer.give_back(slab, ring);
        }
    }

    /// Puts a record that is not newer than all others in its place.
    fn push_late(&mut self, rings: &Rings, push: Push, records: &Records) -> bool {
        let Push {
            slot,
            number,
            time_us,
        } = push;
        let Some(line) = self.lines.get(slot).filter(|line| line.is_open()) else {
            return false;
        };
        // Late records are seldom very late: most belong among the newest.
        let (staged, newest) = line.newest();
        let entries = (line.body() + staged).min(rings.items_max);
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
            && let Some(ring) = self.ring(rings, slot)
        {
            // Whatever is above an entry is above the floor.
            if time_us <= ring.after_us {
                return false;
            }
            newer = ring.newer_than(push, newer, records);
            there = ring.nth(newer);
        }
        if there == Some(number) {
            return false;
        }
        let full = entries >= rings.items_max;
        let beyond = newer == entries && (full || line.has_dropped(rings.items_max));
        let cells = self.cells(line.place());
        line.change(|line| {
            if beyond {
                // Older than a floor that is, or now becomes, the oldest entry.
                line.set_dropped();
                return;
            }
            if newer == 0 {
                line.set_newest_us(time_us);
            }
            make_room(line, cells, newer, number);
        });
        self.entries += u64::from(!full && !beyond);
        !beyond
    }

    /// Makes the ring of `slot` hold exactly this list, newest first, complete for times after
    /// `after_us`.
    ///
    /// `more` says that older records exist within the window; then the list
    /// must be as long as a ring can be.
    pub(crate) fn build(
        &mut self,
        rings: &Rings,
        slot: u32,
        newest_first: &[u32],
        (more, after_us): (bool, i64),
        records: &Records,
    ) {
        let body = self.body_of(rings, newest_first);
        let old = self.close_for(rings, slot, |line| {
            line.open(slot);
            if let Some(&newest) = newest_first.first() {
                line.set_newest_us(records.time_us(newest));
            }
            if more {
                line.set_dropped();
            }
            let mut staged = [0; STAGED_MAX];
            let kept = newest_first.len() - body.entries;
            let newest = newest_first.iter().take(kept).rev();
            for (to, number) in staged.iter_mut().zip(newest) {
                *to = *number;
            }
            line.set_staged(staged.get(..kept).unwrap_or(&[]));
            if let Some((kind, ring)) = body.place {
                line.set_place(kind, ring);
                line.set_body(body.entries, body.end);
            }
            rings.floors.slot(slot).store(after_us, Relaxed);
        });
        self.let_go(rings, old);
        self.entries += newest_first.len() as u64;
        self.rings += 1;
    }

    /// A body with the older ones of a list, for which a line has no room.
    fn body_of(&mut self, rings: &Rings, newest_first: &[u32]) -> Body {
        let length = newest_first.len();
        let entries = if length <= STAGED_MAX {
            0
        } else {
            (length - KEPT_MAX) / SPILL * SPILL
        };
        let mut body = Body::default();
        if entries == 0 {
            return body;
        }
        let kind = rings.slabs.iter().position(|slab| slab.width() >= entries);
        let kind = kind.unwrap_or(rings.slabs.len().saturating_sub(1));
        body.place = self.take(rings, kind).map(|ring| (kind, ring));
        body.entries = entries;
        let cells = self.cells(body.place);
        body.end = if entries == cells.len() { 0 } else { entries };
        for (cell, &number) in cells.iter().zip(newest_first.iter().rev().take(entries)) {
            cell.store(number, Relaxed);
        }
        body
    }

    /// Frees the ring of `slot`; pushes to it are dropped from now on.
    pub(crate) fn close(&mut self, rings: &Rings, slot: u32) {
        let line = self.lines.get(slot);
        if line.is_some_and(Line::is_open) {
            let old = self.close_for(rings, slot, |_| {});
            self.let_go(rings, old);
        }
    }

    /// Closes a line, if it was open, and does something else to it in the same change; what it was.
    fn close_for(&mut self, rings: &Rings, slot: u32, then: impl FnOnce(&Line)) -> Seen {
        let line = self.lines.slot(&rings.lines, slot);
        let old = line.seen();
        line.change(|line| {
            line.close();
            then(line);
        });
        old
    }

    /// Gives the body of a line back that was closed.
    fn let_go(&mut self, rings: &Rings, old: Seen) {
        if !old.is_open() {
            return;
        }
        self.entries -= old.total().min(rings.items_max) as u64;
        self.rings -= 1;
        if let Some((kind, ring)) = old.place() {
            self.give_back(rings, kind, ring);
        }
    }

    /// Adds `newest_first`, the records of a key just followed.
    pub(crate) fn merge(
        &mut self,
        rings: &Rings,
        slot: u32,
        newest_first: impl Iterator<Item = u32>,
        records: &Records,
    ) {
        let Some(ring) = self.ring(rings, slot) else {
            return;
        };
        let floor = ring.floor();
        let above = |number: u32| {
            records.time_us(number) > floor.after_us
                && floor
                    .oldest
                    .is_none_or(|oldest| records.compare(number, oldest) != Ordering::Less)
        };
        let items_max = rings.items_max;
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
        self.build(rings, slot, &list, (dropped, floor.after_us), records);
    }

    /// Moves the ring to a lower free place, if there is one, so that the chunks
    /// above can be returned.
    pub(crate) fn sink(&mut self, rings: &Rings, slot: u32) {
        if let Some(line) = self.lines.get(slot)
            && let Some((kind, ring)) = line.place()
            && let (Some(writer), Some(slab)) = (self.slabs.get_mut(kind), rings.slabs.get(kind))
            && writer.has_below(ring)
        {
            line.change(|line| line.set_place(kind, writer.sink(slab, ring)));
        }
    }

    /// Drops the entries that are gone; true if there were any.
    pub(crate) fn compact(&mut self, rings: &Rings, slot: u32, records: &Records) -> bool {
        let Some(ring) = self.ring(rings, slot) else {
            return false;
        };
        if !ring.walk().any(|number| records.is_gone(number)) {
            return false;
        }
        let floor = ring.floor();
        let live = ring.walk().filter(|&number| !records.is_gone(number));
        let list: Vec<u32> = live.collect();
        // The oldest entry may be leaving, so its time is written down.
        let after_us = floor.oldest.map_or(floor.after_us, |oldest| {
            floor.after_us.max(records.time_us(oldest))
        });
        self.build(rings, slot, &list, (false, after_us), records);
        true
    }
}

/// The body of a ring that is being built.
#[derive(Debug, Default)]
struct Body {
    place: Option<(usize, u32)>,
    entries: usize,
    end: usize,
}

/// Writes `number` below the `newer` newest entries; the line has room.
///
/// In the body those above it move up by one, and the topmost goes to the line.
fn make_room(line: &Line, cells: &[AtomicU32], newer: usize, number: u32) {
    let (staged, _) = line.newest();
    if newer <= staged {
        line.insert(newer, number);
        return;
    }
    let cell = |at: usize| cells.get(at).map_or(0, |cell| cell.load(Relaxed));
    let put = |at: usize, number: u32| {
        if let Some(cell) = cells.get(at) {
            cell.store(number, Relaxed);
        }
    };
    // Walks down from the newest cell, carrying what each one gives up.
    let below = |at: usize| at.checked_sub(1).unwrap_or(cells.len().saturating_sub(1));
    let mut at = below(line.end());
    let topmost = cell(at);
    for _ in 1..newer - staged {
        let under = below(at);
        put(at, cell(under));
        at = under;
    }
    put(at, number);
    line.insert(staged, topmost);
}

#[cfg(test)]
mod tests;
