//! Reading: which sources a page is gathered from.
//!
//! In:    a request, and for a cold reader the follows the caller loaded.
//! Out:   the first answer that is exact, from the cheapest sources that can
//!        give one.
//! Never: a change to anything but the moment the reader was last seen.
//!
//! An active reader has a ring; what is not in it lies in the outboxes of the
//! few keys that are merged. Below the ring the outboxes of all its keys still
//! reach down to the floor of the window, at a higher price. A reader of very
//! many keys walks the window instead, as does a cold one.

use crate::feed::Feed;
use crate::gather::Gather;
use crate::lane::Lane;
use crate::page::{Floor, Keys, Limits, Read, Request, Target, View, fill};
use crate::readers::{Reader, Stage};
use crate::records::Position;
use crate::ring::{Ring, RingFloor};
use crate::settings::{KeyId, KeyList, RecordId};
use crate::shards::Quick;
use std::collections::HashSet;

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
    pub(crate) accounts: &'a HashSet<u32, Quick>,
    pub(crate) position: u64,
    pub(crate) page_scan_max: usize,
    pub(crate) window_scan_max: usize,
}

type Lanes<'a> = Vec<(usize, &'a Lane)>;

impl Feed {
    /// The lanes of a target; `None` if there is no such or one is not loaded.
    fn lanes_of(&self, target: Target) -> Option<Lanes<'_>> {
        let lanes: Lanes<'_> = match target {
            Target::One(at) => vec![(at, self.lanes.get(at)?)],
            Target::Mixed => self.lanes.iter().enumerate().collect(),
        };
        lanes.iter().all(|(_, lane)| !lane.loading).then_some(lanes)
    }

    /// The page of an active reader.
    pub(crate) fn read(&self, request: &Request<'_>, reading: &Reading<'_>) -> Read {
        let KeyId(key) = request.reader;
        let Some(slot) = self.readers.slot_of(key) else {
            return Read::Cold;
        };
        let Some(reader) = self.readers.get(slot) else {
            return Read::Cold;
        };
        if reader.as_of > reading.position {
            return Read::Cold;
        }
        self.readers.note_read(slot, request.now_us);
        let Some(lanes) = self.lanes_of(request.target) else {
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
            accounts: reading.accounts,
        };
        if reader.stage == Stage::Ready {
            let page = self.read_rings(&lanes, slot, reader, request, view, reading);
            if page != Read::Below {
                return page;
            }
        }
        self.read_window(&lanes, request, &view, reading)
    }

    fn read_rings(
        &self,
        lanes: &Lanes<'_>,
        slot: u32,
        reader: &Reader,
        request: &Request<'_>,
        mut view: View<'_>,
        reading: &Reading<'_>,
    ) -> Read {
        // What is in a ring came by a followed key, and keys that are merged are followed.
        view.reached = !reader.unfollowed && view.hidden.is_empty();
        let mut floor = Floor::of_windows(lanes);
        let mut gather = Gather::new(request.before);
        for &(lane_at, lane) in lanes {
            // One look at each ring: others may be pushed to meanwhile, and this one too.
            let Some(ring) = lane.rings.ring(slot) else {
                return Read::Below;
            };
            floor.raise(lane_at, lane, ring.floor());
            gather.ring(lane_at, lane, &ring, request.limit);
            gather.keys(lane_at, lane, self.merged_of(reader).into_iter());
        }
        let limits = Limits {
            entries: request.limit,
            looked_at: reading.page_scan_max,
        };
        fill(&mut gather, &view, &floor, limits)
    }

    /// The keys of a reader whose outboxes its rings do not replace.
    fn merged_of(&self, reader: &Reader) -> Vec<u32> {
        let merged = self.audience.merged();
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
    fn read_window(
        &self,
        lanes: &Lanes<'_>,
        request: &Request<'_>,
        view: &View<'_>,
        reading: &Reading<'_>,
    ) -> Read {
        let floor = Floor::of_windows(lanes);
        if view.follows.len() > self.scan_above {
            let mut gather = Gather::new(request.before);
            for &(lane_at, lane) in lanes {
                gather.sequence(lane_at, lane, &lane.window);
            }
            let limits = Limits {
                entries: request.limit,
                looked_at: reading.window_scan_max.min(view.follows.len() / 4).max(1),
            };
            let page = fill(&mut gather, view, &floor, limits);
            let is_short = matches!(&page, Read::Page { entries, next: Some(_) } if entries.len() < request.limit);
            if !is_short {
                return page;
            }
            // Too few of the window's records are followed: the outboxes know which.
        }
        let mut gather = Gather::new(request.before);
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
        fill(&mut gather, view, &floor, limits)
    }

    /// The page of a reader whose follows the caller loaded.
    pub(crate) fn read_cold(
        &self,
        request: &Request<'_>,
        cold: &Cold<'_>,
        reading: &Reading<'_>,
    ) -> Read {
        let KeyId(key) = request.reader;
        if cold.as_of > reading.position || !self.changes.holds(key, cold.as_of) {
            return Read::Cold;
        }
        let Some(lanes) = self.lanes_of(request.target) else {
            return Read::Below;
        };
        let view = View {
            follows: Keys::List(cold.follows.as_slice()),
            hidden: Keys::List(cold.hidden.as_slice()),
            own: self.include_self.then_some(key),
            reached: false,
            accounts: reading.accounts,
        };
        self.read_window(&lanes, request, &view, reading)
    }

    /// See [`Inspection`]; `None` if the reader is not active.
    pub(crate) fn inspect(&self, target: usize, reader: u32) -> Option<Inspection> {
        let slot = self.readers.slot_of(reader)?;
        let state = self.readers.get(slot)?;
        let lane = self.lanes.get(target)?;
        let ring = lane.rings.ring(slot);
        let none = RingFloor {
            after_us: i64::MIN,
            oldest: None,
        };
        let floor = ring.as_ref().map_or(none, Ring::floor);
        let entries = ring.iter().flat_map(Ring::walk);
        let live = entries.filter(|&number| !lane.records.is_gone(number));
        Some(Inspection {
            has_ring: state.stage == Stage::Ready,
            entries: live
                .filter_map(|number| Some(RecordId(lane.records.row(number)?.id)))
                .collect(),
            complete_after_us: lane.floor_us.max(floor.after_us),
            complete_above: floor.oldest.map(|number| lane.records.position(number)),
            merged: self.merged_of(state).into_iter().map(KeyId).collect(),
        })
    }
}
