//! The file: its tables, its version, its epoch.

use decide::ids::Position;
use decide::rows::TABLES;
use rusqlite::Connection;

use super::statement;
use crate::error::StoreError;

/// The version of the file's form; `PRAGMA user_version`.
const VERSION: i64 = 3;

/// The engine's own tables. `head` has one row.
const OWN: &str = "
    CREATE TABLE key_name (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;
    CREATE TABLE collection_name (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;
    CREATE TABLE head (
        epoch INTEGER NOT NULL, n INTEGER NOT NULL, last_id INTEGER NOT NULL,
        trimmed INTEGER NOT NULL, open INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE outbox (n INTEGER PRIMARY KEY, change TEXT NOT NULL) STRICT;
    CREATE TABLE lease (name TEXT PRIMARY KEY, holder TEXT NOT NULL, until_us INTEGER NOT NULL) STRICT;
";

/// Makes the tables of a new file, refuses a file of another version, and begins a new epoch if
/// the file was not closed.
pub(super) fn prepare(connection: &Connection) -> Result<(), StoreError> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let prepared = within(connection);
    let end = if prepared.is_ok() {
        "COMMIT"
    } else {
        "ROLLBACK"
    };
    connection.execute_batch(end)?;
    prepared
}

fn within(connection: &Connection) -> Result<(), StoreError> {
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version != 0 && version != VERSION {
        let message = format!(
            "the file has version {version}, this program reads version {VERSION}: use the program that wrote it"
        );
        return Err(StoreError::Engine(message));
    }
    if version == 0 {
        connection.execute_batch(OWN)?;
        for table in TABLES {
            connection.execute_batch(&statement::create(table))?;
        }
        let sql = "INSERT INTO head VALUES (?1, 0, 0, 0, 1)";
        connection.execute(sql, [new_epoch()?])?;
        connection.pragma_update(None, "user_version", VERSION)?;
        return Ok(());
    }
    let open: bool = connection.query_row("SELECT open FROM head", [], |row| row.get(0))?;
    if open {
        connection.execute("UPDATE head SET epoch = ?1", [new_epoch()?])?;
    }
    connection.execute("UPDATE head SET open = 1", [])?;
    Ok(())
}

/// Says that everything that was committed is in the file.
pub(super) fn close(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute("UPDATE head SET open = 0", [])?;
    Ok(())
}

fn new_epoch() -> Result<i64, StoreError> {
    let random = getrandom::u64().map_err(|error| StoreError::Engine(error.to_string()))?;
    // Positive, and exact as a number of JSON.
    Ok((random >> 11).cast_signed().max(1))
}

pub(super) fn head(connection: &Connection) -> Result<Position, StoreError> {
    let mut statement = connection.prepare_cached("SELECT epoch, n FROM head")?;
    let position = statement.query_row([], |row| {
        Ok(Position {
            epoch: row.get(0)?,
            n: row.get(1)?,
        })
    })?;
    Ok(position)
}

pub(super) fn trimmed(connection: &Connection) -> Result<i64, StoreError> {
    let mut statement = connection.prepare_cached("SELECT trimmed FROM head")?;
    Ok(statement.query_row([], |row| row.get(0))?)
}
