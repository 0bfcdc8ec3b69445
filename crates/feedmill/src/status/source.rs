//! What is known of one source: connection, events, lag.
//!
//! In:    what happened to it, each with its moment: connected, lost, a frame
//!        arrived, frames became durable.
//! Out:   how far it is behind, at any moment, whether or not anything happens.
//! Never: a lag that stays small because the stage that would raise it is stuck;
//!        a lag that grows because nobody has anything to say.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::offset::Offsets;
use crate::clock::{Clock, Micros};

/// Without a frame for so long a connected source has nothing to say.
const QUIET_US: Micros = 30_000_000;
/// So many frames may wait in a source that keeps up.
const KEEPING_UP_MAX: i64 = 1000;

/// What a stream can tell about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamKind {
    #[default]
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

/// One source; stages write it, whoever asks reads it.
#[derive(Debug)]
pub struct SourceState {
    pub name: String,
    pub kind: StreamKind,
    clock: Clock,
    facts: Mutex<Facts>,
}

/// What happened to a source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Since when it is connected, or not.
    pub connected: bool,
    pub since_us: Micros,
    /// The last attempt to connect, how many failed in a row, and why the last one did.
    pub attempt_us: Option<Micros>,
    pub failures: u32,
    pub error: Option<String>,
    /// Frames received, and those of them that are not durable yet.
    pub frames: u64,
    pub pending: i64,
    /// When the last frame arrived.
    pub frame_us: Option<Micros>,
    /// The newest durable event's own time, and our clock when it became durable.
    pub event_us: Option<Micros>,
    pub seen_us: Option<Micros>,
    /// Everything that happened before this moment is durable.
    pub basis_us: Micros,
    /// Our clock held against the events' times.
    pub offsets: Offsets,
}

impl Facts {
    /// A source that was not connected yet.
    pub fn new(now_us: Micros) -> Self {
        Self {
            since_us: now_us,
            basis_us: now_us,
            ..Self::default()
        }
    }

    /// Whether it is connected, all it sent is durable, and it sends nothing.
    pub fn is_quiet(&self, now_us: Micros) -> bool {
        let last_us = self.frame_us.unwrap_or_default().max(self.since_us);
        self.connected && self.pending <= 0 && now_us - last_us >= QUIET_US
    }

    /// An attempt to connect begins.
    pub fn attempt(&mut self, now_us: Micros) {
        self.attempt_us = Some(now_us);
    }

    /// The connection is there.
    pub fn connect(&mut self, now_us: Micros) {
        self.connected = true;
        self.since_us = now_us;
        self.failures = 0;
        self.error = None;
    }

    /// An attempt failed, or the connection is gone.
    pub fn lose(&mut self, now_us: Micros, error: String) {
        if self.is_quiet(now_us) {
            self.basis_us = self.basis_us.max(now_us);
        }
        if self.connected {
            self.since_us = now_us;
        }
        self.connected = false;
        self.failures = self.failures.saturating_add(1);
        self.error = Some(error);
    }

    /// A frame arrived.
    pub fn arrive(&mut self, now_us: Micros) {
        if self.is_quiet(now_us) {
            // Until now nothing had happened that we lack.
            self.basis_us = self.basis_us.max(now_us);
        }
        self.frames += 1;
        self.pending += 1;
        self.frame_us = Some(now_us);
    }

    /// `frames` became durable; the last event among them happened at `event_us`, if they say.
    pub fn commit(&mut self, now_us: Micros, frames: usize, event_us: Option<Micros>) {
        self.pending -= frames as i64;
        self.seen_us = Some(now_us);
        self.event_us = event_us.or(self.event_us);
        self.basis_us = event_us.unwrap_or(now_us);
        if let Some(event_us) = event_us
            && self.pending < KEEPING_UP_MAX
        {
            self.offsets.note(now_us, event_us);
        }
    }

