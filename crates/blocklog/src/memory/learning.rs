//! What a replica in memory learns from its authority.
//!
//! In:    acknowledgements and pulled pages.
//! Out:   blocks at the positions the authority gave.
//! Never: a block dropped because the authority does not have it: it waits, and
//!        is pushed again.

use super::space::{Slot, Space};
use crate::block::{BlockKey, Head, Held};
use crate::chain::{Sealed, Tip};
use crate::conflict::{Aside, can_reissue, displaced, newer, reissue};
use crate::cursor::Epoch;
use crate::order::PendingKey;
use crate::page::{Gather, PageMax};
use crate::replica::{
    Acknowledged, Adopted, Lane, Mode, Pulled, Target, Upstream, advance, is_replicated, set_lane,
};
use std::collections::{BTreeMap, BTreeSet};

impl Space {
    pub(super) fn upstream(&self) -> Upstream {
        self.upstream
    }

    pub(super) fn lanes(&self) -> Vec<Lane> {
        self.lanes.values().cloned().collect()
    }

    pub(super) fn set_lane(&mut self, target: &Target, mode: Option<Mode>) {
        let held_from = |target: &Target| {
            let of_target = |key: &&BlockKey| match target {
                Target::Space => true,
                Target::Feed(feed) => key.feed == *feed,
            };
            let mut positions = self.positions.iter();
            let lowest = positions.find(|(_, key)| of_target(key));
            match self.upstream.healing {
                true => Some(1),
                false => lowest.map(|(position, _)| *position),
            }
        };
        set_lane(&mut self.lanes, target, mode, held_from);
        self.epoch = self.epoch.next();
    }

    pub(super) fn to_push(
        &self,
        only: Option<&[String]>,
        apart: &[String],
        max: PageMax,
    ) -> Vec<Held> {
        let mut gather = Gather::new(max);
        let waiting = self.pending.iter().filter(|key| match only {
            Some(only) => only.contains(&key.feed),
            None => !apart.contains(&key.feed),
        });
        for key in waiting {
            let Some(slot) = self.blocks.get(&key.key()) else {
                continue;
            };
            if slot.set_aside.is_none() && !gather.offer(slot.held.clone()) {
                break;
            }
        }
        gather.into_blocks()
    }

    pub(super) fn acknowledge(
        &mut self,
        positions: &[(BlockKey, u64)],
        now_ms: u64,
    ) -> Acknowledged {
        let mut report = Acknowledged::default();
        for (key, position) in positions {
            if self.blocks.contains_key(key) {
                report.unplaced += self.place(key, *position, now_ms);
                report.placed += 1;
            }
        }
        report
    }

    pub(super) fn set_aside(&mut self, blocks: &[(BlockKey, &str)]) {
        for (key, reason) in blocks {
            if let Some(slot) = self.blocks.get_mut(key) {
                slot.set_aside = Some((*reason).to_owned());
            }
        }
    }

    /// Put a held block at `position`; returns 1 if another had to leave it.
    fn place(&mut self, key: &BlockKey, position: u64, now_ms: u64) -> u64 {
        let holder = self
            .positions
            .get(&position)
            .filter(|holder| *holder != key)
            .cloned();
        if let Some(holder) = &holder {
            self.unplace(holder);
        }
        self.pending.remove(&PendingKey::from(key));
        self.note_position(&key.feed, position);
        if let Some(slot) = self.blocks.get_mut(key) {
            if let Some(former) = slot.held.position.replace(position) {
                self.positions.remove(&former);
            }
            slot.placed_ms = now_ms;
            slot.set_aside = None;
            self.positions.insert(position, key.clone());
        }
        u64::from(holder.is_some())
    }

    /// Take a block's position away: it waits again.
    fn unplace(&mut self, key: &BlockKey) {
        if let Some(slot) = self.blocks.get_mut(key)
            && let Some(position) = slot.held.position.take()
        {
            self.positions.remove(&position);
            self.pending.insert(PendingKey::from(key));
        }
    }

