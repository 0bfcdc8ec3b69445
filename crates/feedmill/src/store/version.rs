//! A record's newest version, live or gone, as it is handed on to others.

use super::account::AccountStatus;
use crate::clock::Micros;

/// What stands at a URI now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    pub uri: String,
    pub did: String,
    pub collection: String,
    pub rkey: String,
    pub rev: u64,
    /// The moment of first sight.
    pub seen_us: Micros,
    /// Whether its author may be seen.
    pub visible: bool,
    /// `None` where it was deleted or refused.
    pub content: Option<Content>,
}

/// A live record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    pub cid: Option<String>,
    /// JSON text.
    pub body: String,
}

/// An account's hosting status and since when, and how far its repository is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Its number; a walk goes on behind it.
    pub key: i64,
    pub did: String,
    pub status: AccountStatus,
    pub since_us: Micros,
    /// The newest revision of its repository that was applied.
    pub rev: u64,
}
