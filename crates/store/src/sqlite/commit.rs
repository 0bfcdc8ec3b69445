//! Writing: rows, counters, the cursor and the outbox, inside one transaction.

use std::collections::HashMap;

use decide::ids::Position;
use decide::rows::{Account, Cursor, Parked};
use decide::table::{Row, Table};
use decide::value::{Cell, Value};
use decide::wants::Loaded;
use decide::writes::{Wake, Writes};
use rusqlite::{Connection, OptionalExtension as _, Statement};

use super::load::Bound;
use super::{outbox, statement};
use crate::error::StoreError;

/// What a transaction read of rows that indexes have: by table and primary key, those columns.
pub(super) type Read = HashMap<(&'static str, Vec<Value>), Vec<Value>>;

/// Remembers rows of tables that are written often and have indexes.
pub(super) fn remember(read: &mut Read, loaded: &Loaded) {
    for ((table, key), row) in &loaded.rows {
        if let (true, Some(row)) = (*table == Account::TABLE.name, row) {
            let cells = statement::indexed(Account::TABLE, row);
            read.insert((table, key.clone()), cells);
        }
    }
}

/// Writes everything; returns the position of the last change.
pub(super) fn write(
    connection: &Connection,
    read: &Read,
    writes: &Writes,
) -> Result<Position, StoreError> {
    let same =
        |a: &(&'static Table, Vec<Value>), b: &(&'static Table, Vec<Value>)| std::ptr::eq(a.0, b.0);
    for rows in writes.delete.chunk_by(same) {
        let Some((table, _)) = rows.first() else {
            continue;
        };
        let mut delete = connection.prepare_cached(&statement::delete(table))?;
        for (_, key) in rows {
            execute(&mut delete, key)?;
        }
    }
    for rows in writes.put.chunk_by(same) {
        let Some((table, _)) = rows.first() else {
            continue;
        };
        put_all(connection, read, table, rows)?;
    }
    let additions = writes.additions();
    for rows in additions.chunk_by(|a, b| std::ptr::eq(a.0, b.0)) {
        let Some((table, ..)) = rows.first() else {
            continue;
        };
        let mut add = connection.prepare_cached(&statement::add(table))?;
        for (_, key, by) in rows {
            let by = Value::Int(*by);
            let cells = key.iter().chain([&by]).map(Bound);
            add.execute(rusqlite::params_from_iter(cells))?;
        }
    }
    for one in &writes.wake {
        wake(connection, one)?;
    }
    if let Some((source, cursor)) = &writes.cursor {
        let mut put = connection.prepare_cached(&statement::put(Cursor::TABLE))?;
        execute(&mut put, &[source.to_value(), cursor.to_value()])?;
    }
    outbox::append(connection, &writes.changes)
}

/// Writes rows of one table.
fn put_all(
    connection: &Connection,
    read: &Read,
    table: &'static Table,
    rows: &[(&'static Table, Vec<Value>)],
) -> Result<(), StoreError> {
    let mut put = connection.prepare_cached(&statement::put(table))?;
    if !read.keys().any(|(name, _)| *name == table.name) {
        for (_, row) in rows {
            execute(&mut put, row)?;
        }
        return Ok(());
    }
    let mut update = connection.prepare_cached(&statement::update(table))?;
    for (_, row) in rows {
        let was = read.get(&(table.name, table.key_of(row)));
        // SQLite would write every index of the row anew.
        match was.is_some_and(|was| *was == statement::indexed(table, row)) {
            true => execute(&mut update, &statement::updated(table, row))?,
            false => execute(&mut put, row)?,
        }
    }
    Ok(())
}

fn execute(statement: &mut Statement<'_>, cells: &[Value]) -> Result<(), StoreError> {
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
