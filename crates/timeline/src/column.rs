//! Columns: arrays that grow without ever moving what they hold.
//!
//! In:    an index and, through [`Column::slot`], a value for it.
//! Out:   the value at an index; nothing for an index never written near.
//! Never: a copy of old values when the array grows.
//!
//! A `Vec` of ten million records doubles by copying all of them while every
//! reader waits. A column adds one chunk at a time and only for the indexes in
//! use, so a large id costs a pointer, not an array up to it.

const CHUNK_BITS: u32 = 12;
const CHUNK: usize = 1 << CHUNK_BITS;

/// A sparse array of `T`, allocated in chunks of 4096.
#[derive(Debug)]
pub(crate) struct Column<T> {
    chunks: Vec<Option<Box<[T; CHUNK]>>>,
    allocated: usize,
}

impl<T> Default for Column<T> {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            allocated: 0,
        }
    }
}

#[inline]
fn split(index: u32) -> (usize, usize) {
    ((index >> CHUNK_BITS) as usize, index as usize & (CHUNK - 1))
}

impl<T: Default> Column<T> {
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let (chunk, offset) = split(index);
        self.chunks.get(chunk)?.as_ref()?.get(offset)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        let (chunk, offset) = split(index);
        self.chunks.get_mut(chunk)?.as_mut()?.get_mut(offset)
    }

    /// The place of `index`, made if it was not there.
    pub(crate) fn slot(&mut self, index: u32) -> &mut T {
        let (chunk, offset) = split(index);
        if self.chunks.len() <= chunk {
            self.chunks.resize_with(chunk + 1, || None);
        }
        let place = self.chunks.get_mut(chunk).expect("resized just above");
        let cells = place.get_or_insert_with(|| {
            self.allocated += 1;
            let cells: Vec<T> = std::iter::repeat_with(T::default).take(CHUNK).collect();
            match cells.into_boxed_slice().try_into() {
                Ok(cells) => cells,
                Err(_) => unreachable!("a chunk is made of exactly CHUNK cells"),
            }
        });
        cells.get_mut(offset).expect("the offset is masked")
    }

    pub(crate) fn bytes(&self) -> usize {
        self.allocated * CHUNK * size_of::<T>() + self.chunks.capacity() * size_of::<usize>()
    }
}

/// A set of small numbers, one bit each.
#[derive(Debug, Default)]
pub(crate) struct Bits {
    words: Column<u64>,
}

impl Bits {
    #[inline]
    pub(crate) fn contains(&self, index: u32) -> bool {
        self.words
            .get(index >> 6)
            .is_some_and(|word| (word >> (index & 63)) & 1 == 1)
    }

    pub(crate) fn set(&mut self, index: u32, on: bool) {
        let bit = 1u64 << (index & 63);
        let word = self.words.slot(index >> 6);
        if on {
            *word |= bit;
        } else {
            *word &= !bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_far_index_does_not_allocate_the_ones_before_it() {
        let mut column: Column<u32> = Column::default();
        *column.slot(u32::MAX) = 7;
        assert_eq!(column.get(u32::MAX), Some(&7));
        assert_eq!(column.get(0), None);
        assert_eq!(column.allocated, 1);
    }

    #[test]
    fn a_bit_is_set_and_cleared_alone() {
        let mut bits = Bits::default();
        bits.set(64, true);
        bits.set(65, true);
        bits.set(64, false);
        assert!(!bits.contains(64));
        assert!(bits.contains(65));
        assert!(!bits.contains(1_000_000));
    }
}