    /// How far behind it is.
    pub fn lag_us(&self, now_us: Micros) -> Micros {
        if !self.connected || self.pending > 0 {
            return (now_us - self.basis_us).max(0);
        }
        match (self.seen_us, self.event_us) {
            (Some(seen_us), Some(event_us)) if !self.is_quiet(now_us) => {
                (seen_us - event_us).max(0)
            }
            _ => 0,
        }
    }
}

impl SourceState {
    pub(super) fn new(name: &str, kind: StreamKind, clock: Clock) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            facts: Mutex::new(Facts::new(clock.now_us())),
            clock,
        }
    }

    /// A copy of what is known.
    pub fn facts(&self) -> Facts {
        self.facts.lock().clone()
    }

    /// An attempt to connect begins.
    pub fn attempt(&self) {
        self.facts.lock().attempt(self.clock.now_us());
    }

    /// The connection is there.
    pub fn connect(&self) {
        self.facts.lock().connect(self.clock.now_us());
    }

    /// An attempt failed, or the connection is gone.
    pub fn lose(&self, error: String) {
        self.facts.lock().lose(self.clock.now_us(), error);
    }

    /// A frame arrived.
    pub fn arrive(&self) {
        self.facts.lock().arrive(self.clock.now_us());
    }

    /// Frames became durable.
    pub fn commit(&self, now_us: Micros, frames: usize, event_us: Option<Micros>) {
        let mut facts = self.facts.lock();
        facts.commit(now_us, frames, event_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Micros = 1_000_000;
    const NOW: Micros = 1_790_000_000 * S;

    fn connected() -> Facts {
        let mut facts = Facts::new(NOW);
        facts.connect(NOW);
        facts
    }

    #[track_caller]
    fn lag_s(facts: &Facts, now_us: Micros) -> i64 {
        facts.lag_us(now_us) / S
    }

    #[test]
    fn lag_grows_while_frames_wait_and_nothing_becomes_durable() {
        let mut facts = connected();
        facts.arrive(NOW + S);
        facts.commit(NOW + 2 * S, 1, Some(NOW + S));
        facts.arrive(NOW + 3 * S);
        assert_eq!(lag_s(&facts, NOW + 4 * S), 3);
        assert_eq!(lag_s(&facts, NOW + 400 * S), 399);
    }

    #[test]
    fn lag_grows_while_a_source_is_not_connected() {
        let mut facts = Facts::new(NOW);
        facts.lose(NOW + S, "refused".into());
        assert_eq!(lag_s(&facts, NOW + 61 * S), 61);
    }

    #[test]
    fn a_quiet_app_has_no_lag_however_long_nothing_happens() {
        let mut facts = connected();
        facts.arrive(NOW);
        facts.commit(NOW + S, 1, Some(NOW - 3600 * S));
        assert_eq!(lag_s(&facts, NOW + 2 * S), 3601, "the event was old");
        assert_eq!(lag_s(&facts, NOW + 40 * S), 0);
        assert_eq!(lag_s(&facts, NOW + 86_400 * S), 0);
    }

    #[test]
    fn the_first_frame_after_a_quiet_day_and_a_lost_connection_count_from_that_moment() {
        let mut facts = connected();
        facts.arrive(NOW);
        facts.commit(NOW + S, 1, Some(NOW));
        let later = NOW + 86_400 * S;
        let mut lost = facts.clone();
        facts.arrive(later);
        assert_eq!(lag_s(&facts, later + 2 * S), 2);
        lost.lose(later, "closed".into());
        assert_eq!(lag_s(&lost, later + 5 * S), 5);
    }

    #[test]
    fn a_source_that_was_behind_when_it_was_lost_is_still_behind() {
        let mut facts = connected();
        facts.arrive(NOW);
        facts.commit(NOW + S, 1, Some(NOW - 600 * S));
        facts.lose(NOW + 2 * S, "closed".into());
        assert_eq!(lag_s(&facts, NOW + 10 * S), 610);
    }
}
