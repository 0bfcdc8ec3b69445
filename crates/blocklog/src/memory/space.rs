//! One space in memory: its blocks, their order, its feeds and subscriptions.
//!
//! In:    the calls of [`LogStore`](crate::store::LogStore), one at a time.
//! Out:   answers in read order.
//! Never: two blocks at one position; a counter that goes back.

use crate::block::{BlockKey, Hash, Head, Held};
use crate::chain::{
    Draft, Known, Refusal, Refused, Sealed, Tip, Verdict, exhausted, judge, next, not_replicated,
};
use crate::conflict::{CURABLE, can_reissue};
use crate::cursor::Epoch;
use crate::limits::BLOCK_BYTES;
use crate::limits::{INTEGER_MAX, Limits};
use crate::order::PendingKey;
use crate::page::{Gather, Page, PageMax, PendingStart, Selection, Start};
use crate::replica::{Lane, Target, Upstream, may_write, pulled_through};
use crate::signature::Author;
use crate::store::{
    AppendError, Crowded, EVICTED_REMEMBERED_MAX, FeedName, FeedState, Keep, Role, SpaceState,
    Subscription, SubscriptionsMax,
};
use std::collections::{BTreeMap, BTreeSet};

/// A block and what only this store knows of it.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub(super) held: Held,
    /// When it got its position here.
    pub(super) placed_ms: u64,
    /// The head at its position; only an authority knows it.
    pub(super) head: Head,
    /// Why the authority will not take it.
    pub(super) set_aside: Option<String>,
    /// Whether it was written here, or pulled.
    pub(super) is_local: bool,
}

impl Slot {
    /// Whether it was refused for a reason that another sequence cures.
    pub(super) fn is_lost(&self) -> bool {
        let reason = self.set_aside.as_deref();
        let is_curable = reason.is_some_and(|reason| CURABLE.contains(&reason));
        is_curable && self.is_local && can_reissue(&self.held.block)
    }
}

/// What a batch would add, while it is judged.
#[derive(Debug, Default)]
struct Batch {
    hashes: BTreeMap<BlockKey, Hash>,
    /// The feeds they are of.
    feeds: BTreeSet<String>,
    /// What its new blocks count.
    bytes: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Space {
    pub(super) id: String,
    role: Role,
    pub(super) epoch: Epoch,
    position_max: u64,
    head: Head,
    placed_ms: u64,
    pub(super) feeds: BTreeMap<String, FeedState>,
    pub(super) blocks: BTreeMap<BlockKey, Slot>,
    pub(super) positions: BTreeMap<u64, BlockKey>,
    pub(super) pending: BTreeSet<PendingKey>,
    /// The head and the hash at evicted positions.
    evicted: BTreeMap<u64, (Head, BlockKey, Hash)>,
    /// Up to here they were let go.
    forgotten: u64,
    subscriptions: BTreeMap<String, Subscription>,
    pub(super) upstream: Upstream,
    pub(super) lanes: BTreeMap<Target, Lane>,
    pub(super) conflicts: Vec<Held>,
}

impl Space {
    pub(super) fn new(id: &str, role: Role, epoch: Epoch) -> Self {
        Self {
            id: id.to_owned(),
            role,
            epoch,
            position_max: 0,
            head: Head::default(),
            placed_ms: 0,
            feeds: BTreeMap::new(),
            blocks: BTreeMap::new(),
            positions: BTreeMap::new(),
            pending: BTreeSet::new(),
            evicted: BTreeMap::new(),
            forgotten: 0,
            subscriptions: BTreeMap::new(),
            upstream: Upstream::default(),
            lanes: BTreeMap::new(),
            conflicts: Vec::new(),
        }
    }

    pub(super) fn state(&self) -> SpaceState {
        SpaceState {
            role: self.role,
            epoch: self.epoch,
            position_max: match self.role {
                Role::Authority => self.position_max,
                Role::Replica => self.positions.keys().next_back().copied().unwrap_or(0),
            },
            head: self.head,
            upstream: self.upstream.epoch.filter(|_| !self.upstream.healing),
        }
    }

