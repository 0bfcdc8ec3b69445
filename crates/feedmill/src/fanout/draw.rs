//! The thread that draws changes from the outbox into the engine.
//!
//! It never waits for who reads. What belongs together is seen together: changes are made in
//! groups, and a page that one of a group concerns sees all of it or nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use timeline::{Cold, Settings, Timelines};
use tracing::{error, warn};

use super::batch::Batch;
use super::load::{key, load};
use super::{Fanout, Waiting};
use crate::clock::Clock;
use crate::condition::Condition;
use crate::status::health::Health;
use crate::store::{Change, StoreError};

/// Changes drawn at once.
const DRAW_MAX: usize = 1000;
/// Changes that are made and seen together; pages they concern come through in between.
pub(crate) const TOGETHER_MAX: usize = 64;
/// Background work between changes, in pushes.
pub(crate) const WORK: usize = 2000;
/// Between two times that the metrics are told.
const TELL_US: i64 = 100_000;
/// The longest sleep without changes: the engine has work that comes with time alone.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause after a failure.
const FAILED_PAUSE: Duration = Duration::from_secs(1);

/// Draws until told to stop.
#[derive(Debug)]
pub struct Drawer {
    fanout: Arc<Fanout>,
    pub(super) timelines: Timelines,
    settings: Settings,
    waiting: Waiting,
    is_loaded: bool,
    /// When the metrics were set last.
    gauged_us: i64,
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
            is_loaded: false,
            gauged_us: i64::MIN / 2,
        }
    }

    /// The thread.
    pub fn run(mut self, clock: &Clock, mut health: Health, stop: &AtomicBool) {
        let fanout = Arc::clone(&self.fanout);
        let stopped = || stop.load(Ordering::Relaxed);
        let enough = || stopped() || fanout.registering.load(Ordering::Acquire);
        while !stopped() {
            let loaded = self.load(&stopped);
            match loaded.and_then(|()| self.follow(clock, &mut health, &stopped)) {
                Ok(()) => fanout.store.wait(fanout.position(), PATIENCE, &enough),
                Err(cause) => {
                    // While they are loaded the store answers; else cold and store answers stay exact
                    // at an older position.
                    let condition = match fanout.loading.is_loading() {
                        true => Condition::ConsumerFailing,
                        false => Condition::TimelinesStuck,
                    };
                    error!(%cause, ?condition, "changes are not applied to timelines; they will try again");
                    health.fails_as(condition, &cause);
                    fanout.store.wait(i64::MAX, FAILED_PAUSE, &stopped);
                }
            }
        }
    }

    /// Applies changes until there are none.
    fn follow(
        &mut self,
        clock: &Clock,
        health: &mut Health,
        stopped: &dyn Fn() -> bool,
    ) -> Result<(), StoreError> {
        while !stopped() {
            let now_us = clock.now_us();
            let more = self.step(now_us);
            if now_us - self.gauged_us >= TELL_US {
                self.gauged_us = now_us;
                self.fanout.gauges.tell(self.timelines.stats());
            }
            let more = more?;
            health.works();
            if !more {
                break;
            }
        }
        Ok(())
    }

    /// Loads the timelines unless they are, and applies what changed meanwhile; then they answer.
    /// Whatever fails, the engine before it is left as it was.
    pub(super) fn load(&mut self, enough: &dyn Fn() -> bool) -> Result<(), StoreError> {
        let fanout = Arc::clone(&self.fanout);
        while !self.is_loaded && !enough() {
            let (settings, routes) = (&self.settings, &fanout.routes);
            let loading = &fanout.loading;
            let Some(loaded) = load(settings, routes, &*fanout.store, loading, enough)? else {
                return Ok(());
            };
            let mut loaded = Some(loaded);
            while let Some(engine) = loaded.take() {
                let before = std::mem::replace(&mut self.timelines, engine);
                let caught_up = self.catch_up(enough);
                let engine = std::mem::replace(&mut self.timelines, before);
                if !caught_up? {
                    break;
                }
                let position = engine.position().cast_signed();
                loaded = Some(engine);
                self.is_loaded = loading.finish(position, || {
                    // Nothing is remembered at the old position any more: the store is past it.
                    fanout.forget_all();
                    if let Some(engine) = loaded.take() {
                        self.timelines.replace(engine);
                    }
                });
            }
        }
        Ok(())
    }

    /// Applies every change up to the newest; false if the outbox no longer keeps them all.
    fn catch_up(&mut self, enough: &dyn Fn() -> bool) -> Result<bool, StoreError> {
        let fanout = Arc::clone(&self.fanout);
        while !enough() {
            let position = self.timelines.position().cast_signed();
            let drawn = fanout.store.draw(position, DRAW_MAX)?;
            if drawn.gone {
                warn!(
                    position,
                    "the outbox moved on while timelines were loaded; once more"
                );
                return Ok(false);
            }
            if drawn.changes.is_empty() {
                return Ok(true);
            }
            self.apply(&drawn.changes)?;
        }
        Ok(false)
    }

    /// Draws once, registers who waits, does some background work in between; true if there is more.
    pub fn step(&mut self, now_us: i64) -> Result<bool, StoreError> {
        let position = self.fanout.position();
        let drawn = self.fanout.store.draw(position, DRAW_MAX)?;
        if drawn.gone {
            warn!(
                position,
                "timelines fell behind what the outbox keeps; loading them from the records again"
            );
            self.is_loaded = false;
            self.load(&|| false)?;
            return Ok(true);
        }
        let more = drawn.changes.len() >= DRAW_MAX;
        let mut rest = drawn.changes.as_slice();
        // Background work goes along with the changes: records that reach a ring after newer ones
        // must each be given a place there.
        loop {
            let (chunk, after) = rest.split_at(chunk_length(rest));
            let applied = self.apply(chunk);
            self.register(now_us);
            let busy = self.timelines.step(now_us, WORK);
            applied?;
            if after.is_empty() {
                return Ok(more || busy);
            }
            rest = after;
        }
    }

    /// Makes changes that are seen together: all of them, or none if one cannot be made.
    fn apply(&mut self, changes: &[(i64, Change)]) -> Result<(), StoreError> {
        let batch = Batch::new(&self.fanout.routes, changes)?;
        let Some((first, _)) = changes.first() else {
            return Ok(());
        };
        // From here on nothing is remembered that is read at the position before.
        self.timelines.begin(first.cast_unsigned());
        for (_, change) in changes {
            self.fanout.forget(change);
        }
        batch.make(&mut self.timelines);
        self.timelines.end();
        self.fanout.loading.moved();
        Ok(())
    }

    fn register(&mut self, now_us: i64) {
        self.fanout.registering.store(false, Ordering::Release);
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

/// How many changes go together: a moved record's delete is never apart from its insert.
fn chunk_length(changes: &[(i64, Change)]) -> usize {
    let mut length = changes.len().min(TOGETHER_MAX);
    while let (
        Some((
            _,
            Change::Regroup {
                continues: true, ..
            }
            | Change::Delete { .. }
            | Change::Follow { .. }
            | Change::Unfollow { .. },
        )),
        true,
    ) = (
        changes.get(length.saturating_sub(1)),
        length < changes.len(),
    ) {
        length += 1;
    }
    length
}
