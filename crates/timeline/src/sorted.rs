//! Sorted sets of numbers: who follows a key, and which keys a reader follows.
//!
//! In:    numbers to add and remove, one at a time, in any order.
//! Out:   membership, and a walk in ascending order from any number.
//! Never: a step whose cost grows with the set; the longest is one block moved
//!        and, once in some hundred additions, one list of blocks.
//!
//! A copy of a set shares its blocks, but for the first: who reads one copy is
//! not disturbed by what is added to the other.
//!
//! The order matters for speed: a fan-out walks readers by ascending number,
//! so their timelines are touched in the order they lie in memory. It matters
//! for truth as well: a background fan-out remembers the number it has come to
//! and goes on from there whatever was added or removed in between.

use crate::ahead::ask;
use std::sync::Arc;

/// Numbers of a block; few where tests are run, or no test would meet a second block.
const BLOCK_MAX: usize = if cfg!(debug_assertions) { 16 } else { 1024 };

/// Room for a list of `len` numbers that grows: up to a quarter more, not
/// twice, because most lists are small and there are millions; and just what
/// an allocator with eight sizes between powers of two gives out anyway.
pub(crate) fn room_after(len: usize) -> usize {
    let step = ((len + 1).next_power_of_two() / 8).max(2);
    (len + 1).next_multiple_of(step)
}

/// A set of `u32` in blocks of at most [`BLOCK_MAX`].
///
/// The first block stands in the set itself, because most sets have no other
/// and a fan-out pays for every pointer it follows.
#[derive(Debug, Default, Clone)]
#[expect(
    clippy::box_collection,
    reason = "a field of one word instead of three or four, in millions of places"
)]
pub(crate) struct Sorted {
    first: Vec<u32>,
    /// Boxed, because few sets have it and all would pay for its length.
    rest: Option<Box<Vec<Arc<Vec<u32>>>>>,
    len: usize,
}

impl Sorted {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn rest(&self) -> &[Arc<Vec<u32>>] {
        self.rest.as_deref().map_or(&[], Vec::as_slice)
    }

    /// A set from numbers in any order, with repeats dropped.
    pub(crate) fn from_unsorted(mut numbers: Vec<u32>) -> Self {
        numbers.sort_unstable();
        numbers.dedup();
        let len = numbers.len();
        if len <= BLOCK_MAX {
            numbers.shrink_to_fit();
            return Self {
                first: numbers,
                rest: None,
                len,
            };
        }
        // Three quarters full, so that the next additions split nothing.
        let mut blocks = numbers.chunks(BLOCK_MAX / 4 * 3).map(<[u32]>::to_vec);
        let first = blocks.next().unwrap_or_default();
        Self {
            first,
            rest: Some(Box::new(blocks.map(Arc::new).collect())),
            len,
        }
    }

    /// The block that holds `number` or would: 0 is the first.
    #[inline]
    fn block_of(&self, number: u32) -> usize {
        if self.rest().is_empty() {
            return 0;
        }
        self.rest()
            .partition_point(|block| block.first().is_some_and(|&first| first <= number))
    }

    #[inline]
    fn block(&self, at: usize) -> &[u32] {
        match at.checked_sub(1) {
            None => &self.first,
            Some(at) => self.rest().get(at).map_or(&[], |block| block.as_slice()),
        }
    }

    #[inline]
    fn block_mut(&mut self, at: usize) -> &mut Vec<u32> {
        match at.checked_sub(1) {
            None => &mut self.first,
            Some(at) => {
                let rest = self.rest.as_deref_mut();
                let block = rest.and_then(|rest| rest.get_mut(at));
                Arc::make_mut(block.expect("block_of names a block"))
            }
        }
    }

    #[inline]
    pub(crate) fn contains(&self, number: u32) -> bool {
        self.block(self.block_of(number))
            .binary_search(&number)
            .is_ok()
    }

    /// Adds `number`; false if it was there.
    pub(crate) fn insert(&mut self, number: u32) -> bool {
        let at = self.block_of(number);
        let block = self.block_mut(at);
        let is_last = block.last().is_none_or(|&last| last < number);
        let place = if is_last {
            block.len() // readers join in the order of their slots
        } else {
            let Err(place) = block.binary_search(&number) else {
                return false;
            };
            place
        };
        if block.len() == block.capacity() {
            block.reserve_exact(room_after(block.len()) - block.len());
        }
        block.insert(place, number);
        if block.len() > BLOCK_MAX {
            let upper = block.split_off(BLOCK_MAX / 2);
            let rest = self.rest.get_or_insert_default();
            rest.insert(at, Arc::new(upper));
        }
        self.len += 1;
        true
    }

