//! A log in memory: the plainest store that keeps every promise.
//!
//! In:    the calls of [`LogStore`] and [`ReplicaStore`].
//! Out:   what they promise, except that it ends with the process.
//! Never: anything clever; other stores are measured against this one.
//!
//! Each space is a handful of sorted maps behind one lock. A copy of it is a
//! snapshot, which is how tests crash, replace and roll back a server.

mod learning;
mod space;

use crate::block::{BlockKey, Head, Held};
use crate::chain::{Draft, Sealed, Tip};
use crate::conflict::Aside;
use crate::cursor::Epoch;
use crate::limits::Limits;
use crate::page::{Page, PageMax, Selection, Start};
use crate::replica::{Acknowledged, Adopted, Lane, Mode, Pulled, Target, Upstream};
use crate::signature::Author;
use crate::store::{
    AppendError, Crowded, FeedName, FeedState, Keep, LogStore, ReplicaStore, Role, SpaceState,
    StoreError, Subscription, SubscriptionsMax,
};
use space::Space;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// A log in memory.
#[derive(Debug, Default)]
pub struct Memory {
    spaces: Mutex<BTreeMap<String, Space>>,
}

impl Memory {
    /// A copy of everything, as of now.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        let spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            spaces: Mutex::new(spaces.clone()),
        }
    }

    fn change<T, E: From<StoreError>>(
        &self,
        space: &str,
        work: impl FnOnce(&mut Space) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        let held = spaces.get_mut(space).ok_or(StoreError::UnknownSpace)?;
        work(held)
    }

    fn look<T>(&self, space: &str, work: impl FnOnce(&Space) -> T) -> Result<T, StoreError> {
        let spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(work(spaces.get(space).ok_or(StoreError::UnknownSpace)?))
    }
}

impl LogStore for Memory {
    fn open(&self, space: &str, role: Role, fresh: Epoch) -> Result<SpaceState, StoreError> {
        let mut spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        let held = spaces
            .entry(space.to_owned())
            .or_insert_with(|| Space::new(space, role, fresh));
        Ok(held.state())
    }

    fn space(&self, space: &str) -> Result<Option<SpaceState>, StoreError> {
        match self.look(space, Space::state) {
            Ok(state) => Ok(Some(state)),
            Err(StoreError::UnknownSpace) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn spaces(&self) -> Result<Vec<String>, StoreError> {
        let spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(spaces.keys().cloned().collect())
    }

    fn append(
        &self,
        space: &str,
        namespace: Option<&str>,
        blocks: &[Sealed],
        now_ms: u64,
        limits: &Limits,
    ) -> Result<Vec<Option<u64>>, AppendError> {
        self.change(space, |space| {
            space.append(namespace, blocks, now_ms, limits)
        })
    }

    fn write(
        &self,
        space: &str,
        feed: &FeedName<'_>,
        author: &Author,
        drafts: &[Draft],
        now_ms: u64,
    ) -> Result<Vec<Held>, AppendError> {
        self.change(space, |space| space.write(feed, author, drafts, now_ms))
    }

    fn page(
        &self,
        space: &str,
        selection: &Selection,
        start: &Start,
        max: PageMax,
    ) -> Result<Page, StoreError> {
        self.look(space, |space| space.page(selection, start, max))
    }

    fn block(&self, space: &str, key: &BlockKey) -> Result<Option<Held>, StoreError> {
        self.look(space, |space| space.held(key))
    }

    fn head(&self, space: &str, position: u64) -> Result<Option<Head>, StoreError> {
        self.look(space, |space| space.head_at(position))
    }

    fn position_before(&self, space: &str, time_ms: u64) -> Result<u64, StoreError> {
        self.look(space, |space| space.position_before(time_ms))
    }

    fn feed(&self, space: &str, feed: &str) -> Result<Option<FeedState>, StoreError> {
        self.look(space, |space| space.feed(feed))
    }

    fn feeds(
        &self,
        space: &str,
        namespace: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<FeedState>, StoreError> {
        self.look(space, |space| space.feeds(namespace, after, limit))
    }

    fn subscribe(
        &self,
        space: &str,
        subscription: &Subscription,
        now_ms: u64,
        max: SubscriptionsMax,
    ) -> Result<Option<Crowded>, StoreError> {
        self.change(space, |space| {
            Ok(space.subscribe(subscription, now_ms, max))
        })
    }

    fn subscription(&self, space: &str, id: &str) -> Result<Option<Subscription>, StoreError> {
        self.look(space, |space| space.subscription(id))
    }

    fn evict(
        &self,
        space: &str,
        feed: &str,
        keep: Keep,
        slice_max: usize,
    ) -> Result<u64, StoreError> {
        self.change(space, |space| Ok(space.evict(feed, keep, slice_max)))
    }

    fn purge(&self, space: &str, key: &BlockKey) -> Result<bool, StoreError> {
        self.change(space, |space| Ok(space.purge(key)))
    }
}

impl ReplicaStore for Memory {
    fn upstream(&self, space: &str) -> Result<Upstream, StoreError> {
        self.look(space, |space| space.upstream())
    }

    fn lanes(&self, space: &str) -> Result<Vec<Lane>, StoreError> {
        self.look(space, |space| space.lanes())
    }

    fn set_lane(&self, space: &str, target: &Target, mode: Option<Mode>) -> Result<(), StoreError> {
        self.change(space, |space| {
            space.set_lane(target, mode);
            Ok(())
        })
    }

    fn pending(
        &self,
        space: &str,
        only: Option<&[String]>,
        apart: &[String],
        max: PageMax,
    ) -> Result<Vec<Held>, StoreError> {
        self.look(space, |space| space.to_push(only, apart, max))
    }

    fn acknowledge(
        &self,
        space: &str,
        positions: &[(BlockKey, u64)],
        now_ms: u64,
    ) -> Result<Acknowledged, StoreError> {
        self.change(space, |space| Ok(space.acknowledge(positions, now_ms)))
    }

    fn set_aside(&self, space: &str, blocks: &[(BlockKey, &str)]) -> Result<(), StoreError> {
        self.change(space, |space| {
            space.set_aside(blocks);
            Ok(())
        })
    }

    fn adopt(&self, space: &str, pulled: &Pulled<'_>, now_ms: u64) -> Result<Adopted, StoreError> {
        self.change(space, |space| Ok(space.adopt(pulled, now_ms)))
    }

    fn begin_healing(&self, space: &str, epoch: Epoch) -> Result<(), StoreError> {
        self.change(space, |space| {
            space.begin_healing(epoch);
            Ok(())
        })
    }

    fn end_healing(&self, space: &str, position_max: u64) -> Result<u64, StoreError> {
        self.change(space, |space| Ok(space.end_healing(position_max)))
    }

    fn lost_feed(&self, space: &str) -> Result<Option<String>, StoreError> {
        self.look(space, Space::lost_feed)
    }

    fn reissue(&self, space: &str, feed: &str, newest: Option<&Tip>) -> Result<u64, StoreError> {
        self.change(space, |space| Ok(space.reissue_refused(feed, newest)))
    }

    fn conflicts(&self, space: &str, max: usize) -> Result<Vec<Aside>, StoreError> {
        self.look(space, |space| space.conflicts(max))
    }
}
