//! The outbox: changes in commit order, one row per transaction.
//!
//! A row holds changes `first..=last`; positions only grow, and are never
//! given twice, because the head survives trimming in the last row.
//!
//! Nor are they given twice by two lives of one file. A restored file begins a new epoch: a position
//! far above the last one by a number of chance (`epoch.began`), so that what was given before and is
//! lost lies between the two epochs, and who asks from there is told that it is gone. Positions up
//! to the last one of the epoch before are still good.

use rusqlite::{Connection, Error, OptionalExtension, params};

use super::{broken, changes};
use crate::store::change::{Change, Drawn};

/// Bytes that a change takes, more or less.
const CHANGE_BYTES: usize = 128;
/// Bytes of a row beside its changes.
const ROW_BYTES: i64 = 50;

/// The newest position; 0 before the first change.
pub(super) fn head(connection: &Connection) -> Result<i64, Error> {
    let last = connection
        .prepare_cached("SELECT last FROM outbox ORDER BY first DESC LIMIT 1")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(began(connection)?.max(last.unwrap_or(0)))
}

/// The position at which the epoch began; 0 for a file that was never restored.
fn began(connection: &Connection) -> Result<i64, Error> {
    connection
        .prepare_cached("SELECT began FROM epoch")?
        .query_row([], |row| row.get(0))
}

/// Whether a position lies between the last one of the epoch before and the beginning of this one.
fn is_lost(connection: &Connection, position: i64, began: i64) -> Result<bool, Error> {
    if position >= began {
        return Ok(false);
    }
    let last: Option<i64> = connection
        .prepare_cached("SELECT last FROM outbox WHERE first <= ?1 ORDER BY first DESC LIMIT 1")?
        .query_row([began], |row| row.get(0))
        .optional()?;
    Ok(last.is_none_or(|last| last < position))
}

/// Appends changes after `head`; returns the new head.
pub(super) fn append(tx: &Connection, head: i64, changes: &[Change]) -> Result<i64, Error> {
    if changes.is_empty() {
        return Ok(head);
    }
    let last = head + changes.len() as i64;
    let packed = packed(changes);
    tx.prepare_cached("INSERT INTO outbox (first, last, changes) VALUES (?1, ?2, ?3)")?
        .execute(params![head + 1, last, packed])?;
    count_bytes(tx, ROW_BYTES + packed.len() as i64)?;
    Ok(last)
}

/// Counts bytes that came, or that went where `bytes` is negative.
fn count_bytes(tx: &Connection, bytes: i64) -> Result<(), Error> {
    tx.prepare_cached("UPDATE size SET rows = rows + ?1 WHERE name = 'outbox bytes'")?
        .execute([bytes])?;
    Ok(())
}

fn packed(changes: &[Change]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(changes.len() * CHANGE_BYTES);
    for change in changes {
        changes::write(&mut bytes, change);
    }
    bytes
}

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keep {
    pub(super) changes_max: u64,
    pub(super) bytes_max: u64,
}

/// Drops the oldest rows: those that lie wholly more than `changes_max` behind, and those beyond `bytes_max`. The last
/// row always stays.
pub(super) fn trim(tx: &Connection, head: i64, keep: Keep) -> Result<(), Error> {
    let floor = head.saturating_sub(i64::try_from(keep.changes_max).unwrap_or(i64::MAX));
    // Between two epochs there are no changes: those of the one before go when this one has enough.
    let floor = if floor > began(tx)? { floor } else { 0 };
    let bytes_max = i64::try_from(keep.bytes_max).unwrap_or(i64::MAX);
    let bytes: i64 = tx
        .prepare_cached("SELECT rows FROM size WHERE name = 'outbox bytes'")?
        .query_row([], |row| row.get(0))?;
    let mut dropped = 0;
    let mut below = None;
    let mut oldest =
        tx.prepare_cached("SELECT first, last, octet_length(changes) FROM outbox ORDER BY first")?;
    let mut rows = oldest.query([])?;
    while let Some(row) = rows.next()? {
        let (first, last, length): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if last >= head || (last >= floor && bytes - dropped <= bytes_max) {
            break;
        }
        below = Some(first);
        dropped += ROW_BYTES + length;
    }
    drop(rows);
    if let Some(below) = below {
        tx.prepare_cached("DELETE FROM outbox WHERE first <= ?1")?
            .execute([below])?;
        count_bytes(tx, -dropped)?;
    }
    Ok(())
}

