//! A set that counts how often each member was added.
//!
//! In:    numbers to add and to take, each any number of times.
//! Out:   the set of those that were added more often than taken.
//! Never: a step, or a copy that is changed, whose cost grows with the set.
//!
//! Two follow records may name the same key; deleting one of them must not end
//! the follow. Repeats are rare, so only they pay for a count. But a stranger
//! may write as many as he likes, so counts lie in sorted blocks too: a copy
//! shares all but those that it changes.

use crate::sorted::Sorted;
use std::sync::Arc;

/// Counts of a block; few where tests are run, or no test would meet a second block.
const BLOCK_MAX: usize = if cfg!(debug_assertions) { 16 } else { 512 };

/// A member, and how often it was added beyond the first time.
type Repeat = (u32, u32);

/// How often members were added beyond the first time, in ascending order of the members.
#[derive(Debug, Default, Clone)]
struct Repeats {
    /// None is empty.
    blocks: Vec<Arc<Vec<Repeat>>>,
}

impl Repeats {
    fn from_sorted(repeats: &[Repeat]) -> Self {
        // Three quarters full, so that the next additions split nothing.
        let blocks = repeats.chunks(BLOCK_MAX / 4 * 3);
        Self {
            blocks: blocks.map(|block| Arc::new(block.to_vec())).collect(),
        }
    }

    /// The block that holds `number` or would, and the place in it.
    fn place(&self, number: u32) -> (usize, Result<usize, usize>) {
        let first = |block: &Arc<Vec<Repeat>>| block.first().map(|(first, _)| *first);
        let above = self
            .blocks
            .partition_point(|block| first(block).is_some_and(|first| first <= number));
        let at = above.saturating_sub(1);
        let block = self.blocks.get(at);
        let place = block.map_or(Err(0), |block| {
            block.binary_search_by_key(&number, |(repeated, _)| *repeated)
        });
        (at, place)
    }

    fn add(&mut self, number: u32) {
        let (at, place) = self.place(number);
        if self.blocks.is_empty() {
            self.blocks.push(Arc::default());
        }
        let Some(block) = self.blocks.get_mut(at).map(Arc::make_mut) else {
            return;
        };
        match place {
            Ok(place) => {
                if let Some((_, count)) = block.get_mut(place) {
                    *count += 1;
                }
            }
            Err(place) => block.insert(place, (number, 1)),
        }
        if block.len() > BLOCK_MAX {
            let upper = block.split_off(BLOCK_MAX / 2);
            self.blocks.insert(at + 1, Arc::new(upper));
        }
    }

    /// Counts one less; false if the number is not here.
    fn take(&mut self, number: u32) -> bool {
        let (at, Ok(place)) = self.place(number) else {
            return false;
        };
        let Some(block) = self.blocks.get_mut(at).map(Arc::make_mut) else {
            return false;
        };
        if let Some((_, count)) = block.get_mut(place) {
            *count -= 1;
            if *count == 0 {
                block.remove(place);
            }
        }
        if block.is_empty() {
            self.blocks.remove(at);
        }
        true
    }

    fn bytes(&self) -> usize {
        let entries: usize = self.blocks.iter().map(|block| block.capacity()).sum();
        // Each block has two counts beside it, and a pointer to it.
        entries * size_of::<Repeat>() + self.blocks.capacity() * (size_of::<Vec<Repeat>>() + 24)
    }
}

/// A set that counts.
#[derive(Debug, Default, Clone)]
pub(crate) struct Counted {
    members: Sorted,
    /// Boxed, because few sets have it and all would pay for its length.
    repeats: Option<Box<Repeats>>,
}

impl Counted {
    pub(crate) fn from_records(numbers: &[u32]) -> Self {
        let mut sorted = numbers.to_vec();
        sorted.sort_unstable();
        let mut repeats: Vec<Repeat> = Vec::new();
        for pair in sorted.windows(2) {
            if let [first, second] = pair
                && first == second
            {
                match repeats.last_mut() {
                    Some((number, count)) if number == second => *count += 1,
                    _ => repeats.push((*second, 1)),
                }
            }
        }
        Self {
            members: Sorted::from_unsorted(sorted),
            repeats: (!repeats.is_empty()).then(|| Box::new(Repeats::from_sorted(&repeats))),
        }
    }

