//! What happened to each unit of work, and what is known of an account.

use crate::clock::Micros;

pub use decide::account::Status as AccountStatus;
pub use decide::accounting::Accounting;

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
