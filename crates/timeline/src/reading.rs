//! Reading: which sources a page is gathered from.
//!
//! In:    a request, and for a cold reader the follows the caller loaded.
//! Out:   the first answer that is exact, from the cheapest sources that can
//!        give one.
//! Never: a change to anything but the moment the reader was last seen; a page
//!        without a note of what it leans on.
//!
//! An active reader has a ring; what is not in it lies in the outboxes of the
//! few keys that are merged. Below the ring the outboxes of all its keys still
//! reach down to the floor of the window, at a higher price. A reader of very
//! many keys walks the window instead, as does a cold one.
//!
//! All of this may change while it is read. The journal tells whether records
//! of a followed key did, or the reader; the rest is in [`Leans`].

use crate::accounts::Accounts;
use crate::feed::Feed;
use crate::gather::Gather;
use crate::journal::Change;
use crate::lane::Lane;
use crate::page::{Floor, Keys, Limits, Read, Request, Target, View, fill};
use crate::readers::{Reader, Readers, Stage};
use crate::records::Position;
use crate::ring::{Ring, RingFloor};
use crate::rings::Look;
use crate::settings::{KeyId, KeyList, RecordId};
use sdd::Guard;
use std::sync::Arc;

/// What the caller loaded for a reader that is not active.
#[derive(Debug, Clone, Copy)]
pub struct Cold<'a> {
    /// Its follow records.
    pub follows: &'a KeyList,
    /// Its mutes and blocks.
    pub hidden: &'a KeyList,
    /// The position of the outbox they were loaded at.
    pub as_of: u64,
}

/// How an active reader stands, for `explain` and for tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Whether it has a ring; otherwise its pages come from outboxes or the window.
    pub has_ring: bool,
    /// The ring's live records, newest first.
    pub entries: Vec<RecordId>,
    /// Complete only for times after this one.
    pub complete_after_us: i64,
    /// And, if this is set, only above this place, where the ring's oldest is.
    pub complete_above: Option<Position>,
    /// Followed keys whose outboxes every read merges.
    pub merged: Vec<KeyId>,
}

/// What all reads share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) accounts: &'a Accounts,
    pub(crate) position: u64,
    pub(crate) page_scan_max: usize,
    pub(crate) window_scan_max: usize,
    pub(crate) guard: &'a Guard,
}

/// Something that must not have moved when the page is made.
#[derive(Debug, Clone, Copy)]
enum Lean<'a> {
    /// The ring of a slot, but for pushes. Fan-outs and sweeps move it, and enter nothing in the
    /// journal.
    Ring(&'a Lane, u32, u16),
    /// The window, but for its ends.
    Window(&'a Lane, u32),
    /// The floor of a lane, or all the page looked at lies above it still.
    Floor(&'a Lane, i64),
    /// Whose slot it is: another's ring may have been looked at.
    Slot(&'a Readers, u32, &'a Reader),
}

/// All that a page leans on besides keys and their reader.
#[derive(Debug)]
pub(crate) struct Leans<'a> {
    leans: Vec<Lean<'a>>,
    /// The earliest time that was looked at.
    lowest_us: i64,
}

impl Leans<'_> {
    /// Whether nothing of it moved.
    pub(crate) fn are_still(&self, guard: &Guard) -> bool {
        self.leans.iter().all(|lean| match *lean {
            Lean::Ring(lane, slot, turn) => lane.rings.is_still(slot, turn),
            Lean::Window(lane, turn) => lane.window.is_still(turn),
            Lean::Floor(lane, was_us) => {
                let floor_us = lane.floor_us();
                floor_us <= was_us || self.lowest_us > floor_us
            }
            Lean::Slot(readers, slot, reader) => {
                let now = readers.get(slot, guard);
                now.is_some_and(|now| std::ptr::eq(now, reader))
            }
        })
    }
}

/// A page, and what it is true by.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    pub(crate) read: Read,
    reader: u32,
    follows: Keys<'a>,
    own: Option<u32>,
    pub(crate) leans: Leans<'a>,
}

impl<'a> Attempt<'a> {
    fn new(reader: u32, follows: Keys<'a>, own: Option<u32>) -> Self {
        Self {
            read: Read::Cold,
            reader,
            follows,
            own,
            leans: Leans {
                leans: Vec::with_capacity(4),
                lowest_us: i64::MAX,
            },
        }
    }

    /// Whether the page may look different after a change.
    pub(crate) fn is_concerned(&self, change: Change) -> bool {
        match change {
            Change::Key(key) => self.follows.contains(key) || self.own == Some(key),
            Change::Reader(reader) => reader == self.reader,
            Change::All => true,
        }
    }

