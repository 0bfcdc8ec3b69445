//! Feeds: one named rule with its lanes, audience and active readers.
//!
//! In:    records, removals, follows, hides and registrations, in the order of
//!        the outbox.
//! Out:   lanes, audience and readers that agree with all of them.
//! Never: a ring that lacks a record of a followed key above its floor, unless
//!        the audience names that key as merged.
//!
//! Everything here is called by the one writer. The promise above is kept in
//! three places: a new record is pushed (or its key becomes merged), a new
//! follow merges the key's outbox into the rings, and a ring is built only from
//! all outboxes at once.

use crate::audience::Audience;
use crate::changes::Changes;
use crate::gather::Gather;
use crate::lane::{Inserted, Lane, NewRecord};
use crate::readers::{Reader, Readers, Stage};
use crate::ring::Push;
use crate::settings::{FeedSpec, KeyId, KeyList, Settings};
use crate::sorted::Counted;
use std::collections::VecDeque;

/// A record on its way to the readers of one key.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) lane_at: usize,
    pub(crate) number: u32,
    pub(crate) key: u32,
    /// Readers below this slot have it.
    pub(crate) next_slot: u32,
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

/// One feed.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) lanes: Vec<Lane>,
    pub(crate) audience: Audience,
    pub(crate) readers: Readers,
    pub(crate) changes: Changes,
    pub(crate) include_self: bool,
    pub(crate) jobs: VecDeque<Job>,
    pub(crate) joining: VecDeque<u32>,
    pub(crate) leaving: VecDeque<Leaving>,
    pub(crate) reader_bytes: usize,
    pub(crate) unfollowed: usize,
    pub(crate) tally: Tally,
    pub(crate) scan_above: usize,
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

impl Feed {
    pub(crate) fn new(spec: &FeedSpec, settings: &Settings) -> Self {
        Self {
            lanes: spec
                .targets
                .iter()
                .map(|target| Lane::new(target.items_max))
                .collect(),
            audience: Audience::new(settings.pull_above),
            readers: Readers::default(),
            changes: Changes::new(settings.changes_max),
            include_self: spec.include_self,
            jobs: VecDeque::new(),
            joining: VecDeque::new(),
            leaving: VecDeque::new(),
            reader_bytes: 0,
            unfollowed: 0,
            tally: Tally::default(),
            scan_above: settings.scan_above,
            sync_threshold: settings.sync_threshold,
            fanout_jobs_max: settings.fanout_jobs_max,
            taken: Vec::new(),
            pushes: Vec::new(),
        }
    }

