//! Connections: how the log's file is opened.
//!
//! In:    a path.
//! Out:   a connection with the settings of this log.
//! Never: a commit that a power cut undoes.

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use std::path::Path;
use std::time::Duration;

/// Prepared statements each connection keeps.
const STATEMENTS_MAX: usize = 64;

/// How long to wait for another process that writes.
const BUSY_MS_MAX: u64 = 10_000;

/// How much of the file is read through the system's own cache, without copying: a page of a large file
/// that was not read lately costs little more than another.
pub(super) const MMAP_BYTES_MAX: i64 = 16 << 30;

/// Pages written before the file is brought up to date. The last pages of every table are written
/// with each call: the more calls between, the fewer times they are copied. But who reads a page looks
/// for it among these first.
const CHECKPOINT_PAGES: i64 = 12_000;

/// Bytes of the write-ahead log above which it is emptied when nothing is written. SQLite copies it into the file by
/// itself, but begins it anew only in a moment without readers.
pub(super) const WAL_BYTES_MAX: u64 = if cfg!(debug_assertions) {
    1 << 20
} else {
    256 << 20
};

/// How long readers of it are waited for.
const READERS_WAIT_MS_MAX: u64 = 100;

/// A connection to the file.
pub(super) fn open(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    #[cfg(test)]
    let connection = crate::effort::watched(connection)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    connection.busy_timeout(Duration::from_millis(BUSY_MS_MAX))?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "cache_size", -65_536)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", WAL_BYTES_MAX.cast_signed())?;
    connection.pragma_update(None, "mmap_size", MMAP_BYTES_MAX)?;
    // What is bound changes no plan here, so a statement need not be planned again for it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

/// Empties the write-ahead log; false if somebody still reads it.
pub(super) fn empty_wal(connection: &Connection) -> rusqlite::Result<bool> {
    connection.busy_timeout(Duration::from_millis(READERS_WAIT_MS_MAX))?;
    let busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
        row.get::<_, i64>(0)
    });
    connection.busy_timeout(Duration::from_millis(BUSY_MS_MAX))?;
    Ok(busy? == 0)
}

/// Bytes of the file that are in use.
pub(super) fn used_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT (page_count - freelist_count) * page_size \
               FROM pragma_page_count, pragma_freelist_count, pragma_page_size";
    let mut query = connection.prepare_cached(sql)?;
    let bytes: i64 = query.query_row([], |row| row.get(0))?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}
