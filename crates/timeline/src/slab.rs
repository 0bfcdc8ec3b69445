//! Slabs: memory for rings of one length.
//!
//! In:    a wish for a ring, and rings no longer needed.
//! Out:   a ring's cells by its number.
//! Never: a ring that moves; a large allocation.
//!
//! Rings lie in chunks in the order they were asked for.
//! A fan-out walks readers in that order, which is what makes a push cost one
//! line of memory that the processor has already begun to fetch. A chunk whose
//! rings were all given back is returned: rings that grow together leave whole
//! chunks behind. Who still reads it keeps it until then.

use crate::column::Column;
use sdd::{AtomicShared, Guard, Shared, Tag};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Cells of a chunk of narrow rings: small, so that it is soon free again. Chunks are smaller where
/// tests are run, so that some become free.
const NARROW_CELLS: usize = if cfg!(debug_assertions) {
    1 << 7
} else {
    1 << 16
};
/// Cells of a chunk of wide rings: some megabytes, so that an allocator that
/// may use large pages does; most of a push is the search for its page.
const WIDE_CELLS: usize = if cfg!(debug_assertions) {
    1 << 9
} else {
    1 << 20
};
/// Rings of this width and more are wide.
const WIDE: usize = 64;

/// The cells of neighbouring rings.
type Chunk = Box<[AtomicU32]>;

/// Rings of `width` cells each.
#[derive(Debug)]
pub(crate) struct Slab {
    width: usize,
    /// Rings per chunk is two to this power.
    bits: u32,
    /// None where all rings of a chunk are free.
    chunks: Column<AtomicShared<Chunk>>,
}

impl Slab {
    pub(crate) fn new(width: usize) -> Self {
        let width = width.max(1);
        let cells = if width < WIDE {
            NARROW_CELLS
        } else {
            WIDE_CELLS
        };
        Self {
            width,
            bits: (cells / width).max(1).ilog2(),
            chunks: Column::default(),
        }
    }

    #[inline]
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// The cells of a ring; none if all of its chunk are free.
    #[inline]
    pub(crate) fn cells<'g>(&self, ring: u32, guard: &'g Guard) -> &'g [AtomicU32] {
        let chunk = self.chunks.get(ring >> self.bits);
        let chunk = chunk.and_then(|chunk| chunk.load(Acquire, guard).as_ref());
        let start = (ring & ((1 << self.bits) - 1)) as usize * self.width;
        chunk
            .and_then(|chunk| chunk.get(start..start + self.width))
            .unwrap_or(&[])
    }

    fn chunk(&self) -> Chunk {
        let cells = self.width << self.bits;
        (0..cells).map(|_| AtomicU32::new(0)).collect()
    }
}

/// What the one writer knows of a slab.
#[derive(Debug)]
pub(crate) struct SlabWriter {
    /// The slab's own, and its chunks: found with fewer steps.
    width: usize,
    bits: u32,
    chunks: Vec<Option<Shared<Chunk>>>,
    /// Rings in use, chunk by chunk.
    used: Vec<u32>,
    /// The lowest first, so that high chunks become free as a whole.
    free: BinaryHeap<Reverse<u32>>,
    next: u32,
    allocated: usize,
}

impl SlabWriter {
    pub(crate) fn new(slab: &Slab) -> Self {
        Self {
            width: slab.width,
            bits: slab.bits,
            chunks: Vec::new(),
            used: Vec::new(),
            free: BinaryHeap::new(),
            next: 0,
            allocated: 0,
        }
    }

    #[inline]
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn take(&mut self, slab: &Slab) -> u32 {
        let lowest = self.free.pop().map(|Reverse(ring)| ring);
        let ring = lowest.unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        let at = (ring >> slab.bits) as usize;
        if at >= self.used.len() {
            self.used.push(0);
            self.chunks.push(None);
        }
        if let (Some(used), Some(chunk)) = (self.used.get_mut(at), self.chunks.get_mut(at)) {
            *used += 1;
            if chunk.is_none() {
                *chunk = Some(Shared::new(slab.chunk()));
                self.allocated += 1;
                let shown = slab.chunks.slot(ring >> slab.bits);
                drop(shown.swap((chunk.clone(), Tag::None), Release));
            }
        }
        ring
    }

    /// The chunk of a ring, and where its cells begin there.
    #[inline]
    fn place(&self, ring: u32) -> Option<(&[AtomicU32], usize)> {
        let chunk = self.chunks.get((ring >> self.bits) as usize)?.as_ref()?;
        let within = (ring & ((1 << self.bits) - 1)) as usize;
        Some((chunk, within * self.width))
    }

    /// The cells of a ring.
    #[inline]
    pub(crate) fn cells(&self, ring: u32) -> &[AtomicU32] {
        let cells = self
            .place(ring)
            .and_then(|(chunk, start)| chunk.get(start..start + self.width));
        cells.unwrap_or(&[])
    }

    /// A cell of a ring.
    #[inline]
    pub(crate) fn cell(&self, ring: u32, at: usize) -> Option<&AtomicU32> {
        let (chunk, start) = self.place(ring)?;
        chunk.get(start + at)
    }

    /// Whether a ring below this one is free.
    pub(crate) fn has_below(&self, ring: u32) -> bool {
        let lowest = self.free.peek();
        lowest.is_some_and(|Reverse(lowest)| *lowest < ring)
    }

    /// The lowest free ring, taken, with the same cells; `ring` is given back.
    pub(crate) fn sink(&mut self, slab: &Slab, ring: u32) -> u32 {
        let lower = self.take(slab);
        let cells = self.cells(ring);
        for (to, from) in self.cells(lower).iter().zip(cells) {
            to.store(from.load(Relaxed), Relaxed);
        }
        self.give_back(slab, ring);
        lower
    }

    pub(crate) fn give_back(&mut self, slab: &Slab, ring: u32) {
        self.free.push(Reverse(ring));
        let at = (ring >> slab.bits) as usize;
        if let (Some(used), Some(chunk)) = (self.used.get_mut(at), self.chunks.get_mut(at)) {
            *used -= 1;
            // The chunk being filled is kept, or a lone reader would make and drop it in turn.
            if *used == 0 && self.next >> slab.bits != at as u32 {
                *chunk = None;
                self.allocated -= 1;
                let shown = slab.chunks.slot(ring >> slab.bits);
                drop(shown.swap((None, Tag::None), Release));
            }
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.allocated * (self.width << self.bits) * 4 + self.free.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_whose_rings_are_all_free_is_returned_and_made_again() {
        let slab = Slab::new(1 << 18);
        let mut writer = SlabWriter::new(&slab);
        let guard = Guard::new();
        let rings: Vec<u32> = (0..9).map(|_| writer.take(&slab)).collect();
        let before = writer.bytes();
        let reading = slab.cells(rings[0], &guard);
        reading[3].store(5, Relaxed);
        for &ring in &rings[..4] {
            writer.give_back(&slab, ring);
        }
        assert!(writer.bytes() < before);
        assert!(slab.cells(rings[0], &guard).is_empty());
        assert_eq!(reading[3].load(Relaxed), 5, "who reads keeps it");
        let again = writer.take(&slab);
        slab.cells(again, &guard)[3].store(7, Relaxed);
        assert_eq!(slab.cells(again, &guard)[3].load(Relaxed), 7);
        assert_eq!(slab.cells(rings[5], &guard).len(), 1 << 18);
    }
}
