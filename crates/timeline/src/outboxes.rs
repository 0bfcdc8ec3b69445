//! Outboxes: the records of each key, in the order of the feed.
//!
//! In:    records under their keys, and those that are to be cleared out.
//! Out:   the sequence of a key, and a time that none of its records is later than.
//! Never: the sequence of one key found under another.
//!
//! A page may read these while they are written: every change is entered in the journal under its
//! key first.

use crate::ahead::ask;
use crate::block::{Block, CELL_BYTES};
use crate::column::Column;
use crate::records::Records;
use crate::sequence::Sequence;
use sdd::Guard;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The outbox of a key, found by the key's number.
#[derive(Debug, Default, Clone, Copy)]
struct Tip {
    /// A second at or after the newest record; 0 without outbox.
    second: u32,
    outbox: u32,
}

impl Tip {
    fn unpack(word: u64) -> Self {
        Self {
            second: (word >> 32) as u32,
            outbox: word as u32,
        }
    }

    fn pack(self) -> u64 {
        u64::from(self.second) << 32 | u64::from(self.outbox)
    }
}

/// A second at or after `time_us`, never 0.
pub(crate) fn second_at_or_after(time_us: i64) -> u32 {
    let second = time_us.div_euclid(1_000_000).saturating_add(1);
    second.clamp(1, i64::from(u32::MAX)) as u32
}

/// The latest time a tip of `second` may stand for.
pub(crate) fn latest_of(second: u32) -> i64 {
    if second == u32::MAX {
        i64::MAX
    } else {
        i64::from(second) * 1_000_000
    }
}

/// The outboxes of one target.
#[derive(Debug, Default)]
pub(crate) struct Outboxes {
    /// A [`Tip`] for each key.
    tips: Column<AtomicU64>,
    sequences: Column<Sequence>,
}

impl Outboxes {
    fn tip(&self, key: u32) -> Tip {
        let word = self.tips.get(key);
        word.map_or_else(Tip::default, |word| Tip::unpack(word.load(Acquire)))
    }

    /// Asks for the tip of a key.
    #[inline]
    pub(crate) fn ask_tip(&self, key: u32) {
        ask(self.tips.get(key));
    }

    /// See [`Tip::second`].
    #[inline]
    pub(crate) fn tip_second(&self, key: u32) -> u32 {
        self.tip(key).second
    }

    pub(crate) fn get(&self, key: u32) -> Option<&Sequence> {
        let tip = self.tip(key);
        if tip.second == 0 {
            return None;
        }
        self.sequences.get(tip.outbox)
    }
}

/// Which places for outboxes are free.
#[derive(Debug, Default)]
pub(crate) struct OutboxesWriter {
    free: Vec<u32>,
    next: u32,
    /// Records in all outboxes.
    listed: usize,
}

/// What an outbox takes besides its records: its tip, itself, and its first block.
const OUTBOX_BYTES: usize = size_of::<u64>() + size_of::<Sequence>() + size_of::<Block>() + 16;

impl OutboxesWriter {
    /// Memory of all outboxes that hold something.
    pub(crate) fn bytes(&self) -> usize {
        (self.next as usize - self.free.len()) * OUTBOX_BYTES + self.listed * CELL_BYTES
    }

    /// Puts a record into the outbox of a key, which is given a place if it has none.
    pub(crate) fn publish(
        &mut self,
        outboxes: &Outboxes,
        key: u32,
        number: u32,
        records: &Records,
        guard: &Guard,
    ) {
        let place = outboxes.tips.slot(key);
        let mut tip = Tip::unpack(place.load(Relaxed));
        if tip.second == 0 {
            tip.outbox = self.free.pop().unwrap_or_else(|| {
                self.next += 1;
                self.next - 1
            });
        }
        let time_us = records.time_us(number);
        tip.second = tip.second.max(second_at_or_after(time_us));
        let outbox = outboxes.sequences.slot(tip.outbox);
        self.listed += usize::from(outbox.insert(number, records, guard));
        place.store(tip.pack(), Release);
    }

    /// Clears a record out of the outbox of a key, which gives its place back if it is empty.
    pub(crate) fn clear(
        &mut self,
        outboxes: &Outboxes,
        key: u32,
        number: u32,
        records: &Records,
        guard: &Guard,
    ) {
        let Some(place) = outboxes.tips.get(key) else {
            return;
        };
        let tip = Tip::unpack(place.load(Relaxed));
        let outbox = outboxes.sequences.get(tip.outbox);
        let Some(outbox) = outbox.filter(|_| tip.second != 0) else {
            return;
        };
        let was_there = outbox.remove(number, records, guard);
        debug_assert!(was_there, "an outbox holds a record until it is cleared");
        self.listed -= usize::from(was_there);
        if outbox.is_empty(guard) {
            place.store(Tip::default().pack(), Release);
            outbox.clear();
            self.free.push(tip.outbox);
        }
    }
}
