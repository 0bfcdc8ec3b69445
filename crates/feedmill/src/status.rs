//! What the process is doing right now, for the page and for `/status`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock::Micros;

/// Seconds of history behind the event rate.
const RATE_SECONDS: i64 = 10;

/// Numbers that stages write and the server reads.
#[derive(Debug, Default)]
pub struct Status {
    /// A source is connected.
    pub connected: AtomicBool,
    /// Frames received since start.
    pub frames: AtomicU64,
    /// Newest cursor made durable.
    pub cursor: AtomicI64,
    /// Time of the newest event made durable, by its own account.
    pub event_us: AtomicI64,
    /// Our clock when that happened.
    pub seen_us: AtomicI64,
    /// Frames between socket and store.
    pub pending: AtomicI64,
    /// Repositories being fetched, and fetched.
    pub resyncing: AtomicI64,
    pub resynced: AtomicU64,
    /// Accounts marked for a resync by this process: a hint to look for them.
    pub marked: watch::Sender<u64>,
    /// Marked accounts that were repaired or given up: a hint to those who wait for one.
    pub settled: watch::Sender<u64>,
    /// Accounts seen in lists, and those of them that were never heard of.
    pub listed: AtomicU64,
    pub adopted: AtomicU64,
    /// A list is being read.
    pub listing: AtomicBool,
    /// Streams that are read: name and kind.
    pub streams: Mutex<Vec<(String, StreamKind)>>,
    recent: Mutex<VecDeque<(Micros, u64)>>,
}

/// What a stream can tell about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamKind {
    Firehose,
    Jetstream,
    Log,
    Tap,
}

impl StreamKind {
    /// Its name in `/status`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Firehose => "firehose",
            Self::Jetstream => "jetstream",
            Self::Log => "log",
            Self::Tap => "tap",
        }
    }

    /// How loss on the way is noticed.
    pub fn loss(self) -> &'static str {
        match self {
            Self::Firehose => "detected: every commit names the one before",
            Self::Jetstream => "undetectable: a Jetstream does not say what came before",
            Self::Log => "detected: positions and hashes tell what came before",
            Self::Tap => {
                "left to the Tap: what we do not acknowledge comes again, what it missed it fetches itself"
            }
        }
    }
}

impl Status {
    /// Notes that `units` were made durable at `now`.
    pub fn committed(
        &self,
        now_us: Micros,
        units: u64,
        cursor: Option<i64>,
        event_us: Option<Micros>,
    ) {
        if let Some(cursor) = cursor {
            self.cursor.store(cursor, Ordering::Relaxed);
        }
        if let Some(event_us) = event_us {
            self.event_us.store(event_us, Ordering::Relaxed);
        }
        self.seen_us.store(now_us, Ordering::Relaxed);
        let mut recent = self.recent.lock();
        recent.push_back((now_us, units));
        while recent.len() > 10_000
            || recent
                .front()
                .is_some_and(|(at, _)| *at < now_us - RATE_SECONDS * 1_000_000)
        {
            recent.pop_front();
        }
    }

    /// Units per second over the last seconds.
    pub fn rate(&self, now_us: Micros) -> f64 {
        let recent = self.recent.lock();
        let fresh = recent
            .iter()
            .filter(|(at, _)| *at >= now_us - RATE_SECONDS * 1_000_000);
        let units: u64 = fresh.map(|(_, units)| units).sum();
        units as f64 / RATE_SECONDS as f64
    }

    /// Seconds that the newest durable event was old when it was seen.
    pub fn lag_seconds(&self) -> f64 {
        let event = self.event_us.load(Ordering::Relaxed);
        let seen = self.seen_us.load(Ordering::Relaxed);
        if event == 0 {
            0.0
        } else {
            (seen - event).max(0) as f64 / 1e6
        }
    }
}
