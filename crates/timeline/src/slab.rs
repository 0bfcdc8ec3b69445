//! Slabs: memory for rings of one length.
//!
//! In:    a wish for a ring, and rings no longer needed.
//! Out:   a ring's cells by its number.
//! Never: a ring that moves; a large allocation.
//!
//! Rings lie in chunks of about a megabyte in the order they were asked for.
//! A fan-out walks readers in that order, which is what makes a push cost one
//! line of memory that the processor has already begun to fetch.

const CHUNK_CELLS: usize = 1 << 18;

/// Rings of `width` cells each.
#[derive(Debug)]
pub(crate) struct Slab {
    width: usize,
    /// Rings per chunk is two to this power.
    bits: u32,
    chunks: Vec<Box<[u32]>>,
    free: Vec<u32>,
    next: u32,
}

impl Slab {
    pub(crate) fn new(width: usize) -> Self {
        let width = width.max(1);
        Self {
            width,
            bits: (CHUNK_CELLS / width).max(1).ilog2(),
            chunks: Vec::new(),
            free: Vec::new(),
            next: 0,
        }
    }

    #[inline]
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn take(&mut self) -> u32 {
        if let Some(ring) = self.free.pop() {
            return ring;
        }
        let ring = self.next;
        self.next += 1;
        if (ring >> self.bits) as usize >= self.chunks.len() {
            let cells = self.width << self.bits;
            self.chunks.push(vec![0; cells].into_boxed_slice());
        }
        ring
    }

    pub(crate) fn give_back(&mut self, ring: u32) {
        self.free.push(ring);
    }

    #[inline]
    fn place(&self, ring: u32) -> (usize, usize) {
        let within = (ring & ((1 << self.bits) - 1)) as usize;
        ((ring >> self.bits) as usize, within * self.width)
    }

    #[inline]
    pub(crate) fn cell(&self, ring: u32, cell: usize) -> u32 {
        let (chunk, start) = self.place(ring);
        let cells = self.chunks.get(chunk);
        cells
            .and_then(|cells| cells.get(start + cell))
            .copied()
            .unwrap_or(0)
    }

    #[inline]
    pub(crate) fn cell_mut(&mut self, ring: u32, cell: usize) -> Option<&mut u32> {
        let (chunk, start) = self.place(ring);
        self.chunks.get_mut(chunk)?.get_mut(start + cell)
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
        self.chunks.len() * (self.width << self.bits) * 4 + self.free.capacity() * 4
    }
}
