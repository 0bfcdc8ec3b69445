//! Writing: rows, counters, the cursor and the outbox, inside one transaction.

use decide::ids::Position;
use decide::rows::{Cursor, Parked};
use decide::table::{Row, Table};
use decide::value::{Cell, Value};
use decide::writes::{Wake, Writes};
use rusqlite::{Connection, OptionalExtension as _};

use super::load::Bound;
use super::{outbox, statement};
use crate::error::StoreError;

/// Writes everything; returns the position of the last change.
pub(super) fn write(connection: &Connection, writes: &Writes) -> Result<Position, StoreError> {
    for (table, key) in &writes.delete {
        run(connection, &statement::delete(table), key)?;
    }
    for (table, row) in &writes.put {
        put(connection, table, row)?;
    }
    for (table, mut row, by) in writes.additions() {
        row.push(Value::Int(by));
        run(connection, &statement::add(table), &row)?;
    }
    for one in &writes.wake {
        wake(connection, one)?;
    }
    if let Some((source, cursor)) = &writes.cursor {
        put(
            connection,
            Cursor::TABLE,
            &[source.to_value(), cursor.to_value()],
        )?;
    }
    outbox::append(connection, &writes.changes)
}

fn put(connection: &Connection, table: &Table, row: &[Value]) -> Result<(), StoreError> {
    run(connection, &statement::put(table), row)
}

fn run(connection: &Connection, sql: &str, cells: &[Value]) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    statement.execute(rusqlite::params_from_iter(cells.iter().map(Bound)))?;
    Ok(())
}

/// Makes what waits for something due.
fn wake(connection: &Connection, wake: &Wake) -> Result<(), StoreError> {
    let sql = format!(
        "UPDATE \"{}\" SET woken_us = ?1, woken = woken + 1 WHERE need_hash = ?2 AND need = ?3",
        Parked::TABLE.name
    );
    let mut statement = connection.prepare_cached(&sql)?;
    statement.execute((wake.woken_us, wake.hash, &wake.need))?;
    Ok(())
}

/// Numbers that nobody else was or will be given, ascending.
pub(super) fn new_ids(connection: &Connection, n: usize) -> Result<Vec<i64>, StoreError> {
    if n == 0 {
        return Ok(Vec::new());
    }
    let n = i64::try_from(n).unwrap_or(i64::MAX);
    let sql = "UPDATE head SET last_id = last_id + ?1 RETURNING last_id";
    let mut statement = connection.prepare_cached(sql)?;
    let last: i64 = statement.query_row([n], |row| row.get(0))?;
    Ok((last - n + 1..=last).collect())
}

/// The number of a name, which is given one if it has none.
pub(super) fn number(connection: &Connection, table: &str, text: &str) -> Result<i64, StoreError> {
    let sql = format!("SELECT id FROM {table} WHERE text = ?1");
    let mut known = connection.prepare_cached(&sql)?;
    if let Some(id) = known.query_row([text], |row| row.get(0)).optional()? {
        return Ok(id);
    }
    let sql = format!("INSERT INTO {table} (text) VALUES (?1)");
    connection.prepare_cached(&sql)?.execute([text])?;
    Ok(connection.last_insert_rowid())
}
