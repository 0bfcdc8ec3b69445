//! Statements, made from the declaration of a table.

use decide::table::Table;
use decide::value::{Kind, Value};

use crate::port::Range;

/// Tables whose rows SQLite keeps by a number that is not their primary key: what pages read them
/// by. Such a row is found by one seek in a flat tree of numbers.
const ROW_NUMBERS: &[(&str, &str)] = &[("record", "id")];

/// The column whose number is SQLite's own number of a row.
fn row_number(table: &Table) -> Option<&'static str> {
    let named = ROW_NUMBERS.iter().find(|(name, _)| *name == table.name);
    let is_number = |name: &str| {
        let mut columns = table.columns.iter();
        columns.any(|column| column.name == name && column.kind == Kind::Int && !column.nullable)
    };
    match (named, table.key) {
        (Some((_, column)), _) => Some(column),
        (None, [column]) if is_number(column) => Some(column),
        (None, _) => None,
    }
}

/// Makes a table and its indexes.
pub(super) fn create(table: &Table) -> String {
    let number = row_number(table);
    let columns = table.columns.iter().map(|column| {
        let kind = match column.kind {
            Kind::Int => "INTEGER",
            Kind::Text => "TEXT",
            Kind::Blob => "BLOB",
            Kind::Any => "ANY",
        };
        let more = match (number == Some(column.name), column.nullable) {
            (true, _) => " PRIMARY KEY",
            (false, true) => "",
            (false, false) => " NOT NULL",
        };
        format!("\"{}\" {kind}{more}", column.name)
    });
    let columns: Vec<String> = columns.collect();
    let (key, form) = match number {
        Some(number) if table.key == [number] => (String::new(), ""),
        Some(_) => (format!(", UNIQUE ({})", list(table.key)), ""),
        None => (
            format!(", PRIMARY KEY ({})", list(table.key)),
            ", WITHOUT ROWID",
        ),
    };
    let columns = columns.join(", ");
    let mut sql = format!(
        "CREATE TABLE \"{}\" ({columns}{key}) STRICT{form};\n",
        table.name
    );
    let by_number = |columns: &[&str]| number.is_some_and(|number| columns == [number]);
    for index in table.indexes {
        if by_number(index.columns) {
            continue; // the table itself
        }
        let first = index.columns.first().unwrap_or(&"");
        sql += &format!(
            "CREATE INDEX \"{}\" ON \"{}\" ({}) WHERE \"{first}\" IS NOT NULL;\n",
            index.name,
            table.name,
            list(index.columns)
        );
    }
    sql
}

/// Reads a row by its primary key.
pub(super) fn get(table: &Table) -> String {
    format!(
        "SELECT {} FROM \"{}\" WHERE {}",
        all(table),
        table.name,
        equal(table.key)
    )
}

/// Writes a row, or over the one with its primary key: columns that no order of rows depends on
/// leave the indexes alone.
pub(super) fn put(table: &Table) -> String {
    let marks = vec!["?"; table.columns.len()].join(", ");
    let sets = table.columns.iter().map(|column| column.name);
    let sets: Vec<String> = sets
        .filter(|name| !table.key.contains(name) && row_number(table) != Some(name))
        .map(|name| format!("\"{name}\" = excluded.\"{name}\""))
        .collect();
    let conflict = match sets.is_empty() {
        true => "DO NOTHING".to_owned(),
        false => format!("DO UPDATE SET {}", sets.join(", ")),
    };
    format!(
        "INSERT INTO \"{}\" ({}) VALUES ({marks}) ON CONFLICT ({}) {conflict}",
        table.name,
        all(table),
        list(table.key)
    )
}

/// The columns that no index has.
fn plain_columns(table: &Table) -> impl Iterator<Item = &'static str> {
    let columns = table.columns.iter().map(|column| column.name);
    columns.filter(|name| {
        let mut indexes = table.indexes.iter();
        !table.key.contains(name) && !indexes.any(|index| index.columns.contains(name))
    })
}