    pub(crate) fn members(&self) -> &Sorted {
        &self.members
    }

    /// Counts one more; true if `number` is new.
    pub(crate) fn add(&mut self, number: u32) -> bool {
        if self.members.insert(number) {
            return true;
        }
        self.repeats.get_or_insert_default().add(number);
        false
    }

    /// Counts one less; true if that was the last.
    pub(crate) fn take(&mut self, number: u32) -> bool {
        if let Some(repeats) = &mut self.repeats
            && repeats.take(number)
        {
            if repeats.blocks.is_empty() {
                self.repeats = None;
            }
            return false;
        }
        self.members.remove(number)
    }

    pub(crate) fn bytes(&self) -> usize {
        let repeats = self.repeats.as_ref().map_or(0, |it| it.bytes() + 24);
        self.members.bytes() + repeats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_member_added_twice_survives_one_removal() {
        let mut set = Counted::from_records(&[5, 5, 5, 6]);
        assert!(!set.take(5));
        assert!(!set.add(5));
        assert!(!set.take(5));
        assert!(!set.take(5));
        assert!(set.take(5));
        assert!(!set.take(5));
        assert!(set.take(6));
        assert!(set.repeats.is_none());
    }

    #[test]
    fn counts_agree_with_a_map_through_splits_and_joins() {
        let mut theirs: BTreeMap<u32, u32> = (0..300).map(|number| (number * 3, 2)).collect();
        let records: Vec<u32> = theirs.keys().flat_map(|&key| [key, key]).collect();
        let mut ours = Counted::from_records(&records);
        let mut state = 7u64;
        for step in 0..60_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let number = (state >> 40) as u32 % 900;
            // First it grows, then it shrinks to nothing.
            if (state >> 60) < if step < 30_000 { 10 } else { 2 } {
                let count = theirs.entry(number).or_default();
                *count += 1;
                assert_eq!(ours.add(number), *count == 1);
            } else {
                let last = theirs.get(&number) == Some(&1);
                assert_eq!(ours.take(number), last);
                if last {
                    theirs.remove(&number);
                } else if let Some(count) = theirs.get_mut(&number) {
                    *count -= 1;
                }
            }
        }
        assert!(ours.members().iter().eq(theirs.keys().copied()));
        let repeats = ours.repeats.iter().flat_map(|it| &it.blocks);
        let counts = repeats.flat_map(|block| block.iter().copied());
        let repeated = theirs.iter().filter(|(_, count)| **count > 1);
        assert!(counts.eq(repeated.map(|(&key, &count)| (key, count - 1))));
    }

    /// A reader's state is copied for each change, so a copy may not cost as much as the set.
    #[test]
    fn a_changed_copy_of_many_repeats_shares_all_blocks_but_a_few() {
        let doubled: Vec<u32> = (0..100_000).flat_map(|key| [key, key]).collect();
        let set = Counted::from_records(&doubled);
        let blocks = |set: &Counted| -> Vec<*const Vec<Repeat>> {
            let repeats = set.repeats.iter().flat_map(|it| &it.blocks);
            repeats.map(Arc::as_ptr).collect()
        };
        let before = blocks(&set);
        for number in [0, 50_000, 99_999] {
            let mut copy = set.clone();
            copy.add(number);
            copy.take(number);
            copy.take(number);
            let own = blocks(&copy)
                .into_iter()
                .filter(|block| !before.contains(block));
            assert!(own.count() <= 2);
            assert!(copy.members().own_blocks(set.members()) <= 2);
        }
        let longest = set.repeats.iter().flat_map(|it| &it.blocks);
        assert!(longest.map(|block| block.len()).max() <= Some(BLOCK_MAX));
    }
}