    pub(super) fn append(
        &mut self,
        namespace: Option<&str>,
        blocks: &[Sealed],
        now_ms: u64,
        limits: &Limits,
    ) -> Result<Vec<Option<u64>>, AppendError> {
        let mut batch = Batch::default();
        let mut refused = Vec::new();
        for (index, sealed) in blocks.iter().enumerate() {
            if let Err(refusal) = self.judge(namespace, sealed, limits, &mut batch) {
                refused.push(Refused {
                    index,
                    key: sealed.block.key(),
                    refusal,
                });
            }
        }
        if !refused.is_empty() {
            return Err(AppendError::Refused(refused));
        }
        let place = |sealed: &Sealed| match self.held(&sealed.block.key()) {
            Some(held) => held.position,
            None => match self.evicted_under(sealed) {
                Some((_, position)) => Some(position),
                None => self.insert(namespace, sealed.clone(), now_ms).position,
            },
        };
        Ok(blocks.iter().map(place).collect())
    }

    /// Whether a block may join, after those of its batch that came before it.
    fn judge(
        &self,
        namespace: Option<&str>,
        sealed: &Sealed,
        limits: &Limits,
        batch: &mut Batch,
    ) -> Result<Verdict, Refusal> {
        let block = &sealed.block;
        if self.role == Role::Replica && !may_write(&self.lanes, &block.feed) {
            return Err(Refusal::NotReplicated);
        }
        self.room_for(&block.feed, namespace, batch, limits)?;
        let predecessor = block.predecessor.as_ref().map(|claim| BlockKey {
            feed: block.feed.clone(),
            sequence: claim.sequence,
            actor: claim.actor.clone(),
        });
        let hash_of = |key: &BlockKey| {
            let held = self.blocks.get(key).map(|slot| slot.held.hash);
            held.or_else(|| batch.hashes.get(key).copied())
        };
        let gone = || self.evicted_under(sealed).map(|(hash, _)| hash);
        let known = Known {
            same_key: hash_of(&block.key()).or_else(gone),
            predecessor: predecessor.as_ref().and_then(hash_of),
        };
        let verdict = judge(sealed, &known)?;
        if verdict == Verdict::New {
            let bytes = BLOCK_BYTES + block.payload.size() as u64;
            if self.bytes() + batch.bytes + bytes > limits.space_bytes_max {
                let max = limits.space_bytes_max;
                return Err(Refusal::SpaceBytes { max });
            }
            batch.bytes += bytes;
        }
        batch.hashes.insert(block.key(), sealed.hash);
        batch.feeds.insert(block.feed.clone());
        Ok(verdict)
    }

    /// What its blocks count towards `space_bytes_max`.
    fn bytes(&self) -> u64 {
        let sizes = self.blocks.values();
        sizes
            .map(|slot| BLOCK_BYTES + slot.held.block.payload.size() as u64)
            .sum()
    }

    fn room_for(
        &self,
        feed: &str,
        namespace: Option<&str>,
        batch: &Batch,
        limits: &Limits,
    ) -> Result<(), Refusal> {
        match self.feeds.get(feed) {
            Some(held) if namespace.is_some() && held.namespace.as_deref() != namespace => {
                Err(Refusal::Namespace)
            }
            Some(_) => Ok(()),
            None if batch.feeds.contains(feed) => Ok(()),
            None => {
                let is_new = |feed: &&String| !self.feeds.contains_key(*feed);
                let coming = batch.feeds.iter().filter(is_new).count();
                if (self.feeds.len() + coming) as u64 >= limits.space_feeds_max {
                    return Err(Refusal::SpaceFull);
                }
                Ok(())
            }
        }
    }

    pub(super) fn write(
        &mut self,
        name: &FeedName<'_>,
        author: &Author,
        drafts: &[Draft],
        now_ms: u64,
    ) -> Result<Vec<Held>, AppendError> {
        if self.role == Role::Replica && !may_write(&self.lanes, name.feed) {
            return Err(AppendError::Refused(not_replicated(name.feed, author)));
        }
        let mut written = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let tip = self.feeds.get(name.feed).and_then(|feed| feed.tip.as_ref());
            let sealed = next(&self.id, name.feed, tip, author, draft)
                .ok_or_else(|| AppendError::Refused(exhausted(name.feed, author)))?;
            written.push(self.insert(name.namespace, sealed, now_ms));
        }
        Ok(written)
    }

    /// Add a block that is not held, with a position if we give them.
    pub(super) fn insert(&mut self, namespace: Option<&str>, sealed: Sealed, now_ms: u64) -> Held {
        self.grow_feed(namespace, &sealed);
        let namespace = self.namespace_of(&sealed.block.feed);
        let mut held = Held {
            block: sealed.block,
            hash: sealed.hash,
            position: None,
            namespace,
        };
        let key = held.block.key();
        if self.role == Role::Authority {
            self.position_max += 1;
            assert!(self.position_max <= INTEGER_MAX, "positions are used up");
            self.placed_ms = self.placed_ms.max(now_ms);
            self.head = self.head.then(&held.hash);
            held.position = Some(self.position_max);
            self.note_position(&key.feed, self.position_max);
            self.positions.insert(self.position_max, key.clone());
        } else {
            self.pending.insert(PendingKey::from(&key));
        }
        let slot = Slot {
            held: held.clone(),
            placed_ms: self.placed_ms,
            head: self.head,
            set_aside: None,
            is_local: true,
        };
        self.blocks.insert(key, slot);
        held
    }

