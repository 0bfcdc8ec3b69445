//! Records as they are shown, in memory.
//!
//! In:    records read from the store, with the outbox position they were read at.
//! Out:   the same, without asking the store.
//! Never: a record of another moment than the timelines beside it; more bytes
//!        than were allowed.
//!
//! What is held here is what the store held at the position the engine has
//! drawn to, and nothing else: a record enters only if it was read at that
//! very position, and leaves under the engine's lock when a change of it is
//! drawn. So a page whose ids come from the engine and whose records all come
//! from here is the page of one instant.
//!
//! A page asks for fifty at once, and each lies elsewhere in memory. So they
//! are looked up under one lock and fetched together, which no cache that is
//! asked for one at a time can do: it locks for each, and each lock waits for
//! the memory before it. What must go is found by a hand that goes round and
//! takes the first that was not read since it last came by.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use metrics::{Counter, counter};
use parking_lot::RwLock;
use timeline::{Quick, fetch};

use crate::metrics as names;
use crate::store::shown::Shown;

/// About how large a record is shown; only a hint, so that tables need not grow while readers wait.
const SHOWN_BYTES: usize = 900;

/// A bounded number of shown records.
#[derive(Debug)]
pub(super) struct Bodies {
    held: RwLock<Held>,
    bytes_max: usize,
    hits: Counter,
    misses: Counter,
}

/// The records, each in a place of its own.
#[derive(Debug, Default)]
struct Held {
    places: HashMap<i64, u32, Quick>,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// The place looked at next when something must go.
    hand: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Slot {
    shown: Arc<Shown>,
    /// Read since the hand last came by.
    used: AtomicBool,
}

impl Slot {
    /// Words of all that a page needs of the record but its text, to have them at hand.
    fn touch(&self) -> usize {
        Arc::strong_count(&self.shown) ^ self.shown.bytes() ^ self.shown.tag() as usize
    }

    /// The record, marked as read.
    fn read(&self) -> Arc<Shown> {
        // Most are marked already; a line that is only read stays with all processors.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        Arc::clone(&self.shown)
    }
}

impl Held {
    fn with_room_for(records: usize) -> Self {
        Self {
            places: HashMap::with_capacity_and_hasher(records, Quick),
            slots: Vec::with_capacity(records),
            ..Self::default()
        }
    }

    fn slot(&self, id: i64) -> Option<&Slot> {
        let place = *self.places.get(&id)?;
        self.slots.get(place as usize)?.as_ref()
    }

    /// Takes in a record that is not held.
    fn put(&mut self, shown: &Arc<Shown>) {
        let slot = Some(Slot {
            shown: Arc::clone(shown),
            used: AtomicBool::new(false),
        });
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.slots.push(None);
                self.slots.len() as u32 - 1
            }
        };
        if let Some(empty) = self.slots.get_mut(place as usize) {
            *empty = slot;
            self.places.insert(shown.id, place);
            self.bytes += shown.bytes();
        }
    }

    fn take(&mut self, id: i64) {
        let place = self.places.remove(&id);
        let slot = place.and_then(|place| self.slots.get_mut(place as usize)?.take());
        if let (Some(place), Some(slot)) = (place, slot) {
            self.bytes -= slot.shown.bytes();
            self.free.push(place);
        }
    }

    /// Lets go of the first record that the hand finds unread; those it passes count as unread again.
    fn shrink(&mut self) {
        loop {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let slot = self.slots.get_mut(self.hand).and_then(Option::as_mut);
            self.hand += 1;
            if let Some(slot) = slot
                && !std::mem::take(slot.used.get_mut())
            {
                let id = slot.shown.id;
                return self.take(id);
            }
        }
    }
}

