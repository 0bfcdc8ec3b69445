//! Numbers by id: which row of the window a record of the store has.
//!
//! In:    ids and their numbers; ids nearly always greater than all before.
//! Out:   the number of an id.
//! Never: a pause in which a large table is copied into a larger one; a table
//!        that takes twice the memory of what it holds.
//!
//! The store counts its records upwards, so ids that share their upper bits
//! came at about the same time. A *run* holds those, sorted, with two bytes of
//! the id each: a new one goes to its end, and when the oldest records leave
//! the window their runs go as a whole.

use crate::shards::Shards;
use crate::sorted::room_after;

/// Bits of an id that tell apart the ids of a run.
const RUN_BITS: u32 = if cfg!(debug_assertions) { 4 } else { 12 };

/// Ids with the same upper bits, ascending, and the number of each.
#[derive(Debug, Default)]
struct Run {
    ids: Vec<u16>,
    numbers: Vec<u32>,
}

/// The numbers of all ids in the window.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    runs: Shards<Run>,
    /// Runs, and ids that there is room for in all of them.
    count: usize,
    room: usize,
}

/// What an id and its number take.
const ID_BYTES: usize = size_of::<u16>() + size_of::<u32>();
/// What a run takes besides: itself, and its place in a table that is half empty.
const RUN_BYTES: usize = 2 * (size_of::<Run>() + size_of::<u64>() + 1);

/// The run of an id, and what tells it apart there.
fn split(id: u64) -> (u64, u16) {
    (id >> RUN_BITS, id as u16 & ((1 << RUN_BITS) - 1))
}

impl Run {
    fn place(&self, id: u16) -> Result<usize, usize> {
        match self.ids.last() {
            Some(&last) if last < id => Err(self.ids.len()),
            None => Err(0),
            _ => self.ids.binary_search(&id),
        }
    }

    fn insert(&mut self, id: u16, number: u32) {
        match self.place(id) {
            Ok(place) => {
                if let Some(known) = self.numbers.get_mut(place) {
                    *known = number;
                }
            }
            Err(place) => {
                let len = self.ids.len();
                if len == self.ids.capacity() {
                    self.ids.reserve_exact(room_after(len) - len);
                    self.numbers.reserve_exact(room_after(len) - len);
                }
                self.ids.insert(place, id);
                self.numbers.insert(place, number);
            }
        }
    }
}

impl Numbers {
    pub(crate) fn get(&self, id: u64) -> Option<u32> {
        let (run, id) = split(id);
        let run = self.runs.get(run)?;
        run.numbers.get(run.place(id).ok()?).copied()
    }

    /// Gives an id a number, instead of the one it had.
    pub(crate) fn insert(&mut self, id: u64, number: u32) {
        let (run, id) = split(id);
        match self.runs.get_mut(run) {
            Some(run) => {
                let before = run.ids.capacity();
                run.insert(id, number);
                self.room += run.ids.capacity() - before;
            }
            None => {
                let mut new = Run::default();
                new.insert(id, number);
                self.room += new.ids.capacity();
                self.count += 1;
                self.runs.insert(run, new);
            }
        }
    }

    pub(crate) fn remove(&mut self, id: u64) {
        let (at, id) = split(id);
        let Some(run) = self.runs.get_mut(at) else {
            return;
        };
        if let Ok(place) = run.place(id) {
            run.ids.remove(place);
            run.numbers.remove(place);
        }
        if run.ids.is_empty() {
            self.room -= run.ids.capacity();
            self.count -= 1;
            self.runs.remove(at);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.room * ID_BYTES + self.count * RUN_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn numbers_agree_with_a_map_whatever_order_ids_come_in() {
        let mut ours = Numbers::default();
        let mut theirs = HashMap::new();
        let mut state = 7u64;
        for number in 0..60_000u32 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Mostly upwards, some among the older, some at the ends of all that can be.
            let id = match state >> 61 {
                0 => (state >> 20) % 30_000,
                1 => u64::MAX - (state >> 20) % 5_000,
                _ => u64::from(number),
            };
            if state >> 40 & 3 == 0 {
                ours.remove(id);
                theirs.remove(&id);
            } else {
                ours.insert(id, number);
                theirs.insert(id, number);
            }
            assert_eq!(ours.get(id), theirs.get(&id).copied());
        }
        for id in (0..60_000).chain(u64::MAX - 5_000..=u64::MAX) {
            assert_eq!(ours.get(id), theirs.get(&id).copied(), "{id}");
        }
        for id in theirs.into_keys() {
            ours.remove(id);
        }
        let runs =
            (0..=60_000 >> RUN_BITS).chain([u64::MAX >> RUN_BITS, (u64::MAX >> RUN_BITS) - 1]);
        assert!(runs.into_iter().all(|run| ours.runs.get(run).is_none()));
        assert_eq!(ours.bytes(), 0);
    }
}
