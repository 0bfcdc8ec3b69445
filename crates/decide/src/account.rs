//! Accounts: their hosting status, and whether their repository must be fetched.

/// The hosting status of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Status {
    #[default]
    Active,
    Takendown,
    Suspended,
    Deactivated,
    Deleted,
    Desynchronized,
    Throttled,
}

impl Status {
    /// From the fields of an `#account` event. Inactive for an unknown reason hides: that is the
    /// careful reading.
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

    /// The number under which it is stored; those of visible accounts are even.
    pub fn code(self) -> i64 {
        match self {
            Self::Active => 0,
            Self::Takendown => 1,
            Self::Desynchronized => 2,
            Self::Suspended => 3,
            Self::Throttled => 4,
            Self::Deactivated => 5,
            Self::Deleted => 7,
        }
    }

    /// The status behind a stored number.
    pub fn from_code(code: i64) -> Self {
        match code {
            1 => Self::Takendown,
            2 => Self::Desynchronized,
            3 => Self::Suspended,
            4 => Self::Throttled,
            5 => Self::Deactivated,
            7 => Self::Deleted,
            _ => Self::Active,
        }
    }
}

/// Why an account's repository must be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Repair {
    /// Its repository is here, but not all of what was held meanwhile: its events are still held.
    Releasing,
    /// Its history is not all here; its events are applied meanwhile.
    Due,
    /// Its chain broke: its events are held until the repository is here.
    Holding,
}

impl Repair {
    /// The number under which it is stored.
    pub fn code(self) -> i64 {
        match self {
            Self::Due => 1,
            Self::Holding => 2,
            Self::Releasing => 3,
        }
    }

    /// What a stored number says.
    pub fn from_code(code: Option<i64>) -> Option<Self> {
        match code {
            Some(1) => Some(Self::Due),
            Some(2) => Some(Self::Holding),
            Some(3) => Some(Self::Releasing),
            _ => None,
        }
    }
}

/// Rows of one slice of a job.
pub const SLICE_MAX: usize = if cfg!(debug_assertions) { 5 } else { 1_000 };

/// Work on all records of an account, done in slices by a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Job {
    /// The account was deleted: remove everything of it.
    Purge,
    /// It was hidden or shown: count its records out or in.
    Recount,
}

impl Job {
    /// The number under which it is stored.
    pub fn code(self) -> i64 {
        match self {
            Self::Purge => 1,
            Self::Recount => 2,
        }
    }

    /// What a stored number says.
    pub fn from_code(code: Option<i64>) -> Option<Self> {
        match code {
            Some(1) => Some(Self::Purge),
            Some(2) => Some(Self::Recount),
            _ => None,
        }
    }
}

/// How often every account became due: one of an older epoch is.
pub const DUE_EPOCH: &str = "due epoch";