    fn lean(&mut self, lean: Lean<'a>) {
        self.leans.leans.push(lean);
    }

    /// Notes what came of filling a page.
    fn filled(&mut self, (read, lowest_us): (Read, i64)) {
        self.leans.lowest_us = self.leans.lowest_us.min(lowest_us);
        self.read = read;
    }
}

type Lanes<'a> = Vec<(usize, &'a Lane)>;

impl Feed {
    /// The lanes of a target; `None` if there is no such or one is not loaded.
    fn lanes_of(&self, target: Target) -> Option<Lanes<'_>> {
        let lanes: Lanes<'_> = match target {
            Target::One(at) => vec![(at, &**self.lanes.get(at)?)],
            Target::Mixed => self.lanes.iter().map(Arc::as_ref).enumerate().collect(),
        };
        let loaded = lanes.iter().all(|(_, lane)| !lane.is_loading());
        loaded.then_some(lanes)
    }

    /// The page of an active reader.
    pub(crate) fn read<'a>(&'a self, request: &Request<'a>, reading: &Reading<'a>) -> Attempt<'a> {
        let KeyId(key) = request.reader;
        let nobody = Attempt::new(key, Keys::List(&[]), None);
        let Some(slot) = self.readers.slot_of(key) else {
            return nobody;
        };
        let Some(reader) = self.readers.get(slot, reading.guard) else {
            return nobody;
        };
        if reader.key != key || reader.as_of > reading.position {
            return nobody;
        }
        self.readers.note_read(slot, request.now_us);
        let view = View {
            follows: Keys::Set(reader.follows.members()),
            hidden: match &reader.hidden {
                Some(hidden) => Keys::Set(hidden.members()),
                None => Keys::List(&[]),
            },
            own: None,
            reached: false,
            accounts: reading.accounts,
            guard: reading.guard,
        };
        let mut attempt = Attempt::new(key, view.follows, None);
        let Some(lanes) = self.lanes_of(request.target) else {
            attempt.read = Read::Below;
            return attempt;
        };
        attempt.read = Read::Below;
        if reader.stage() == Stage::Ready {
            self.read_rings(&lanes, slot, reader, request, view, reading, &mut attempt);
        }
        if attempt.read == Read::Below {
            self.read_window(&lanes, request, &view, reading, &mut attempt);
        }
        attempt
    }

    #[expect(clippy::too_many_arguments, reason = "all of them are the page's own")]
    fn read_rings<'a>(
        &'a self,
        lanes: &Lanes<'a>,
        slot: u32,
        reader: &'a Reader,
        request: &Request<'a>,
        mut view: View<'a>,
        reading: &Reading<'a>,
        attempt: &mut Attempt<'a>,
    ) {
        // What is in a ring came by a followed key, and keys that are merged are followed.
        view.reached = !reader.unfollowed() && view.hidden.is_empty();
        let mut floor = self.floor_of_windows(lanes, attempt);
        let mut gather = Gather::new(request.before, reading.guard);
        // Before the rings: a fan-out that ended is in them.
        let merged = self.merged_of(reader, reading.guard);
        for &(lane_at, lane) in lanes {
            // One look at each ring: others may be pushed to meanwhile, and this one too.
            let ring = match lane.rings.look(slot, reading.guard) {
                Look::Open(ring) => ring,
                Look::Closed => return,
                Look::Turning => {
                    attempt.read = Read::Busy;
                    return;
                }
            };
            attempt.lean(Lean::Ring(lane, slot, ring.line.turn));
            floor.raise(lane_at, lane, ring.floor());
            gather.ring(lane_at, lane, &ring, request.limit);
            gather.keys(lane_at, lane, merged.iter().copied());
        }
        attempt.lean(Lean::Slot(&self.readers, slot, reader));
        let limits = Limits {
            entries: request.limit,
            looked_at: reading.page_scan_max,
        };
        attempt.filled(fill(&mut gather, &view, &floor, limits));
    }

    fn floor_of_windows<'a>(&self, lanes: &Lanes<'a>, attempt: &mut Attempt<'a>) -> Floor<'a> {
        let floors = lanes.iter().map(|(_, lane)| (*lane, lane.floor_us()));
        let mut highest_us = i64::MIN;
        for (lane, floor_us) in floors {
            attempt.lean(Lean::Floor(lane, floor_us));
            highest_us = highest_us.max(floor_us);
        }
        Floor::at(highest_us)
    }

    /// The keys of a reader whose outboxes its rings do not replace.
    fn merged_of(&self, reader: &Reader, guard: &Guard) -> Vec<u32> {
        let Some(merged) = self.merged.keys(guard) else {
            return Vec::new();
        };
        let follows = reader.follows.members();
        if merged.len() < follows.len() {
            merged
                .iter()
                .copied()
                .filter(|&key| follows.contains(key))
                .collect()
        } else {
            follows.iter().filter(|key| merged.contains(key)).collect()
        }
    }

    /// The page of a reader without rings, or of one below them.
    fn read_window<'a>(
        &'a self,
        lanes: &Lanes<'a>,
        request: &Request<'a>,
        view: &View<'a>,
        reading: &Reading<'a>,
        attempt: &mut Attempt<'a>,
    ) {
        let floor = self.floor_of_windows(lanes, attempt);
        if view.follows.len() > self.scan_above {
            let mut gather = Gather::new(request.before, reading.guard);
            for &(lane_at, lane) in lanes {
                attempt.lean(Lean::Window(lane, lane.window.turn()));
                gather.sequence(lane_at, lane, &lane.window);
            }
            let limits = Limits {
                entries: request.limit,
                looked_at: reading.window_scan_max.min(view.follows.len() / 4).max(1),
            };
            attempt.filled(fill(&mut gather, view, &floor, limits));
            if attempt.read != Read::Sparse {
                return;
            }
            // Too few of the window's records are followed: the outboxes know which.
        }
        let mut gather = Gather::new(request.before, reading.guard);
        for &(lane_at, lane) in lanes {
            match view.follows {
                Keys::Set(set) => gather.keys(lane_at, lane, set.iter().chain(view.own)),
                Keys::List(list) => {
                    gather.keys(lane_at, lane, list.iter().copied().chain(view.own));
                }
            }
        }
        let limits = Limits {
            entries: request.limit,
            looked_at: reading.page_scan_max,
        };
        attempt.filled(fill(&mut gather, view, &floor, limits));
    }

    /// The page of a reader whose follows the caller loaded.
    pub(crate) fn read_cold<'a>(
        &'a self,
        request: &Request<'a>,
        cold: &Cold<'a>,
        reading: &Reading<'a>,
    ) -> Attempt<'a> {
        let KeyId(key) = request.reader;
        let follows = Keys::List(cold.follows.as_slice());
        let own = self.include_self.then_some(key);
        let mut attempt = Attempt::new(key, follows, own);
        if cold.as_of > reading.position || !self.changes.holds(key, cold.as_of) {
            return attempt;
        }
        attempt.read = Read::Below;
        let Some(lanes) = self.lanes_of(request.target) else {
            return attempt;
        };
        let view = View {
            follows,
            hidden: Keys::List(cold.hidden.as_slice()),
            own,
            reached: false,
            accounts: reading.accounts,
            guard: reading.guard,
        };
        self.read_window(&lanes, request, &view, reading, &mut attempt);
        attempt
    }

    /// Above this time the pages of an active reader come from memory; `None` if it is not active.
    pub(crate) fn complete_after_us(&self, target: usize, reader: u32) -> Option<i64> {
        let guard = Guard::new();
        let slot = self.readers.slot_of(reader)?;
        let lane = self.lanes.get(target)?;
        let ring = lane.rings.ring(slot, &guard);
        let after_us = ring.map_or(i64::MIN, |ring| ring.after_us);
        Some(lane.floor_us().max(after_us))
    }

    /// See [`Inspection`]; `None` if the reader is not active. Only where nobody writes.
    pub(crate) fn inspect(&self, target: usize, reader: u32) -> Option<Inspection> {
        let guard = Guard::new();
        let slot = self.readers.slot_of(reader)?;
        let state = self.readers.get(slot, &guard)?;
        let lane = self.lanes.get(target)?;
        let ring = lane.rings.ring(slot, &guard);
        let none = RingFloor {
            after_us: i64::MIN,
            oldest: None,
        };
        let floor = ring.as_ref().map_or(none, Ring::floor);
        let entries = ring.iter().flat_map(Ring::walk);
        let live = entries.filter(|&number| !lane.records.is_gone(number));
        let merged = self.merged_of(state, &guard);
        Some(Inspection {
            has_ring: state.stage() == Stage::Ready,
            entries: live
                .filter_map(|number| Some(RecordId(lane.records.row(number)?.id)))
                .collect(),
            complete_after_us: lane.floor_us().max(floor.after_us),
            complete_above: floor.oldest.map(|number| lane.records.position(number)),
            merged: merged.into_iter().map(KeyId).collect(),
        })
    }
}

#[cfg(test)]
mod tests;
