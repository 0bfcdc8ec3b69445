//! The file: its tables, its version, its epoch.

use decide::ids::Position;
use decide::rows::TABLES;
use rusqlite::Connection;

use super::statement;
use crate::error::StoreError;

/// The version of the file's form; `PRAGMA user_version`.
const VERSION: i64 = 4;

/// The engine's own tables. `head` has one row.
const OWN: &str = "
    CREATE TABLE key_name (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;
    CREATE TABLE collection_name (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;
    CREATE TABLE head (
        epoch INTEGER NOT NULL, n INTEGER NOT NULL, last_id INTEGER NOT NULL,
        trimmed INTEGER NOT NULL, closed INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE epoch (number INTEGER PRIMARY KEY, epoch INTEGER NOT NULL UNIQUE, last INTEGER NOT NULL) STRICT;
    CREATE TABLE outbox (last INTEGER PRIMARY KEY, changes TEXT NOT NULL) STRICT;
    CREATE TABLE lease (name TEXT PRIMARY KEY, holder TEXT NOT NULL, until_us INTEGER NOT NULL) STRICT;
";

/// Makes the tables of a new file, and refuses a file of another version.
pub(super) fn prepare(connection: &Connection) -> Result<(), StoreError> {
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
        connection.execute("INSERT INTO head VALUES (0, 0, 0, 0, 0)", [])?;
        connection.pragma_update(None, "user_version", VERSION)?;
    }
    Ok(())
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