    pub(super) fn adopt(&mut self, pulled: &Pulled<'_>, now_ms: u64) -> Adopted {
        let mut report = Adopted::default();
        let present: BTreeSet<BlockKey> =
            pulled.blocks.iter().map(|held| held.block.key()).collect();
        for key in self.missing_from(pulled, &present) {
            self.unplace(&key);
            report.unplaced += 1;
        }
        let mut lost = BTreeMap::new();
        for held in pulled.blocks {
            self.adopt_one(held, now_ms, &mut report, &mut lost);
        }
        for (feed, lost) in lost {
            let (again, kept) = self.reissue(&feed, lost, None);
            report.reissued += again;
            report.conflicts += kept;
        }
        advance(&mut self.lanes, pulled);
        self.upstream.epoch = Some(pulled.epoch);
        report
    }

    /// Blocks we hold at positions the page answers for, but which it lacks.
    fn missing_from(&self, pulled: &Pulled<'_>, present: &BTreeSet<BlockKey>) -> Vec<BlockKey> {
        if pulled.after >= pulled.covered {
            return Vec::new();
        }
        self.positions
            .range(pulled.after + 1..=pulled.covered)
            .filter(|(position, key)| {
                !present.contains(key) && pulled.answers_for(&key.feed, **position)
            })
            .map(|(_, key)| key.clone())
            .collect()
    }

    /// `lost` gathers by feed the blocks that lost their key to a block of the page.
    fn adopt_one(
        &mut self,
        theirs: &Held,
        now_ms: u64,
        report: &mut Adopted,
        lost: &mut BTreeMap<String, Vec<Held>>,
    ) {
        let Some(position) = theirs.position else {
            return;
        };
        let key = theirs.block.key();
        let slot = self.blocks.get(&key);
        let is_local = slot.is_some_and(|slot| slot.is_local);
        match slot.map(|slot| slot.held.clone()) {
            Some(ours) if ours.hash == theirs.hash => {
                match ours.position {
                    Some(held) if held == position => {}
                    Some(_) => report.moved += 1,
                    None => report.placed += 1,
                }
                if theirs.block.payload.size() == 0 && ours.block.payload.size() > 0 {
                    self.purge(&key);
                }
            }
            Some(ours) => {
                self.remove(&key);
                if is_local && can_reissue(&ours.block) {
                    lost.entry(key.feed.clone()).or_default().push(ours);
                } else {
                    report.conflicts += 1;
                    self.conflicts.push(ours);
                }
                self.hold(theirs);
            }
            None => {
                report.added += 1;
                self.hold(theirs);
            }
        }
        if self.held(&key).and_then(|held| held.position) != Some(position) {
            report.unplaced += self.place(&key, position, now_ms);
        }
    }

    /// Take in a block of the authority, not yet at its position.
    fn hold(&mut self, theirs: &Held) {
        let sealed = Sealed {
            block: theirs.block.clone(),
            hash: theirs.hash,
        };
        self.grow_feed(theirs.namespace.as_deref(), &sealed);
        let held = Held {
            position: None,
            namespace: self.namespace_of(&theirs.block.feed),
            ..theirs.clone()
        };
        let slot = Slot {
            held,
            placed_ms: 0,
            head: Head::default(),
            set_aside: None,
            is_local: false,
        };
        self.blocks.insert(theirs.block.key(), slot);
        // Another block may have been the newest under the same key.
        if let Some(tip) = self
            .feeds
            .get_mut(&theirs.block.feed)
            .and_then(|feed| feed.tip.as_mut())
            && (tip.sequence, &tip.actor) == (theirs.block.sequence, &theirs.block.actor)
        {
            tip.hash = theirs.hash;
        }
    }

    /// Take a block out, whether it has a position or waits.
    fn remove(&mut self, key: &BlockKey) {
        self.unplace(key);
        self.pending.remove(&PendingKey::from(key));
        self.blocks.remove(key);
    }

