//! What the other side of the watershed sees: changes, in commit order.

use serde::{Deserialize, Serialize};

use crate::clock::Micros;

/// One change, as branches draw it. Replaying one changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "c", rename_all = "camelCase")]
pub enum Change {
    /// A record is there, new or in a new version.
    Put {
        record: i64,
        uri: String,
        /// Happened just now; false for backfill, which never enters the live stream.
        live: bool,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lanes: Vec<Published>,
    },
    /// A record is gone.
    Delete { record: i64, uri: String },
    /// A reader follows a key (or hides it, by the source's kind). One for each follow record.
    Follow { source: i64, reader: i64, key: i64 },
    /// A follow record is gone.
    Unfollow { source: i64, reader: i64, key: i64 },
    /// An account's records became visible or hidden.
    Account {
        key: i64,
        did: String,
        visible: bool,
    },
}

/// A target record's place in a lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    pub lane: i64,
    pub time_us: Micros,
    pub author: i64,
    pub keys: Vec<i64>,
}

/// Changes drawn from the outbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drawn {
    pub changes: Vec<Change>,
    /// The position to draw from next.
    pub position: i64,
    /// Changes after the asked position are no longer kept: rebuild from records.
    pub gone: bool,
}
