//! Where the rows of a lane lie.
//!
//! Most lanes hold every record of a collection under its author alone. They
//! need no rows of their own: an index of the records by time and a pile of
//! them by author are the same in the same order. Such a lane has the
//! collection's number, below zero; the others have rows of their own.
//!
//! Records of one time are told apart by their tails. Under one author these
//! all begin with its DID, so the pile holds only what follows: the *tie*,
//! which is the record key there and the whole tail elsewhere.

use rusqlite::types::{FromSqlError, ValueRef};
use rusqlite::{Connection, Error, params};

use super::derive::unpack;
use super::names;
use super::pile::form::{NUMBER_BYTES, number_bytes, number_of, sorting};
use super::pile::{Added, Descent, Pile};

/// Where the rows of a lane are, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shelf {
    pub(super) tie: Tie,
    /// (lane, time, tail, record, keys)
    pub(super) recent: &'static str,
    pub(super) number: i64,
}

/// In what records of one key and time differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tie {
    /// Rows of `published`.
    Tail,
    /// Entries of [`Pile::Authored`].
    Rkey,
}

/// A record's place under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) time: i64,
    pub(super) tie: String,
    pub(super) record: i64,
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
                tie: Tie::Tail,
                recent: "recent",
                number: lane,
            },
            false => Self {
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

    /// What stands under a key below a time and a tie, newest first.
    pub(super) fn below(
        &self,
        connection: &Connection,
        key: i64,
        (time, tie): (i64, &str),
        limit: usize,
    ) -> Result<Vec<Placed>, Error> {
        match self.tie {
            Tie::Tail => connection
                .prepare_cached(
                    "SELECT time, tail, record FROM published WHERE lane = ?1 AND key = ?2 AND (time, tail) < (?3, ?4)
                     ORDER BY time DESC, tail DESC LIMIT ?5",
                )?
                .query_map(params![self.number, key, time, tie, limit as i64], |row| {
                    Ok(Placed {
                        time: row.get(0)?,
                        tie: row.get(1)?,
                        record: row.get(2)?,
                    })
                })?
                .collect(),
            Tie::Rkey => {
                let prefix = authored_by(self.number, key);
                let bound = authored_below(&prefix, time, tie);
                let mut descent = Descent::new(connection, Pile::Authored, &prefix, &bound, None)?;
                let mut found = Vec::new();
                while found.len() < limit
                    && let Some(placed) = descent.next(placed)?
                {
                    found.push(placed.ok_or_else(|| Error::from(FromSqlError::InvalidType))?);
                }
                Ok(found)
            }
        }
    }

    /// Whether a record stands under a key at exactly this time and tie.
    pub(super) fn holds(
        &self,
        connection: &Connection,
        key: i64,
        time: i64,
        tie: &str,
    ) -> Result<bool, Error> {
        // What follows a tie in the alphabet, and nothing lies between.
        let next = [tie, "\u{1}"].concat();
        let highest = self.below(connection, key, (time, &next), 1)?;
        Ok(highest
            .first()
            .is_some_and(|placed| placed.time == time && placed.tie == tie))
    }

    /// Every record that stands under a key, with what a transaction has `added`.
    pub(super) fn records(
        &self,
        connection: &Connection,
        key: i64,
        added: &Added,
    ) -> Result<Vec<i64>, Error> {
        if self.tie == Tie::Tail {
            return connection
                .prepare_cached("SELECT record FROM published WHERE lane = ?1 AND key = ?2")?
                .query_map([self.number, key], |row| row.get(0))?
                .collect();
        }
        let prefix = authored_by(self.number, key);
        let bound = authored_below(&prefix, i64::MAX, "\u{7f}");
        let mut descent = Descent::new(connection, Pile::Authored, &prefix, &bound, Some(added))?;
        let mut found = Vec::new();
        while let Some(placed) = descent.next(placed)? {
            found.extend(placed.map(|placed| placed.record));
        }
        Ok(found)
    }
}

/// What the entries of an author's records in a collection begin with.
fn authored_by(collection: i64, author: i64) -> [u8; 16] {
    let mut prefix = [0; 16];
    let (high, low) = prefix.split_at_mut(8);
    high.copy_from_slice(&sorting(collection));
    low.copy_from_slice(&sorting(author));
    prefix
}

/// Above every entry that lies below a time and a tie, and below all others.
fn authored_below(prefix: &[u8], time: i64, tie: &str) -> Vec<u8> {
    [prefix, &sorting(time), tie.as_bytes()].concat()
}

/// A record's entry. No record key has a byte of zero, so shorter keys sort first.
pub(super) fn authored(
    collection: i64,
    author: i64,
    time: i64,
    rkey: &str,
    record: i64,
) -> Vec<u8> {
    let prefix = authored_by(collection, author);
    let (time, number) = (sorting(time), number_bytes(record));
    [&prefix[..], &time, rkey.as_bytes(), &[0], &number].concat()
}

/// What follows the prefix of an entry.
fn placed(rest: &[u8]) -> Option<Placed> {
    let (time, rest) = rest.split_first_chunk::<8>()?;
    let (tie, number) = rest.split_last_chunk::<NUMBER_BYTES>()?;
    let (_, tie) = tie.split_last()?;
    Some(Placed {
        time: i64::from_be_bytes(*time) ^ i64::MIN,
        tie: std::str::from_utf8(tie).ok()?.to_owned(),
        record: number_of(number)?,
    })
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
