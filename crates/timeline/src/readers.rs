//! Readers: the active ones, what they follow and hide, and when they last read.
//!
//! In:    registrations, follows and hides of active readers, moments of reading.
//! Out:   a reader's slot and state; which readers have been away too long.
//! Never: a slot given to another reader while any key still lists it.
//!
//! A reader's state is replaced, never changed, but for the two words that say
//! how its pages are made. Who reads the old one keeps it until it is done.

use crate::column::Column;
use crate::counted::Counted;
use sdd::{AtomicOwned, Guard, Owned, Tag};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, fence};

/// How a reader's pages are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// Being entered into the lists of its keys; until that is done its pages are
    /// gathered from outboxes.
    Joining,
    /// It has a ring for each target.
    Ready,
    /// It follows so many keys that the window is walked instead.
    Scanning,
}

/// An active reader.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) key: u32,
    stage: AtomicU8,
    /// Something was unfollowed since its rings were built.
    unfollowed: AtomicBool,
    /// Changes up to this position are in `follows` and `hidden` already.
    pub(crate) as_of: u64,
    pub(crate) follows: Counted,
    pub(crate) hidden: Option<Box<Counted>>,
}

impl Clone for Reader {
    fn clone(&self) -> Self {
        Self {
            key: self.key,
            stage: AtomicU8::new(self.stage.load(Relaxed)),
            unfollowed: AtomicBool::new(self.unfollowed()),
            as_of: self.as_of,
            follows: self.follows.clone(),
            hidden: self.hidden.clone(),
        }
    }
}

impl Reader {
    pub(crate) fn new(
        key: u32,
        stage: Stage,
        as_of: u64,
        follows: Counted,
        hidden: Option<Box<Counted>>,
    ) -> Self {
        Self {
            key,
            stage: AtomicU8::new(stage as u8),
            unfollowed: AtomicBool::new(false),
            as_of,
            follows,
            hidden,
        }
    }

    pub(crate) fn stage(&self) -> Stage {
        match self.stage.load(Acquire) {
            0 => Stage::Joining,
            1 => Stage::Ready,
            _ => Stage::Scanning,
        }
    }

    /// Its pages are made so from now on; what they are made of must be there.
    pub(crate) fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as u8, Release);
    }

    pub(crate) fn unfollowed(&self) -> bool {
        self.unfollowed.load(Acquire)
    }

    /// Notes whether something was unfollowed since the rings were built; whether it was noted.
    pub(crate) fn set_unfollowed(&self, unfollowed: bool) -> bool {
        let before = self.unfollowed();
        self.unfollowed.store(unfollowed, Release);
        before
    }

    pub(crate) fn bytes(&self) -> usize {
        let hidden = self.hidden.as_ref().map_or(0, |hidden| hidden.bytes() + 48);
        // Two words beside it let others read it while it is replaced.
        size_of::<Self>() + 16 + self.follows.bytes() + hidden
    }
}

/// The active readers of one feed.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    /// One more than the slot of each key; 0 without one.
    slots: Column<AtomicU32>,
    readers: Column<AtomicOwned<Reader>>,
    read_at: Column<AtomicU32>,
}

impl Readers {
    pub(crate) fn slot_of(&self, key: u32) -> Option<u32> {
        self.slots.get(key)?.load(Acquire).checked_sub(1)
    }

    pub(crate) fn get<'g>(&self, slot: u32, guard: &'g Guard) -> Option<&'g Reader> {
        self.readers.get(slot)?.load(Acquire, guard).as_ref()
    }

    /// Whether `slot` is still in the state that was found under this guard.
    pub(crate) fn is_still(&self, slot: u32, reader: &Reader, guard: &Guard) -> bool {
        fence(Acquire);
        let now = self.get(slot, guard);
        now.is_some_and(|now| std::ptr::eq(now, reader))
    }

    /// Notes that the reader of `slot` read now. Anybody may.
    pub(crate) fn note_read(&self, slot: u32, now_us: i64) {
        if let Some(read_at) = self.read_at.get(slot) {
            read_at.store(second_of(now_us), Relaxed);
        }
    }

    /// Whether the reader of `slot` was last seen at least `ttl_us` ago.
    pub(crate) fn is_away(&self, slot: u32, now_us: i64, ttl_us: i64) -> bool {
        let Some(read_at) = self.read_at.get(slot) else {
            return false;
        };
        let last = i64::from(read_at.load(Relaxed));
        i64::from(second_of(now_us)) - last >= ttl_us.div_euclid(1_000_000).max(1)
    }

    /// Makes this the state of the reader of `slot`, for pages that begin from now on. For the
    /// one writer.
    pub(crate) fn replace(&self, slot: u32, reader: Option<Reader>) {
        let place = self.readers.slot(slot);
        drop(place.swap((reader.map(Owned::new), Tag::None), Release));
        // Who sees the ring of the next reader of this slot sees that the reader is another.
        fence(Release);
    }
}

/// What the one writer knows of readers.
#[derive(Debug, Default)]
pub(crate) struct ReadersWriter {
    free: Vec<u32>,
    next: u32,
    active: usize,
}

impl ReadersWriter {
    pub(crate) fn active(&self) -> usize {
        self.active
    }

    /// One more than the largest slot ever used.
    pub(crate) fn slots_end(&self) -> u32 {
        self.next
    }

    pub(crate) fn enter(&mut self, readers: &Readers, reader: Reader) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        let key = reader.key;
        readers.read_at.slot(slot);
        readers.replace(slot, Some(reader));
        readers.slots.slot(key).store(slot + 1, Release);
        self.active += 1;
        slot
    }

    /// Takes a reader out; its slot stays taken until [`ReadersWriter::free`].
    pub(crate) fn leave(&mut self, readers: &Readers, slot: u32, key: u32) {
        readers.slots.slot(key).store(0, Release);
        readers.replace(slot, None);
        self.active -= 1;
    }

    pub(crate) fn free(&mut self, slot: u32) {
        self.free.push(slot);
    }
}

fn second_of(time_us: i64) -> u32 {
    time_us.div_euclid(1_000_000).clamp(0, i64::from(u32::MAX)) as u32
}