    /// Make the feed known and move its tip.
    pub(super) fn grow_feed(&mut self, namespace: Option<&str>, sealed: &Sealed) {
        let feed = self
            .feeds
            .entry(sealed.block.feed.clone())
            .or_insert_with(|| FeedState {
                feed: sealed.block.feed.clone(),
                namespace: namespace.map(str::to_owned),
                tip: None,
                position_max: 0,
                evicted_through: 0,
            });
        feed.tip = Some(Tip::after(feed.tip.take(), sealed));
    }

    pub(super) fn note_position(&mut self, feed: &str, position: u64) {
        if let Some(feed) = self.feeds.get_mut(feed) {
            feed.position_max = feed.position_max.max(position);
        }
    }

    pub(super) fn namespace_of(&self, feed: &str) -> Option<String> {
        self.feeds.get(feed).and_then(|feed| feed.namespace.clone())
    }

    fn selects(&self, selection: &Selection, feed: &str) -> bool {
        match selection {
            Selection::Space => true,
            Selection::Namespace(namespace) => {
                self.namespace_of(feed).as_deref() == Some(namespace)
            }
            Selection::Feeds(feeds) => feeds.iter().any(|one| one == feed),
        }
    }

    /// Up to where nothing of the selection can still appear.
    fn settled(&self, selection: &Selection) -> u64 {
        if self.role == Role::Authority {
            return self.position_max;
        }
        let pulled = pulled_through(&self.lanes, selection);
        pulled.unwrap_or_else(|| self.state().position_max)
    }

    pub(super) fn page(&self, selection: &Selection, start: &Start, max: PageMax) -> Page {
        let settled = self.settled(selection);
        let mut gather = Gather::new(max);
        if start.after < settled {
            self.gather_positions(selection, (start.after, settled), &mut gather);
        }
        if start.pending != PendingStart::Excluded && !gather.is_full() {
            self.gather_provisional(
                selection,
                settled.max(start.after),
                &start.pending,
                &mut gather,
            );
        }
        let (blocks, has_more, next) = gather.finish(start, settled);
        let head = if next.after == self.position_max {
            Some(self.head)
        } else {
            self.head_at(next.after)
        };
        Page {
            blocks,
            has_more,
            head: head.unwrap_or_default(),
            next,
            epoch: self.epoch,
            position_max: settled,
            evicted: self.evicted_from(selection, start.after),
            forgotten: self.forgotten,
        }
    }

    fn gather_positions(
        &self,
        selection: &Selection,
        (after, through): (u64, u64),
        gather: &mut Gather,
    ) {
        for key in self
            .positions
            .range(after + 1..=through)
            .map(|(_, key)| key)
        {
            if !self.selects(selection, &key.feed) {
                continue;
            }
            if let Some(held) = self.held(key)
                && !gather.offer(held)
            {
                return;
            }
        }
    }

    fn gather_provisional(
        &self,
        selection: &Selection,
        settled: u64,
        from: &PendingStart,
        gather: &mut Gather,
    ) {
        let (ahead, behind) = match from {
            PendingStart::Excluded | PendingStart::All => (Some(settled), None),
            PendingStart::Ahead(position) => (Some(settled.max(*position)), None),
            PendingStart::After(key) => (None, Some(key)),
        };
        if let Some(after) = ahead {
            self.gather_positions(selection, (after, u64::MAX), gather);
        }
        for key in &self.pending {
            let wanted =
                behind.is_none_or(|behind| key > behind) && self.selects(selection, &key.feed);
            if wanted
                && let Some(held) = self.held(&key.key())
                && !gather.offer(held)
            {
                return;
            }
        }
    }

    fn evicted_from(&self, selection: &Selection, after: u64) -> Vec<(String, u64)> {
        self.feeds
            .values()
            .filter(|feed| feed.evicted_through > after && self.selects(selection, &feed.feed))
            .map(|feed| (feed.feed.clone(), feed.evicted_through))
            .collect()
    }

