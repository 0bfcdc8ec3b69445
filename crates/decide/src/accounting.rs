//! Counters that add up: every unit of work is counted exactly once.

use serde::Serialize;

/// What became of one unit: an operation, an account or identity event, or a frame that cannot be
/// decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Changed what is stored.
    Applied,
    /// Was stored already.
    Repeated,
    /// Came after something newer.
    Superseded,
    /// Not of interest.
    Filtered,
    /// Accepted, waiting in a queue.
    Pending,
    /// Waiting for a record it depends on.
    Parked,
    /// Waiting for the account's resync.
    Held,
    /// Refused, kept as a dead letter.
    Dead,
}

/// How many units had each outcome. Signed, because a unit that waited moves from one counter to
/// another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Accounting {
    pub applied: i64,
    pub repeated: i64,
    pub superseded: i64,
    pub filtered: i64,
    pub pending: i64,
    pub parked: i64,
    pub held: i64,
    pub dead: i64,
    /// All units received: the sum of the others.
    pub received: i64,
}

impl Accounting {
    fn counter(&mut self, outcome: Outcome) -> &mut i64 {
        match outcome {
            Outcome::Applied => &mut self.applied,
            Outcome::Repeated => &mut self.repeated,
            Outcome::Superseded => &mut self.superseded,
            Outcome::Filtered => &mut self.filtered,
            Outcome::Pending => &mut self.pending,
            Outcome::Parked => &mut self.parked,
            Outcome::Held => &mut self.held,
            Outcome::Dead => &mut self.dead,
        }
    }

    /// Counts units that were just received.
    pub fn receive(&mut self, outcome: Outcome, units: i64) {
        *self.counter(outcome) += units;
        self.received += units;
    }

    /// Moves units that were counted before.
    pub fn move_to(&mut self, from: Outcome, to: Outcome, units: i64) {
        *self.counter(from) -= units;
        *self.counter(to) += units;
    }

    /// Takes back units that were counted before: they are received once more.
    pub fn take_back(&mut self, from: Outcome, units: i64) {
        self.receive(from, -units);
    }

    /// Adds another set of counters.
    pub fn add(&mut self, other: &Self) {
        self.applied += other.applied;
        self.repeated += other.repeated;
        self.superseded += other.superseded;
        self.filtered += other.filtered;
        self.pending += other.pending;
        self.parked += other.parked;
        self.held += other.held;
        self.dead += other.dead;
        self.received += other.received;
    }

    /// Every counter with its name.
    pub fn by_name(&self) -> [(&'static str, i64); 9] {
        [
            ("applied", self.applied),
            ("repeated", self.repeated),
            ("superseded", self.superseded),
            ("filtered", self.filtered),
            ("pending", self.pending),
            ("parked", self.parked),
            ("held", self.held),
            ("dead", self.dead),
            ("received", self.received),
        ]
    }

    /// Whether every unit received is counted exactly once.
    pub fn adds_up(&self) -> bool {
        self.received
            == self.applied
                + self.repeated
                + self.superseded
                + self.filtered
                + self.pending
                + self.parked
                + self.held
                + self.dead
    }
}