/// Changes after `position`.
pub(super) fn draw(connection: &Connection, position: i64, limit: usize) -> Result<Drawn, Error> {
    let mut drawn = Drawn {
        position,
        ..Drawn::default()
    };
    let oldest: Option<i64> = connection
        .prepare_cached("SELECT first FROM outbox ORDER BY first LIMIT 1")?
        .query_row([], |row| row.get(0))
        .optional()?;
    let began = began(connection)?;
    if oldest.is_some_and(|oldest| oldest > position + 1) || is_lost(connection, position, began)? {
        drawn.gone = true;
        return Ok(drawn);
    }
    // The row that holds position + 1 may begin before it.
    let start: i64 = connection
        .prepare_cached("SELECT coalesce(max(first), 0) FROM outbox WHERE first <= ?1")?
        .query_row([position + 1], |row| row.get(0))?;
    // A row of which nothing is wanted must not be fetched: it may be a megabyte, and is asked for
    // many times a second while nothing happens.
    let mut statement = connection.prepare_cached(
        "SELECT first, last, changes FROM outbox WHERE first >= ?1 AND last > ?2 ORDER BY first",
    )?;
    let mut rows = statement.query([start, position])?;
    while let Some(row) = rows.next()? {
        let (first, last): (i64, i64) = (row.get(0)?, row.get(1)?);
        let bytes = row.get_ref(2)?.as_blob()?;
        let told = usize::try_from(last - first + 1).unwrap_or(0);
        let changes = changes::read(bytes).filter(|changes| changes.len() == told);
        let changes = changes.ok_or_else(damaged)?;
        let changes = (first..).zip(changes);
        drawn
            .changes
            .extend(changes.filter(|(at, _)| *at > position));
        drawn.position = last;
        if drawn.changes.len() >= limit {
            return Ok(drawn);
        }
    }
    drawn.position = drawn.position.max(began); // where nothing of this epoch has happened yet
    Ok(drawn)
}

fn damaged() -> Error {
    let cause = "a row of the outbox is damaged; restore the file from a copy";
    Error::ToSqlConversionFailure(Box::new(broken(cause.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes this thread has read from files.
    fn bytes_read() -> u64 {
        let io = std::fs::read_to_string("/proc/thread-self/io").unwrap();
        let count = io.lines().find_map(|line| line.strip_prefix("rchar: "));
        count.unwrap().parse().unwrap()
    }

    #[test]
    fn whoever_has_seen_everything_does_not_fetch_the_last_row_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let connection = Connection::open(file.path()).unwrap();
        connection
            .pragma_update(None, "journal_mode", "wal")
            .unwrap();
        let table = "CREATE TABLE outbox (first INTEGER PRIMARY KEY, last INTEGER, changes BLOB)";
        connection.execute(table, []).unwrap();
        let epoch = "CREATE TABLE epoch (began INTEGER); INSERT INTO epoch VALUES (0)";
        connection.execute_batch(epoch).unwrap();
        let row = "INSERT INTO outbox VALUES (1, 5000, zeroblob(1000000))";
        connection.execute(row, []).unwrap();
        draw(&connection, 5000, 1).unwrap();
        let before = bytes_read();
        assert_eq!(draw(&connection, 5000, 1).unwrap().changes, []);
        let read = bytes_read() - before;
        assert!(read < 100_000, "{read} bytes were read to find nothing new");
        assert!(draw(&connection, 4999, 1).is_err(), "zeros are no changes");
    }
}
