//! Sweeping: the background work, in small fair portions.
//!
//! In:    the time and an amount of work.
//! Out:   fan-outs carried on, readers entered and let go, rings rid of gone
//!        records, numbers freed.
//! Never: more work at once than was asked for, give or take one ring; a
//!        number freed that a ring or a fan-out still holds.
//!
//! A gone record may sit in any ring, so its number is freed only after one
//! whole pass over the readers that began after it had gone: gone records
//! enter no ring, and the pass takes them out of each. The same pass notices
//! readers that have been away and rebuilds rings after unfollows.

use crate::feed::{FeedWriter, Job, Joining, Leaving};
use crate::lane::LaneWriter;
use crate::readers::Stage;
use crate::ring::Push;
use crate::settings::REMOVED_SHARE;
use sdd::Guard;
use std::sync::Arc;

/// Pushes of one background fan-out before the next goes on; few where tests are run, as below.
const TURN: usize = if cfg!(debug_assertions) { 4 } else { 2_048 };
/// Keys of a reader that are joined or left together; few where tests are run, or no test would
/// meet a second slice.
const SLICE: usize = if cfg!(debug_assertions) { 4 } else { 512 };

/// Where the sweep of one feed stands.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    pass: Option<Pass>,
    last_pass_us: Option<i64>,
}

#[derive(Debug)]
struct Pass {
    next_slot: u32,
    /// What had gone when the pass began, lane by lane.
    doomed: Vec<Vec<u32>>,
    rings_done: bool,
}

/// When a sweep is due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Due {
    pub(crate) ttl_us: i64,
    pub(crate) removed_max: usize,
}

impl Sweep {
    pub(crate) fn is_idle(&self) -> bool {
        self.pass.is_none()
    }

    /// Does at most about `work` units; what is left of them.
    pub(crate) fn step(
        &mut self,
        feed: &mut FeedWriter,
        due: Due,
        now_us: i64,
        work: usize,
    ) -> usize {
        let mut left = work;
        if self.pass.is_none() && self.is_due(feed, due, now_us) {
            self.last_pass_us = Some(now_us);
            self.pass = Some(Pass {
                next_slot: 0,
                doomed: feed
                    .lanes
                    .iter_mut()
                    .map(|lane| std::mem::take(&mut lane.removed))
                    .collect(),
                rings_done: false,
            });
        }
        let Some(pass) = &mut self.pass else {
            return left;
        };
        let guard = Guard::new();
        while !pass.rings_done && left > 0 {
            if pass.next_slot >= feed.readers.slots_end() {
                pass.rings_done = true;
                // No ring holds a doomed number now; fan-outs must not either.
                feed.drop_gone_jobs();
                break;
            }
            let is_clean = pass.doomed.iter().all(Vec::is_empty);
            let work = feed.sweep_slot(pass.next_slot, is_clean, due.ttl_us, now_us, &guard);
            left = left.saturating_sub(work);
            pass.next_slot += 1;
        }
        if pass.rings_done {
            left = feed.bury(&mut pass.doomed, left, &guard);
            if pass.doomed.iter().all(Vec::is_empty) {
                self.pass = None;
                feed.tally.sweeps += 1;
                feed.settle_audience();
            }
        }
        left
    }

    fn is_due(&self, feed: &FeedWriter, due: Due, now_us: i64) -> bool {
        let removed: usize = feed.lanes.iter().map(|lane| lane.removed.len()).sum();
        let records: usize = feed.lanes.iter().map(|lane| lane.records.live()).sum();
        let pause_us = (due.ttl_us / 16).max(1);
        // A pass looks at every ring, so a large window waits for more to free.
        removed >= due.removed_max.max(records / REMOVED_SHARE).max(1)
            || feed.unfollowed > 64 + feed.readers.active() / 16
            || self
                .last_pass_us
                .is_none_or(|last| now_us.saturating_sub(last) >= pause_us)
    }
}

impl FeedWriter {
    /// Looks after one reader; the work it took. Where nothing is doomed
    /// (`is_clean`) no ring needs to be searched.
    fn sweep_slot(
        &mut self,
        slot: u32,
        is_clean: bool,
        ttl_us: i64,
        now_us: i64,
        guard: &Guard,
    ) -> usize {
        let readers = &self.feed.readers;
        let Some(reader) = readers.get(slot, guard) else {
            return 1;
        };
        if readers.is_away(slot, now_us, ttl_us) {
            self.hibernate(slot, guard);
            return 8;
        }
        if reader.stage() != Stage::Ready {
            return 1;
        }
        if reader.unfollowed() {
            self.build_rings(slot, guard);
            return 512;
        }
        let mut work = 1;
        for LaneWriter { lane, rings, .. } in &mut self.lanes {
            if !is_clean {
                let ring = lane.rings.ring(slot, guard);
                work += 1 + ring.map_or(0, |ring| ring.len()) / 8;
                rings.compact(&lane.rings, slot, &lane.records);
            }
            rings.sink(&lane.rings, slot);
        }
        work
    }

