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
//! chunks behind.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Cells of a chunk of narrow rings: small, so that it is soon free again.
const NARROW_CELLS: usize = 1 << 16;
/// Cells of a chunk of wide rings: some megabytes, so that an allocator that
/// may use large pages does; most of a push is the search for its page.
const WIDE_CELLS: usize = 1 << 20;
/// Rings of this width and more are wide.
const WIDE: usize = 64;

/// Rings of `width` cells each.
#[derive(Debug)]
pub(crate) struct Slab {
    width: usize,
    /// Rings per chunk is two to this power.
    bits: u32,
    /// Empty where all rings of a chunk are free.
    chunks: Vec<Box<[u32]>>,
    /// Rings in use, chunk by chunk.
    used: Vec<u32>,
    /// The lowest first, so that high chunks become free as a whole.
    free: BinaryHeap<Reverse<u32>>,
    next: u32,
    allocated: usize,
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

    pub(crate) fn take(&mut self) -> u32 {
        let lowest = self.free.pop().map(|Reverse(ring)| ring);
        let ring = lowest.unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        let at = (ring >> self.bits) as usize;
        if at >= self.chunks.len() {
            self.chunks.push(Box::default());
            self.used.push(0);
        }
        if let (Some(chunk), Some(used)) = (self.chunks.get_mut(at), self.used.get_mut(at)) {
            *used += 1;
            if chunk.is_empty() {
                *chunk = vec![0; self.width << self.bits].into_boxed_slice();
                self.allocated += 1;
            }
        }
        ring
    }

    /// A free ring below `ring`, taken, with the same cells; `ring` is given back.
    pub(crate) fn sink(&mut self, ring: u32) -> Option<u32> {
        let Reverse(lowest) = *self.free.peek()?;
        if lowest >= ring {
            return None;
        }
        let cells = self.cells(ring).to_vec();
        let lower = self.take();
        for (to, from) in self.cells_mut(lower).iter_mut().zip(cells) {
            *to = from;
        }
        self.give_back(ring);
        Some(lower)
    }

    pub(crate) fn give_back(&mut self, ring: u32) {
        self.free.push(Reverse(ring));
        let at = (ring >> self.bits) as usize;
        if let (Some(chunk), Some(used)) = (self.chunks.get_mut(at), self.used.get_mut(at)) {
            *used -= 1;
            // The chunk being filled is kept, or a lone reader would make and drop it in turn.
            if *used == 0 && self.next >> self.bits != at as u32 {
                *chunk = Box::default();
                self.allocated -= 1;
            }
        }
    }

    #[inline]
    fn place(&self, ring: u32) -> (usize, usize) {
        let within = (ring & ((1 << self.bits) - 1)) as usize;
        ((ring >> self.bits) as usize, within * self.width)
    }

    pub(crate) fn cells(&self, ring: u32) -> &[u32] {
        let (chunk, start) = self.place(ring);
        self.chunks
            .get(chunk)
            .and_then(|cells| cells.get(start..start + self.width))
            .unwrap_or(&[])
    }

    pub(crate) fn cells_mut(&mut self, ring: u32) -> &mut [u32] {
        let (chunk, start) = self.place(ring);
        let width = self.width;
        self.chunks
            .get_mut(chunk)
            .and_then(|cells| cells.get_mut(start..start + width))
            .unwrap_or(&mut [])
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
        let mut slab = Slab::new(1 << 18);
        let rings: Vec<u32> = (0..9).map(|_| slab.take()).collect();
        let before = slab.bytes();
        for &ring in &rings[..4] {
            slab.give_back(ring);
        }
        assert!(slab.bytes() < before);
        assert!(slab.cells(rings[0]).is_empty());
        let again = slab.take();
        slab.cells_mut(again)[3] = 7;
        assert_eq!(slab.cells(again)[3], 7);
        assert_eq!(slab.cells(rings[5]).len(), 1 << 18);
    }
}
