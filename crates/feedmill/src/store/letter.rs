//! Dead letters as they are asked for, and what became of a record that was tried again.

use decide::accounting::Outcome;

use crate::clock::Micros;

/// Which dead letters, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LetterQuery {
    pub collection: Option<String>,
    pub stage: Option<String>,
    pub did: Option<String>,
    /// Buried at this moment or later.
    pub since_us: Option<Micros>,
    /// Buried before this moment.
    pub until_us: Option<Micros>,
    /// Only those before this number: the last one of the page before.
    pub before: Option<i64>,
    pub limit: usize,
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

impl Closed {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Account => "account",
            Self::Newer => "newer",
            Self::Age => "age",
            Self::Size => "size",
        }
    }
}

/// Dead letters of one stage and collection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LetterCount {
    pub stage: String,
    pub collection: String,
    pub count: i64,
}

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
    Buried,
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
            Outcome::Superseded => Self::Superseded,
            Outcome::Dead => Self::Buried,
            // A record that is tried again is put off for nothing but another record.
            Outcome::Parked | Outcome::Pending | Outcome::Held | Outcome::Filtered => Self::Parked,
        }
    }
}

impl Fate {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Repeated => "repeated",
            Self::Superseded => "superseded",
            Self::Parked => "parked",
            Self::Buried => "buried",
            Self::Discarded => "discarded",
            Self::Gone => "gone",
        }
    }
}
