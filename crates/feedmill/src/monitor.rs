//! The monitor: measures once a second what only the store and the disk know.
//!
//! In:    the store, the disk it is on, and the clock.
//! Out:   a [`Measured`] for whoever asks how the process is.
//! Never: a scrape or a question for readiness that waits for the store; an old
//!        measurement without its age; a failure that is reported after it is over.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tracing::{info, warn};

use crate::clock::{Clock, Micros};
use crate::config::Config;
use crate::status::{Measured, Status, is_short};
use crate::store::batch::Batch;
use crate::store::{SharedStore, StoreError};

/// Between two measurements.
const EVERY: Duration = Duration::from_millis(900);

/// Measures for one process.
#[derive(Debug, Clone)]
pub struct Monitor {
    pub store: SharedStore,
    pub status: Arc<Status>,
    pub clock: Clock,
    /// The folder that the store's file is in; `None` for a store in memory.
    pub folder: Option<PathBuf>,
}

impl Monitor {
    pub fn new(config: &Config, store: SharedStore, status: Arc<Status>, clock: Clock) -> Self {
        let file = config.store.url.strip_prefix("sqlite://").map(Path::new);
        let folder = file.map(|file| match file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        });
        Self {
            store,
            status,
            clock,
            folder,
        }
    }

    /// Measures once. Where the store does not answer, the last measurement stays and ages.
    pub fn measure(&self) {
        let now_us = self.clock.now_us();
        let last = self.status.measured();
        let free_bytes = self.folder.as_deref().and_then(free_bytes);
        match self.ask(&last, now_us, free_bytes) {
            Ok(measured) => {
                if let Some(error) = last.error {
                    info!(error, "the store answers the monitor again");
                }
                self.status.measure(measured);
                self.look_for_ingester();
            }
            Err(error) => {
                if last.error.is_none() {
                    warn!(%error, "the store does not answer the monitor; numbers that need it grow old");
                }
                self.status.measure(Measured {
                    error: Some(error.to_string()),
                    free_bytes,
                    short_since_us: short_since(&last, now_us, free_bytes),
                    ..last
                });
            }
        }
    }

    /// Reads what the process that ingests says of itself, where it is another. Where that cannot
    /// be read, its last report grows old.
    fn look_for_ingester(&self) {
        if self.status.ingester().is_some()
            && let Ok(Some((at_us, report))) = self.store.heartbeat()
        {
            self.status.set_ingester(at_us, &report);
        }
    }

    fn ask(
        &self,
        last: &Measured,
        now_us: Micros,
        free_bytes: Option<u64>,
    ) -> Result<Measured, StoreError> {
        Ok(Measured {
            waiting: self.store.waiting()?,
            queues: self.store.queues()?,
            unmerged: self.store.counts()?.unmerged,
            at_us: Some(now_us),
            error: None,
            free_bytes,
            short_since_us: short_since(last, now_us, free_bytes),
            wrong_clock: self.store.wrong_clock()?,
        })
    }

    /// Where the last write failed and nobody tries another, tries an empty one: a quiet process
    /// must not report a lock that was released an hour ago.
    pub fn probe(&self) {
        let writing = self.store.writing();
        let passes = writing.failing.is_some_and(|it| it.cause.passes());
        if passes && writing.waiting == 0 {
            let empty = Batch {
                source: String::new(),
                cursor: None,
                now_us: self.clock.now_us(),
                items: Vec::new(),
            };
            // Its failure is noted by the writer.
            drop(self.store.commit(empty));
        }
    }

    /// The thread that measures.
    pub fn run(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            self.measure();
            self.probe();
            // Whoever asks it to stop wakes the store.
            let stopped = || stop.load(Ordering::Relaxed);
            self.store.wait(i64::MAX, EVERY, &stopped);
        }
    }
}

fn short_since(last: &Measured, now_us: Micros, free_bytes: Option<u64>) -> Option<Micros> {
    let short = free_bytes.is_some_and(is_short);
    short.then(|| last.short_since_us.unwrap_or(now_us))
}

/// Bytes that a process without privileges may still write there.
fn free_bytes(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}