    pub(super) fn lost_feed(&self) -> Option<String> {
        let mut waiting = self.pending.iter();
        let lost = waiting.find(|key| self.blocks.get(&key.key()).is_some_and(Slot::is_lost));
        lost.map(|key| key.feed.clone())
    }

    pub(super) fn reissue_refused(&mut self, feed: &str, newest: Option<&Tip>) -> u64 {
        let of_feed = self.pending.iter().filter(|key| key.feed == feed);
        let slots = of_feed.filter_map(|key| self.blocks.get(&key.key()));
        let lost = slots.filter(|slot| slot.is_lost());
        let lost: Vec<Held> = lost.map(|slot| slot.held.clone()).collect();
        self.reissue(feed, lost, newest).0
    }

    /// Write these blocks of a feed again, and what follows them. Returns how many were, and how
    /// many were kept as conflicts because the feed has used up its sequences.
    fn reissue(&mut self, feed: &str, lost: Vec<Held>, newest: Option<&Tip>) -> (u64, u64) {
        let of_feed = self.pending.iter().filter(|key| key.feed == feed);
        let slots = of_feed.filter_map(|key| self.blocks.get(&key.key()));
        let waiting = slots.filter(|slot| slot.is_local && can_reissue(&slot.held.block));
        let waiting = waiting.map(|slot| slot.held.clone()).collect();
        let moved = displaced(lost, waiting);
        let known = self.feeds.get(feed).and_then(|feed| feed.tip.clone());
        let used = known.map_or(0, |tip| tip.sequence);
        for held in &moved {
            let key = held.block.key();
            // A block of the page may be under that key by now.
            if self.held(&key).is_some_and(|now| now.hash == held.hash) {
                self.remove(&key);
            }
        }
        let of_feed = self.blocks.values().map(|slot| &slot.held);
        let of_feed = of_feed.filter(|held| held.block.feed == feed);
        let last = of_feed.max_by_key(|held| (held.block.sequence, held.block.actor.clone()));
        let last = last.map(|held| Tip {
            sequence: held.block.sequence,
            actor: held.block.actor.clone(),
            hash: held.hash,
        });
        let newest = newer(last, newest.cloned());
        let Some(again) = reissue(&self.id, &moved, used, newest) else {
            let kept = moved.len() as u64;
            self.conflicts.extend(moved);
            return (0, kept);
        };
        let count = again.len() as u64;
        for sealed in again {
            self.insert(None, sealed, 0);
        }
        (count, 0)
    }

    pub(super) fn conflicts(&self, max: usize) -> Vec<Aside> {
        let lost = self.conflicts.iter().take(max).map(|held| Aside {
            held: held.clone(),
            reason: "conflict".to_owned(),
        });
        let waiting = self.pending.iter();
        let slots = waiting.filter_map(|key| self.blocks.get(&key.key()));
        let refused = slots.filter_map(|slot| {
            Some(Aside {
                reason: slot.set_aside.clone()?,
                held: slot.held.clone(),
            })
        });
        lost.chain(refused.take(max)).collect()
    }

    pub(super) fn begin_healing(&mut self, epoch: Epoch) {
        self.upstream = Upstream {
            epoch: Some(epoch),
            healing: true,
        };
        self.lanes.values_mut().for_each(Lane::start_over);
        self.epoch = self.epoch.next();
    }

    pub(super) fn end_healing(&mut self, position_max: u64) -> u64 {
        let suspect = |(position, key): &(&u64, &BlockKey)| {
            **position > position_max || !is_replicated(&self.lanes, &key.feed)
        };
        let placed = self.positions.iter().filter(suspect);
        let placed: Vec<BlockKey> = placed.map(|(_, key)| key.clone()).collect();
        placed.iter().for_each(|key| self.unplace(key));
        self.upstream.healing = false;
        self.epoch = self.epoch.next();
        placed.len() as u64
    }
}
