//! Records as they are shown, in memory.
//!
//! In:    records read from the store, with the outbox position they were read at.
//! Out:   the same, without asking the store.
//! Never: a record of another moment than the timelines beside it; more bytes
//!        than were allowed.
//!
//! What is held here is what the store held at the position the engine has
//! drawn to, and nothing else: a record enters only if it was read at that very
//! position, and has had its turn when a change of it is drawn, from then on
//! nobody is given it. So a page whose ids come from the engine and whose
//! records all come from here is the page of one instant, and the drawer takes
//! no lock that a page holds.
//!
//! A page asks for fifty at once, and each lies elsewhere in memory. So they
//! are looked up under one lock and fetched together, which no cache that is
//! asked for one at a time can do: it locks for each, and each lock waits for
//! the memory before it. A record stands on the one shelf that its number
//! leads to, and a shelf is one line of memory; records of one time have
//! shelves side by side. What must go is found by a hand that goes round the
//! shelves and takes the first that was not read since it last came by.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use metrics::{Counter, Gauge, counter, gauge};
use parking_lot::RwLock;
use timeline::fetch;

use super::turns::Turns;
use crate::metrics as names;
use crate::store::shown::Shown;

/// About how large a record is shown; only a hint for how many shelves there should be.
const SHOWN_BYTES: usize = 600;
/// Places of a shelf.
const PLACES: usize = 4;

/// A bounded number of shown records.
#[derive(Debug)]
pub(super) struct Bodies {
    held: RwLock<Held>,
    /// As many as there are shelves.
    turns: Turns,
    bytes_max: usize,
    bytes: Gauge,
    hits: Counter,
    misses: Counter,
}

/// The records, each on the shelf of its number.
#[derive(Debug)]
struct Held {
    /// Two to some power of them.
    shelves: Vec<Shelf>,
    /// The shelf looked at next when something must go.
    hand: usize,
    bytes: usize,
}

/// Records whose numbers lead here, those that came first before the others, in one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Shelf([Option<Slot>; PLACES]);

#[derive(Debug)]
struct Slot {
    shown: Arc<Shown>,
    /// The turn of the record when it was read; it is good while that is so.
    turn: u32,
    /// The last bits of the record's number above those that lead to the shelf: enough to pass
    /// others by without a look at them.
    mark: u16,
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

impl Shelf {
    fn place(&self, id: i64, mark: u16) -> Option<usize> {
        self.0.iter().position(|slot| {
            let slot = slot.as_ref().filter(|slot| slot.mark == mark);
            slot.is_some_and(|slot| slot.shown.id == id)
        })
    }

    /// The first that was not read lately.
    fn unread(&self) -> Option<usize> {
        self.0.iter().position(|slot| {
            let slot = slot.as_ref();
            slot.is_some_and(|slot| !slot.used.load(Ordering::Relaxed))
        })
    }

    /// Takes out the first that was not read lately; the others count as unread again.
    fn give_up(&mut self) -> Option<Slot> {
        let unread = self.unread();
        for slot in self.0.iter_mut().flatten() {
            *slot.used.get_mut() = false;
        }
        self.take(unread?)
    }

    /// Takes out what stands at a place; those behind it move up.
    fn take(&mut self, place: usize) -> Option<Slot> {
        self.0.get_mut(place..)?.rotate_left(1);
        self.0.last_mut()?.take()
    }

    /// Adds one behind the others; what must go for it.
    fn add(&mut self, slot: Slot) -> Option<Slot> {
        let is_full = self.0.iter().all(Option::is_some);
        let gone = match is_full {
            true => self.take(self.unread().unwrap_or(0)),
            false => None,
        };
        let empty = self.0.iter_mut().find(|place| place.is_none())?;
        *empty = Some(slot);
        gone
    }
}

impl Held {
    /// With half as many places again as there will be records, so that few share a shelf.
    fn with_room_for(records: usize) -> Self {
        let shelves = (records * 3 / 2 / PLACES).max(1).next_power_of_two();
        Self {
            shelves: std::iter::repeat_with(Shelf::default)
                .take(shelves)
                .collect(),
            hand: 0,
            bytes: 0,
        }
    }

    /// The shelf that a number leads to, and what else tells it from others there.
    fn way(&self, id: i64) -> (usize, u16) {
        let shelves = self.shelves.len();
        let id = id.cast_unsigned() as usize;
        (id & (shelves - 1), (id >> shelves.ilog2()) as u16)
    }

