//! Columns: arrays that grow without ever moving what they hold.
//!
//! In:    an index and, through [`Column::slot`], a value for it.
//! Out:   the value at an index; nothing for an index never written near.
//! Never: a copy of old values when the array grows; a reader that waits for
//!        that, or a writer that waits for readers.
//!
//! A `Vec` of ten million records doubles by copying all of them, and nobody
//! may look meanwhile. A column adds one chunk at a time and only for the
//! indexes in use, so a large id costs a pointer, not an array up to it. Neither
//! a chunk nor the directory it is found through ever moves or goes while the
//! column is there.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

const CHUNK_BITS: u32 = 12;
const CHUNK: usize = 1 << CHUNK_BITS;
const DIRECTORY_BITS: u32 = 10;
const DIRECTORY: usize = 1 << DIRECTORY_BITS;
/// Enough for every index of 32 bits.
const DIRECTORIES: usize = 1 << (u32::BITS - DIRECTORY_BITS - CHUNK_BITS);

type Chunk<T> = OnceLock<Arc<[T; CHUNK]>>;
type Directory<T> = OnceLock<Box<[Chunk<T>; DIRECTORY]>>;

/// A sparse array of `T`, allocated in chunks of 4096.
#[derive(Debug)]
pub(crate) struct Column<T> {
    directories: Box<[Directory<T>; DIRECTORIES]>,
    bytes: AtomicUsize,
}

impl<T> Default for Column<T> {
    fn default() -> Self {
        Self {
            directories: Box::new([const { OnceLock::new() }; DIRECTORIES]),
            bytes: AtomicUsize::new(size_of::<[Directory<T>; DIRECTORIES]>()),
        }
    }
}

/// The directory of an index, the chunk in it, and the place in that.
#[inline]
fn split(index: u32) -> (usize, usize, usize) {
    (
        (index >> (DIRECTORY_BITS + CHUNK_BITS)) as usize,
        (index >> CHUNK_BITS) as usize & (DIRECTORY - 1),
        index as usize & (CHUNK - 1),
    )
}

impl<T: Default> Column<T> {
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let (directory, chunk, offset) = split(index);
        let directory = self.directories.get(directory)?.get()?;
        directory.get(chunk)?.get()?.get(offset)
    }

    /// The chunk of `index`, made if it was not there.
    fn reach(&self, index: u32) -> Option<&Arc<[T; CHUNK]>> {
        let (directory, chunk, _) = split(index);
        let directory = self.directories.get(directory).map(|directory| {
            directory.get_or_init(|| {
                let bytes = size_of::<[Chunk<T>; DIRECTORY]>();
                self.bytes.fetch_add(bytes, Ordering::Relaxed);
                Box::new([const { OnceLock::new() }; DIRECTORY])
            })
        });
        let place = directory.and_then(|directory| directory.get(chunk));
        place.map(|place| {
            place.get_or_init(|| {
                let bytes = size_of::<[T; CHUNK]>();
                self.bytes.fetch_add(bytes, Ordering::Relaxed);
                chunk_of(T::default)
            })
        })
    }

    /// The place of `index`, made if it was not there. For the one writer.
    pub(crate) fn slot(&self, index: u32) -> &T {
        if let Some(place) = self.get(index) {
            return place;
        }
        self.reach(index);
        self.get(index).expect("reached just above")
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A chunk, cell by cell.
fn chunk_of<T>(cell: impl FnMut() -> T) -> Arc<[T; CHUNK]> {
    let cells: Arc<[T]> = std::iter::repeat_with(cell).take(CHUNK).collect();
    match cells.try_into() {
        Ok(cells) => cells,
        Err(_) => unreachable!("a chunk is made of exactly CHUNK cells"),
    }
}

/// A column as its one writer finds its way in it: with fewer steps.
#[derive(Debug)]
pub(crate) struct ColumnWriter<T> {
    chunks: Vec<Option<Arc<[T; CHUNK]>>>,
}

impl<T> Default for ColumnWriter<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T: Default> ColumnWriter<T> {
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let chunk = self.chunks.get((index >> CHUNK_BITS) as usize)?;
        chunk.as_ref()?.get(index as usize & (CHUNK - 1))
    }

    /// The place of `index`, made if it was not there.
    pub(crate) fn slot(&mut self, column: &Column<T>, index: u32) -> &T {
        let at = (index >> CHUNK_BITS) as usize;
        if self.chunks.len() <= at {
            self.chunks.resize_with(at + 1, || None);
        }
        if let Some(chunk) = self.chunks.get_mut(at)
            && chunk.is_none()
        {
            *chunk = column.reach(index).cloned();
        }
        self.get(index).expect("reached just above")
    }
}

