//! The thread that draws changes from the outbox into the engine.
//!
//! Fan-outs are nearly all of its work, and are carried on while pages are read. The rest it does
//! alone, a few microseconds to some hundred at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use timeline::{Cold, RecordId, Settings, Timelines};
use tracing::{error, warn};

use super::batch::Batch;
use super::load::{group, insert, key, load};
use super::{Fanout, State, Waiting};
use crate::clock::Clock;
use crate::store::change::Grouped;
use crate::store::{Change, StoreError};

/// Changes drawn at once.
const DRAW_MAX: usize = 1000;
/// Changes applied under one lock; readers come through in between.
pub(crate) const LOCKED_MAX: usize = 64;
/// Background work between changes, in pushes.
pub(crate) const WORK: usize = 2000;
/// Pushes of a fan-out under one lock, of those that are put off.
pub(crate) const LANDED_MAX: usize = 64;
/// How long to wait for changes before looking again.
pub(crate) const PATIENCE: Duration = Duration::from_millis(20);

/// Draws until told to stop.
#[derive(Debug)]
pub struct Drawer {
    fanout: Arc<Fanout>,
    settings: Settings,
    waiting: Waiting,
}

impl Drawer {
    pub(super) fn new(fanout: Arc<Fanout>, settings: Settings, waiting: Waiting) -> Self {
        Self {
            fanout,
            settings,
            waiting,
        }
    }

    /// The thread.
    pub fn run(self, clock: &Clock, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let position = self.fanout.position();
            self.fanout.store.wait(position, PATIENCE);
            loop {
                match self.step(clock.now_us()) {
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
    pub fn step(&self, now_us: i64) -> Result<bool, StoreError> {
        let position = self.fanout.position();
        let drawn = self.fanout.store.draw(position, DRAW_MAX)?;
        if drawn.gone {
            warn!(
                position,
                "timelines fell behind what the outbox keeps; rebuilding them from the records"
            );
            let state = load(&self.settings, &self.fanout.routes, &*self.fanout.store)?;
            let mut current = self.fanout.state.write();
            self.fanout.bodies.clear();
            self.fanout.revs.clear();
            *current = state;
            self.fanout.stands(&current);
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
            let busy = self.work(now_us);
            if after.is_empty() {
                return Ok(more || busy);
            }
            next += chunk.len() as i64;
            rest = after;
        }
    }

    /// Does some background work; true if more waits.
    fn work(&self, now_us: i64) -> bool {
        let state = &self.fanout.state;
        let busy = state.write().timelines.tend(now_us, WORK);
        let mut carried = state.read().timelines.carry(WORK);
        while !carried.is_empty() {
            state.write().timelines.land(&mut carried, LANDED_MAX);
        }
        busy
    }

    fn apply(&self, first: i64, changes: &[Change]) -> Result<(), StoreError> {
        let mut state = self.fanout.state.write();
        let applied = self.apply_each(&mut state, first, changes);
        self.fanout.stands(&state);
        applied
    }

    fn apply_each(
        &self,
        state: &mut State,
        first: i64,
        changes: &[Change],
    ) -> Result<(), StoreError> {
        let mut puts = Batch::default();
        for (position, change) in (first..).zip(changes) {
            if matches!(change, Change::Put { .. }) {
                puts.add(&self.fanout.routes, change)?;
            } else {
                puts.insert_into(&mut state.timelines);
            }
            state.timelines.begin(position.cast_unsigned());
            self.change(state, change)?;
        }
        puts.insert_into(&mut state.timelines);
        Ok(())
    }

    fn change(&self, state: &mut State, change: &Change) -> Result<(), StoreError> {
        let routes = &self.fanout.routes;
        let timelines = &mut state.timelines;
        self.fanout.forget(change);
        match change {
            Change::Put { .. } => {} // in the batch
            Change::Delete { record, .. } => {
                timelines.remove(RecordId(record.cast_unsigned()));
            }
            Change::Regroup { lane, was, now, .. } => self.regroup(timelines, *lane, was, now)?,
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
            } => {
                timelines.account(key(*account)?, !visible);
                if *visible {
                    state.hidden.remove(account);
                } else {
                    state.hidden.insert(*account);
                }
            }
        }
        Ok(())
    }

    fn regroup(
        &self,
        timelines: &mut Timelines,
        lane: i64,
        was: &[Grouped],
        now: &[Grouped],
    ) -> Result<(), StoreError> {
        for (feed, target) in self.fanout.routes.targets(lane) {
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

    fn register(&self, now_us: i64) {
        while let Ok(wish) = self.waiting.try_recv() {
            let cold = Cold {
                follows: &wish.follows,
                hidden: &wish.hidden,
                as_of: wish.as_of,
            };
            // A stale or full answer leaves the reader cold; its next read asks again.
            if let Ok(reader) = key(wish.reader) {
                self.fanout
                    .state
                    .write()
                    .timelines
                    .register(wish.feed, reader, &cold, now_us);
            }
        }
    }
}

/// How many changes go together: a moved record's delete is never apart from its insert.
fn chunk_length(changes: &[Change]) -> usize {
    let mut length = changes.len().min(LOCKED_MAX);
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
