//! Feeds: one named rule with its lanes, audience and active readers.
//!
//! In:    records, removals, follows, hides and registrations, in the order of
//!        the outbox.
//! Out:   lanes, audience and readers that agree with all of them.
//! Never: a ring that lacks a record of a followed key above its floor, unless
//!        the audience names that key as merged.
//!
//! [`Feed`] is what pages read, while [`FeedWriter`] changes it. The promise
//! above is kept in three places: a new record is pushed (or its key becomes
//! merged), a new follow merges the key's outbox into the rings, and a ring is
//! built only from all outboxes at once. Whatever a page could see half of is
//! entered in the journal first.

use crate::audience::{Audience, Merged};
use crate::changes::Changes;
use crate::counted::Counted;
use crate::gather::Gather;
use crate::journal::{Change, Journal};
use crate::lane::{Inserted, Lane, LaneWriter, NewRecord};
use crate::readers::{Reader, Readers, ReadersWriter, Stage};
use crate::ring::Push;
use crate::settings::{FeedSpec, KeyId, KeyList, Settings};
use sdd::Guard;
use std::collections::VecDeque;
use std::sync::Arc;

/// A record on its way to the readers of one key.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) lane_at: usize,
    pub(crate) number: u32,
    pub(crate) key: u32,
    /// Readers below this slot have it.
    pub(crate) next_slot: u32,
}

/// A reader on its way into the lists of its keys.
#[derive(Debug)]
pub(crate) struct Joining {
    pub(crate) slot: u32,
    pub(crate) next_key: u32,
}

/// A reader on its way out of the lists of its keys.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) slot: u32,
    pub(crate) follows: Counted,
    pub(crate) next_key: u32,
}

/// What was done since the start.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) pushes: u64,
    pub(crate) pulled: u64,
    pub(crate) hibernated: u64,
    pub(crate) sweeps: u64,
}

/// What became of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registered {
    /// The reader is active from now on.
    Active,
    /// Its follows changed since they were loaded: load them again.
    Stale,
    /// No memory is left for more readers; it stays cold, and exact.
    Full,
}

/// One feed, as pages see it.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) lanes: Vec<Arc<Lane>>,
    pub(crate) merged: Arc<Merged>,
    pub(crate) readers: Readers,
    pub(crate) changes: Changes,
    pub(crate) journal: Journal,
    pub(crate) include_self: bool,
    pub(crate) scan_above: usize,
}

/// One feed, and what its one writer knows of it.
#[derive(Debug)]
pub(crate) struct FeedWriter {
    pub(crate) feed: Arc<Feed>,
    pub(crate) lanes: Vec<LaneWriter>,
    pub(crate) audience: Audience,
    pub(crate) readers: ReadersWriter,
    pub(crate) jobs: VecDeque<Job>,
    pub(crate) joining: VecDeque<Joining>,
    pub(crate) leaving: VecDeque<Leaving>,
    pub(crate) reader_bytes: usize,
    pub(crate) unfollowed: usize,
    pub(crate) tally: Tally,
    sync_threshold: usize,
    fanout_jobs_max: usize,
    /// Records just taken in, each under one key, and what they owe to rings; empty between calls.
    taken: Vec<Taken>,
    pushes: Vec<Push>,
}

/// A record just taken in, to be sent to the readers of one key.
#[derive(Debug, Clone, Copy)]
struct Taken {
    time_us: i64,
    number: u32,
    key: u32,
}

impl FeedWriter {
    pub(crate) fn new(spec: &FeedSpec, settings: &Settings, position: u64) -> Self {
        let targets = spec.targets.iter();
        let lanes: Vec<LaneWriter> = targets
            .map(|target| LaneWriter::new(target.items_max))
            .collect();
        let audience = Audience::new(settings.pull_above);
        Self {
            feed: Arc::new(Feed {
                lanes: lanes.iter().map(|lane| Arc::clone(&lane.lane)).collect(),
                merged: audience.shown(),
                readers: Readers::default(),
                changes: Changes::new(settings.changes_max, position),
                journal: Journal::default(),
                include_self: spec.include_self,
                scan_above: settings.scan_above,
            }),
            lanes,
            audience,
            readers: ReadersWriter::default(),
            jobs: VecDeque::new(),
            joining: VecDeque::new(),
            leaving: VecDeque::new(),
            reader_bytes: 0,
            unfollowed: 0,
            tally: Tally::default(),
            sync_threshold: settings.sync_threshold,
            fanout_jobs_max: settings.fanout_jobs_max,
            taken: Vec::new(),
            pushes: Vec::new(),
        }
    }

    /// Takes a record in. Its readers have it after [`FeedWriter::send_taken`].
    pub(crate) fn insert(
        &mut self,
        target: usize,
        record: &NewRecord<'_>,
        guard: &Guard,
    ) -> Inserted {
        let Some(lane) = self.lanes.get_mut(target) else {
            return Inserted::Below;
        };
        let number = match lane.add(record, &self.feed.journal, guard) {
            Ok(number) => number,
            Err(outcome) => return outcome,
        };
        self.taken
            .extend(record.keys.iter().map(|&KeyId(key)| Taken {
                time_us: record.time_us,
                number,
                key,
            }));
        Inserted::Taken
    }