    /// Takes `number` out; false if it was not there.
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        let at = self.block_of(number);
        let block = self.block_mut(at);
        let Ok(place) = block.binary_search(&number) else {
            return false;
        };
        block.remove(place);
        if block.is_empty()
            && let Some(rest) = self.rest.as_deref_mut().filter(|rest| !rest.is_empty())
        {
            let next = rest.remove(at.saturating_sub(1));
            if at == 0 {
                self.first = Arc::unwrap_or_clone(next);
            }
        }
        self.len -= 1;
        true
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.slices().flatten().copied()
    }

    /// Members at or above `number`, ascending.
    pub(crate) fn from(&self, number: u32) -> impl Iterator<Item = u32> + '_ {
        self.slices_from(number).flatten().copied()
    }

    /// The same in slices; the fan-out's inner loop wants them plain.
    pub(crate) fn slices_from(&self, number: u32) -> impl Iterator<Item = &[u32]> {
        let at = self.block_of(number);
        let block = self.block(at);
        let place = block.partition_point(|&member| member < number);
        let (_, tail) = block.split_at_checked(place).unwrap_or((&[], &[]));
        let (_, rest) = self.rest().split_at_checked(at).unwrap_or((&[], &[]));
        std::iter::once(tail).chain(rest.iter().map(|block| block.as_slice()))
    }

    /// Asks for the smallest members: two cache lines of them.
    #[inline]
    pub(crate) fn ask_first(&self) {
        ask(self.first.first());
        ask(self.first.get(16));
    }

    /// Asks for the largest member.
    #[inline]
    pub(crate) fn ask_last(&self) {
        let last = self.rest().last().map_or(&self.first, |block| block);
        ask(last.last());
    }

    /// All members, ascending, in slices.
    pub(crate) fn slices(&self) -> impl Iterator<Item = &[u32]> {
        let rest = self.rest().iter().map(|block| block.as_slice());
        std::iter::once(self.first.as_slice()).chain(rest)
    }

    /// Blocks that are not those of `other` as well.
    #[cfg(test)]
    pub(crate) fn own_blocks(&self, other: &Self) -> usize {
        let others: Vec<_> = other.rest().iter().map(Arc::as_ptr).collect();
        let own = self.rest().iter().map(Arc::as_ptr);
        1 + own.filter(|block| !others.contains(block)).count()
    }

    pub(crate) fn bytes(&self) -> usize {
        let rest: usize = self.rest().iter().map(|block| block.capacity()).sum();
        let blocks = self.rest.as_ref().map_or(0, |rest| rest.capacity() + 1);
        // Each block has two counts beside it, and a pointer to it.
        (self.first.capacity() + rest) * 4 + blocks * (size_of::<Vec<u32>>() + 24)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_growing_list_has_room_for_one_more_and_at_most_for_a_quarter_more() {
        for len in 0..5_000 {
            let room = room_after(len);
            assert!(
                room > len && room <= len + (len / 4).max(2),
                "{len}: {room}"
            );
        }
        assert_eq!([0, 2, 16, 64, 80].map(room_after), [2, 4, 20, 80, 96]);
    }
    #[test]
    fn a_copy_is_not_disturbed_by_what_is_added_to_the_other() {
        let mut ours = Sorted::from_unsorted((0..5_000).map(|at| at * 2).collect());
        let copy = ours.clone();
        for number in [1, 3_001, 9_999, 4_444] {
            ours.insert(number);
        }
        ours.remove(8_888);
        assert!(copy.iter().eq((0..5_000).map(|at| at * 2)));
        assert!(ours.contains(3_001) && !ours.contains(8_888));
    }

    #[test]
    fn a_set_agrees_with_the_standard_one_through_splits_and_joins() {
        let mut ours = Sorted::default();
        let mut theirs = BTreeSet::new();
        let mut state = 7u64;
        for _ in 0..60_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let number = (state >> 40) as u32 % 9_000;
            if state >> 62 == 0 {
                assert_eq!(ours.remove(number), theirs.remove(&number));
            } else {
                assert_eq!(ours.insert(number), theirs.insert(number));
            }
        }
        assert_eq!(ours.len(), theirs.len());
        assert!(ours.iter().eq(theirs.iter().copied()));
        for start in [0, 1, 4_000, 8_999, 9_001] {
            assert!(ours.from(start).eq(theirs.range(start..).copied()));
            assert_eq!(ours.contains(start), theirs.contains(&start));
        }
        let built = Sorted::from_unsorted(theirs.iter().rev().copied().collect());
        assert!(built.iter().eq(ours.iter()));
    }
}
