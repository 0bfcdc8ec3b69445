//! What a reply changes.
//!
//! In:    the reply to the request under way.
//! Out:   the store and the state of the replication, moved on.
//! Never: a reply to another request taken for this one's; a page applied that
//!        the question could not have.

use super::{Doing, Pull, Sync, may_push};
use crate::block::BlockKey;
use crate::conflict::CURABLE;
use crate::cursor::Epoch;
use crate::message::{Answer, Appended, BadBlock, Blocks, Fault, Feeds, RefusedBlock, Reply};
use crate::replica::{Pulled, Target, Upstream};
use crate::signature::verify;
use crate::store::{ReplicaStore, StoreError};

impl Sync {
    pub(super) fn take_reply(
        &mut self,
        store: &dyn ReplicaStore,
        now_ms: u64,
        reply: &Reply,
    ) -> Result<(), StoreError> {
        let expected = self.waiting.as_ref().map(|waiting| &waiting.id);
        if expected.is_none() || expected != reply.id.as_ref() {
            return Ok(());
        }
        let Some(waiting) = self.waiting.clone() else {
            return Ok(());
        };
        let upstream = store.upstream(&self.space)?;
        match (waiting.doing, &reply.outcome) {
            (Doing::Push(keys), Ok(Answer::Appended(answer))) => {
                self.take_positions(store, now_ms, upstream, keys, answer)?;
            }
            (Doing::Push(_), Err(Fault::Refused(blocks))) => {
                self.take_refusals(store, now_ms, blocks)?
            }
            (Doing::Push(keys), Err(Fault::TooLarge { limit, .. })) => {
                self.take_less(store, &keys, limit)?;
            }
            (Doing::Push(keys), Err(Fault::BadBlocks(blocks))) => {
                self.take_bad(store, &keys, blocks)?;
            }
            (Doing::Push(keys), Err(Fault::BadRequest { .. })) => {
                self.take_less(store, &keys, "badRequest")?;
            }
            (Doing::Newest(feed), Ok(Answer::Feeds(answer))) => {
                self.take_newest(store, &feed, answer)?;
            }
            (Doing::Pull(pull), Ok(Answer::Blocks(answer))) => {
                self.take_page(store, now_ms, upstream, &pull, answer)?;
            }
            (_, Err(Fault::Replaced { epoch, .. } | Fault::RolledBack { epoch, .. })) => {
                self.heal(store, now_ms, *epoch)?;
            }
            (Doing::Pull(pull), Err(beyond @ Fault::BeyondEnd { .. })) => {
                self.take_end(store, now_ms, upstream, pull, beyond)?;
            }
            (_, Err(Fault::BadCursor)) => {
                self.heal(store, now_ms, upstream.epoch.unwrap_or(Epoch([0; 16])))?;
            }
            (_, Err(Fault::RateLimited { retry_after_ms })) => {
                self.fail(now_ms);
                self.resume_ms = self.resume_ms.max(now_ms + retry_after_ms);
            }
            (Doing::Push(_), Err(fault)) if is_refusal(fault) => {
                self.pause_pushes(now_ms, fault.class());
            }
            (_, Err(fault)) if is_refusal(fault) => {
                self.fail(now_ms);
                self.report.refusals += 1;
                self.pull_refused = Some(fault.class());
            }
            _ => self.fail(now_ms),
        }
        self.waiting = None;
        Ok(())
    }

    /// The authority ends below the position that was asked for.
    fn take_end(
        &mut self,
        store: &dyn ReplicaStore,
        now_ms: u64,
        upstream: Upstream,
        pull: Pull,
        beyond: &Fault,
    ) -> Result<(), StoreError> {
        let Fault::BeyondEnd {
            epoch,
            position_max,
        } = beyond
        else {
            return Ok(());
        };
        let rolled_back = !upstream.healing && *position_max < pull.held_max;
        match rolled_back {
            true => self.heal(store, now_ms, *epoch)?,
            // It starts at that end: some that were not asked for come too.
            false => self.ahead = (pull.lanes, *position_max),
        }
        Ok(())
    }

