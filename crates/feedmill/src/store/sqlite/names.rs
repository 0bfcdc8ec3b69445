//! Strings that become integers: keys and collections.
//!
//! A hash finds the row and the text confirms it, so two strings with one
//! hash are two keys. The writer keeps the busiest ids in memory.

use quick_cache::unsync::Cache;
use record::tid::Tid;
use rusqlite::{Connection, Error, OptionalExtension, params};
use xxhash_rust::xxh3::xxh3_64;

use super::accounts::Known;
use super::fresh::Fresh;
use super::pile::{Added, Pile};
use super::tip::Moved;

/// Ids, and rows of accounts, kept in memory for each MiB of page cache: the caches are chosen as one.
const NAMES_PER_MIB: usize = 1_024;
/// The same where all records are gone through.
pub(super) const NAMES_MAX: usize = 200_000;

/// The integer that stands for a long string in an index.
///
/// A URI whose record key is a TID is numbered by its time first: what is new,
/// and what new records name, then lies close together in every index by
/// hash, and a batch touches a few pages instead of one for each entry. Eight
/// seconds share a time, and thirty-two bits of hash tell their URIs apart.
/// Everything else is below zero, in no order.
pub(super) fn hash(text: &str) -> i64 {
    let hash = xxh3_64(text.as_bytes());
    let number = match time_of(text) {
        Some(time_us) => (time_us >> TIME_SHIFT) << 32 | hash >> 32,
        None => hash | 1 << 63,
    };
    number.cast_signed()
}

/// Microseconds that share a time are 2 to this power; a TID has 54 bits of them.
const TIME_SHIFT: u32 = 23;

/// The time in the record key of a URI, where it is a TID.
fn time_of(text: &str) -> Option<u64> {
    let (_, rkey) = text.strip_prefix("at://")?.rsplit_once('/')?;
    Tid::parse(rkey).ok().map(Tid::micros)
}

/// The id of a key that is known.
pub(super) fn find_key(connection: &Connection, text: &str) -> Result<Option<i64>, Error> {
    let mut statement =
        connection.prepare_cached("SELECT id FROM key WHERE hash = ?1 AND text = ?2")?;
    statement
        .query_row(params![hash(text), text], |row| row.get(0))
        .optional()
}

/// The string behind the id of a key.
pub(super) fn text_of(connection: &Connection, key: i64) -> Result<String, Error> {
    connection
        .prepare_cached("SELECT text FROM key WHERE id = ?1")?
        .query_row([key], |row| row.get(0))
}

/// The id of a collection that is known.
pub(super) fn find_collection(connection: &Connection, nsid: &str) -> Result<Option<i64>, Error> {
    let mut statement = connection.prepare_cached("SELECT id FROM collection WHERE nsid = ?1")?;
    statement.query_row([nsid], |row| row.get(0)).optional()
}

/// The writer's memory of ids.
pub(super) struct Names {
    names_max: usize,
    keys: Cache<Box<str>, i64>,
    collections: Cache<Box<str>, i64>,
    /// Rows of accounts, as this writer last saw or wrote them.
    pub(super) accounts: Cache<i64, Known>,
    pub(super) fresh: Fresh,
    /// The tips that the transaction moves, and what it adds to the piles.
    pub(super) tips: Moved,
    pub(super) authored: Added,
    pub(super) referred: Added,
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Names")
            .field("keys", &self.keys.len())
            .finish_non_exhaustive()
    }
}

impl Names {
    pub(super) fn beside(cache_mib: u32) -> Self {
        Self::new(NAMES_PER_MIB * cache_mib.max(1) as usize)
    }

    pub(super) fn new(names_max: usize) -> Self {
        Self {
            names_max,
            keys: Cache::new(names_max),
            collections: Cache::new(1024),
            accounts: Cache::new(names_max),
            fresh: Fresh::default(),
            tips: Moved::default(),
            authored: Added::to(Pile::Authored),
            referred: Added::to(Pile::Referred),
        }
    }

    /// Forgets everything: after a rollback, ids given in it are not true.
    pub(super) fn forget(&mut self) {
        *self = Self::new(self.names_max);
    }

    /// Writes what waited for the end of the transaction.
    pub(super) fn settle(&mut self, tx: &Connection) -> Result<(), Error> {
        self.tips.settle(tx)?;
        self.authored.settle(tx)?;
        self.referred.settle(tx)
    }

    /// The id of a key, given one if it has none.
    pub(super) fn key(&mut self, tx: &Connection, text: &str) -> Result<i64, Error> {
        if let Some(id) = self.known_key(tx, text)? {
            return Ok(id);
        }
        tx.prepare_cached("INSERT INTO key (hash, text) VALUES (?1, ?2)")?
            .execute(params![hash(text), text])?;
        let id = tx.last_insert_rowid();
        self.keys.insert(text.into(), id);
        Ok(id)
    }

    /// The id of a key that is known.
    pub(super) fn known_key(&mut self, tx: &Connection, text: &str) -> Result<Option<i64>, Error> {
        if let Some(id) = self.keys.get(text) {
            return Ok(Some(*id));
        }
        let found = find_key(tx, text)?;
        if let Some(id) = found {
            self.keys.insert(text.into(), id);
        }
        Ok(found)
    }

    /// The id of a collection, given one if it has none.
    pub(super) fn collection(&mut self, tx: &Connection, nsid: &str) -> Result<i64, Error> {
        if let Some(id) = self.collections.get(nsid) {
            return Ok(*id);
        }
        tx.prepare_cached("INSERT OR IGNORE INTO collection (nsid) VALUES (?1)")?
            .execute([nsid])?;
        let id = tx
            .prepare_cached("SELECT id FROM collection WHERE nsid = ?1")?
            .query_row([nsid], |row| row.get(0))?;
        self.collections.insert(nsid.into(), id);
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::hash;

    #[test]
    fn what_is_new_is_numbered_after_what_is_old_whoever_wrote_it() {
        let old = "at://did:plc:zzzz/app.bsky.feed.post/3jzfcijpj2z2a";
        let new = "at://did:plc:aaaa/app.bsky.feed.like/3lzfcijpj2z2a";
        assert!(0 < hash(old) && hash(old) < hash(new));
    }

    #[test]
    fn uris_of_one_moment_are_told_apart() {
        let one = "at://did:plc:aaaa/app.bsky.feed.post/3jzfcijpj2z2a";
        let other = "at://did:plc:bbbb/app.bsky.feed.post/3jzfcijpj2z2a";
        assert_ne!(hash(one), hash(other));
        assert_eq!(hash(one) >> 32, hash(other) >> 32);
    }

    #[test]
    fn what_has_no_time_is_below_zero() {
        for text in [
            "did:plc:aaaa",
            "at://did:plc:aaaa/app.bsky.actor.profile/self",
            "",
        ] {
            assert!(hash(text) < 0, "{text}");
        }
    }
}
