//! Removing: whole spaces, and the content of whole feeds, some blocks at a time.
//!
//! In:    a space, perhaps a feed, how many blocks one transaction takes.
//! Out:   how many blocks went; whether a space was deleted.
//! Never: a space that can be read while it is being deleted, or that comes back after a crash, or
//!        because a replica still has its blocks.

use super::learn::purge_row;
use super::space::FeedRow;
use super::{SqliteLog, find_space, passing};
use blocklog::store::StoreError;
use rusqlite::{Connection, OptionalExtension as _, params};

/// Deleted spaces that are remembered, the newest of them.
const DELETED_SPACES_MAX: i64 = 10_000;

/// Everything of a space but its blocks, by the space's own number.
const PARTS: [&str; 6] = [
    "DELETE FROM namespaces WHERE spacePrivateId = ?1",
    "DELETE FROM evicted WHERE spacePrivateId = ?1",
    "DELETE FROM subscriptions WHERE spacePrivateId = ?1",
    "DELETE FROM lanes WHERE spacePrivateId = ?1",
    "DELETE FROM conflicts WHERE spacePrivateId = ?1",
    "DELETE FROM spaces WHERE spacePrivateId = ?1",
];

impl SqliteLog {
    /// Make a space unknown; [`SqliteLog::delete_some`] must follow. Blocks.
    ///
    /// # Errors
    /// If the space is not known, or the store fails.
    pub fn begin_deletion(&self, space: &str) -> Result<(), StoreError> {
        self.writing(|moment| {
            let row = find_space(moment, space)?;
            let sql = "UPDATE spaces SET deleting = 1 WHERE spacePrivateId = ?1";
            moment.execute(sql, [row.private_id]).map_err(passing)?;
            remember(moment, space).map_err(passing)
        })
    }

    /// Whether a space of this name was deleted and not made again since. Of those deleted long
    /// ago it is not known. Blocks.
    ///
    /// # Errors
    /// If the store fails.
    pub fn is_deleted(&self, space: &str) -> Result<bool, StoreError> {
        self.reading(|connection| {
            let sql = "SELECT 1 FROM deletedSpaces WHERE spaceId = ?1";
            connection.prepare_cached(sql)?.exists([space])
        })
    }

    /// Spaces whose deletion has begun and not ended. Blocks.
    ///
    /// # Errors
    /// If the store fails.
    pub fn deletions(&self) -> Result<Vec<String>, StoreError> {
        self.reading(|connection| {
            let sql = "SELECT spaceId FROM spaces WHERE deleting = 1 LIMIT 100";
            let mut query = connection.prepare_cached(sql)?;
            query.query_map([], |row| row.get(0))?.collect()
        })
    }

    /// Delete a space whose deletion has begun, `slice_max` blocks in each transaction; how many
    /// went. Blocks.
    ///
    /// # Errors
    /// If the store fails; what is left is deleted by the next call.
    pub fn delete_some(&self, space: &str, slice_max: usize) -> Result<u64, StoreError> {
        let mut gone = 0;
        loop {
            let cut = self.writing(|moment| {
                let sql = "SELECT spacePrivateId FROM spaces WHERE spaceId = ?1 AND deleting = 1";
                let found = moment.query_row(sql, [space], |row| row.get::<_, i64>(0));
                let Some(id) = found.optional()? else {
                    return Ok(0); // another thread has deleted the rest
                };
                let sql = "DELETE FROM blocks WHERE blockId IN \
                           (SELECT blockId FROM blocks INDEXED BY blocksBySpace \
                            WHERE spacePrivateId = ?1 AND position IS NOT NULL LIMIT ?2)";
                let limit = i64::try_from(slice_max).unwrap_or(i64::MAX);
                let mut cut = moment.execute(sql, params![id, limit])?;
                if cut == 0 {
                    let sql = "DELETE FROM blocks WHERE blockId IN (SELECT blockId FROM blocks \
                               WHERE spacePrivateId = ?1 AND position IS NULL LIMIT ?2)";
                    cut = moment.execute(sql, params![id, limit])?;
                }
                if cut == 0 {
                    moment.execute("DELETE FROM feeds WHERE spaceId = ?1", [space])?;
                    for part in PARTS {
                        moment.execute(part, [id])?;
                    }
                    for table in ["publications", "published"] {
                        let sql = format!("DELETE FROM {table} WHERE spaceId = ?1");
                        moment.execute(&sql, [space])?;
                    }
                }
                Ok::<_, Failed>(cut)
            });
            let cut = cut.map_err(|Failed(error)| error)?;
            gone += cut as u64;
            if cut == 0 {
                return Ok(gone);
            }
        }
    }

    /// Drop the content of every block of a feed, `slice_max` in each transaction; of how many.
    /// Blocks.
    ///
    /// # Errors
    /// If the space is not known, or the store fails.
    pub fn purge_feed(&self, space: &str, feed: &str, slice_max: usize) -> Result<u64, StoreError> {
        let (mut after, mut purged) = (0, 0);
        loop {
            let through = self.change(space, |moment, row| {
                let Some(feed) = FeedRow::find(moment, &row.id, feed)? else {
                    return Ok(None);
                };
                let places = moment.first(&feed, after, u64::MAX, slice_max)?;
                for place in &places {
                    purge_row(moment, place.block_id)?;
                }
                purged += places.len() as u64;
                Ok(places.last().map(|place| place.position))
            })?;
            match through {
                Some(through) => after = through,
                None => return Ok(purged),
            }
        }
    }
}

/// Remember that a space was deleted.
fn remember(connection: &Connection, space: &str) -> rusqlite::Result<()> {
    forget(connection, space)?;
    connection.execute("INSERT INTO deletedSpaces (spaceId) VALUES (?1)", [space])?;
    let sql = "DELETE FROM deletedSpaces WHERE deletionId <= ?1";
    let oldest = connection.last_insert_rowid() - DELETED_SPACES_MAX;
    connection.execute(sql, [oldest]).map(drop)
}

/// A space of this name is made again.
pub(super) fn forget(connection: &Connection, space: &str) -> rusqlite::Result<()> {
    let sql = "DELETE FROM deletedSpaces WHERE spaceId = ?1";
    connection.prepare_cached(sql)?.execute([space]).map(drop)
}

/// Whether a space of this name is still being deleted.
pub(super) fn is_deleting(connection: &Connection, space: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT 1 FROM spaces WHERE spaceId = ?1 AND deleting = 1";
    connection.prepare_cached(sql)?.exists([space])
}

/// A failure of a transaction here, whichever kind of error it was.
struct Failed(StoreError);

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        Self(passing(error))
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self(error)
    }
}
