//! The thread that draws changes from the outbox into the engine.
//!
//! It never waits for who reads. What belongs together is seen together: changes are made in
//! groups, and a page that one of a group concerns sees all of it or nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use timeline::{Cold, RecordId, Settings, Timelines};
use tracing::{error, warn};

use super::batch::Batch;
use super::load::{group, insert, key, load};
use super::{Fanout, Waiting};
use crate::clock::Clock;
use crate::store::change::Grouped;
use crate::store::routes::Routes;
use crate::store::{Change, StoreError};

/// Changes drawn at once.
const DRAW_MAX: usize = 1000;
/// Changes that are made and seen together; pages they concern come through in between.
pub(crate) const TOGETHER_MAX: usize = 64;
/// Background work between changes, in pushes.
pub(crate) const WORK: usize = 2000;
/// Between two times that the metrics are told.
const TELL_US: i64 = 100_000;
/// How long to wait for changes before looking again.
pub(crate) const PATIENCE: Duration = Duration::from_millis(20);

/// Draws until told to stop.
#[derive(Debug)]
pub struct Drawer {
    fanout: Arc<Fanout>,
    pub(super) timelines: Timelines,
    settings: Settings,
    waiting: Waiting,
}

impl Drawer {
    pub(super) fn new(
        fanout: Arc<Fanout>,
        timelines: Timelines,
        settings: Settings,
        waiting: Waiting,
    ) -> Self {
        Self {
            fanout,
            timelines,
            settings,
            waiting,
        }
    }

    /// The thread.
    pub fn run(mut self, clock: &Clock, stop: &AtomicBool) {
        let mut told_us = i64::MIN / 2;
        while !stop.load(Ordering::Relaxed) {
            let position = self.fanout.position();
            self.fanout.store.wait(position, PATIENCE);
            loop {
                let now_us = clock.now_us();
                let drawn = self.step(now_us);
                if now_us - told_us >= TELL_US {
                    told_us = now_us;
                    self.fanout.gauges.tell(self.timelines.stats());
                }
                match drawn {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(cause) => {
                        // Until it is drawn again, cold and store answers stay exact at an older position.
                        error!(%cause, "timelines cannot draw; they will try again");
                        std::thread::sleep(Duration::from_secs(1));
                        break;
                    }
                }
            }
        }
    }

    /// Draws once, registers who waits, does some background work in between; true if there is more.
    pub fn step(&mut self, now_us: i64) -> Result<bool, StoreError> {
        let position = self.fanout.position();
        let drawn = self.fanout.store.draw(position, DRAW_MAX)?;
        if drawn.gone {
            warn!(
                position,
                "timelines fell behind what the outbox keeps; rebuilding them from the records"
            );
            let loaded = load(&self.settings, &self.fanout.routes, &*self.fanout.store)?;
            // Nothing is remembered at the old position any more: the store is past it.
            self.fanout.forget_all();
            self.timelines.replace(loaded);
            return Ok(true);
        }
        let more = drawn.changes.len() >= DRAW_MAX;
        let first = drawn.position + 1 - drawn.changes.len() as i64;
        let mut rest = drawn.changes.as_slice();
        let mut next = first;
        // Background work goes along with the changes: records that reach a ring after newer ones
        // must each be given a place there.
        loop {
            let (chunk, after) = rest.split_at(chunk_length(rest));
            self.apply(next, chunk)?;
            self.register(now_us);
            let busy = self.timelines.step(now_us, WORK);
            if after.is_empty() {
                return Ok(more || busy);
            }
            next += chunk.len() as i64;
            rest = after;
        }
    }

    /// Makes changes that are seen together.
    fn apply(&mut self, first: i64, changes: &[Change]) -> Result<(), StoreError> {
        let applied = self.apply_each(first, changes);
        self.timelines.end();
        applied
    }

    fn apply_each(&mut self, first: i64, changes: &[Change]) -> Result<(), StoreError> {
        let fanout = Arc::clone(&self.fanout);
        let mut puts = Batch::default();
        for (position, change) in (first..).zip(changes) {
            if matches!(change, Change::Put { .. }) {
                puts.add(&fanout.routes, change)?;
            } else {
                puts.insert_into(&mut self.timelines);
            }
            self.timelines.begin(position.cast_unsigned());
            fanout.forget(change);
            self.change(change)?;
        }
        puts.insert_into(&mut self.timelines);
        Ok(())
    }

    fn change(&mut self, change: &Change) -> Result<(), StoreError> {
        let routes = &self.fanout.routes;
        let timelines = &mut self.timelines;
        match change {
            Change::Put { .. } => {} // in the batch
            Change::Delete { record, .. } => {
                timelines.remove(RecordId(record.cast_unsigned()));
            }
            Change::Regroup { lane, was, now, .. } => regroup(timelines, routes, *lane, was, now)?,
            Change::Follow {
                source,
                reader,
                key: followed,
            } => {
                for feed in routes.follows(*source) {
                    timelines.follow(feed, key(*reader)?, key(*followed)?);
                }
                for feed in routes.hides(*source) {
                    timelines.hide(feed, key(*reader)?, key(*followed)?);
                }
            }
            Change::Unfollow {
                source,
                reader,
                key: followed,
            } => {
                for feed in routes.follows(*source) {
                    timelines.unfollow(feed, key(*reader)?, key(*followed)?);
                }
                for feed in routes.hides(*source) {
                    timelines.unhide(feed, key(*reader)?, key(*followed)?);
                }
            }
            Change::Account {
                key: account,
                visible,
                ..
            } => timelines.account(key(*account)?, !visible),
        }
        Ok(())
    }

    fn register(&mut self, now_us: i64) {
        while let Ok(wish) = self.waiting.try_recv() {
            let cold = Cold {
                follows: &wish.follows,
                hidden: &wish.hidden,
                as_of: wish.as_of,
            };
            // A stale or full answer leaves the reader cold; its next read asks again.
            if let Ok(reader) = key(wish.reader) {
                self.timelines.register(wish.feed, reader, &cold, now_us);
            }
        }
    }
}

/// Makes the groups of a merged feed anew.
fn regroup(
    timelines: &mut Timelines,
    routes: &Routes,
    lane: i64,
    was: &[Grouped],
    now: &[Grouped],
) -> Result<(), StoreError> {
    for (feed, target) in routes.targets(lane) {
        let ended = |old: &&Grouped| now.iter().all(|new| new.record != old.record);
        for old in was.iter().filter(ended) {
            let id = RecordId(group(old.record).cast_unsigned());
            timelines.remove_from(feed, target, id);
        }
        for one in now {
            insert(
                timelines,
                feed,
                target,
                group(one.record),
                one.time_us,
                &one.uri,
                one.author,
                &one.keys,
            )?;
        }
    }
    Ok(())
}

/// How many changes go together: a moved record's delete is never apart from its insert.
fn chunk_length(changes: &[Change]) -> usize {
    let mut length = changes.len().min(TOGETHER_MAX);
    while let (
        Some(
            Change::Regroup { .. }
            | Change::Delete { .. }
            | Change::Follow { .. }
            | Change::Unfollow { .. },
        ),
        true,
    ) = (
        changes.get(length.saturating_sub(1)),
        length < changes.len(),
    ) {
        length += 1;
    }
    length
}
