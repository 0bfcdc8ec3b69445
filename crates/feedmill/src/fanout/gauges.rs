//! What the timelines hold and have done, for whoever looks after them.
//!
//! In:    the engine's numbers, whenever the drawer has drawn.
//! Out:   metrics, and the same numbers for `/status`.
//! Never: a drawer that waits because somebody is being told.

use metrics::{Counter, Gauge, counter, gauge};
use parking_lot::Mutex;
use timeline::Stats;

use crate::metrics as names;

/// The metrics of timelines, found once.
#[derive(Debug)]
pub(super) struct Gauges {
    last: Mutex<Stats>,
    kinds: [Gauge; 6],
    bytes: Gauge,
    window_bytes: Gauge,
    behind: Gauge,
    pushed: Counter,
    pulled: Counter,
}

impl Gauges {
    pub(super) fn new() -> Self {
        let kind = |kind: &'static str| gauge!(names::TIMELINES, "kind" => kind);
        Self {
            last: Mutex::new(Stats::default()),
            kinds: [
                kind("readers"),
                kind("entries"),
                kind("records"),
                kind("fanouts"),
                kind("joining"),
                kind("merged_keys"),
            ],
            bytes: gauge!(names::TIMELINE_BYTES),
            window_bytes: gauge!(names::CACHE_BYTES, "cache" => "window"),
            behind: gauge!(names::TIMELINES_BEHIND),
            pushed: counter!(names::DELIVERIES, "how" => "pushed"),
            pulled: counter!(names::DELIVERIES, "how" => "pulled"),
        }
    }

    /// The numbers as they were a moment ago.
    pub(super) fn last(&self) -> Stats {
        *self.last.lock()
    }

    /// How many changes are still to be drawn, as whoever asks for metrics finds it.
    pub(super) fn tell_behind(&self, behind: i64) {
        self.behind.set(behind as f64);
    }

    pub(super) fn tell(&self, stats: Stats) {
        let numbers = [
            stats.readers as u64,
            stats.entries,
            stats.records as u64,
            stats.fanouts as u64,
            stats.joining as u64,
            stats.merged_keys as u64,
        ];
        for (gauge, number) in self.kinds.iter().zip(numbers) {
            gauge.set(number as f64);
        }
        self.bytes.set(stats.reader_bytes as f64);
        self.window_bytes.set(stats.window_bytes as f64);
        self.pushed.absolute(stats.pushes);
        self.pulled.absolute(stats.pulled);
        if let Some(mut last) = self.last.try_lock() {
            *last = stats;
        }
    }
}
