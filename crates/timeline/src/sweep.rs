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

use crate::feed::{Feed, Leaving};
use crate::readers::Stage;
use crate::ring::Push;
use crate::rings::Pushed;

/// Pushes of one background fan-out before the next has its turn.
const TURN: usize = 2_048;
/// A window may hold one gone record beside this many.
const REMOVED_SHARE: usize = 8;
/// Keys of a reader joined or left in one turn.
const SLICE: usize = 512;

/// A turn of a fan-out that was made while others read.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    pushed: Pushed,
    put_off: Vec<Push>,
    looked_at: usize,
    /// Where the fan-out goes on; `None` if it is done.
    next_slot: Option<u32>,
}

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

    /// Enters readers, lets others go and sweeps, a share of work each; what is left of the last.
    pub(crate) fn tend(&mut self, feed: &mut Feed, due: Due, now_us: i64, share: usize) -> usize {
        let mut left = feed.step_joining(share);
        left = feed.step_leaving(left + share);
        self.step(feed, due, now_us, left + share)
    }

    /// Does at most about `work` units; what is left of them.
    fn step(&mut self, feed: &mut Feed, due: Due, now_us: i64, work: usize) -> usize {
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
        while !pass.rings_done && left > 0 {
            if pass.next_slot >= feed.readers.slots_end() {
                pass.rings_done = true;
                // No ring holds a doomed number now; fan-outs must not either.
                feed.drop_gone_jobs();
                break;
            }
            let is_clean = pass.doomed.iter().all(Vec::is_empty);
            let work = feed.sweep_slot(pass.next_slot, is_clean, due.ttl_us, now_us);
            left = left.saturating_sub(work);
            pass.next_slot += 1;
        }
        if pass.rings_done {
            left = feed.bury(&mut pass.doomed, left);
            if pass.doomed.iter().all(Vec::is_empty) {
                self.pass = None;
                feed.tally.sweeps += 1;
                feed.settle_audience();
            }
        }
        left
    }

    fn is_due(&self, feed: &Feed, due: Due, now_us: i64) -> bool {
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

impl Feed {
    /// Looks after one reader; the work it took. Where nothing is doomed
    /// (`is_clean`) no ring needs to be searched.
    fn sweep_slot(&mut self, slot: u32, is_clean: bool, ttl_us: i64, now_us: i64) -> usize {
        let Some(reader) = self.readers.get(slot) else {
            return 1;
        };
        let (stage, unfollowed) = (reader.stage, reader.unfollowed);
        if self.readers.is_away(slot, now_us, ttl_us) {
            self.hibernate(slot);
            return 8;
        }
        if stage != Stage::Ready {
            return 1;
        }
        if unfollowed {
            self.build_rings(slot);
            return 512;
        }
        let mut work = 1;
        for lane in &mut self.lanes {
            if !is_clean {
                work += 1 + lane.rings.ring(slot).map_or(0, |ring| ring.len()) / 8;
                lane.rings.compact(slot, &lane.records);
            }
            lane.rings.sink(slot);
        }
        work
    }

    /// Frees the numbers of records that no list but outbox and window holds.
    fn bury(&mut self, doomed: &mut [Vec<u32>], work: usize) -> usize {
        let mut left = work;
        for (lane, doomed) in self.lanes.iter_mut().zip(doomed) {
            while left > 0
                && let Some(number) = doomed.pop()
            {
                lane.bury(number);
                left = left.saturating_sub(4);
            }
        }
        left
    }

    fn drop_gone_jobs(&mut self) {
        let mut ended = Vec::new();
        let lanes = &self.lanes;
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
        if let Some(floor_us) = self.lanes.iter().map(|lane| lane.floor_us).min() {
            self.audience.settle(floor_us);
        }
    }

    /// Carries the waiting fan-outs on, each in turn; what is left of `work`.
    pub(crate) fn step_jobs(&mut self, work: usize) -> usize {
        let mut left = work;
        while left > 0
            && let Some(mut carried) = self.carry(left.min(TURN))
        {
            left = left.saturating_sub(carried.looked_at.max(1));
            while !self.land(&mut carried, usize::MAX) {}
        }
        left
    }

    /// Carries on the fan-out whose turn it is by at most so many pushes, as far as lines take them
    /// by themselves; others may read meanwhile. `None` if no fan-out waits.
    ///
    /// [`Feed::land`] must follow until it says true, before anything else changes. Until the fan-out
    /// ends, its key is merged by every read; so a push more or less changes no page.
    pub(crate) fn carry(&self, turn: usize) -> Option<Carried> {
        let job = self.jobs.front()?;
        let mut carried = Carried::default();
        let lane = self.lanes.get(job.lane_at);
        let Some(lane) = lane.filter(|lane| !lane.records.is_gone(job.number)) else {
            return Some(carried);
        };
        let time_us = lane.records.time_us(job.number);
        let mut last = None;
        let followers = self.audience.followers(job.key);
        for slots in followers.slices_from(job.next_slot) {
            let (slots, _) = slots
                .split_at_checked(turn - carried.looked_at)
                .unwrap_or((slots, &[]));
            let pushed = &mut carried.pushed;
            let put_off = &mut carried.put_off;
            *pushed += lane.rings.push_ahead(slots, job.number, time_us, put_off);
            carried.looked_at += slots.len();
            last = slots.last().copied().or(last);
            if carried.looked_at == turn {
                carried.next_slot = last.and_then(|slot| slot.checked_add(1));
                break;
            }
        }
        Some(carried)
    }

    /// Makes some of the pushes that were put off. True once all are made; then the next fan-out has
    /// its turn.
    pub(crate) fn land(&mut self, carried: &mut Carried, work: usize) -> bool {
        let Some(job) = self.jobs.front() else {
            return true;
        };
        if let Some(lane) = self.lanes.get_mut(job.lane_at) {
            let rest = carried.put_off.len().saturating_sub(work);
            let some = carried.put_off.split_off(rest);
            let pushed = std::mem::take(&mut carried.pushed);
            self.tally.pushes += lane.rings.land(pushed, &some, &lane.records);
        }
        if !carried.put_off.is_empty() {
            return false;
        }
        if let Some(mut job) = self.jobs.pop_front() {
            match carried.next_slot {
                Some(next) => {
                    job.next_slot = next;
                    self.jobs.push_back(job);
                }
                None => self.audience.fanout_ends(job.key),
            }
        }
        true
    }

    /// Enters waiting readers into the lists of their keys.
    pub(crate) fn step_joining(&mut self, work: usize) -> usize {
        let mut left = work;
        while left > 0
            && let Some(slot) = self.joining.pop_front()
        {
            let Some(reader) = self.readers.get(slot) else {
                continue;
            };
            let Stage::Joining(next) = reader.stage else {
                continue;
            };
            let keys: Vec<u32> = reader.follows.members().from(next).take(SLICE).collect();
            self.audience.warm(&keys);
            for &key in &keys {
                self.audience.join(key, slot);
            }
            left = left.saturating_sub(keys.len().max(1));
            match keys.last().and_then(|last| last.checked_add(1)) {
                Some(next) if keys.len() == SLICE => {
                    if let Some(reader) = self.readers.get_mut(slot) {
                        reader.stage = Stage::Joining(next);
                    }
                    self.joining.push_back(slot);
                }
                _ => {
                    self.build_rings(slot);
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
            let keys: Vec<u32> = follows.members().from(next_key).take(SLICE).collect();
            self.audience.warm(&keys);
            for &key in &keys {
                self.leave_key(key, slot);
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
