//! The relay's backlog: the events it can still send again.
//!
//! In:    events in sequence.
//! Out:   the events after a cursor, in slices; where the window starts.
//! Never: more than `events_max` events, nor an event out of sequence.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::event::SeqEvent;

/// A window over the newest events.
#[derive(Debug)]
pub struct Backlog {
    events: VecDeque<Arc<SeqEvent>>,
    events_max: usize,
    last_seq: u64,
    /// The newest event no longer here.
    forgotten_seq: u64,
}

impl Backlog {
    /// An empty window of at most `events_max` events.
    pub fn new(events_max: usize) -> Self {
        Self {
            events: VecDeque::new(),
            events_max: events_max.max(1),
            last_seq: 0,
            forgotten_seq: 0,
        }
    }

    /// Appends an event; the oldest leaves if the window is full.
    pub fn push(&mut self, event: SeqEvent) {
        assert!(event.seq > self.last_seq, "events come in sequence");
        self.last_seq = event.seq;
        self.events.push_back(Arc::new(event));
        if self.events.len() > self.events_max {
            self.trim(self.events_max);
        }
    }

    /// Forgets all but the newest `keep` events.
    pub fn trim(&mut self, keep: usize) {
        let surplus = self.events.len().saturating_sub(keep);
        if let Some(event) = self.events.drain(..surplus).next_back() {
            self.forgotten_seq = event.seq;
        }
    }

    /// The newest sequence number ever given; 0 before the first.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// The oldest event still here, by number; the next one if none is.
    pub fn first_seq(&self) -> u64 {
        self.events
            .front()
            .map_or(self.last_seq + 1, |event| event.seq)
    }

    /// Whether an event numbered `from` or higher was forgotten.
    pub fn lacks(&self, from: u64) -> bool {
        self.forgotten_seq > 0 && from <= self.forgotten_seq
    }

    /// At most `limit` events numbered `from` or higher.
    pub fn since(&self, from: u64, limit: usize) -> Vec<Arc<SeqEvent>> {
        let start = self.events.partition_point(|event| event.seq < from);
        self.events
            .iter()
            .skip(start)
            .take(limit)
            .cloned()
            .collect()
    }

    /// The number of the first event at `time_us` or later; the next one if
    /// all are earlier.
    pub fn seq_at(&self, time_us: i64) -> u64 {
        let start = self.events.partition_point(|event| event.time_us < time_us);
        self.events
            .get(start)
            .map_or(self.last_seq + 1, |event| event.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Body;

    /// A window of at most 3 over events numbered 10, 20, … 60, at ten times
    /// that many microseconds.
    fn backlog() -> Backlog {
        let mut backlog = Backlog::new(3);
        for seq in [10, 20, 30, 40, 50, 60] {
            backlog.push(SeqEvent {
                seq,
                time_us: seq as i64 * 10,
                did: "did:web:a.test".into(),
                frame: "".into(),
                body: Body::Sync { rev: String::new() },
            });
        }
        backlog
    }

    fn seqs(events: &[Arc<SeqEvent>]) -> Vec<u64> {
        events.iter().map(|event| event.seq).collect()
    }

    #[test]
    fn window_holds_the_newest_and_knows_what_it_lacks() {
        let backlog = backlog();
        assert_eq!((backlog.first_seq(), backlog.last_seq()), (40, 60));
        assert!(backlog.lacks(30), "30 was forgotten");
        assert!(!backlog.lacks(31), "nothing from 31 on was forgotten");
        assert!(!Backlog::new(3).lacks(0), "a new window lacks nothing");
    }

    #[test]
    fn events_are_found_by_number_and_by_time() {
        let backlog = backlog();
        assert_eq!(seqs(&backlog.since(41, 10)), [50, 60]);
        assert_eq!(seqs(&backlog.since(0, 2)), [40, 50]);
        assert_eq!((backlog.seq_at(500), backlog.seq_at(501)), (50, 60));
        assert_eq!(backlog.seq_at(601), 61);
    }

    #[test]
    fn emptied_window_still_counts_on() {
        let mut backlog = backlog();
        backlog.trim(0);
        assert_eq!((backlog.first_seq(), backlog.last_seq()), (61, 60));
        assert!(backlog.lacks(60) && !backlog.lacks(61));
    }
}