/// Writes the columns that no index has, over the row with a primary key.
pub(super) fn update(table: &Table) -> String {
    let sets = plain_columns(table).map(|name| format!("\"{name}\" = ?"));
    let sets: Vec<String> = sets.collect();
    format!(
        "UPDATE \"{}\" SET {} WHERE {}",
        table.name,
        sets.join(", "),
        equal(table.key)
    )
}

/// What [`update`] takes of a row.
pub(super) fn updated(table: &Table, row: &[Value]) -> Vec<Value> {
    let columns: Vec<&str> = plain_columns(table)
        .chain(table.key.iter().copied())
        .collect();
    table.pick(row, &columns)
}

/// The columns of a row that indexes have.
pub(super) fn indexed(table: &Table, row: &[Value]) -> Vec<Value> {
    let columns = table.indexes.iter().flat_map(|index| index.columns);
    let columns: Vec<&str> = columns.copied().collect();
    table.pick(row, &columns)
}

/// Adds to the column `n`, which is the last one of the table.
pub(super) fn add(table: &Table) -> String {
    let marks = vec!["?"; table.columns.len()].join(", ");
    format!(
        "INSERT INTO \"{}\" ({}) VALUES ({marks}) ON CONFLICT DO UPDATE SET n = n + excluded.n",
        table.name,
        all(table)
    )
}

/// Removes a row by its primary key.
pub(super) fn delete(table: &Table) -> String {
    format!("DELETE FROM \"{}\" WHERE {}", table.name, equal(table.key))
}

/// Reads rows of one order: the prefix, then what must come after, then the number of rows.
pub(super) fn range(range: &Range) -> String {
    select(range, &all(range.table))
}

/// Reads only the columns of the order and of the primary key.
pub(super) fn keys(range: &Range) -> String {
    select(range, &list(&range.all_columns()))
}

/// Counts what [`range`] reads.
pub(super) fn count(range: &Range) -> String {
    format!("SELECT count(*) FROM ({})", select(range, "1"))
}

fn select(range: &Range, what: &str) -> String {
    let columns = range.columns();
    let (prefix, rest) = columns.split_at(range.prefix.len().min(columns.len()));
    let after = rest.get(..range.after.len()).unwrap_or(rest);
    let (sign, order) = match range.descending {
        true => ("<", " DESC"),
        false => (">", ""),
    };
    let equal = if range.inclusive { "=" } else { "" };
    let mut conditions: Vec<String> = prefix
        .iter()
        .map(|name| format!("\"{name}\" = ?"))
        .collect();
    if !after.is_empty() {
        let marks = vec!["?"; after.len()].join(", ");
        conditions.push(format!("({}) {sign}{equal} ({marks})", list(after)));
    }
    if let (false, Some(first)) = (range.index.is_empty(), columns.first()) {
        conditions.push(format!("\"{first}\" IS NOT NULL"));
    }
    let conditions = match conditions.is_empty() {
        true => String::new(),
        false => format!(" WHERE {}", conditions.join(" AND ")),
    };
    let key = range.table.key.iter();
    let ordered = rest
        .iter()
        .chain(key.filter(|name| !columns.contains(*name)));
    let ordered: Vec<String> = ordered.map(|name| format!("\"{name}\"{order}")).collect();
    let by = match ordered.is_empty() {
        true => String::new(),
        false => format!(" ORDER BY {}", ordered.join(", ")),
    };
    let table = range.table.name;
    format!("SELECT {what} FROM \"{table}\"{conditions}{by} LIMIT ?")
}

fn all(table: &Table) -> String {
    let names: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
    list(&names)
}

fn list(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    quoted.join(", ")
}

fn equal(names: &[&str]) -> String {
    let terms: Vec<String> = names.iter().map(|name| format!("\"{name}\" = ?")).collect();
    terms.join(" AND ")
}
