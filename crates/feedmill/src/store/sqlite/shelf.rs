//! Where the rows of a lane lie.
//!
//! Most lanes hold every record of a collection under its author alone. They
//! need no rows of their own: two indexes of the records are the same in the
//! same order, cost one statement with the record, and go with it. Such a lane
//! has the collection's number, below zero; the others have rows of their own.
//!
//! Records of one time are told apart by their tails. Under one author these
//! all begin with its DID, so the author's index holds only what follows: the
//! *tie*, which is the record key there and the whole tail elsewhere.

use rusqlite::types::{FromSqlError, ValueRef};
use rusqlite::{Connection, Error};

use super::derive::unpack;
use super::names;

/// Tables, or views of the same shape, and the number of a lane in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shelf {
    /// (lane, key, time, a tie, record)
    pub(super) published: &'static str,
    pub(super) tie: Tie,
    /// (lane, time, tail, record, keys)
    pub(super) recent: &'static str,
    pub(super) number: i64,
}

/// The column in which records of one key and time differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tie {
    Tail,
    Rkey,
}

impl std::fmt::Display for Tie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tail => "tail",
            Self::Rkey => "rkey",
        })
    }
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
                tie: Tie::Tail,
                recent: "recent",
                number: lane,
            },
            false => Self {
                published: "author_published",
                tie: Tie::Rkey,
                recent: "author_recent",
                number: -lane,
            },
        }
    }

    /// What every tail under a key begins with, and its tie does not.
    pub(super) fn stem(&self, connection: &Connection, key: i64) -> Result<Stem, Error> {
        match self.tie {
            Tie::Tail => Ok(Stem(String::new())),
            Tie::Rkey => Ok(Stem(names::text_of(connection, key)? + "/")),
        }
    }
}

/// What the tails under one key have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stem(String);

impl Stem {
    pub(super) fn tail(&self, tie: &str) -> String {
        [&self.0, tie].concat()
    }

    /// The tie of a tail; `None` if that cannot stand under this key.
    pub(super) fn tie<'a>(&self, tail: &'a str) -> Option<&'a str> {
        tail.strip_prefix(self.0.as_str())
    }

    /// The ties below this one are those of the tails below `tail`, which may be another key's.
    pub(super) fn below<'a>(&self, tail: &'a str) -> &'a str {
        match self.tie(tail) {
            Some(tie) => tie,
            None if self.0.as_str() < tail => "\u{7f}",
            None => "",
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Accounts whose DIDs begin alike, bounds of both kinds, and keys at both ends of the alphabet.
    #[test]
    fn ties_are_below_a_bound_as_their_tails_are() {
        let dids = [
            "did:web:a",
            "did:web:a-b",
            "did:web:a.b",
            "did:web:a:b",
            "did:web:b",
        ];
        let rkeys = ["-", "3k", "3kz", "self", "~"];
        let bounds = dids.iter().flat_map(|did| {
            let rkeys = rkeys.iter().chain(&["", "\u{7f}"]);
            rkeys.map(move |rkey| format!("{did}/{rkey}"))
        });
        for bound in bounds.chain([String::new()]) {
            for did in dids {
                let stem = Stem(format!("{did}/"));
                for rkey in rkeys {
                    let tail = stem.tail(rkey);
                    assert_eq!(rkey < stem.below(&bound), tail < bound, "{tail} {bound}");
                    assert_eq!(stem.tie(&bound) == Some(rkey), tail == bound);
                }
                let own = Stem(String::new());
                assert_eq!(own.below(&bound), bound);
            }
        }
    }
}
