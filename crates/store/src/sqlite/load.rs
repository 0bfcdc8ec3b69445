//! Reading: rows by primary key, rows of an order, names.

use decide::ids::{CollectionId, KeyId};
use decide::rows::TABLES;
use decide::table::Table;
use decide::value::Value;
use decide::wants::{Loaded, Names, Wants};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension as _, Statement, ToSql};

use super::statement;
use crate::error::StoreError;
use crate::port::{Asked, Range, Rows};

/// A cell, as SQLite takes it.
pub(super) struct Bound<'v>(pub(super) &'v Value);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => ValueRef::Null,
            Value::Int(number) => ValueRef::Integer(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

pub(super) fn cell(value: ValueRef<'_>) -> Result<Value, StoreError> {
    Ok(match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Int(number),
        ValueRef::Text(text) => {
            let text = std::str::from_utf8(text);
            Value::Text(
                text.map_err(|error| StoreError::Engine(error.to_string()))?
                    .to_owned(),
            )
        }
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
        ValueRef::Real(number) => {
            return Err(StoreError::Engine(format!(
                "{number} in a cell that no table has"
            )));
        }
    })
}

/// Appends all rows that a statement returns.
fn append(
    statement: &mut Statement<'_>,
    parameters: &[Value],
    found: &mut impl Extend<Value>,
) -> Result<(), StoreError> {
    let width = statement.column_count();
    let bound = rusqlite::params_from_iter(parameters.iter().map(Bound));
    let mut rows = statement.query(bound)?;
    while let Some(row) = rows.next()? {
        for at in 0..width {
            found.extend([cell(row.get_ref(at)?)?]);
        }
    }
    Ok(())
}

fn table(name: &str) -> Result<&'static Table, StoreError> {
    let table = TABLES.iter().find(|table| table.name == name);
    table
        .copied()
        .ok_or_else(|| StoreError::Engine(format!("there is no table {name}")))
}

/// Everything that was asked for, except new numbers.
pub(super) fn read(connection: &Connection, wants: &Wants) -> Result<Loaded, StoreError> {
    let mut loaded = Loaded::default();
    for (name, keys) in &wants.get {
        let table = table(name)?;
        let mut statement = connection.prepare_cached(&statement::get(table))?;
        for key in keys {
            let mut rows = Rows::of(table);
            append(&mut statement, key, &mut rows)?;
            let row = rows.iter().next().map(<[Value]>::to_vec);
            loaded.rows.insert((name, key.clone()), row);
        }
    }
    for scan in &wants.scans {
        let range = Range {
            table: table(scan.table)?,
            index: scan.index,
            prefix: scan.prefix.clone(),
            after: scan.after.clone(),
            inclusive: false,
            descending: false,
            max: scan.max,
        };
        let found = ranges(connection, &[range])?;
        let rows = found
            .iter()
            .flat_map(|rows| rows.iter().map(<[Value]>::to_vec));
        loaded.scans.insert(scan.clone(), rows.collect());
    }
    for id in &wants.keys {
        let name = text(connection, "key_name", id.0)?;
        loaded.keys.extend(name.map(|name| (*id, name)));
    }
    for id in &wants.collections {
        let name = text(connection, "collection_name", id.0)?;
        loaded.collections.extend(name.map(|name| (*id, name)));
    }
    Ok(loaded)
}

/// What the text of a range's statement depends on.
fn form(range: &Range) -> (&'static str, &'static str, usize, usize, bool, bool) {
    let (prefix, after) = (range.prefix.len(), range.after.len());
    let directions = (range.inclusive, range.descending);
    let (inclusive, descending) = directions;
    (
        range.table.name,
        range.index,
        prefix,
        after,
        inclusive,
        descending,
    )
}

/// Rows of some orders.
pub(super) fn ranges(connection: &Connection, ranges: &[Range]) -> Result<Vec<Rows>, StoreError> {
    let mut found = Vec::with_capacity(ranges.len());
    for like in ranges.chunk_by(|a, b| form(a) == form(b)) {
        let Some(first) = like.first() else { continue };
        let mut statement = connection.prepare_cached(&statement::range(first))?;
        for range in like {
            let mut rows = Rows::of(range.table);
            append(&mut statement, &parameters(range), &mut rows)?;
            found.push(rows);
        }
    }
    Ok(found)
}

/// Only the columns of the orders and of the primary keys.
pub(super) fn keys(
    connection: &Connection,
    ranges: &[Range],
) -> Result<Vec<Vec<Vec<Value>>>, StoreError> {
    let mut found = Vec::with_capacity(ranges.len());
    for range in ranges {
        let width = range.all_columns().len();
        let mut statement = connection.prepare_cached(&statement::keys(range))?;
        let mut cells = Vec::new();
        append(&mut statement, &parameters(range), &mut cells)?;
        found.push(cells.chunks_exact(width).map(<[Value]>::to_vec).collect());
    }
    Ok(found)
}

/// How many rows there are in some orders.
pub(super) fn counts(connection: &Connection, ranges: &[Range]) -> Result<Vec<usize>, StoreError> {
    let count = |range: &Range| {
        let mut statement = connection.prepare_cached(&statement::count(range))?;
        let parameters = parameters(range);
        let bound = rusqlite::params_from_iter(parameters.iter().map(Bound));
        let n: i64 = statement.query_row(bound, |row| row.get(0))?;
        Ok(usize::try_from(n).unwrap_or_default())
    };
    ranges.iter().map(count).collect()
}

fn parameters(range: &Range) -> Vec<Value> {
    let mut parameters = Vec::with_capacity(range.prefix.len() + range.after.len() + 1);
    parameters.extend(range.prefix.iter().chain(&range.after).cloned());
    parameters.push(Value::Int(i64::try_from(range.max).unwrap_or(i64::MAX)));
    parameters
}

/// Names that are known.
pub(super) fn names(connection: &Connection, asked: &Asked<'_>) -> Result<Names, StoreError> {
    let mut names = Names::default();
    for text in &asked.keys {
        if let Some(id) = number(connection, "key_name", text)? {
            names.keys.insert((*text).to_owned(), KeyId(id));
        }
    }
    for id in &asked.key_ids {
        if let Some(text) = text(connection, "key_name", id.0)? {
            names.keys.insert(text, *id);
        }
    }
    for nsid in &asked.collections {
        if let Some(id) = number(connection, "collection_name", nsid)? {
            let id = CollectionId(id);
            names.collections.insert((*nsid).to_owned(), id);
        }
    }
    for id in &asked.collection_ids {
        if let Some(text) = text(connection, "collection_name", id.0)? {
            names.collections.insert(text, *id);
        }
    }
    Ok(names)
}

fn number(connection: &Connection, table: &str, text: &str) -> Result<Option<i64>, StoreError> {
    let sql = ["SELECT id FROM ", table, " WHERE text = ?1"].concat();
    let mut statement = connection.prepare_cached(&sql)?;
    Ok(statement.query_row([text], |row| row.get(0)).optional()?)
}

fn text(connection: &Connection, table: &str, id: i64) -> Result<Option<String>, StoreError> {
    let sql = ["SELECT text FROM ", table, " WHERE id = ?1"].concat();
    let mut statement = connection.prepare_cached(&sql)?;
    Ok(statement.query_row([id], |row| row.get(0)).optional()?)
}
