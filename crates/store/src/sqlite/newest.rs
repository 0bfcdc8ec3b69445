//! The newest entries of an index, with their records.
//!
//! Entries under many keys are merged: each key is sought on its own and gives
//! few rows at first, more each time it is asked again, so that a key that
//! publishes often costs a few seeks and one that never does costs one.

use std::collections::{BinaryHeap, VecDeque};
use std::sync::LazyLock;

use decide::ids::{KeyId, Micros, RecordId};
use decide::rows::Record;
use decide::table::Row as _;
use decide::value::Value;
use rusqlite::{Connection, Statement};

use super::load::cell;
use crate::error::StoreError;
use crate::port::{Candidate, Newest, Stored, dangling};

/// Entries under one key below a place.
const OF_KEY: &str = "SELECT time_us, tail, record FROM entry
    WHERE \"index\" = ?1 AND \"key\" = ?2 AND (time_us, tail) < (?3, ?4)
    ORDER BY time_us DESC, tail DESC LIMIT ?5";
/// Entries of a whole index below a place.
const OF_INDEX: &str = "SELECT time_us, tail, record FROM recent
    WHERE \"index\" = ?1 AND ?2 = 0 AND (time_us, tail) < (?3, ?4)
    ORDER BY time_us DESC, tail DESC LIMIT ?5";
/// How many times more rows a key gives when it is asked again.
const GROWTH: usize = 4;
/// Rows of one key that are read at once, at most.
const ROWS_MAX: usize = 256;

/// A record by its number, with the status of its account.
static RECORD: LazyLock<String> = LazyLock::new(|| {
    let mut sql = String::from("SELECT ");
    for column in Record::TABLE.columns {
        sql += &format!("r.\"{}\", ", column.name);
    }
    sql + "coalesce(a.status, 0) FROM record r LEFT JOIN account a ON a.\"key\" = r.author WHERE r.id = ?1"
});

type Entry = (Micros, String, RecordId);

/// The newest entries, with their records.
pub(super) fn newest(
    connection: &Connection,
    asked: &Newest<'_>,
) -> Result<Vec<Candidate>, StoreError> {
    let entries = match asked.keys {
        None => below(
            connection,
            OF_INDEX,
            asked,
            KeyId(0),
            asked.before,
            asked.max,
        )?,
        Some([]) => Vec::new(),
        Some([key]) => below(connection, OF_KEY, asked, *key, asked.before, asked.max)?,
        Some(keys) => merged(connection, asked, keys)?,
    };
    let mut statement = connection.prepare_cached(&RECORD)?;
    let mut cells = Vec::with_capacity(Record::TABLE.columns.len());
    let candidate = |(time_us, tail, record)| {
        let stored = stored(&mut statement, &mut cells, record)?;
        Ok(Candidate {
            time_us,
            tail,
            stored: stored.ok_or_else(dangling)?,
        })
    };
    entries.into_iter().map(candidate).collect()
}

/// Records by number.
pub(super) fn records(
    connection: &Connection,
    ids: &[RecordId],
) -> Result<Vec<Option<Stored>>, StoreError> {
    let mut statement = connection.prepare_cached(&RECORD)?;
    let mut cells = Vec::with_capacity(Record::TABLE.columns.len());
    let each = ids.iter();
    each.map(|id| stored(&mut statement, &mut cells, *id))
        .collect()
}

fn stored(
    statement: &mut Statement<'_>,
    cells: &mut Vec<Value>,
    id: RecordId,
) -> Result<Option<Stored>, StoreError> {
    let width = Record::TABLE.columns.len();
    let mut rows = statement.query([id.0])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    cells.clear();
    for at in 0..width {
        cells.push(cell(row.get_ref(at)?)?);
    }
    let record = Record::take(cells)?;
    let status = row.get(width)?;
    Ok(Some(Stored { record, status }))
}

/// Entries of one order below a place, newest first.
fn below(
    connection: &Connection,
    sql: &str,
    asked: &Newest<'_>,
    key: KeyId,
    before: Option<(Micros, &str)>,
    max: usize,
) -> Result<Vec<Entry>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = Vec::new();
    entries(&mut statement, asked, key, before, max, |entry| {
        found.push(entry);
    })?;
    Ok(found)
}

fn entries(
    statement: &mut Statement<'_>,
    asked: &Newest<'_>,
    key: KeyId,
    before: Option<(Micros, &str)>,
    max: usize,
    mut visit: impl FnMut(Entry),
) -> Result<(), StoreError> {
    let (time_us, tail) = before.unwrap_or((Micros::MAX, ""));
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    let mut rows = statement.query((asked.index.0, key.0, time_us, tail, max))?;
    while let Some(row) = rows.next()? {
        visit((row.get(0)?, row.get(1)?, RecordId(row.get(2)?)));
    }
    Ok(())
}

/// The entries of one key that were read and not yet taken.
struct Stream {
    key: KeyId,
    rows: VecDeque<Entry>,
    /// How many are read next; 0 when there are no more.
    next: usize,
}

/// The newest entries under many keys, each place once.
fn merged(
    connection: &Connection,
    asked: &Newest<'_>,
    keys: &[KeyId],
) -> Result<Vec<Entry>, StoreError> {
    let mut statement = connection.prepare_cached(OF_KEY)?;
    let first = (2 * asked.max / keys.len().max(1)).clamp(1, ROWS_MAX);
    let mut streams: Vec<Stream> = Vec::with_capacity(keys.len());
    let mut heads: BinaryHeap<(Entry, usize)> = BinaryHeap::with_capacity(keys.len());
    for key in keys {
        let mut stream = Stream {
            key: *key,
            rows: VecDeque::new(),
            next: first,
        };
        if let Some(head) = stream.take(&mut statement, asked, asked.before)? {
            heads.push((head, streams.len()));
            streams.push(stream);
        }
    }
    let mut found: Vec<Entry> = Vec::with_capacity(asked.max.min(1_024));
    while let Some((entry, at)) = heads.pop() {
        let is_known = found
            .last()
            .is_some_and(|last| (last.0, &last.1) == (entry.0, &entry.1));
        if !is_known && found.len() == asked.max {
            break;
        }
        if let Some(stream) = streams.get_mut(at) {
            let place = Some((entry.0, entry.1.as_str()));
            if let Some(head) = stream.take(&mut statement, asked, place)? {
                heads.push((head, at));
            }
        }
        if !is_known {
            found.push(entry);
        }
    }
    Ok(found)
}

impl Stream {
    /// The next entry; `last` is the one before it.
    fn take(
        &mut self,
        statement: &mut Statement<'_>,
        asked: &Newest<'_>,
        last: Option<(Micros, &str)>,
    ) -> Result<Option<Entry>, StoreError> {
        if self.rows.is_empty() && self.next > 0 {
            let max = self.next;
            let rows = &mut self.rows;
            entries(statement, asked, self.key, last, max, |entry| {
                rows.push_back(entry);
            })?;
            self.next = match self.rows.len() < max {
                true => 0,
                false => (max * GROWTH).min(ROWS_MAX),
            };
        }
        Ok(self.rows.pop_front())
    }
}
