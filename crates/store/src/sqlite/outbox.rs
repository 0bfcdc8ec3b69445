//! The outbox: what was changed, in commit order. Each row holds the changes of one transaction.

use decide::change::Change;
use decide::ids::Position;
use rusqlite::Connection;

use super::schema;
use crate::error::StoreError;
use crate::port::Changed;

fn damaged(error: &serde_json::Error) -> StoreError {
    StoreError::Engine(format!("the outbox is damaged: {error}"))
}

/// Appends the changes of a transaction; returns the position of the last one.
pub(super) fn append(connection: &Connection, changes: &[Change]) -> Result<Position, StoreError> {
    let mut head = schema::head(connection)?;
    if changes.is_empty() {
        return Ok(head);
    }
    let text = serde_json::to_string(changes).expect("plain data is always JSON");
    head.n += i64::try_from(changes.len()).unwrap_or(i64::MAX);
    let sql = "INSERT INTO outbox (last, changes) VALUES (?1, ?2)";
    connection.prepare_cached(sql)?.execute((head.n, text))?;
    connection
        .prepare_cached("UPDATE head SET n = ?1")?
        .execute([head.n])?;
    Ok(head)
}

/// Changes after a position: those of one transaction at least, then as many as fit.
pub(super) fn after(
    connection: &Connection,
    after: Position,
    max_bytes: usize,
) -> Result<Vec<Changed>, StoreError> {
    let epoch = schema::head(connection)?.epoch;
    let sql = "SELECT last, changes FROM outbox WHERE last > ?1 ORDER BY last";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([after.n])?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let (last, text) = (row.get::<_, i64>(0)?, row.get_ref(1)?.as_str());
        let text = text.map_err(|error| StoreError::Engine(error.to_string()))?;
        bytes += text.len();
        if !found.is_empty() && bytes > max_bytes {
            break;
        }
        let changes: Vec<Change> = serde_json::from_str(text).map_err(|error| damaged(&error))?;
        let first = last + 1 - i64::try_from(changes.len()).unwrap_or(i64::MAX);
        let numbered = (first..).zip(changes).filter(|(n, _)| *n > after.n);
        found.extend(numbered.map(|(n, change)| Changed {
            position: Position { epoch, n },
            change,
        }));
    }
    Ok(found)
}
