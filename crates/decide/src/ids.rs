//! Numbers that stand for long names, each of a type of its own.
//!
//! A function that takes two `i64`s invites the wrong order; one that takes a
//! [`KeyId`] and a [`RecordId`] does not.

use serde::{Deserialize, Serialize};

/// Microseconds since 1970.
pub type Micros = i64;

macro_rules! id {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub i64);
    };
}

id!(
    /// A string that can be followed: an account's DID, or any other.
    KeyId
);
id!(
    /// A collection's NSID.
    CollectionId
);
id!(
    /// A stored record, live or deleted.
    RecordId
);
id!(
    /// A feed index: the records of a target, in order, under keys.
    IndexId
);
id!(
    /// A source of follows: a collection whose records say who follows which key.
    FollowId
);
id!(
    /// A sort index: the records of a collection in the order of a field.
    SortId
);
id!(
    /// A dead letter.
    DeadId
);
id!(
    /// A record that waits for another one.
    ParkedId
);
id!(
    /// An operation that waits in a queue.
    PendingId
);

/// The revision of a repository; later ones are larger.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Rev(pub u64);

/// A place in the outbox. The epoch changes when a store is restored or rolled back, so that a
/// consumer never continues in another history.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Position {
    pub epoch: i64,
    pub n: i64,
}

/// Where a record is: account, collection, record key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Path {
    pub author: KeyId,
    pub collection: CollectionId,
    pub rkey: String,
}

/// The integer under which a long string is found; the string itself confirms it.
pub fn hash(text: &str) -> i64 {
    xxhash_rust::xxh3::xxh3_64(text.as_bytes()).cast_signed()
}