impl Bodies {
    /// At most `bytes_max` of them; 0 holds none.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            held: RwLock::new(Held::with_room_for(bytes_max / SHOWN_BYTES)),
            bytes_max,
            hits: counter!(names::RECORD_CACHE, "result" => "hit"),
            misses: counter!(names::RECORD_CACHE, "result" => "miss"),
        }
    }

    /// Those of these records that are held, each at its place.
    pub(super) fn get(&self, ids: impl Iterator<Item = i64>) -> Vec<Option<Arc<Shown>>> {
        let held = self.held.read();
        let slots: Vec<Option<&Slot>> = ids.map(|id| held.slot(id)).collect();
        fetch(slots.iter().map(|slot| slot.map_or(0, Slot::touch)));
        slots.into_iter().map(|slot| slot.map(Slot::read)).collect()
    }

    /// All of these records, if each is held.
    pub(super) fn all(&self, ids: impl Iterator<Item = i64>) -> Option<Vec<Arc<Shown>>> {
        let held = self.held.read();
        let slots: Vec<&Slot> = ids.map(|id| held.slot(id)).collect::<Option<_>>()?;
        fetch(slots.iter().map(|slot| slot.touch()));
        Some(slots.into_iter().map(Slot::read).collect())
    }

    /// Counts what was found and what was not.
    pub(super) fn count(&self, hits: usize, misses: usize) {
        self.hits.increment(hits as u64);
        self.misses.increment(misses as u64);
    }

    /// Holds records; only under the engine's lock, at its very position.
    pub(super) fn hold(&self, read: &[Arc<Shown>]) {
        let mut held = self.held.write();
        for shown in read {
            held.take(shown.id);
            if shown.bytes() > self.bytes_max {
                continue;
            }
            while held.bytes + shown.bytes() > self.bytes_max {
                held.shrink();
            }
            held.put(shown);
        }
    }

    /// A change of this record was drawn.
    pub(super) fn forget(&self, id: i64) {
        self.held.write().take(id);
    }

    /// The engine begins anew.
    pub(super) fn clear(&self) {
        *self.held.write() = Held::with_room_for(self.bytes_max / SHOWN_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Row;

    fn shown(id: i64, length: usize) -> Arc<Shown> {
        Arc::new(Shown::of(&Row {
            id,
            uri: format!("at://did:web:a.test/com.example.post/{id}"),
            did: "did:web:a.test".into(),
            collection: "com.example.post".into(),
            rkey: id.to_string(),
            cid: None,
            time_us: 5,
            body: format!("{{\"text\":\"{}\"}}", "x".repeat(length)),
        }))
    }

    fn held(bodies: &Bodies, ids: std::ops::Range<i64>) -> Vec<i64> {
        let found = bodies.get(ids).into_iter().flatten();
        found.map(|shown| shown.id).collect()
    }

    #[test]
    fn records_of_any_size_never_exceed_what_is_allowed() {
        let bodies = Bodies::new(20_000);
        for id in 0..2_000i64 {
            bodies.hold(&[shown(id % 300, (id * 7_919 % 3_000) as usize)]);
            if id % 5 == 0 {
                bodies.forget(id % 300 - 2);
            }
            held(&bodies, id % 7 * 40..id % 7 * 40 + 3);
            let inside = bodies.held.read();
            let bytes = inside.slots.iter().flatten().map(|slot| slot.shown.bytes());
            assert_eq!(inside.bytes, bytes.sum::<usize>());
            assert!(inside.bytes <= 20_000);
            assert_eq!(inside.places.len() + inside.free.len(), inside.slots.len());
        }
        bodies.hold(&[shown(7, 30_000)]);
        assert!(!held(&bodies, 0..300).is_empty());
        assert!(
            bodies.get([7].into_iter()).iter().all(Option::is_none),
            "larger than all"
        );
    }

    #[test]
    fn what_is_read_stays_and_what_is_not_goes() {
        let one = shown(0, 100).bytes();
        let bodies = Bodies::new(one * 10);
        bodies.hold(&(0..10).map(|id| shown(id, 100)).collect::<Vec<_>>());
        for id in 10..60 {
            held(&bodies, 0..4);
            bodies.hold(&[shown(id, 99)]);
        }
        assert_eq!(held(&bodies, 0..4), [0, 1, 2, 3]);
        assert!(held(&bodies, 4..10).is_empty());
    }

    #[test]
    fn a_record_held_again_is_the_newer_one_and_one_forgotten_is_gone() {
        let bodies = Bodies::new(1 << 20);
        bodies.hold(&[shown(1, 10), shown(2, 10)]);
        bodies.hold(&[shown(1, 20)]);
        assert_eq!(bodies.get([1].into_iter()), [Some(shown(1, 20))]);
        bodies.forget(1);
        bodies.forget(1);
        assert_eq!(held(&bodies, 0..9), [2]);
        bodies.clear();
        assert!(held(&bodies, 0..9).is_empty());
        let none = Bodies::new(0);
        none.hold(&[shown(1, 10)]);
        assert!(held(&none, 0..9).is_empty());
    }
}
