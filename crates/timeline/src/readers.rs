//! Readers: the active ones, what they follow and hide, and when they last read.
//!
//! In:    registrations, follows and hides of active readers, moments of reading.
//! Out:   a reader's slot and state; which readers have been away too long.
//! Never: a slot given to another reader while any key still lists it.
//!
//! The moment of reading is the one thing a read writes. It is a number of its
//! own, set without a lock, so reads need no access that excludes the writer.

use crate::column::Column;
use crate::sorted::Counted;
use std::sync::atomic::{AtomicU32, Ordering};

/// How a reader's pages are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Being entered into the lists of its keys, from this key on; until that
    /// is done its pages are gathered from outboxes.
    Joining(u32),
    /// It has a ring for each target.
    Ready,
    /// It follows so many keys that the window is walked instead.
    Scanning,
}

/// An active reader.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) key: u32,
    pub(crate) stage: Stage,
    /// Changes up to this position are in `follows` and `hidden` already.
    pub(crate) as_of: u64,
    /// Something was unfollowed since its rings were built.
    pub(crate) unfollowed: bool,
    pub(crate) follows: Counted,
    pub(crate) hidden: Option<Box<Counted>>,
}

impl Reader {
    pub(crate) fn bytes(&self) -> usize {
        let hidden = self.hidden.as_ref().map_or(0, |hidden| hidden.bytes() + 48);
        size_of::<Self>() + self.follows.bytes() + hidden
    }
}

/// The active readers of one feed.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    slots: Column<u32>,
    readers: Column<Option<Box<Reader>>>,
    read_at: Column<AtomicU32>,
    free: Vec<u32>,
    next: u32,
    active: usize,
}

impl Readers {
    pub(crate) fn active(&self) -> usize {
        self.active
    }

    /// One more than the largest slot ever used.
    pub(crate) fn slots_end(&self) -> u32 {
        self.next
    }

    pub(crate) fn slot_of(&self, key: u32) -> Option<u32> {
        self.slots.get(key)?.checked_sub(1)
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Reader> {
        self.readers.get(slot)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Reader> {
        self.readers.get_mut(slot)?.as_deref_mut()
    }

    pub(crate) fn enter(&mut self, reader: Reader) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        *self.slots.slot(reader.key) = slot + 1;
        *self.readers.slot(slot) = Some(Box::new(reader));
        self.read_at.slot(slot);
        self.active += 1;
        slot
    }

    /// Takes the reader out; its slot stays taken until [`Readers::free`].
    pub(crate) fn leave(&mut self, slot: u32) -> Option<Box<Reader>> {
        let reader = self.readers.get_mut(slot)?.take()?;
        *self.slots.slot(reader.key) = 0;
        self.active -= 1;
        Some(reader)
    }

    pub(crate) fn free(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Notes that the reader of `slot` read now.
    pub(crate) fn note_read(&self, slot: u32, now_us: i64) {
        if let Some(read_at) = self.read_at.get(slot) {
            read_at.store(second_of(now_us), Ordering::Relaxed);
        }
    }

    /// Whether the reader of `slot` was last seen at least `ttl_us` ago.
    pub(crate) fn is_away(&self, slot: u32, now_us: i64, ttl_us: i64) -> bool {
        let Some(read_at) = self.read_at.get(slot) else {
            return false;
        };
        let last = i64::from(read_at.load(Ordering::Relaxed));
        i64::from(second_of(now_us)) - last >= ttl_us.div_euclid(1_000_000).max(1)
    }
}

fn second_of(time_us: i64) -> u32 {
    time_us.div_euclid(1_000_000).clamp(0, i64::from(u32::MAX)) as u32
}
