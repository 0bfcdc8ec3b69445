//! The heartbeat: the one row in which the ingesting process says how it is.
//!
//! In:    a report, and when it was made.
//! Out:   the last report; also for a program that knows nothing else of the file.
//! Never: a report of the past kept: there is one row.

use rusqlite::{Connection, Error, OpenFlags, OptionalExtension as _, params};

use super::{Place, sql};
use crate::clock::Micros;
use crate::store::StoreError;

pub(super) fn write(tx: &Connection, now_us: Micros, report: &str) -> Result<(), Error> {
    tx.prepare_cached("INSERT OR REPLACE INTO heartbeat (id, at, report) VALUES (1, ?1, ?2)")?
        .execute(params![now_us, report])?;
    Ok(())
}

pub(super) fn read(connection: &Connection) -> Result<Option<(Micros, String)>, Error> {
    connection
        .prepare_cached("SELECT at, report FROM heartbeat")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
}

/// The last report in the file of a store, whatever its layout. Changes nothing.
pub(in crate::store) fn last(
    settings: &crate::config::Store,
) -> Result<Option<(Micros, String)>, StoreError> {
    let Place::File(path) = Place::of(&settings.url) else {
        let cause = "it is in the memory of another process";
        return Err(StoreError::Passing(cause.into()));
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(sql)?;
    read(&connection).map_err(sql)
}
