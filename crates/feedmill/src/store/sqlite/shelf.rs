//! Where the rows of a lane lie.
//!
//! Most lanes hold every record of a collection under its author alone. They
//! need no rows of their own: two indexes of the records are the same in the
//! same order, cost one statement with the record, and go with it. Such a lane
//! has the collection's number, below zero; the others have rows of their own.

use rusqlite::Error;
use rusqlite::types::{FromSqlError, ValueRef};

use super::derive::unpack;

/// Tables, or views of the same shape, and the number of a lane in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shelf {
    /// (lane, key, time, tail, record)
    pub(super) published: &'static str,
    /// (lane, time, tail, record, keys)
    pub(super) recent: &'static str,
    pub(super) number: i64,
}

/// The number of the lane of all records of a collection.
pub(super) fn lane_of(collection: i64) -> i64 {
    -collection
}

/// Whether a lane has rows of its own.
pub(super) fn has_rows(lane: i64) -> bool {
    lane >= 0
}

impl Shelf {
    pub(super) fn of(lane: i64) -> Self {
        match has_rows(lane) {
            true => Self {
                published: "published",
                recent: "recent",
                number: lane,
            },
            false => Self {
                published: "author_published",
                recent: "author_recent",
                number: -lane,
            },
        }
    }
}

/// The keys of a row of `recent`: packed, or the author's alone.
pub(super) fn keys_in(value: ValueRef<'_>) -> Result<impl Iterator<Item = i64>, Error> {
    let (author, packed) = match value {
        ValueRef::Integer(author) => (Some(author), [].as_slice()),
        ValueRef::Blob(packed) => (None, packed),
        _ => return Err(FromSqlError::InvalidType.into()),
    };
    Ok(author.into_iter().chain(unpack(packed)))
}