    /// Frees the numbers of records that no list but outbox and window holds.
    fn bury(&mut self, doomed: &mut [Vec<u32>], work: usize, guard: &Guard) -> usize {
        let mut left = work;
        let journal = &self.feed.journal;
        for (lane, doomed) in self.lanes.iter_mut().zip(doomed) {
            while left > 0
                && let Some(number) = doomed.pop()
            {
                lane.bury(number, journal, guard);
                journal.close();
                left = left.saturating_sub(4);
            }
        }
        left
    }

    fn drop_gone_jobs(&mut self) {
        let mut ended = Vec::new();
        let lanes = &self.feed.lanes;
        self.jobs.retain(|job| {
            let gone = lanes
                .get(job.lane_at)
                .is_none_or(|lane| lane.records.is_gone(job.number));
            if gone {
                ended.push(job.key);
            }
            !gone
        });
        for key in ended {
            self.audience.fanout_ends(key);
        }
    }

    fn settle_audience(&mut self) {
        if let Some(floor_us) = self.feed.lanes.iter().map(|lane| lane.floor_us()).min() {
            self.audience.settle(floor_us);
        }
    }

    /// Carries the waiting fan-outs on, each in turn; what is left of `work`.
    ///
    /// Until a fan-out ends, its key is merged by every read; so a push more or less changes no page.
    pub(crate) fn step_jobs(&mut self, work: usize) -> usize {
        let mut left = work;
        while left > 0
            && let Some(mut job) = self.jobs.pop_front()
        {
            let turn = left.min(TURN);
            let (looked_at, next_slot) = self.push_to_some(&job, turn);
            left = left.saturating_sub(looked_at.max(1));
            match next_slot {
                Some(next) => {
                    job.next_slot = next;
                    self.jobs.push_back(job);
                }
                None => self.audience.fanout_ends(job.key),
            }
        }
        left
    }

    /// Pushes a record to at most `turn` readers more; to how many, and where it goes on, if it does.
    fn push_to_some(&mut self, job: &Job, turn: usize) -> (usize, Option<u32>) {
        let Some(LaneWriter { lane, rings, .. }) = self.lanes.get_mut(job.lane_at) else {
            return (0, None);
        };
        if lane.records.is_gone(job.number) {
            return (0, None);
        }
        let time_us = lane.records.time_us(job.number);
        let (mut looked_at, mut last) = (0, None);
        let followers = self.audience.followers(job.key);
        for slots in followers.slices_from(job.next_slot) {
            let (slots, _) = slots
                .split_at_checked(turn - looked_at)
                .unwrap_or((slots, &[]));
            let push = |&slot: &u32| Push {
                slot,
                number: job.number,
                time_us,
            };
            self.tally.pushes += rings.push_each(&lane.rings, slots, push, &lane.records);
            looked_at += slots.len();
            last = slots.last().copied().or(last);
            if looked_at == turn {
                return (looked_at, last.and_then(|slot| slot.checked_add(1)));
            }
        }
        (looked_at, None)
    }

    /// Enters waiting readers into the lists of their keys.
    pub(crate) fn step_joining(&mut self, work: usize) -> usize {
        let mut left = work;
        let feed = Arc::clone(&self.feed);
        while left > 0
            && let Some(Joining { slot, next_key }) = self.joining.pop_front()
        {
            let guard = Guard::new();
            let Some(reader) = feed.readers.get(slot, &guard) else {
                continue;
            };
            let keys = reader.follows.members().from(next_key);
            let keys: Vec<u32> = keys.take(SLICE).collect();
            self.audience.warm(&keys);
            for &key in &keys {
                self.audience.join(key, slot);
            }
            left = left.saturating_sub(keys.len().max(1));
            match keys.last().and_then(|last| last.checked_add(1)) {
                Some(next_key) if keys.len() == SLICE => {
                    self.joining.push_back(Joining { slot, next_key });
                }
                _ => {
                    self.build_rings(slot, &guard);
                    left = left.saturating_sub(512);
                }
            }
        }
        left
    }

    /// Takes hibernating readers out of the lists of their keys.
    pub(crate) fn step_leaving(&mut self, work: usize) -> usize {
        let mut left = work;
        while left > 0
            && let Some(leaving) = self.leaving.pop_front()
        {
            let Leaving {
                slot,
                follows,
                next_key,
            } = leaving;
            let guard = Guard::new();
            let keys: Vec<u32> = follows.members().from(next_key).take(SLICE).collect();
            self.audience.warm(&keys);
            for &key in &keys {
                self.leave_key(key, slot, &guard);
            }
            left = left.saturating_sub(keys.len().max(1));
            match keys.last().and_then(|last| last.checked_add(1)) {
                Some(next_key) if keys.len() == SLICE => self.leaving.push_back(Leaving {
                    slot,
                    follows,
                    next_key,
                }),
                _ => self.readers.free(slot),
            }
        }
        left
    }
}
