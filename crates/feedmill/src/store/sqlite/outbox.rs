//! The outbox: changes in commit order, one row per transaction.
//!
//! A row holds changes `first..=last`; positions only grow, and are never
//! given twice, because the head survives trimming in the last row.

use rusqlite::{Connection, Error, OptionalExtension, params};

use crate::store::change::{Change, Drawn};

/// The newest position; 0 before the first change.
pub(super) fn head(connection: &Connection) -> Result<i64, Error> {
    let last = connection
        .prepare_cached("SELECT last FROM outbox ORDER BY first DESC LIMIT 1")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(last.unwrap_or(0))
}

/// Appends changes after `head`; returns the new head.
pub(super) fn append(tx: &Connection, head: i64, changes: &[Change]) -> Result<i64, Error> {
    if changes.is_empty() {
        return Ok(head);
    }
    let last = head + changes.len() as i64;
    let text =
        serde_json::to_vec(changes).map_err(|error| Error::ToSqlConversionFailure(error.into()))?;
    tx.prepare_cached("INSERT INTO outbox (first, last, changes) VALUES (?1, ?2, ?3)")?
        .execute(params![head + 1, last, text])?;
    Ok(last)
}

/// Drops rows that lie wholly more than `keep` changes behind; the last row always stays.
pub(super) fn trim(tx: &Connection, head: i64, keep: u64) -> Result<(), Error> {
    let floor = head.saturating_sub(i64::try_from(keep).unwrap_or(i64::MAX));
    if floor > 0 {
        tx.prepare_cached("DELETE FROM outbox WHERE first < ?1 AND last < ?1 AND last < ?2")?
            .execute(params![floor, head])?;
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
    if oldest.is_some_and(|oldest| oldest > position + 1) {
        drawn.gone = true;
        return Ok(drawn);
    }
    // The row that holds position + 1 may begin before it.
    let start: i64 = connection
        .prepare_cached("SELECT coalesce(max(first), 0) FROM outbox WHERE first <= ?1")?
        .query_row([position + 1], |row| row.get(0))?;
    let mut statement = connection.prepare_cached(
        "SELECT first, last, changes FROM outbox WHERE first >= ?1 ORDER BY first",
    )?;
    let mut rows = statement.query([start])?;
    while let Some(row) = rows.next()? {
        let (first, last): (i64, i64) = (row.get(0)?, row.get(1)?);
        if last <= position {
            continue;
        }
        let bytes = row.get_ref(2)?.as_blob()?;
        let changes: Vec<Change> = serde_json::from_slice(bytes).map_err(|error| {
            Error::FromSqlConversionFailure(2, rusqlite::types::Type::Blob, error.into())
        })?;
        let skip = usize::try_from(position + 1 - first).unwrap_or(0);
        drawn.changes.extend(changes.into_iter().skip(skip));
        drawn.position = last;
        if drawn.changes.len() >= limit {
            break;
        }
    }
    Ok(drawn)
}
