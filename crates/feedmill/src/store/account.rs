//! What happened to each unit of work, and what is known of an account.

use serde::Serialize;

use crate::clock::Micros;

/// Counters that add up: every unit of work is counted exactly once. Signed,
/// because a held unit that is let go moves from one counter to another.
///
/// A unit is one operation, one account or identity event, or one frame that
/// cannot be opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Accounting {
    /// Changed what is stored.
    pub applied: i64,
    /// Was stored already.
    pub repeated: i64,
    /// Came after something newer.
    pub superseded: i64,
    /// Not of interest.
    pub filtered: i64,
    /// Accepted, waiting in a queue.
    pub pending: i64,
    /// Waiting for a record it depends on.
    pub parked: i64,
    /// Waiting for the account's resync.
    pub held: i64,
    /// Refused, kept as a dead letter.
    pub dead: i64,
    /// All units received: the sum of the others.
    pub received: i64,
}

impl Accounting {
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

/// The hosting status of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AccountStatus {
    #[default]
    Active,
    Takendown,
    Suspended,
    Deactivated,
    Deleted,
    Desynchronized,
    Throttled,
}

impl AccountStatus {
    /// From the fields of an `#account` event. Inactive without a known
    /// status hides: that is the careful reading of an unknown reason.
    pub fn of(active: bool, status: Option<&str>) -> Self {
        match (active, status) {
            (true, _) => Self::Active,
            (false, Some("takendown")) => Self::Takendown,
            (false, Some("suspended")) => Self::Suspended,
            (false, Some("deleted")) => Self::Deleted,
            (false, Some("desynchronized")) => Self::Desynchronized,
            (false, Some("throttled")) => Self::Throttled,
            (false, _) => Self::Deactivated,
        }
    }

    /// Whether the account's records may be seen.
    pub fn visible(self) -> bool {
        matches!(self, Self::Active | Self::Desynchronized | Self::Throttled)
    }

    /// Why it is not active, as an `#account` event says it.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Self::Active => None,
            Self::Takendown => Some("takendown"),
            Self::Suspended => Some("suspended"),
            Self::Deactivated => Some("deactivated"),
            Self::Deleted => Some("deleted"),
            Self::Desynchronized => Some("desynchronized"),
            Self::Throttled => Some("throttled"),
        }
    }

    /// The number under which it is stored; visible ones are even.
    pub fn code(self) -> i64 {
        match self {
            Self::Active => 0,
            Self::Desynchronized => 2,
            Self::Throttled => 4,
            Self::Takendown => 1,
            Self::Suspended => 3,
            Self::Deactivated => 5,
            Self::Deleted => 7,
        }
    }

    /// The status behind a stored number.
    pub fn from_code(code: i64) -> Self {
        match code {
            2 => Self::Desynchronized,
            4 => Self::Throttled,
            1 => Self::Takendown,
            3 => Self::Suspended,
            5 => Self::Deactivated,
            7 => Self::Deleted,
            _ => Self::Active,
        }
    }
}

/// What is known of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountState {
    /// Hosting status.
    pub status: AccountStatus,
    /// Newest revision applied.
    pub rev: u64,
    /// Whether its chain broke and a resync is due.
    pub broken: bool,
    /// Whether its status may have changed where we could not see it.
    pub doubtful: bool,
}

/// An account that was being fetched when the process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    pub did: String,
    /// When the last attempt began, and how many began and did not end.
    pub begun_us: Micros,
    pub attempts: u32,
}

/// Whether what a reader of a feed follows is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstRead {
    /// All of it is.
    Known,
    /// Its repository is being fetched.
    Waiting,
    /// Its host did not give it; it is not asked again for a while.
    Failed,
    /// Nobody asked for it yet.
    Unknown,
    /// Not all of it, and its account is hidden: nobody gives out its repository until it is seen again.
    Hidden,
}