    fn slot(&self, id: i64) -> Option<&Slot> {
        let (at, mark) = self.way(id);
        let shelf = self.shelves.get(at)?;
        shelf.0.get(shelf.place(id, mark)?)?.as_ref()
    }

    /// Takes in a record that is not held, in place of another of its shelf if that is full.
    fn put(&mut self, shown: &Arc<Shown>, turn: u32) {
        let (at, mark) = self.way(shown.id);
        let Some(shelf) = self.shelves.get_mut(at) else {
            return;
        };
        let gone = shelf.add(Slot {
            shown: Arc::clone(shown),
            turn,
            mark,
            used: AtomicBool::new(false),
        });
        self.bytes += shown.bytes();
        self.bytes -= gone.map_or(0, |slot| slot.shown.bytes());
    }

    fn take(&mut self, id: i64) {
        let (at, mark) = self.way(id);
        let slot = self.shelves.get_mut(at).and_then(|shelf| {
            let place = shelf.place(id, mark)?;
            shelf.take(place)
        });
        self.bytes -= slot.map_or(0, |slot| slot.shown.bytes());
    }

    /// Lets go of the first record that the hand finds unread.
    fn shrink(&mut self) {
        while self.bytes > 0 {
            let shelf = self.shelves.get_mut(self.hand);
            let gone = shelf.and_then(Shelf::give_up);
            self.hand = (self.hand + 1) & (self.shelves.len() - 1);
            if let Some(slot) = gone {
                self.bytes -= slot.shown.bytes();
                return;
            }
        }
    }
}

impl Bodies {
    /// At most `bytes_max` of them; 0 holds none.
    pub(super) fn new(bytes_max: usize) -> Self {
        let held = Held::with_room_for(bytes_max / SHOWN_BYTES);
        Self {
            turns: Turns::new(held.shelves.len()),
            held: RwLock::new(held),
            bytes_max,
            bytes: gauge!(names::CACHE_BYTES, "cache" => "records"),
            hits: counter!(names::RECORD_CACHE, "result" => "hit"),
            misses: counter!(names::RECORD_CACHE, "result" => "miss"),
        }
    }