    /// Sends what was taken in since the last call. Must come before anything else
    /// looks at the rings of `target`.
    ///
    /// Oldest first, because a ring takes what is newer than all it has at once,
    /// and searches a place for everything else.
    pub(crate) fn send_taken(&mut self, target: usize) {
        let mut taken = std::mem::take(&mut self.taken);
        taken.sort_by_key(|one| one.time_us);
        for one in taken.drain(..) {
            self.send(target, one);
        }
        self.taken = taken;
        if let Some(LaneWriter { lane, rings, .. }) = self.lanes.get_mut(target) {
            let pushed = rings.push_each(&lane.rings, &self.pushes, |push| *push, &lane.records);
            self.tally.pushes += pushed;
        }
        self.pushes.clear();
    }

    fn send(&mut self, lane_at: usize, taken: Taken) {
        let Taken {
            time_us,
            number,
            key,
        } = taken;
        let followers = self.audience.followers(key);
        let readers = followers.len();
        if readers == 0 {
            return;
        }
        if self.audience.is_pulled(key) {
            self.tally.pulled += readers as u64;
        } else if readers <= self.sync_threshold {
            for slots in followers.slices_from(0) {
                self.pushes.extend(slots.iter().map(|&slot| Push {
                    slot,
                    number,
                    time_us,
                }));
            }
        } else if self.jobs.len() < self.fanout_jobs_max {
            self.audience.fanout_begins(key);
            self.jobs.push_back(Job {
                lane_at,
                number,
                key,
                next_slot: 0,
            });
        } else {
            self.tally.pulled += readers as u64;
            self.audience.not_pushed(key, Some(time_us));
        }
    }

    /// Makes a change to a reader; its slot and what came of it, if it is active and has not seen it yet.
    fn change<T>(
        &mut self,
        position: u64,
        reader: u32,
        guard: &Guard,
        change: impl FnOnce(&mut Reader) -> T,
    ) -> Option<(u32, T)> {
        self.feed.journal.open(Change::Reader(reader));
        self.feed.changes.note(position, reader);
        let slot = self.feed.readers.slot_of(reader)?;
        let state = self.feed.readers.get(slot, guard)?;
        if position <= state.as_of {
            return None;
        }
        let mut changed = state.clone();
        let outcome = change(&mut changed);
        self.reader_bytes = (self.reader_bytes + changed.bytes()).saturating_sub(state.bytes());
        self.feed.readers.replace(slot, Some(changed));
        Some((slot, outcome))
    }

    /// One follow record of `reader` more.
    pub(crate) fn follow(&mut self, position: u64, reader: u32, key: u32, guard: &Guard) {
        let changed = self.change(position, reader, guard, |state| {
            let is_new = state.follows.add(key);
            (is_new, state.stage(), state.follows.members().len())
        });
        let Some((slot, (is_new, stage, keys))) = changed else {
            return;
        };
        if !is_new || stage == Stage::Scanning {
            return;
        }
        if keys > self.feed.scan_above {
            self.scan(slot, guard);
            return;
        }
        self.audience.join(key, slot);
        if stage == Stage::Ready {
            self.merge_outbox(slot, key, guard);
        }
    }

    /// Puts the records of a key just followed into the reader's rings.
    fn merge_outbox(&mut self, slot: u32, key: u32, guard: &Guard) {
        if self.audience.is_pulled(key) {
            return;
        }
        for LaneWriter { lane, rings, .. } in &mut self.lanes {
            let Some(outbox) = lane.outboxes.get(key) else {
                continue;
            };
            let walk = outbox.walk(None, &lane.records, guard);
            let live = walk.filter(|&number| !lane.records.is_gone(number));
            let numbers = live.take(lane.rings.items_max + 1);
            rings.merge(&lane.rings, slot, numbers, &lane.records);
        }
    }

    /// One follow record of `reader` less.
    pub(crate) fn unfollow(&mut self, position: u64, reader: u32, key: u32, guard: &Guard) {
        let changed = self.change(position, reader, guard, |state| state.follows.take(key));
        let Some((slot, true)) = changed else {
            return;
        };
        if let Some(state) = self.feed.readers.get(slot, guard) {
            let keys = state.follows.members().len();
            match state.stage() {
                Stage::Scanning if keys <= self.feed.scan_above / 2 => {
                    state.set_stage(Stage::Joining);
                    self.joining.push_back(Joining { slot, next_key: 0 });
                }
                Stage::Ready if !state.set_unfollowed(true) => self.unfollowed += 1,
                _ => {}
            }
        }
        self.leave_key(key, slot, guard);
    }

    pub(crate) fn leave_key(&mut self, key: u32, slot: u32, guard: &Guard) {
        if self.audience.leave(key, slot) {
            let lanes = self.feed.lanes.iter();
            let newest = lanes.filter_map(|lane| lane.newest_us(key, guard)).max();
            self.audience.not_pushed(key, newest);
        }
    }

