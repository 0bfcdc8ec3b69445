//! What became of things that were asked for, or that end by themselves.

use crate::accounting::Outcome;

/// What became of a record that was tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Applied,
    /// What it says is stored already.
    Repeated,
    /// Something newer is stored, or its account is gone.
    Superseded,
    /// It waits for a record it needs.
    Parked,
    /// It is refused (again), and its dead letter says why today.
    Dead,
    /// Discarded, as asked.
    Discarded,
    /// There is no such dead letter.
    Gone,
}

impl From<Outcome> for Fate {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Applied => Self::Applied,
            Outcome::Repeated => Self::Repeated,
            Outcome::Parked | Outcome::Pending | Outcome::Held => Self::Parked,
            Outcome::Dead => Self::Dead,
            Outcome::Superseded | Outcome::Filtered => Self::Superseded,
        }
    }
}

/// Why a dead letter is not kept any longer, without anybody's asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Closed {
    /// Its record was deleted.
    Deleted,
    /// Its account is gone.
    Account,
    /// Another version of its record came.
    Newer,
    /// It was kept for as long as the configuration says.
    Age,
    /// More bytes of dead letters than the configuration allows, and it was the oldest.
    Size,
}