    /// Takes a record in. Its readers have it after [`Feed::send_taken`].
    pub(crate) fn insert(&mut self, target: usize, record: &NewRecord<'_>) -> Inserted {
        let Some(lane) = self.lanes.get_mut(target) else {
            return Inserted::Below;
        };
        let number = match lane.add(record) {
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
        if let Some(lane) = self.lanes.get_mut(target) {
            self.tally.pushes += lane.rings.push_each(&self.pushes, &lane.records);
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
        change: impl FnOnce(&mut Reader) -> T,
    ) -> Option<(u32, T)> {
        self.changes.note(position, reader);
        let slot = self.readers.slot_of(reader)?;
        let state = self.readers.get_mut(slot)?;
        if position <= state.as_of {
            return None;
        }
        let before = state.bytes();
        let outcome = change(state);
        self.reader_bytes = (self.reader_bytes + state.bytes()).saturating_sub(before);
        Some((slot, outcome))
    }

    /// One follow record of `reader` more.
    pub(crate) fn follow(&mut self, position: u64, reader: u32, key: u32) {
        let changed = self.change(position, reader, |state| {
            let is_new = state.follows.add(key);
            (is_new, state.stage, state.follows.members().len())
        });
        let Some((slot, (is_new, stage, keys))) = changed else {
            return;
        };
        if !is_new || stage == Stage::Scanning {
            return;
        }
        if keys > self.scan_above {
            self.scan(slot);
            return;
        }
        self.audience.join(key, slot);
        if stage == Stage::Ready {
            self.merge_outbox(slot, key);
        }
    }

    /// Puts the records of a key just followed into the reader's rings.
    fn merge_outbox(&mut self, slot: u32, key: u32) {
        if self.audience.is_pulled(key) {
            return;
        }
        for lane in &mut self.lanes {
            let Some(outbox) = lane.outbox(key) else {
                continue;
            };
            let mut walk = outbox.walk(None, &lane.records);
            let numbers: Vec<u32> = std::iter::from_fn(|| outbox.back(&mut walk))
                .filter(|&number| !lane.records.is_gone(number))
                .take(lane.rings.items_max() + 1)
                .collect();
            lane.rings.merge(slot, numbers.into_iter(), &lane.records);
        }
    }

    /// One follow record of `reader` less.
    pub(crate) fn unfollow(&mut self, position: u64, reader: u32, key: u32) {
        let changed = self.change(position, reader, |state| state.follows.take(key));
        let Some((slot, true)) = changed else {
            return;
        };
        if let Some(state) = self.readers.get_mut(slot) {
            let keys = state.follows.members().len();
            if state.stage == Stage::Scanning && keys <= self.scan_above / 2 {
                state.stage = Stage::Joining(0);
                self.joining.push_back(slot);
            }
            if state.stage == Stage::Ready && !state.unfollowed {
                state.unfollowed = true;
                self.unfollowed += 1;
            }
        }
        self.leave_key(key, slot);
    }

    pub(crate) fn leave_key(&mut self, key: u32, slot: u32) {
        if self.audience.leave(key, slot) {
            let newest = self
                .lanes
                .iter()
                .filter_map(|lane| lane.newest_us(key))
                .max();
            self.audience.not_pushed(key, newest);
        }
    }

    /// One mute or block of `author` by `reader` more, or less.
    pub(crate) fn hide(&mut self, position: u64, reader: u32, author: u32, on: bool) {
        self.change(position, reader, |state| {
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
        if let Some(slot) = self.readers.slot_of(reader) {
            self.readers.note_read(slot, now_us);
            return Registered::Active;
        }
        if !self.changes.holds(reader, as_of) {
            return Registered::Stale;
        }
        let mut counted = Counted::from_records(follows.as_slice());
        if self.include_self {
            counted.add(reader);
        }
        let keys = counted.members().len();
        let stage = if keys > self.scan_above {
            Stage::Scanning
        } else {
            Stage::Joining(0)
        };
        let state = Reader {
            key: reader,
            stage,
            as_of,
            unfollowed: false,
            follows: counted,
            hidden: (!hidden.is_empty())
                .then(|| Box::new(Counted::from_records(hidden.as_slice()))),
        };
        self.reader_bytes += state.bytes();
        let slot = self.readers.enter(state);
        self.readers.note_read(slot, now_us);
        if stage != Stage::Scanning {
            self.joining.push_back(slot);
        }
        Registered::Active
    }

    /// Turns a reader to scanning: it needs no rings.
    fn scan(&mut self, slot: u32) {
        if let Some(state) = self.readers.get_mut(slot) {
            state.stage = Stage::Scanning;
        }
        for lane in &mut self.lanes {
            lane.rings.close(slot);
        }
    }

    /// Lets a reader hibernate: its rings go now, its places in lists by and by.
    pub(crate) fn hibernate(&mut self, slot: u32) {
        let Some(state) = self.readers.leave(slot) else {
            return;
        };
        for lane in &mut self.lanes {
            lane.rings.close(slot);
        }
        self.reader_bytes = self.reader_bytes.saturating_sub(state.bytes());
        if state.unfollowed {
            self.unfollowed = self.unfollowed.saturating_sub(1);
        }
        self.tally.hibernated += 1;
        self.leaving.push_back(Leaving {
            slot,
            follows: state.follows,
            next_key: 0,
        });
    }

    /// Builds the rings of a reader from all the outboxes of its keys.
    pub(crate) fn build_rings(&mut self, slot: u32) {
        let Some(state) = self.readers.get_mut(slot) else {
            return;
        };
        state.stage = Stage::Ready;
        if std::mem::take(&mut state.unfollowed) {
            self.unfollowed = self.unfollowed.saturating_sub(1);
        }
        let Some(state) = self.readers.get(slot) else {
            return;
        };
        for lane in &mut self.lanes {
            let items_max = lane.rings.items_max();
            let mut gather = Gather::new(None);
            let keys = state.follows.members().iter().filter(|&key| {
                // A pulled key is merged by every read; in the ring it would only push others out.
                !self.audience.is_pulled(key)
            });
            gather.keys(0, lane, keys);
            let mut numbers: Vec<u32> = gather
                .take_while(|candidate| candidate.time_us > lane.floor_us)
                .map(|candidate| candidate.number)
                .filter(|&number| !lane.records.is_gone(number))
                .take(items_max + 1)
                .collect();
            let more = numbers.len() > items_max;
            numbers.truncate(items_max);
            lane.rings.build(slot, &numbers, more, &lane.records);
        }
    }

    /// Memory of readers, their lists and their timelines.
    pub(crate) fn bytes_of_readers(&self) -> usize {
        let rings: usize = self.lanes.iter().map(|lane| lane.rings.bytes()).sum();
        self.reader_bytes + self.audience.bytes() + self.audience.edges() as usize * 5 + rings
    }
}
