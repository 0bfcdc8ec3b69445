//! Turns: whether what was remembered of a thing still holds.
//!
//! In:    a word of each change, before it is made; questions about a thing.
//! Out:   a number that is another one after the thing changed.
//! Never: a lock: who writes does not wait for who asks.
//!
//! Many things share a number. One that changed makes its neighbours be looked
//! up again, no more.

use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Numbers for things, by a number or hash of each.
#[derive(Debug)]
pub(super) struct Turns {
    turns: Box<[AtomicU32]>,
}

impl Turns {
    /// With so many numbers, or a few more.
    pub(super) fn new(places: usize) -> Self {
        let places = places.max(1).next_power_of_two();
        Self {
            turns: (0..places).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// The number of a thing, before anything else of it is looked at.
    pub(super) fn of(&self, thing: u64) -> u32 {
        let place = self.turns.get(thing as usize & (self.turns.len() - 1));
        place.map_or(0, |turn| turn.load(Ordering::Acquire))
    }

    /// The number now that all was looked at.
    pub(super) fn still(&self, thing: u64) -> u32 {
        fence(Ordering::Acquire);
        self.of(thing)
    }

    /// A thing changes. For the one writer.
    pub(super) fn change(&self, thing: u64) {
        if let Some(turn) = self.turns.get(thing as usize & (self.turns.len() - 1)) {
            let next = turn.load(Ordering::Relaxed).wrapping_add(1);
            turn.store(next, Ordering::Release);
            fence(Ordering::Release);
        }
    }

    /// Everything changes.
    pub(super) fn change_all(&self) {
        for thing in 0..self.turns.len() as u64 {
            self.change(thing);
        }
    }
}
