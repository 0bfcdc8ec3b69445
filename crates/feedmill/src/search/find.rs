//! From words to candidates, newest first.

use std::collections::BinaryHeap;
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::{Connection, Error, params};

use super::docs;
use super::{Handle, SearchIndex, draw};
use crate::store::StoreError;
use crate::store::page::{Candidates, Hits, Position};
use crate::store::search::Search;

/// Candidates read at once.
const CHUNK: usize = 256;
/// Records that a search of several words looks through at once: their lists are walked
/// together, and a walk that finds nothing must end somewhere.
const WINDOW: i64 = 4096;
/// What looking through a window counts for, in candidates.
const WINDOW_COST: usize = 256;

/// One search in progress, in one snapshot of the index.
#[derive(Debug)]
pub(super) struct Finder {
    index: Arc<SearchIndex>,
    /// Taken out when the search ends.
    connection: Mutex<Option<Handle>>,
    position: i64,
    table: usize,
    expression: String,
    windows: bool,
    walk: Mutex<Walk>,
}

/// How far a search has come.
#[derive(Debug)]
struct Walk {
    /// The highest number not looked at yet; `None`: all were.
    from: Option<i64>,
    /// Read, and not yet given because an earlier one of the same time may still come.
    waiting: BinaryHeap<(i64, String, i64)>,
}

impl Finder {
    /// Opens a snapshot; `None` if the index does not fit the configuration yet.
    pub(super) fn begin(
        index: Arc<SearchIndex>,
        connection: Handle,
        table: usize,
        search: &Search,
        before: Option<&Position>,
    ) -> Result<Option<Self>, Error> {
        connection.execute_batch("BEGIN")?;
        let Some(position) = draw::position(&connection, &index.spec)? else {
            connection.execute_batch("COMMIT")?;
            index.give_back(connection);
            return Ok(None);
        };
        let spill = docs::spill(&connection, table)?;
        let from = match before {
            Some(before) => docs::first_of(before.time_us.saturating_add(spill + 1)),
            None => i64::MAX,
        };
        Ok(Some(Self {
            index,
            connection: Mutex::new(Some(connection)),
            position,
            table,
            expression: search.expression(),
            windows: !search.is_one_word(),
            walk: Mutex::new(Walk {
                from: Some(from),
                waiting: BinaryHeap::new(),
            }),
        }))
    }

    fn step(&self, connection: &Connection, walk: &mut Walk) -> Result<Hits, Error> {
        let Some(from) = walk.from else {
            return Ok(walk.rest(0));
        };
        let floor = match self.windows {
            true => self.window(connection, from)?,
            false => i64::MIN,
        };
        let chunk = match self.windows {
            true => i64::MAX,
            false => CHUNK as i64,
        };
        let (table, mut read, mut lowest) = (self.table, 0, i64::MAX);
        let mut statement = connection.prepare_cached(&format!(
            "SELECT d.number, d.time, d.uri, d.record FROM words_{table} w CROSS JOIN doc_{table} d
             WHERE w.words_{table} MATCH ?1 AND w.rowid <= ?2 AND w.rowid >= ?3 AND d.number = w.rowid
             ORDER BY w.rowid DESC LIMIT ?4"
        ))?;
        let mut rows = statement.query(params![self.expression, from, floor, chunk])?;
        while let Some(row) = rows.next()? {
            read += 1;
            lowest = row.get(0)?;
            walk.waiting.push((row.get(1)?, row.get(2)?, row.get(3)?));
        }
        let looked = read + if self.windows { WINDOW_COST } else { 0 };
        // Down to here everything was looked at.
        let down_to = match (self.windows, read < CHUNK) {
            (true, _) => floor,
            (false, true) => i64::MIN,
            (false, false) => lowest,
        };
        if down_to == i64::MIN {
            walk.from = None;
            return Ok(walk.rest(looked));
        }
        walk.from = Some(down_to - 1);
        Ok(walk.later_than(docs::time_of(down_to), looked))
    }

    /// The number above which a window's records stand.
    fn window(&self, connection: &Connection, from: i64) -> Result<i64, Error> {
        let floor: Option<i64> = connection
            .prepare_cached(&format!(
                "SELECT min(number) FROM (SELECT number FROM doc_{} WHERE number <= ?1 ORDER BY number DESC LIMIT ?2)",
                self.table
            ))?
            .query_row([from, WINDOW], |row| row.get(0))?;
        let more: bool = match floor {
            Some(floor) => connection
                .prepare_cached(&format!(
                    "SELECT EXISTS (SELECT 1 FROM doc_{} WHERE number < ?1)",
                    self.table
                ))?
                .query_row([floor], |row| row.get(0))?,
            None => false,
        };
        Ok(floor.filter(|_| more).unwrap_or(i64::MIN))
    }
}

impl Walk {
    /// What waits, all of it: nothing else will come.
    fn rest(&mut self, looked: usize) -> Hits {
        let mut found = Vec::with_capacity(self.waiting.len());
        while let Some(next) = self.waiting.pop() {
            found.push(hit(next));
        }
        Hits {
            found,
            reached: None,
            looked,
        }
    }

    /// What waits and is later than `time_us`: nothing else of it will come.
    fn later_than(&mut self, time_us: i64, looked: usize) -> Hits {
        let mut found = Vec::new();
        while self.waiting.peek().is_some_and(|next| next.0 > time_us) {
            found.extend(self.waiting.pop().map(hit));
        }
        Hits {
            found,
            reached: Some(Position {
                time_us: time_us + 1,
                uri: String::new(),
            }),
            looked,
        }
    }
}

fn hit((time_us, uri, record): (i64, String, i64)) -> (i64, Position) {
    (record, Position { time_us, uri })
}

impl Candidates for Finder {
    fn position(&self) -> i64 {
        self.position
    }

    fn next(&self) -> Result<Hits, StoreError> {
        let connection = self.connection.lock();
        let Some(connection) = connection.as_ref() else {
            return Err(StoreError::Broken("a search went on after its end".into()));
        };
        let step = self.step(connection, &mut self.walk.lock());
        step.map_err(|error| self.index.met(error))
    }
}

impl Drop for Finder {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.lock().take()
            && connection.execute_batch("COMMIT").is_ok()
        {
            self.index.give_back(connection);
        }
    }
}