/// A column that nobody else looks at.
#[derive(Debug)]
pub(crate) struct OwnColumn<T> {
    chunks: Vec<Option<Box<[T]>>>,
    allocated: usize,
}

impl<T> Default for OwnColumn<T> {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            allocated: 0,
        }
    }
}

impl<T: Default> OwnColumn<T> {
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let chunk = self.chunks.get((index >> CHUNK_BITS) as usize)?;
        chunk.as_ref()?.get(index as usize & (CHUNK - 1))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        let chunk = self.chunks.get_mut((index >> CHUNK_BITS) as usize)?;
        chunk.as_mut()?.get_mut(index as usize & (CHUNK - 1))
    }

    /// The place of `index`, made if it was not there.
    pub(crate) fn slot(&mut self, index: u32) -> &mut T {
        let at = (index >> CHUNK_BITS) as usize;
        if self.chunks.len() <= at {
            self.chunks.resize_with(at + 1, || None);
        }
        if let Some(chunk) = self.chunks.get_mut(at)
            && chunk.is_none()
        {
            self.allocated += 1;
            *chunk = Some(std::iter::repeat_with(T::default).take(CHUNK).collect());
        }
        self.get_mut(index).expect("made just above")
    }

    pub(crate) fn bytes(&self) -> usize {
        self.allocated * CHUNK * size_of::<T>() + self.chunks.capacity() * size_of::<usize>()
    }
}

/// A set of small numbers, one bit each.
#[derive(Debug, Default)]
pub(crate) struct Bits {
    words: Column<AtomicU64>,
}

impl Bits {
    #[inline]
    pub(crate) fn contains(&self, index: u32) -> bool {
        self.words
            .get(index >> 6)
            .is_some_and(|word| (word.load(Ordering::Relaxed) >> (index & 63)) & 1 == 1)
    }

    /// Puts a number in or takes it out; true if that changed anything. For the one writer.
    pub(crate) fn set(&self, index: u32, on: bool) -> bool {
        let bit = 1u64 << (index & 63);
        let word = self.words.slot(index >> 6);
        let old = word.load(Ordering::Relaxed);
        let new = if on { old | bit } else { old & !bit };
        word.store(new, Ordering::Relaxed);
        old != new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_far_index_does_not_allocate_the_ones_before_it() {
        let column: Column<AtomicU64> = Column::default();
        let mut writer = ColumnWriter::default();
        writer.slot(&column, u32::MAX).store(7, Ordering::Relaxed);
        assert!(column.get(0).is_none());
        assert!(column.bytes() < 3 * CHUNK * size_of::<AtomicU64>());
        let mut own: OwnColumn<u32> = OwnColumn::default();
        *own.slot(1 << 20) = 7;
        assert_eq!((own.get(1 << 20), own.get(0)), (Some(&7), None));
        assert_eq!(own.allocated, 1);
    }

    #[test]
    fn every_index_has_a_place_of_its_own_that_all_find() {
        let column: Column<AtomicU64> = Column::default();
        let mut writer = ColumnWriter::default();
        let spread = |at: u32| at.wrapping_mul(2_654_435_761) >> 6;
        let read = |cell: Option<&AtomicU64>| cell.map(|cell| cell.load(Ordering::Relaxed));
        for at in 0..3_000 {
            let cell = match at % 2 {
                0 => column.slot(spread(at)),
                _ => writer.slot(&column, spread(at)),
            };
            cell.store(u64::from(at), Ordering::Relaxed);
        }
        for at in 0..3_000 {
            assert_eq!(read(column.get(spread(at))), Some(u64::from(at)));
            let found = writer.slot(&column, spread(at));
            assert_eq!(read(Some(found)), Some(u64::from(at)));
        }
    }

    #[test]
    fn a_bit_is_set_and_cleared_alone() {
        let bits = Bits::default();
        assert!(bits.set(64, true));
        assert!(bits.set(65, true));
        assert!(!bits.set(65, true));
        assert!(bits.set(64, false));
        assert!(!bits.contains(64));
        assert!(bits.contains(65));
        assert!(!bits.contains(1_000_000));
    }
}
