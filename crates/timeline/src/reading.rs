//! Reading: which sources a page is gathered from.
//!
//! In:    a request, and for a cold reader the follows the caller loaded.
//! Out:   the first answer that is exact, from the cheapest sources that can
//!        give one.
//! Never: a change to anything but the moment the reader was last seen; a look at
//!        shared state that does not go through the witness.
//!
//! An active reader has a ring; what is not in it lies in the outboxes of the
//! few keys that are merged. Below the ring the outboxes of all its keys still
//! reach down to the floor of the window, at a higher price. A reader of very
//! many keys walks the window instead, as does a cold one.
//!
//! All of this may change while it is read. So everything shared is asked of the page's
//! [`Witness`], which knows in the end whether the answers still hold.

use crate::gather::Gather;
use crate::page::{Floor, Keys, Limits, Read, Request, Target, View, fill};
use crate::readers::Stage;
use crate::records::Position;
use crate::ring::{Ring, RingFloor};
use crate::rings::Look;
use crate::settings::{KeyId, KeyList, RecordId};
use crate::witness::{Active, Index, Witness};

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
pub(crate) struct Reading {
    /// The engine's position when the page began.
    pub(crate) position: u64,
    pub(crate) page_scan_max: usize,
    pub(crate) window_scan_max: usize,
}

/// The page of an active reader.
pub(crate) fn read<'a>(
    request: &Request<'a>,
    reading: &Reading,
    witness: &mut Witness<'a>,
) -> Read {
    let KeyId(key) = request.reader;
    let Some(active) = witness.active(key) else {
        return Read::Cold;
    };
    let reader = active.state;
    if reader.as_of > reading.position {
        return Read::Cold;
    }
    witness.note_read(active, request.now_us);
    let Some(indexes) = witness.indexes(request.target) else {
        return Read::Below;
    };
    let view = View {
        follows: Keys::Set(reader.follows.members()),
        hidden: match &reader.hidden {
            Some(hidden) => Keys::Set(hidden.members()),
            None => Keys::List(&[]),
        },
        own: None,
        reached: false,
        accounts: witness.accounts(),
        guard: witness.guard(),
    };
    if reader.stage() == Stage::Ready {
        let read = read_rings(&indexes, active, request, view, reading, witness);
        if read != Read::Below {
            return read;
        }
    }
    read_window(&indexes, request, &view, reading, witness)
}

fn read_rings<'a>(
    indexes: &[Index<'a>],
    active: Active<'a>,
    request: &Request<'a>,
    mut view: View<'a>,
    reading: &Reading,
    witness: &mut Witness<'a>,
) -> Read {
    // What is in a ring came by a followed key, and keys that are merged are followed.
    view.reached = !active.state.unfollowed() && view.hidden.is_empty();
    let mut floor = floor_of_windows(indexes, witness);
    let mut gather = Gather::new(request.before, witness.guard());
    let merged = witness.merged_keys(active.state);
    for &index in indexes {
        let ring = match witness.ring(index, active.slot) {
            Look::Open(ring) => ring,
            Look::Closed => return Read::Below,
            Look::Turning => return Read::Busy,
        };
        floor.raise(index.at, index.records, ring.floor());
        gather.ring(index.at, index.records, &ring, request.limit);
        let outboxes = witness.outboxes(index);
        gather.keys(index.at, index.records, outboxes, merged.iter().copied());
    }
    let limits = Limits {
        entries: request.limit,
        looked_at: reading.page_scan_max,
    };
    let (read, lowest_us) = fill(&mut gather, &view, &floor, limits);
    witness.looked_down_to(lowest_us);
    read
}

fn floor_of_windows<'a>(indexes: &[Index<'a>], witness: &mut Witness<'a>) -> Floor<'a> {
    let floors = indexes.iter().map(|&index| witness.floor_us(index));
    Floor::at(floors.max().unwrap_or(i64::MIN))
}

