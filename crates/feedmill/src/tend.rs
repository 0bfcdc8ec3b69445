//! Tending what waits: parked records are tried when their pause is over,
//! queues are worked off, and somebody is told when too many letters are dead.
//!
//! In:    the time.
//! Out:   parked and queued records applied or buried; an [`Alert`] when a
//!        threshold is crossed, posted to a webhook.
//! Never: an alert posted for ever; a settled record waiting for an alert.
//!
//! [`Tend::step`] is the stage itself, plain and synchronous. [`run`] is the
//! task around it.

// When somebody must hear of dead letters.
mod threshold;

use std::sync::Arc;
use std::time::Duration;

pub use threshold::Alert;
use threshold::Thresholds;

use decide::retry::retry_pause_us;
use metrics::counter;
use tokio::sync::watch;
use tracing::{error, warn};

use crate::check::chain;
use crate::clock::{Clock, Micros};
use crate::config::Settle;
use crate::host::Cause;
use crate::metrics as names;
use crate::reach::fetch::{Ask, FetchError, Fetcher, Reply, pause_us};
use crate::store::{SharedStore, StoreError};

/// Parked records tried in one transaction.
const BATCH_MAX: usize = 500;
/// Transactions of one step; what is left is due in the next.
const BATCHES_MAX: usize = 20;
const DAY_US: Micros = 24 * 3600 * 1_000_000;
/// Between two steps.
const TICK: Duration = Duration::from_millis(500);
/// How long a webhook may take to answer.
const POST_TIMEOUT: Duration = Duration::from_secs(10);

/// The stage.
#[derive(Debug)]
pub struct Tend {
    store: SharedStore,
    settings: Settle,
    thresholds: Thresholds,
}

impl Tend {
    pub fn new(store: SharedStore, settings: Settle) -> Self {
        Self {
            thresholds: Thresholds::new(&settings),
            store,
            settings,
        }
    }

    /// Tries what is due at `now_us`, and says which alerts to raise.
    pub fn step(&mut self, now_us: Micros) -> Result<Vec<Alert>, StoreError> {
        for _ in 0..BATCHES_MAX {
            let waiting = self.store.waiting()?;
            if waiting.due_us.is_none_or(|due_us| due_us > now_us) {
                break;
            }
            let settled = self.store.settle(now_us, BATCH_MAX)?;
            for fate in settled.fates {
                counter!(names::SETTLED, "fate" => fate.word()).increment(1);
            }
        }
        for _ in 0..BATCHES_MAX {
            if self.store.waiting()?.pending == 0 {
                break;
            }
            self.store.turn(now_us)?;
        }
        self.expire(now_us)?;
        let waiting = self.store.waiting()?;
        self.thresholds.crossed(now_us, &self.store, &waiting)
    }

    /// Forgets dead letters that were kept for long enough.
    fn expire(&self, now_us: Micros) -> Result<(), StoreError> {
        if self.settings.dead_days == 0 {
            return Ok(());
        }
        let before_us = now_us - i64::from(self.settings.dead_days) * DAY_US;
        for _ in 0..BATCHES_MAX {
            let since_us = self.store.waiting()?.dead_since_us;
            if since_us.is_none_or(|since_us| since_us >= before_us) {
                break;
            }
            self.store.expire(now_us, before_us, BATCH_MAX)?;
        }
        Ok(())
    }
}

/// Posts an alert, as often as a passing trouble is tried; `pause` waits between attempts.
pub async fn post<P: Future<Output = ()>>(
    fetcher: &Fetcher,
    url: &str,
    alert: &Alert,
    pause: impl Fn(Micros) -> P,
) -> bool {
    let body = serde_json::to_string(alert).unwrap_or_default();
    let mut attempt = 0;
    loop {
        // Only the address that the operator named gets an alert: a redirect ends there.
        let ask = Ask::new(Cause::Alert, url).named().within(POST_TIMEOUT);
        let posted = fetcher.fetch(ask.posting(body.clone()).status_only()).await;
        let mut least_us = 0;
        let error = match posted.and_then(Reply::good) {
            Ok(_) => {
                counter!(names::ALERTS, "alert" => alert.alert.clone(), "result" => "sent")
                    .increment(1);
                return true;
            }
            Err(error) => {
                if let FetchError::Later(wait) = &error {
                    least_us = pause_us(*wait);
                }
                error
            }
        };
        match retry_pause_us(attempt) {
            Some(pause_us) => pause(pause_us.max(least_us)).await,
            None => {
                error!(cause = chain(&error), "an alert could not be delivered");
                counter!(names::ALERTS, "alert" => alert.alert.clone(), "result" => "failed")
                    .increment(1);
                return false;
            }
        }
        attempt += 1;
    }
}

/// The task: steps the stage until told to stop.
pub async fn run(
    mut tend: Tend,
    fetcher: Arc<Fetcher>,
    clock: Clock,
    mut stop: watch::Receiver<bool>,
) {
    let url = tend.settings.alert_url.clone();
    let mut posting: Option<tokio::task::JoinHandle<bool>> = None;
    loop {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            () = tokio::time::sleep(TICK) => {}
        }
        let now_us = clock.now_us();
        let stepped = tokio::task::spawn_blocking(move || {
            let result = tend.step(now_us);
            (tend, result)
        });
        let Ok((back, result)) = stepped.await else {
            error!("tending broke down; parked records wait for the next start");
            return;
        };
        tend = back;
        match result {
            Ok(alerts) if !url.is_empty() && !alerts.is_empty() => {
                let (fetcher, url) = (Arc::clone(&fetcher), url.clone());
                // One step's alerts are under way at most: the last are given up for the next.
                if let Some(last) = posting.take() {
                    last.abort();
                }
                posting = Some(tokio::spawn(async move {
                    let mut all = true;
                    for alert in &alerts {
                        let pause = |pause_us: Micros| {
                            tokio::time::sleep(Duration::from_micros(pause_us.unsigned_abs()))
                        };
                        all &= post(&fetcher, &url, alert, pause).await;
                    }
                    all
                }));
            }
            Ok(_) => {}
            Err(cause) => warn!(%cause, "parked records could not be tried; they wait on"),
        }
    }
    if let Some(last) = posting.take() {
        last.abort();
    }
}
