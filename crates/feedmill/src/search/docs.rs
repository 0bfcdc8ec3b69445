//! The tables, and where a record stands in them.
//!
//! In:    records' words, times and places in the order.
//! Out:   rows whose numbers go down with time, so that the newest of all that
//!        hold a word are found without looking at the others.
//! Never: a row whose number is below its time; two rows of one record.
//!
//! A number is the time in microseconds and a slot within it. Records of one
//! microsecond take slots as they come, and beyond the last slot those of the
//! next microseconds: numbers may lie above their time by at most `spill`
//! microseconds, never below. Who reads downward and has come to a number has
//! therefore seen everything later than its time.

use rusqlite::{Connection, Error, OptionalExtension, params};

/// Changes when the tables or the words in them would be made differently.
pub(super) const VERSION: &str = "1";
/// Bits of a number that are slots.
const SLOT_BITS: u32 = 10;
/// The earliest and latest time a number can hold; others are taken for these.
const TIME_MAX: i64 = (1 << 52) - 1;

/// The lowest number of a time.
pub(super) fn first_of(time_us: i64) -> i64 {
    time_us.clamp(-TIME_MAX, TIME_MAX) << SLOT_BITS
}

/// The time of a number; what has it is not later.
pub(super) fn time_of(number: i64) -> i64 {
    number >> SLOT_BITS
}

/// Makes the table that the others are described in.
pub(super) fn prepare(connection: &Connection) -> Result<(), Error> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;",
    )
}

pub(super) fn meta<T: rusqlite::types::FromSql>(
    connection: &Connection,
    name: &str,
) -> Result<Option<T>, Error> {
    connection
        .prepare_cached("SELECT value FROM meta WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()
}

pub(super) fn set_meta(
    connection: &Connection,
    name: &str,
    value: &dyn rusqlite::ToSql,
) -> Result<(), Error> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)")?
        .execute(params![name, value])?;
    Ok(())
}

/// Drops everything and makes the tables of `count` collections.
pub(super) fn begin_anew(connection: &Connection, count: usize) -> Result<(), Error> {
    let old: Vec<String> = connection
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND (name GLOB 'doc_[0-9]*' OR name GLOB 'flood_[0-9]*' OR name GLOB 'words_[0-9]' OR name GLOB 'words_[0-9][0-9]' OR name GLOB 'words_[0-9][0-9][0-9]')")?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for table in old {
        connection.execute_batch(&format!("DROP TABLE {table}"))?;
    }
    connection.execute_batch("DELETE FROM meta")?;
    for table in 0..count {
        // The words are given apart and in lower case: `ascii` takes every other letter as one.
        connection.execute_batch(&format!(
            "CREATE TABLE doc_{table} (number INTEGER PRIMARY KEY, record INTEGER NOT NULL UNIQUE,
                time INTEGER NOT NULL, uri TEXT NOT NULL);
             CREATE TABLE flood_{table} (time INTEGER PRIMARY KEY, next INTEGER NOT NULL);
             CREATE VIRTUAL TABLE words_{table} USING fts5(words, content = '', contentless_delete = 1, tokenize = 'ascii');"
        ))?;
    }
    Ok(())
}

/// One record as it is indexed.
#[derive(Debug)]
pub(super) struct Doc<'a> {
    pub(super) record: i64,
    pub(super) time_us: i64,
    pub(super) uri: &'a str,
    /// Apart by spaces, in lower case.
    pub(super) words: String,
}

/// Takes a record out, if it is there.
pub(super) fn remove(connection: &Connection, table: usize, record: i64) -> Result<(), Error> {
    let number: Option<i64> = connection
        .prepare_cached(&format!("SELECT number FROM doc_{table} WHERE record = ?1"))?
        .query_row([record], |row| row.get(0))
        .optional()?;
    if let Some(number) = number {
        connection
            .prepare_cached(&format!("DELETE FROM doc_{table} WHERE number = ?1"))?
            .execute([number])?;
        connection
            .prepare_cached(&format!("DELETE FROM words_{table} WHERE rowid = ?1"))?
            .execute([number])?;
    }
    Ok(())
}

/// Puts a record in, in place of what stood for it.
pub(super) fn put(connection: &Connection, table: usize, doc: &Doc<'_>) -> Result<(), Error> {
    remove(connection, table, doc.record)?;
    if doc.words.is_empty() {
        return Ok(());
    }
    let number = free(connection, table, doc.time_us)?;
    connection
        .prepare_cached(&format!(
            "INSERT INTO doc_{table} (number, record, time, uri) VALUES (?1, ?2, ?3, ?4)"
        ))?
        .execute(params![number, doc.record, doc.time_us, doc.uri])?;
    connection
        .prepare_cached(&format!(
            "INSERT INTO words_{table} (rowid, words) VALUES (?1, ?2)"
        ))?
        .execute(params![number, doc.words])?;
    Ok(())
}

/// A number for a record of this time.
fn free(connection: &Connection, table: usize, time_us: i64) -> Result<i64, Error> {
    let first = first_of(time_us);
    let end = first + (1 << SLOT_BITS);
    let last: Option<i64> = connection
        .prepare_cached(&format!(
            "SELECT max(number) FROM doc_{table} WHERE number >= ?1 AND number < ?2"
        ))?
        .query_row([first, end], |row| row.get(0))?;
    let next = last.map_or(first, |last| last + 1);
    if next < end {
        return Ok(next);
    }
    let flood: Option<i64> = connection
        .prepare_cached(&format!("SELECT next FROM flood_{table} WHERE time = ?1"))?
        .query_row([time_us], |row| row.get(0))
        .optional()?;
    let mut number = flood.unwrap_or(end);
    let mut taken = connection.prepare_cached(&format!(
        "SELECT EXISTS (SELECT 1 FROM doc_{table} WHERE number = ?1)"
    ))?;
    while taken.query_row([number], |row| row.get::<_, bool>(0))? {
        number += 1;
    }
    connection
        .prepare_cached(&format!(
            "INSERT OR REPLACE INTO flood_{table} (time, next) VALUES (?1, ?2)"
        ))?
        .execute([time_us, number + 1])?;
    let spilt = time_of(number) - time_us.clamp(-TIME_MAX, TIME_MAX);
    let name = format!("spill {table}");
    if meta::<i64>(connection, &name)?.unwrap_or(0) < spilt {
        set_meta(connection, &name, &spilt)?;
    }
    Ok(number)
}

/// By how much numbers may lie above their times.
pub(super) fn spill(connection: &Connection, table: usize) -> Result<i64, Error> {
    Ok(meta(connection, &format!("spill {table}"))?.unwrap_or(0))
}