    /// One mute or block of `author` by `reader` more, or less.
    pub(crate) fn hide(
        &mut self,
        position: u64,
        reader: u32,
        author: u32,
        on: bool,
        guard: &Guard,
    ) {
        self.change(position, reader, guard, |state| {
            let hidden = state.hidden.get_or_insert_default();
            match on {
                true => hidden.add(author),
                false => hidden.take(author),
            }
        });
    }

    /// Makes a reader active, with what it follows and hides as of a position.
    pub(crate) fn register(
        &mut self,
        reader: u32,
        follows: &KeyList,
        hidden: &KeyList,
        as_of: u64,
        now_us: i64,
    ) -> Registered {
        let readers = &self.feed.readers;
        if let Some(slot) = readers.slot_of(reader) {
            readers.note_read(slot, now_us);
            return Registered::Active;
        }
        if !self.feed.changes.holds(reader, as_of) {
            return Registered::Stale;
        }
        let mut counted = Counted::from_records(follows.as_slice());
        if self.feed.include_self {
            counted.add(reader);
        }
        let stage = if counted.members().len() > self.feed.scan_above {
            Stage::Scanning
        } else {
            Stage::Joining
        };
        let hidden =
            (!hidden.is_empty()).then(|| Box::new(Counted::from_records(hidden.as_slice())));
        let state = Reader::new(reader, stage, as_of, counted, hidden);
        self.reader_bytes += state.bytes();
        let slot = self.readers.enter(readers, state);
        readers.note_read(slot, now_us);
        if stage == Stage::Joining {
            self.joining.push_back(Joining { slot, next_key: 0 });
        }
        Registered::Active
    }

    /// Turns a reader to scanning: it needs no rings.
    fn scan(&mut self, slot: u32, guard: &Guard) {
        if let Some(state) = self.feed.readers.get(slot, guard) {
            self.join_no_more(slot, state);
            state.set_stage(Stage::Scanning);
        }
        self.close_rings(slot);
    }

    /// A reader that is not joining any more must not be entered anywhere, nor one that has its slot later.
    fn join_no_more(&mut self, slot: u32, state: &Reader) {
        if state.stage() == Stage::Joining {
            self.joining.retain(|joining| joining.slot != slot);
        }
    }

    fn close_rings(&mut self, slot: u32) {
        for LaneWriter { lane, rings, .. } in &mut self.lanes {
            rings.close(&lane.rings, slot);
        }
    }

    /// Lets a reader hibernate: its rings go now, its places in lists by and by.
    pub(crate) fn hibernate(&mut self, slot: u32, guard: &Guard) {
        let feed = Arc::clone(&self.feed);
        let Some(state) = feed.readers.get(slot, guard) else {
            return;
        };
        self.join_no_more(slot, state);
        self.readers.leave(&feed.readers, slot, state.key);
        self.close_rings(slot);
        self.reader_bytes = self.reader_bytes.saturating_sub(state.bytes());
        if state.unfollowed() {
            self.unfollowed = self.unfollowed.saturating_sub(1);
        }
        self.tally.hibernated += 1;
        self.leaving.push_back(Leaving {
            slot,
            follows: state.follows.clone(),
            next_key: 0,
        });
    }

    /// Builds the rings of a reader from all the outboxes of its keys.
    pub(crate) fn build_rings(&mut self, slot: u32, guard: &Guard) {
        let Some(state) = self.feed.readers.get(slot, guard) else {
            return;
        };
        for LaneWriter { lane, rings, .. } in &mut self.lanes {
            let items_max = lane.rings.items_max;
            let mut gather = Gather::new(None, guard);
            let keys = state.follows.members().iter().filter(|&key| {
                // A pulled key is merged by every read; in the ring it would only push others out.
                !self.audience.is_pulled(key)
            });
            gather.keys(0, &lane.records, &lane.outboxes, keys);
            let floor_us = lane.floor_us();
            let mut numbers: Vec<u32> = gather
                .take_while(|candidate| candidate.time_us > floor_us)
                .map(|candidate| candidate.number)
                .filter(|&number| !lane.records.is_gone(number))
                .take(items_max + 1)
                .collect();
            let more = numbers.len() > items_max;
            numbers.truncate(items_max);
            let floor = (more, i64::MIN);
            rings.build(&lane.rings, slot, &numbers, floor, &lane.records);
        }
        if state.set_unfollowed(false) {
            self.unfollowed = self.unfollowed.saturating_sub(1);
        }
        state.set_stage(Stage::Ready);
    }

    /// Memory of readers, their lists and their timelines.
    pub(crate) fn bytes_of_readers(&self) -> usize {
        let lanes = self.lanes.iter();
        let rings: usize = lanes.map(|lane| lane.rings.bytes(&lane.lane.rings)).sum();
        self.reader_bytes + self.audience.bytes() + self.audience.edges() as usize * 5 + rings
    }
}