    fn take_positions(
        &mut self,
        store: &dyn ReplicaStore,
        now_ms: u64,
        upstream: Upstream,
        keys: Vec<BlockKey>,
        answer: &Appended,
    ) -> Result<(), StoreError> {
        if upstream.epoch != Some(answer.epoch) {
            return self.heal(store, now_ms, answer.epoch);
        }
        if !may_push(upstream, &store.lanes(&self.space)?) {
            // A lane was set meanwhile: the blocks wait until it has pulled.
            return Ok(());
        }
        if answer.positions.len() != keys.len() {
            self.fail(now_ms);
            return Ok(());
        }
        let positions: Vec<(BlockKey, u64)> = keys
            .into_iter()
            .zip(answer.positions.iter().copied())
            .collect();
        let taken = store.acknowledge(&self.space, &positions, now_ms)?;
        self.report.pushed += taken.placed;
        self.push_pause = None;
        // What the authority takes at once depends on how large the blocks are.
        self.push_blocks = (self.push_blocks * 2).min(self.settings.push_max.blocks);
        if taken.placed > 0 {
            self.failures = 0;
        }
        self.report.unplaced += taken.unplaced;
        self.open_round(now_ms);
        Ok(())
    }

    fn take_refusals(
        &mut self,
        store: &dyn ReplicaStore,
        now_ms: u64,
        blocks: &[RefusedBlock],
    ) -> Result<(), StoreError> {
        let lasting = blocks
            .iter()
            .filter(|block| !["spaceFull", "spaceBytes"].contains(&block.code.as_str()));
        let aside: Vec<(BlockKey, &str)> = lasting
            .map(|block| (block.key.clone(), block.code.as_str()))
            .collect();
        if aside.is_empty() {
            let is_space_full = blocks.iter().any(|block| block.code == "spaceFull");
            let code = if is_space_full {
                "spaceFull"
            } else {
                "spaceBytes"
            };
            self.pause_pushes(now_ms, code);
            return Ok(());
        }
        self.put_aside(store, &aside)
    }

    /// Set aside blocks that are refused for good; what another sequence cures is written again.
    fn put_aside(
        &mut self,
        store: &dyn ReplicaStore,
        aside: &[(BlockKey, &str)],
    ) -> Result<(), StoreError> {
        store.set_aside(&self.space, aside)?;
        let (curable, refused): (Vec<_>, Vec<_>) =
            aside.iter().partition(|(_, code)| CURABLE.contains(code));
        self.reissue_wanted |= !curable.is_empty();
        self.report.set_aside += refused.len() as u64;
        Ok(())
    }

    /// Write the blocks of a feed again that lost their key, behind its newest block there.
    fn take_newest(
        &mut self,
        store: &dyn ReplicaStore,
        feed: &str,
        answer: &Feeds,
    ) -> Result<(), StoreError> {
        let mut found = answer.feeds.iter().filter(|found| found.feed == feed);
        let newest = found.next().and_then(|found| found.tip.as_ref());
        let again = store.reissue(&self.space, feed, newest)?;
        self.report.reissued += again;
        self.push_wanted = true;
        Ok(())
    }

    /// Malformed blocks are set aside. Where nobody says which those are, halving finds them.
    fn take_bad(
        &mut self,
        store: &dyn ReplicaStore,
        keys: &[BlockKey],
        blocks: &[BadBlock],
    ) -> Result<(), StoreError> {
        let bad = blocks.iter().filter_map(|bad| keys.get(bad.index));
        let bad: Vec<(BlockKey, &str)> = bad.map(|key| (key.clone(), "badRequest")).collect();
        match bad.is_empty() {
            true => self.take_less(store, keys, "badRequest"),
            false => self.put_aside(store, &bad),
        }
    }

    /// A push that is larger than the authority takes is tried again with half of its blocks. One that is
    /// refused alone is set aside, so that it does not hold up the others.
    fn take_less(
        &mut self,
        store: &dyn ReplicaStore,
        keys: &[BlockKey],
        limit: &str,
    ) -> Result<(), StoreError> {
        self.push_wanted = true;
        if let [key] = keys {
            store.set_aside(&self.space, &[(key.clone(), limit)])?;
            self.report.set_aside += 1;
            self.push_blocks = self.settings.push_max.blocks;
        } else {
            self.push_blocks = (keys.len() / 2).max(1);
        }
        Ok(())
    }