/// The page of a reader without rings, or of one below them.
fn read_window<'a>(
    indexes: &[Index<'a>],
    request: &Request<'a>,
    view: &View<'a>,
    reading: &Reading,
    witness: &mut Witness<'a>,
) -> Read {
    let floor = floor_of_windows(indexes, witness);
    if view.follows.len() > witness.scan_above() {
        let mut gather = Gather::new(request.before, witness.guard());
        for &index in indexes {
            let window = witness.window(index);
            gather.sequence(index.at, index.records, window);
        }
        let limits = Limits {
            entries: request.limit,
            looked_at: reading.window_scan_max.min(view.follows.len() / 4).max(1),
        };
        let (read, lowest_us) = fill(&mut gather, view, &floor, limits);
        witness.looked_down_to(lowest_us);
        if read != Read::Sparse {
            return read;
        }
        // Too few of the window's records are followed: the outboxes know which.
    }
    let mut gather = Gather::new(request.before, witness.guard());
    for &index in indexes {
        let (at, records, outboxes) = (index.at, index.records, witness.outboxes(index));
        match view.follows {
            Keys::Set(set) => gather.keys(at, records, outboxes, set.iter().chain(view.own)),
            Keys::List(list) => {
                gather.keys(at, records, outboxes, list.iter().copied().chain(view.own));
            }
        }
    }
    let limits = Limits {
        entries: request.limit,
        looked_at: reading.page_scan_max,
    };
    let (read, lowest_us) = fill(&mut gather, view, &floor, limits);
    witness.looked_down_to(lowest_us);
    read
}

/// The page of a reader whose follows the caller loaded.
pub(crate) fn read_cold<'a>(
    request: &Request<'a>,
    cold: &Cold<'a>,
    reading: &Reading,
    witness: &mut Witness<'a>,
) -> Read {
    let KeyId(key) = request.reader;
    if cold.as_of > reading.position {
        return Read::Cold;
    }
    let follows = Keys::List(cold.follows.as_slice());
    let Some(own) = witness.loaded(key, follows, cold.as_of) else {
        return Read::Cold;
    };
    let Some(indexes) = witness.indexes(request.target) else {
        return Read::Below;
    };
    let view = View {
        follows,
        hidden: Keys::List(cold.hidden.as_slice()),
        own,
        reached: false,
        accounts: witness.accounts(),
        guard: witness.guard(),
    };
    read_window(&indexes, request, &view, reading, witness)
}

/// The one index of a target.
fn index_of<'a>(target: usize, witness: &mut Witness<'a>) -> Option<Index<'a>> {
    witness.indexes(Target::One(target))?.into_iter().next()
}

/// Above this time the pages of an active reader come from memory; `None` if it is not active.
pub(crate) fn complete_after_us<'a>(
    target: usize,
    KeyId(reader): KeyId,
    witness: &mut Witness<'a>,
) -> Option<i64> {
    let active = witness.active(reader)?;
    let index = index_of(target, witness)?;
    let floor_us = witness.floor_us(index);
    match witness.ring(index, active.slot) {
        Look::Open(ring) => Some(floor_us.max(ring.after_us)),
        Look::Closed | Look::Turning => Some(floor_us),
    }
}

/// See [`Inspection`]; `None` if the reader is not active. Only where nobody writes.
pub(crate) fn inspect<'a>(
    target: usize,
    KeyId(reader): KeyId,
    witness: &mut Witness<'a>,
) -> Option<Inspection> {
    let active = witness.active(reader)?;
    let index = index_of(target, witness)?;
    let merged = witness.merged_keys(active.state);
    let floor_us = witness.floor_us(index);
    let ring = match witness.ring(index, active.slot) {
        Look::Open(ring) => Some(ring),
        Look::Closed | Look::Turning => None,
    };
    let none = RingFloor {
        after_us: i64::MIN,
        oldest: None,
    };
    let floor = ring.as_ref().map_or(none, Ring::floor);
    let entries = ring.iter().flat_map(Ring::walk);
    let live = entries.filter(|&number| !index.records.is_gone(number));
    Some(Inspection {
        has_ring: active.state.stage() == Stage::Ready,
        entries: live
            .filter_map(|number| Some(RecordId(index.records.row(number)?.id)))
            .collect(),
        complete_after_us: floor_us.max(floor.after_us),
        complete_above: floor.oldest.map(|number| index.records.position(number)),
        merged: merged.into_iter().map(KeyId).collect(),
    })
}

#[cfg(test)]
mod tests;