    /// A slot whose record has not changed since it was read.
    fn good<'a>(&self, held: &'a Held, id: i64) -> Option<&'a Slot> {
        let slot = held.slot(id)?;
        (slot.turn == self.turn(id)).then_some(slot)
    }

    /// Whether a record found good is so still, when all were found.
    fn still_good(&self, slot: &Slot) -> bool {
        slot.turn == self.turns.still(slot.shown.id.cast_unsigned())
    }

    /// Those of these records that are held, each at its place; all of one moment.
    pub(super) fn get(&self, ids: impl Iterator<Item = i64>) -> Vec<Option<Arc<Shown>>> {
        let held = self.held.read();
        let slots: Vec<Option<&Slot>> = ids.map(|id| self.good(&held, id)).collect();
        fetch(slots.iter().map(|slot| slot.map_or(0, Slot::touch)));
        let still = slots.into_iter();
        still
            .map(|slot| slot.filter(|slot| self.still_good(slot)).map(Slot::read))
            .collect()
    }

    /// All of these records, if each is held.
    pub(super) fn all(&self, ids: impl Iterator<Item = i64>) -> Option<Vec<Arc<Shown>>> {
        let held = self.held.read();
        let mut slots = Vec::with_capacity(ids.size_hint().0);
        for id in ids {
            slots.push(self.good(&held, id)?);
        }
        fetch(slots.iter().map(|slot| slot.touch()));
        let still = slots.iter().all(|slot| self.still_good(slot));
        still.then(|| slots.into_iter().map(Slot::read).collect())
    }

    /// The turn of a record, to be asked for before it is known that the engine stands where the
    /// record was read.
    pub(super) fn turn(&self, id: i64) -> u32 {
        self.turns.of(id.cast_unsigned())
    }

    /// Counts what was found and what was not.
    pub(super) fn count(&self, hits: usize, misses: usize) {
        self.hits.increment(hits as u64);
        if misses > 0 {
            self.misses.increment(misses as u64);
        }
    }

    /// Holds records that were read at the engine's very position, with their turns then.
    pub(super) fn hold(&self, read: &[Arc<Shown>], turns: &[u32]) {
        let mut held = self.held.write();
        for (shown, turn) in read.iter().zip(turns) {
            held.take(shown.id);
            if shown.bytes() > self.bytes_max {
                continue;
            }
            while held.bytes + shown.bytes() > self.bytes_max {
                held.shrink();
            }
            held.put(shown, *turn);
        }
        self.bytes.set(held.bytes as f64);
    }

    /// A change of this record is drawn. For the one writer; it waits for nobody.
    pub(super) fn forget(&self, id: i64) {
        self.turns.change(id.cast_unsigned());
    }

    /// The engine begins anew.
    pub(super) fn forget_all(&self) {
        self.turns.change_all();
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

    fn hold(bodies: &Bodies, read: &[Arc<Shown>]) {
        let turns: Vec<u32> = read.iter().map(|shown| bodies.turn(shown.id)).collect();
        bodies.hold(read, &turns);
    }

    fn held(bodies: &Bodies, ids: std::ops::Range<i64>) -> Vec<i64> {
        let found = bodies.get(ids).into_iter().flatten();
        found.map(|shown| shown.id).collect()
    }

    #[test]
    fn records_of_any_size_never_exceed_what_is_allowed() {
        let bodies = Bodies::new(20_000);
        for id in 0..2_000i64 {
            hold(&bodies, &[shown(id % 300, (id * 7_919 % 3_000) as usize)]);
            if id % 5 == 0 {
                bodies.forget(id % 300 - 2);
            }
            held(&bodies, id % 7 * 40..id % 7 * 40 + 3);
            let inside = bodies.held.read();
            let slots = inside.shelves.iter().flat_map(|shelf| &shelf.0).flatten();
            let bytes = slots.map(|slot| slot.shown.bytes());
            assert_eq!(inside.bytes, bytes.sum::<usize>());
            assert!(inside.bytes <= 20_000);
        }
        hold(&bodies, &[shown(7, 30_000)]);
        assert!(!held(&bodies, 0..300).is_empty());
        assert!(
            bodies.get([7].into_iter()).iter().all(Option::is_none),
            "larger than all"
        );
    }

    #[test]
    fn what_is_read_stays_and_what_is_not_goes() {
        let one = shown(1_000, 100).bytes();
        let bodies = Bodies::new(one * 100);
        hold(
            &bodies,
            &(1_000..1_100).map(|id| shown(id, 100)).collect::<Vec<_>>(),
        );
        for id in 1_100..1_600 {
            held(&bodies, 1_000..1_004);
            hold(&bodies, &[shown(id, 99)]);
        }
        assert_eq!(held(&bodies, 1_000..1_004), [1_000, 1_001, 1_002, 1_003]);
        assert!(held(&bodies, 1_004..1_100).is_empty());
        let full = bodies.held.read().bytes;
        assert!(full > one * 90, "{full} bytes of {}", one * 100);
    }

    #[test]
    fn a_shelf_is_one_cache_line() {
        assert_eq!(size_of::<Shelf>(), 64);
    }

    #[test]
    fn records_that_share_a_shelf_are_told_apart() {
        let bodies = Bodies::new(SHOWN_BYTES * 64);
        let shelves = bodies.held.read().shelves.len() as i64;
        let alike: Vec<i64> = [0, 1, 2, 3, 1 << 32].map(|mark| 5 + shelves * mark).into();
        for (count, &id) in alike.iter().enumerate() {
            hold(&bodies, &[shown(id, 10)]);
            let found = bodies.get(alike.iter().copied());
            let found: Vec<i64> = found.iter().flatten().map(|shown| shown.id).collect();
            assert_eq!(found.len(), (count + 1).min(PLACES));
            assert!(found.contains(&id), "the newest is there");
        }
    }

    #[test]
    fn a_record_held_again_is_the_newer_one_and_one_forgotten_is_gone() {
        let bodies = Bodies::new(1 << 20);
        hold(&bodies, &[shown(1, 10), shown(2, 10)]);
        hold(&bodies, &[shown(1, 20)]);
        assert_eq!(bodies.get([1].into_iter()), [Some(shown(1, 20))]);
        bodies.forget(1);
        bodies.forget(1);
        assert_eq!(held(&bodies, 0..9), [2]);
        bodies.forget_all();
        assert!(held(&bodies, 0..9).is_empty());
        let late = [bodies.turn(3)];
        bodies.forget(3);
        bodies.hold(&[shown(3, 10)], &late);
        assert!(
            held(&bodies, 0..9).is_empty(),
            "it changed since it was read"
        );
        let none = Bodies::new(0);
        hold(&none, &[shown(1, 10)]);
        assert!(held(&none, 0..9).is_empty());
    }
}
