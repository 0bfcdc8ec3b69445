//! What consumers see: changes, in commit order.

use serde::{Deserialize, Serialize};

use crate::ids::{FollowId, IndexId, KeyId, Micros, RecordId};

/// One change. Applying one twice changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A record is there, new or in a new version.
    Put {
        record: RecordId,
        uri: String,
        /// Happened just now; a fetched record never enters the live stream.
        live: bool,
        /// It was elsewhere in the order, or under other keys; a `Delete` of it precedes.
        moved: bool,
        entries: Vec<Published>,
    },
    /// A record is gone.
    Delete {
        record: RecordId,
        uri: String,
        entries: Vec<Published>,
    },
    /// A reader follows a key (or hides it, by the kind of the source). One for each follow record.
    Follow {
        source: FollowId,
        reader: KeyId,
        key: KeyId,
    },
    /// A follow record is gone.
    Unfollow {
        source: FollowId,
        reader: KeyId,
        key: KeyId,
    },
    /// Groups of a merged index changed.
    Regroup {
        index: IndexId,
        /// Groups that ended or have other members now, as they were.
        was: Vec<Grouped>,
        /// Groups that are new or have other members.
        now: Vec<Grouped>,
        /// The next change is of the same groups, and nobody may see one without the other.
        continues: bool,
    },
    /// An account's records became visible or hidden.
    Account {
        key: KeyId,
        did: String,
        visible: bool,
    },
}

/// A record's place in a feed index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    pub index: IndexId,
    pub time_us: Micros,
    pub author: KeyId,
    pub keys: Vec<KeyId>,
}

/// A group's place in a merged index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grouped {
    /// Its first record.
    pub record: RecordId,
    pub uri: String,
    pub time_us: Micros,
    pub author: KeyId,
    /// The keys of all its members, each once.
    pub keys: Vec<KeyId>,
    /// Something of its thing happened just now.
    pub live: bool,
}
