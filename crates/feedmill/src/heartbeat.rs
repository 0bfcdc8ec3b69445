//! The heartbeat: the ingesting process reports how it is, into its store.
//!
//! In:    the facts of this process, each second.
//! Out:   a row of the store, written when something changed and otherwise every
//!        few seconds, so that a reader can tell a quiet process from one that is gone; and a
//!        note of a wrong clock, which stays until what was stored under it is repaired.
//! Never: a second report while the first is being written; a stop that waits
//!        for a store that cannot be written.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tracing::debug;

use crate::clock::{Clock, Micros};
use crate::status::Status;
use crate::status::heartbeat::Heartbeat;
use crate::store::SharedStore;

/// Between two looks at whether something changed.
const EVERY: Duration = Duration::from_secs(1);
/// Without a change a report is repeated after so long.
const REPEAT_US: Micros = 3_000_000;
/// How long the last report may take.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);

/// Reports for one process.
#[derive(Debug)]
pub struct Reporter {
    store: SharedStore,
    status: Arc<Status>,
    clock: Clock,
    last: Option<(Micros, Heartbeat)>,
    /// A wrong clock was noted by this process.
    noted: bool,
}

impl Reporter {
    pub fn new(store: SharedStore, status: Arc<Status>, clock: Clock) -> Self {
        Self {
            store,
            status,
            clock,
            last: None,
            noted: false,
        }
    }

    /// What there is to report at `now_us`: `None` if nothing changed since a moment ago.
    pub fn due(&self, now_us: Micros) -> Option<Heartbeat> {
        let report = self.status.heartbeat(now_us, &self.store.writing());
        let is_old = |last_us: Micros| now_us - last_us >= REPEAT_US;
        match &self.last {
            Some((last_us, last)) if *last == report && !is_old(*last_us) => None,
            _ => Some(report),
        }
    }

    /// Writes a report and waits until it is durable.
    async fn write(&mut self, report: Heartbeat) {
        let (store, now_us) = (Arc::clone(&self.store), self.clock.now_us());
        // A heartbeat is numbers and texts, which always have a JSON form.
        let text = serde_json::to_string(&report).unwrap_or_default();
        let written = tokio::task::spawn_blocking(move || store.beat(now_us, text)).await;
        match written {
            Ok(Ok(())) => self.last = Some((now_us, report)),
            // The writer has noted why; that is a condition of this process.
            Ok(Err(error)) => debug!(%error, "the heartbeat could not be written"),
            Err(error) => debug!(%error, "the heartbeat could not be written"),
        }
    }

    /// Notes durably that our clock is wrong, once.
    async fn note_clock(&mut self) {
        let Some(off_us) = self.status.clock_off_us().filter(|_| !self.noted) else {
            return;
        };
        let (store, now_us) = (Arc::clone(&self.store), self.clock.now_us());
        let note = move || store.note_wrong_clock(now_us, off_us);
        // What could not be noted is tried again with the next look.
        self.noted = matches!(tokio::task::spawn_blocking(note).await, Ok(Ok(())));
    }

    /// The task: reports until told to stop, and then that it stopped.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            if let Some(report) = self.due(self.clock.now_us()) {
                tokio::select! {
                    () = self.write(report) => {}
                    _ = stop.wait_for(|stop| *stop) => break,
                }
            }
            tokio::select! {
                () = self.note_clock() => {}
                _ = stop.wait_for(|stop| *stop) => break,
            }
            let stopped = stop.wait_for(|stop| *stop);
            if tokio::time::timeout(EVERY, stopped).await.is_ok() {
                break;
            }
        }
        let now_us = self.clock.now_us();
        let mut report = self.status.heartbeat(now_us, &self.store.writing());
        report.stopped = true;
        // A store that cannot be written now will be found silent.
        drop(tokio::time::timeout(LAST_TIMEOUT, self.write(report)).await);
    }
}