    fn take_page(
        &mut self,
        store: &dyn ReplicaStore,
        now_ms: u64,
        upstream: Upstream,
        pull: &Pull,
        answer: &Blocks,
    ) -> Result<(), StoreError> {
        let replaced = upstream.epoch.is_some_and(|epoch| epoch != answer.epoch);
        let rolled_back = !upstream.healing && answer.position_max < pull.held_max;
        if replaced || rolled_back {
            return self.heal(store, now_ms, answer.epoch);
        }
        if !is_sound(pull, answer) {
            self.fail(now_ms);
            return Ok(());
        }
        let wanted = |feed: &str| match pull.lanes.first().map(|lane| &lane.target) {
            Some(Target::Space) => !pull.apart.iter().any(|apart| apart == feed),
            _ => true,
        };
        let blocks: Vec<_> = answer
            .blocks
            .iter()
            .filter(|held| wanted(&held.block.feed))
            .cloned()
            .collect();
        let nothing_came = (answer.covered == answer.after).then_some(&answer.next_cursor);
        let start = answer.start_cursor.as_ref().or(nothing_came);
        let pulled = Pulled {
            start: start.map(String::as_str),
            lanes: &pull.lanes,
            apart: &pull.apart,
            after: answer.after,
            covered: answer.covered,
            cursor: &answer.next_cursor,
            epoch: answer.epoch,
            blocks: &blocks,
            evicted: &answer.evicted,
            forgotten: answer.forgotten,
        };
        let adopted = store.adopt(&self.space, &pulled, now_ms)?;
        self.pull_refused = None;
        self.report.pulled += adopted.added;
        if adopted.added > 0 && !upstream.healing {
            self.failures = 0;
        }
        self.report.conflicts += adopted.conflicts;
        self.report.reissued += adopted.reissued;
        self.report.unplaced += adopted.unplaced;
        self.push_wanted |= adopted.unplaced > 0 || adopted.reissued > 0;
        if !answer.has_more {
            // A lane that was set anew meanwhile has its walk before it.
            let now = store.lanes(&self.space)?;
            let came = now.into_iter().filter(|lane| {
                let asked = pull.lanes.iter().any(|one| one.target == lane.target);
                asked && lane.cursor.as_deref() == Some(&answer.next_cursor)
            });
            for lane in came {
                self.done.insert(lane.target);
                self.covered_min = self.covered_min.min(answer.covered);
            }
        }
        Ok(())
    }

    fn heal(
        &mut self,
        store: &dyn ReplicaStore,
        now_ms: u64,
        epoch: Epoch,
    ) -> Result<(), StoreError> {
        store.begin_healing(&self.space, epoch)?;
        self.report.healed += 1;
        self.open_round(now_ms);
        // Two servers behind one address would make us heal for ever.
        let pause = self
            .settings
            .pause_ms_min
            .saturating_mul((1 << self.failures.min(20)) - 1);
        self.failures = self.failures.saturating_add(1);
        self.resume_ms = now_ms + pause.min(self.settings.pause_ms_max);
        Ok(())
    }
}

/// Whether a fault lasts until somebody does something about it.
fn is_refusal(fault: &Fault) -> bool {
    !matches!(fault, Fault::Unavailable | Fault::RateLimited { .. })
}

/// Whether a page is one the question could have: in order, within its own
/// range, of the feeds asked for, every signature right.
fn is_sound(pull: &Pull, answer: &Blocks) -> bool {
    let mut below = answer.after;
    let mut ordered = true;
    for held in &answer.blocks {
        let position = held.position.unwrap_or(0);
        ordered &= position > below && position <= answer.covered;
        below = position;
    }
    let asked = |feed: &str| {
        pull.lanes.iter().any(|lane| match &lane.target {
            Target::Space => true,
            Target::Feed(one) => one == feed,
        })
    };
    let mut blocks = answer.blocks.iter();
    ordered
        && answer.covered >= answer.after
        && pull.after.is_none_or(|after| after == answer.after)
        && blocks.all(|held| asked(&held.block.feed) && verify(&held.block, &held.hash).is_ok())
}
