//! The writer's memory: what it knows without asking the file, and what waits for the end of its transaction.
//!
//! In:    ids, accounts, hashes, tips and entries, as the one writer meets them.
//! Out:   the same, without a look into the file where they are known.
//! Never: something remembered that was rolled back, or that another process has changed since: then
//!        everything is forgotten.

use quick_cache::unsync::Cache;
use rusqlite::{Connection, Error, params};

use super::accounts::Known;
use super::fresh::Fresh;
use super::group::Edits;
use super::names::{find_key, hash};
use super::pile::{Added, Pile};
use super::tip::Moved;

/// Ids, and rows of accounts, kept in memory for each MiB of page cache: the caches are chosen as one.
const IDS_PER_MIB: usize = 1_024;
/// The same where all records are gone through.
pub(super) const IDS_MAX: usize = 200_000;

/// Bytes of a key that is remembered; a longer one, which is no usual DID, is looked up each time.
const KEY_BYTES_MAX: usize = 256;

/// What the writer remembers.
pub(super) struct Memory {
    ids_max: usize,
    keys: Cache<Box<str>, i64>,
    collections: Cache<Box<str>, i64>,
    /// Rows of accounts, as this writer last saw or wrote them.
    pub(super) accounts: Cache<i64, Known>,
    /// Which records are surely new.
    pub(super) fresh: Fresh,
    /// The tips that the transaction moves, and what it adds to the piles.
    pub(super) tips: Moved,
    pub(super) authored: Added,
    pub(super) referred: Added,
    /// Records of merged feeds that came or went, to be regrouped.
    pub(super) edits: Edits,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory")
            .field("keys", &self.keys.len())
            .finish_non_exhaustive()
    }
}

impl Memory {
    pub(super) fn beside(cache_mib: u32) -> Self {
        Self::new(IDS_PER_MIB * cache_mib.max(1) as usize)
    }

    pub(super) fn new(ids_max: usize) -> Self {
        Self {
            ids_max,
            keys: Cache::new(ids_max),
            collections: Cache::new(1024),
            accounts: Cache::new(ids_max),
            fresh: Fresh::default(),
            tips: Moved::default(),
            authored: Added::to(Pile::Authored),
            referred: Added::to(Pile::Referred),
            edits: Edits::default(),
        }
    }

    /// Forgets everything: after a rollback, ids given in it are not true.
    pub(super) fn forget(&mut self) {
        *self = Self::new(self.ids_max);
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
        self.remember(text, id);
        Ok(id)
    }

    fn remember(&mut self, text: &str, id: i64) {
        if text.len() <= KEY_BYTES_MAX {
            self.keys.insert(text.into(), id);
        }
    }

    /// The id of a key that is known.
    pub(super) fn known_key(&mut self, tx: &Connection, text: &str) -> Result<Option<i64>, Error> {
        if let Some(id) = self.keys.get(text) {
            return Ok(Some(*id));
        }
        let found = find_key(tx, text)?;
        if let Some(id) = found {
            self.remember(text, id);
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
    use super::*;

    #[test]
    fn long_keys_are_not_kept_in_memory_and_have_their_ids_all_the_same() {
        let connection = Connection::open_in_memory().unwrap();
        let table =
            "CREATE TABLE key (id INTEGER PRIMARY KEY, hash INTEGER NOT NULL, text TEXT NOT NULL)";
        connection.execute_batch(table).unwrap();
        let mut memory = Memory::new(1000);
        let long = "k".repeat(500_000);
        let id = memory.key(&connection, &long).unwrap();
        assert_eq!(memory.keys.len(), 0);
        assert_eq!(memory.key(&connection, &long).unwrap(), id);
        let short = memory.key(&connection, "did:plc:a").unwrap();
        assert_ne!(short, id);
        assert_eq!(memory.keys.len(), 1);
    }
}
