//! All sources of a process at one moment.

use serde_json::{Value, json};

use crate::clock::Micros;

use super::heartbeat::Named;

/// The sources as they were when somebody asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ingestion {
    pub sources: Vec<Report>,
}

/// One source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub name: String,
    pub kind: &'static str,
    pub loss: &'static str,
    pub connected: bool,
    /// Since when it is connected, or not.
    pub since_us: Micros,
    pub error: Option<String>,
    pub frames: u64,
    pub pending: i64,
    pub event_us: Option<Micros>,
    pub lag_us: Micros,
    /// Our clock minus the events' times.
    pub clock_offset_us: Option<Micros>,
}

impl Report {
    /// A source as it is.
    pub fn new(source: Named, now_us: Micros) -> Self {
        let facts = source.facts;
        Self {
            name: source.name,
            kind: source.kind.name(),
            loss: source.kind.loss(),
            connected: facts.connected,
            since_us: facts.since_us,
            lag_us: facts.lag_us(now_us),
            clock_offset_us: facts.offsets.median_us(),
            error: facts.error,
            frames: facts.frames,
            pending: facts.pending.max(0),
            event_us: facts.event_us,
        }
    }
}

impl Report {
    fn shown(&self) -> Value {
        json!({
            "name": self.name,
            "kind": self.kind,
            "loss": self.loss,
            "connected": self.connected,
            "since": record::datetime::format_us(self.since_us),
            "error": self.error,
            "lag_seconds": self.lag_us as f64 / 1e6,
            "clock_offset_seconds": self.clock_offset_us.map(|off_us| off_us as f64 / 1e6),
            "pending": self.pending,
        })
    }
}

impl Ingestion {
    /// Whether there are sources, and all of them are connected.
    pub fn is_connected(&self) -> bool {
        !self.sources.is_empty() && self.sources.iter().all(|source| source.connected)
    }

    /// Frames that are not durable yet.
    pub fn pending(&self) -> i64 {
        self.sources.iter().map(|source| source.pending).sum()
    }

    /// Frames received.
    pub fn frames(&self) -> u64 {
        self.sources.iter().map(|source| source.frames).sum()
    }

    /// The newest durable event's own time.
    pub fn event_us(&self) -> Option<Micros> {
        let times = self.sources.iter().filter_map(|source| source.event_us);
        times.max()
    }

    /// How far the slowest source is behind.
    pub fn lag_us(&self) -> Micros {
        let lags = self.sources.iter().map(|source| source.lag_us);
        lags.max().unwrap_or(0)
    }

    /// All of it as `/status` shows it.
    pub fn shown(&self, now_us: Micros) -> Value {
        let streams: Vec<Value> = self.sources.iter().map(Report::shown).collect();
        let event = self.event_us();
        json!({
            "connected": self.is_connected(),
            "streams": streams,
            "cursor": event,
            "event_us": event.unwrap_or(0),
            "date": event.map(record::datetime::format_us),
            "seconds_ago": event.map(|event| (now_us - event).max(0) / 1_000_000),
            "lag_seconds": self.lag_us() as f64 / 1e6,
            "pending": self.pending(),
            "frames": self.frames(),
        })
    }
}
