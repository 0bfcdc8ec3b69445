//! The keeper of a log: what must be looked after while nobody asks.
//!
//! In:    the time.
//! Out:   blocks past their retention gone; gauges; hints about what another process wrote.
//! Never: a look at the file more often than it can change an answer.
//!
//! Two processes may serve one file. Who waits at one is not told of appends at
//! the other, so the keeper looks whether somebody else has written: SQLite
//! counts that for free. Whoever waits is then told to ask.

use super::hub::News;
use super::log::Log;
use super::streams;
use crate::metrics as names;
use blocklog::store::{LogStore, StoreError};
use metrics::{counter, gauge};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tracing::{info, warn};

/// How often the file is looked at for what others wrote, while somebody waits.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Looks between two sets of gauges.
const GAUGES_EVERY: u64 = 5;
/// Looks between two searches for blocks past their retention.
const RETAIN_EVERY: u64 = 300;
/// Blocks of a deleted space that go in one transaction, where a crash left some.
const DELETE_BLOCKS_MAX: usize = 1000;
/// Spaces whose position is shown: labels must not grow with what strangers name.
const SPACES_SHOWN_MAX: usize = 100;

/// Look after `log` until `stop` becomes true.
pub async fn run(log: Log, mut stop: watch::Receiver<bool>) {
    let mut seen = Seen::default();
    let mut looks = 0u64;
    while !*stop.borrow() {
        let (keeper, before) = (log.clone(), seen);
        let work = move || tick(&keeper, before, looks);
        match tokio::task::spawn_blocking(work).await {
            Ok(Ok(now)) => seen = now,
            Ok(Err(error)) if looks.is_multiple_of(RETAIN_EVERY) => {
                warn!(%error, "the log cannot be looked after; it is tried again");
            }
            Ok(Err(_)) => {}
            Err(_) => return,
        }
        looks += 1;
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            _ = stop.changed() => break,
        }
    }
}

/// What one look leaves to the next.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// The count of others' writes, if somebody waited for them.
    version: Option<i64>,
    /// Whether blocks past their retention are left.
    is_behind: bool,
}

/// One look. Blocks.
fn tick(log: &Log, seen: Seen, looks: u64) -> Result<Seen, StoreError> {
    let mut now = Seen::default();
    if seen.is_behind || looks.is_multiple_of(RETAIN_EVERY) {
        streams::sweep(log)?;
        for space in log.store().deletions()? {
            log.store().delete_some(&space, DELETE_BLOCKS_MAX)?;
        }
        let retained = log.retain()?;
        now.is_behind = retained.is_behind;
        if retained.gone > 0 {
            counter!(names::LOG_EVICTED).increment(retained.gone);
            info!(
                blocks = retained.gone,
                "the log let go of blocks past their retention"
            );
        }
    }
    if looks.is_multiple_of(GAUGES_EVERY) {
        show(log)?;
    }
    let waiting = log.hub().listened();
    if waiting.is_empty() {
        return Ok(now);
    }
    let version = log.store().foreign_writes()?;
    // Who began to wait since the last look may have missed something before it.
    if seen.version != Some(version) {
        for space in waiting {
            let position_max = log
                .store()
                .space(&space)?
                .map_or(0, |state| state.position_max);
            let news = News {
                position_max,
                feeds: None,
                namespace: None,
            };
            log.hub().tell(&space, news);
        }
    }
    now.version = Some(version);
    Ok(now)
}

fn show(log: &Log) -> Result<(), StoreError> {
    let spaces = log.store().spaces()?;
    gauge!(names::LOG_SPACES).set(spaces.len() as f64);
    gauge!(names::LOG_ASIDE).set(log.store().aside_count()? as f64);
    let connections = log.connections().load(Ordering::Relaxed);
    gauge!(names::LOG_CONNECTIONS).set(connections as f64);
    let subscriptions = log.store().live_subscriptions(log.now_ms())?;
    gauge!(names::LOG_SUBSCRIPTIONS).set(subscriptions as f64);
    for space in spaces.into_iter().take(SPACES_SHOWN_MAX) {
        if let Some(state) = log.store().space(&space)? {
            gauge!(names::LOG_POSITION, "space" => space).set(state.position_max as f64);
        }
    }
    Ok(())
}
