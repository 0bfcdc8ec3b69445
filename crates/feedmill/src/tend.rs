//! Tending what waits: parked records are tried when their pause is over,
//! queues are worked off, and somebody is told when too many letters are dead.
//!
//! In:    the time.
//! Out:   parked and queued records applied or buried; gauges; an [`Alert`] when a
//!        threshold is crossed, posted to a webhook.
//! Never: an alert posted for ever; a settled record waiting for an alert.
//!
//! [`Tend::step`] is the stage itself, plain and synchronous. [`run`] is the
//! task around it.

use std::time::Duration;

use metrics::{counter, gauge};
use tokio::sync::watch;
use tracing::{error, warn};

use crate::clock::{Clock, Micros};
use crate::config::Settle;
use crate::intake::tell;
use crate::metrics as names;
use crate::settle::{Next, Trouble};
use crate::store::{SharedStore, StoreError};

/// Parked records tried in one transaction.
const BATCH_MAX: usize = 500;
/// Transactions of one step; what is left is due in the next.
const BATCHES_MAX: usize = 20;
/// Between two steps.
const TICK: Duration = Duration::from_millis(500);
/// How long a webhook may take to answer.
const POST_TIMEOUT: Duration = Duration::from_secs(10);

/// A threshold is crossed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Alert {
    pub alert: String,
    pub count: i64,
    pub threshold: u64,
    pub time: String,
}

/// The stage.
#[derive(Debug)]
pub struct Tend {
    store: SharedStore,
    settings: Settle,
    raised_us: Option<Micros>,
}

impl Tend {
    pub fn new(store: SharedStore, settings: Settle) -> Self {
        Self {
            store,
            settings,
            raised_us: None,
        }
    }

    /// Tries what is due at `now_us`, sets the gauges, and says whether to raise an alert.
    pub fn step(&mut self, now_us: Micros) -> Result<Option<Alert>, StoreError> {
        for _ in 0..BATCHES_MAX {
            let waiting = self.store.waiting()?;
            if waiting.due_us.is_none_or(|due_us| due_us > now_us) {
                break;
            }
            let settled = self.store.settle(now_us, BATCH_MAX)?;
            tell(&settled);
            for fate in settled.fates {
                counter!(names::SETTLED, "fate" => fate.word()).increment(1);
            }
        }
        for _ in 0..BATCHES_MAX {
            if self.store.waiting()?.pending == 0 {
                break;
            }
            tell(&self.store.turn(now_us)?);
        }
        self.measure(now_us)?;
        let waiting = self.store.waiting()?;
        gauge!(names::DEAD).set(waiting.dead as f64);
        gauge!(names::PARKED).set(waiting.parked as f64);
        Ok(self.alert(now_us, waiting.dead))
    }

    /// Sets the gauges of what waits in queues.
    pub fn measure(&self, now_us: Micros) -> Result<(), StoreError> {
        for depth in self.store.queues()? {
            let age_us = depth.since_us.map_or(0, |since_us| now_us - since_us);
            gauge!(names::QUEUE, "queue" => depth.queue.clone()).set(depth.waiting as f64);
            gauge!(names::QUEUE_AGE, "queue" => depth.queue).set(age_us.max(0) as f64 / 1e6);
        }
        Ok(())
    }

    fn alert(&mut self, now_us: Micros, dead: i64) -> Option<Alert> {
        let threshold = self.settings.dead_alert;
        let crossed = threshold > 0 && dead > i64::try_from(threshold).unwrap_or(i64::MAX);
        if !crossed {
            self.raised_us = None;
            return None;
        }
        let pause_us = i64::try_from(self.settings.alert_pause_s)
            .map_or(i64::MAX, |seconds| seconds.saturating_mul(1_000_000));
        if self
            .raised_us
            .is_some_and(|raised| now_us < raised.saturating_add(pause_us))
        {
            return None;
        }
        self.raised_us = Some(now_us);
        warn!(dead, threshold, "more dead letters than the threshold");
        counter!(names::ALERTS, "alert" => "dead_letters", "result" => "raised").increment(1);
        Some(Alert {
            alert: "dead_letters".into(),
            count: dead,
            threshold,
            time: record::datetime::format_us(now_us),
        })
    }
}

/// Posts an alert, as often as a passing trouble is tried; `pause` waits between attempts.
pub async fn post<P: Future<Output = ()>>(
    client: &reqwest::Client,
    url: &str,
    alert: &Alert,
    pause: impl Fn(Micros) -> P,
) -> bool {
    let body = serde_json::to_string(alert).unwrap_or_default();
    let mut attempt = 0;
    loop {
        let request = client
            .post(url)
            .timeout(POST_TIMEOUT)
            .header("content-type", "application/json")
            .body(body.clone());
        let trouble = match request
            .send()
            .await
            .and_then(reqwest::Response::error_for_status)
        {
            Ok(_) => {
                counter!(names::ALERTS, "alert" => alert.alert.clone(), "result" => "sent")
                    .increment(1);
                return true;
            }
            Err(error) => Trouble::Passing(error.to_string()),
        };
        match trouble.next(attempt) {
            Next::Retry { pause_us } | Next::Park { pause_us, .. } => pause(pause_us).await,
            Next::Bury { .. } => {
                error!(%trouble, "an alert could not be delivered");
                counter!(names::ALERTS, "alert" => alert.alert.clone(), "result" => "failed")
                    .increment(1);
                return false;
            }
        }
        attempt += 1;
    }
}

/// The task: steps the stage until told to stop.
pub async fn run(mut tend: Tend, clock: Clock, mut stop: watch::Receiver<bool>) {
    // Only the address that the operator named gets an alert: a redirect ends there.
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap_or_default();
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
            Ok(Some(alert)) if !url.is_empty() => {
                let (client, url) = (client.clone(), url.clone());
                // One alert is under way at most: the last is given up for the next.
                if let Some(last) = posting.take() {
                    last.abort();
                }
                posting = Some(tokio::spawn(async move {
                    post(&client, &url, &alert, |pause_us| {
                        tokio::time::sleep(Duration::from_micros(pause_us.unsigned_abs()))
                    })
                    .await
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