    /// The hash and the position of the evicted block that had the key of this one, as far
    /// as they are remembered.
    fn evicted_under(&self, sealed: &Sealed) -> Option<(Hash, u64)> {
        let tip = self.feeds.get(&sealed.block.feed)?.tip.as_ref()?;
        if self.role == Role::Replica || sealed.block.sequence > tip.sequence {
            return None;
        }
        let key = sealed.block.key();
        let mut known = self.evicted.iter();
        let (position, (_, _, hash)) = known.find(|(_, (_, of, _))| *of == key)?;
        Some((*hash, *position))
    }

    pub(super) fn held(&self, key: &BlockKey) -> Option<Held> {
        self.blocks.get(key).map(|slot| slot.held.clone())
    }

    pub(super) fn head_at(&self, position: u64) -> Option<Head> {
        if position == 0 {
            return Some(Head::default());
        }
        match self.positions.get(&position) {
            Some(key) => self.blocks.get(key).map(|slot| slot.head),
            None => self.evicted.get(&position).map(|(head, ..)| *head),
        }
    }

    pub(super) fn position_before(&self, time_ms: u64) -> u64 {
        let early = |key: &BlockKey| {
            self.blocks
                .get(key)
                .is_some_and(|slot| slot.placed_ms < time_ms)
        };
        let newest = self.positions.iter().rev().find(|(_, key)| early(key));
        newest.map_or(0, |(position, _)| *position)
    }

    pub(super) fn feed(&self, feed: &str) -> Option<FeedState> {
        self.feeds.get(feed).cloned()
    }

    pub(super) fn feeds(
        &self,
        namespace: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Vec<FeedState> {
        self.feeds
            .values()
            .filter(|feed| after.is_none_or(|after| feed.feed.as_str() > after))
            .filter(|feed| namespace.is_none() || feed.namespace.as_deref() == namespace)
            .take(limit)
            .cloned()
            .collect()
    }

    pub(super) fn subscribe(
        &mut self,
        subscription: &Subscription,
        now_ms: u64,
        max: SubscriptionsMax,
    ) -> Option<Crowded> {
        self.subscriptions
            .retain(|_, held| held.expires_ms > now_ms);
        let others = self.subscriptions.iter();
        let others = others.filter(|(id, _)| **id != subscription.id);
        let bytes: u64 = others.clone().map(|(_, held)| held.bytes()).sum();
        if others.count() as u64 >= max.count {
            return Some(Crowded::Count);
        }
        if self.bytes() + bytes + subscription.bytes() > max.bytes {
            return Some(Crowded::Bytes);
        }
        self.subscriptions
            .insert(subscription.id.clone(), subscription.clone());
        None
    }

    pub(super) fn subscription(&self, id: &str) -> Option<Subscription> {
        self.subscriptions.get(id).cloned()
    }

    pub(super) fn evict(&mut self, feed: &str, keep: Keep, slice_max: usize) -> u64 {
        let of_feed = self.positions.iter().filter(|(_, key)| key.feed == feed);
        let all: Vec<(u64, BlockKey)> = of_feed
            .map(|(position, key)| (*position, key.clone()))
            .collect();
        let surplus = match keep {
            Keep::All => 0,
            Keep::Newest(count) => all
                .len()
                .saturating_sub(usize::try_from(count).unwrap_or(usize::MAX)),
            Keep::Since(time_ms) => {
                let old = |key: &BlockKey| {
                    self.blocks
                        .get(key)
                        .is_some_and(|slot| slot.placed_ms < time_ms)
                };
                all.iter().take_while(|(_, key)| old(key)).count()
            }
        };
        let mut gone = 0;
        for (position, key) in all.into_iter().take(surplus.min(slice_max)) {
            self.positions.remove(&position);
            if let Some(slot) = self.blocks.remove(&key) {
                let (head, hash) = (slot.head, slot.held.hash);
                self.evicted.insert(position, (head, key, hash));
            }
            if let Some(feed) = self.feeds.get_mut(feed) {
                feed.evicted_through = feed.evicted_through.max(position);
            }
            gone += 1;
        }
        while self.evicted.len() as u64 > EVICTED_REMEMBERED_MAX {
            let oldest = self.evicted.pop_first().map_or(0, |(position, _)| position);
            self.forgotten = self.forgotten.max(oldest);
        }
        gone
    }

    pub(super) fn purge(&mut self, key: &BlockKey) -> bool {
        let Some(slot) = self.blocks.get_mut(key) else {
            return false;
        };
        slot.held.block.payload = slot.held.block.payload.purged();
        true
    }
}
