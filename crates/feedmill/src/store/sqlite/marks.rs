//! What the writer is working on, for the next start: batches of sources, and records that waited.
//!
//! In:    each batch of a source, and each record of a queue or parked, just before it is worked on.
//! Out:   at the next start the record in whose midst the process ended, if it was one that waited. Those that came
//!        before it are worked on in fewer at a time, then it alone; after `ALONE_MAX` ends alone it is a dead letter.
//! Never: a frame accused of what a record that waited did: where both are marked, the record is meant. A mark of a
//!        record while the store cannot be written: being killed then says nothing about it.
//!
//! A mark has the number of the record, and how many had been worked on in its transaction: what ends the process may be
//! the memory that all of them take, and then it is not always the same record.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::{Connection, Error, OptionalExtension, params};
use tracing::warn;

use crate::store::attempt::{ALONE_MAX, Attempt, Mark};
use crate::store::batch::{Batch, DeadLetter, Item, Waiting};

/// The markers of sources.
#[derive(Debug, Default)]
pub(super) struct Sources(Mutex<HashMap<String, Arc<Attempt>>>);

impl Sources {
    pub(super) fn insert(&self, source: &str, attempt: Arc<Attempt>) {
        self.0.lock().insert(source.to_owned(), attempt);
    }

    /// Does something to the marker of each batch's source. What moves no cursor is no batch of its frames: repositories
    /// have marks of their own.
    pub(super) fn each(&self, batches: &[&Batch], act: fn(&Attempt)) {
        let marks = self.0.lock();
        for batch in batches.iter().filter(|batch| batch.cursor.is_some()) {
            if let Some(attempt) = marks.get(&batch.source) {
                act(attempt);
            }
        }
    }

    /// Whether a batch is suspected: it gets a transaction of its own, without work that waited.
    pub(super) fn suspects(&self, batch: &Batch) -> bool {
        let marks = self.0.lock();
        batch.cursor.is_some()
            && marks
                .get(&batch.source)
                .is_some_and(|attempt| attempt.is_suspected())
    }
}

impl Waiting {
    /// A number that no other has.
    fn number(self) -> u64 {
        match self {
            Self::Pending(id) => id.cast_unsigned() << 1,
            Self::Parked(id) => id.cast_unsigned() << 1 | 1,
        }
    }

    fn of(number: u64) -> Self {
        let id = (number >> 1).cast_signed();
        match number & 1 {
            0 => Self::Pending(id),
            _ => Self::Parked(id),
        }
    }
}

/// The marker of records that waited.
#[derive(Debug, Default)]
pub(super) struct RowMark {
    attempt: Option<Attempt>,
    found: Cell<Option<Mark>>,
    /// Records worked on in this transaction.
    worked: Cell<u64>,
    marked: Cell<bool>,
    /// The last transaction failed.
    failed: Cell<bool>,
}

impl RowMark {
    pub(super) fn new(attempt: Option<Attempt>) -> Self {
        let found = attempt.as_ref().and_then(Attempt::found);
        if let Some(mark) = found {
            warn!(
                record = ?Waiting::of(mark.first), worked = mark.frames,
                "the process ended while it worked on a record that waited; fewer are taken at a time until it has passed"
            );
        }
        Self {
            attempt,
            found: Cell::new(found),
            ..Self::default()
        }
    }

    /// A record is about to be worked on.
    pub(super) fn begin(&self, row: Waiting) {
        self.worked.set(self.worked.get() + 1);
        let Some(attempt) = self.attempt.as_ref().filter(|_| !self.failed.get()) else {
            return;
        };
        let (frames, first) = (self.worked.get(), row.number());
        let again = |found: &Mark| (found.first, found.frames, frames) == (first, 1, 1);
        let tries = self
            .found
            .get()
            .filter(again)
            .map_or(1, |found| found.tries + 1);
        attempt.name(Some(Mark {
            frames,
            first,
            tries,
        }));
        attempt.begin();
        self.marked.set(true);
    }

    /// Nothing that waited is worked on any more.
    pub(super) fn end(&self) {
        if self.marked.take()
            && let Some(attempt) = &self.attempt
        {
            attempt.end();
        }
    }

    /// A transaction begins, after one that failed or did not.
    pub(super) fn reset(&self, failed: bool) {
        self.worked.set(0);
        self.failed.set(failed);
    }

    /// The next work that shows whether the record that was found is at fault; `None` where there is none, or no more.
    pub(super) fn next(&self, connection: &Connection) -> Result<Option<Item>, Error> {
        let Some(mark) = self.found.get() else {
            return Ok(None);
        };
        let row = Waiting::of(mark.first);
        let few = usize::try_from(mark.frames / 2)
            .unwrap_or(usize::MAX)
            .max(1);
        let (here, before) = match row {
            Waiting::Pending(id) => before(connection, id, few)?,
            Waiting::Parked(id) => (is_parked(connection, id)?, Vec::new()),
        };
        if !before.is_empty() {
            return Ok(Some(Item::Work(before)));
        }
        if here {
            let accused = mark.frames == 1 && mark.tries >= ALONE_MAX;
            return Ok(Some(match accused {
                true => Item::Accused(row),
                false => Item::Work(vec![row]),
            }));
        }
        Ok(None)
    }

    pub(super) fn is_suspecting(&self) -> bool {
        self.found.get().is_some()
    }

    /// The record that was found has passed.
    pub(super) fn passed(&self) {
        self.found.set(None);
    }

    /// Whether this work is the last that `next` gives.
    pub(super) fn is_last(&self, work: &Item) -> bool {
        let found = self.found.get().map(|mark| Waiting::of(mark.first));
        match work {
            Item::Work(rows) => rows.last().copied() == found,
            _ => true,
        }
    }
}

/// Whether a record waits in a queue, and the first that wait there before it.
fn before(tx: &Connection, id: i64, max: usize) -> Result<(bool, Vec<Waiting>), Error> {
    let queue: Option<i64> = tx
        .prepare_cached("SELECT queue FROM pending WHERE id = ?1")?
        .query_row([id], |row| row.get(0))
        .optional()?;
    let Some(queue) = queue else {
        return Ok((false, Vec::new()));
    };
    let rows = tx
        .prepare_cached("SELECT id FROM pending WHERE queue = ?1 AND id < ?2 ORDER BY id LIMIT ?3")?
        .query_map(params![queue, id, max as i64], |row| {
            Ok(Waiting::Pending(row.get(0)?))
        })?
        .collect::<Result<_, _>>()?;
    Ok((true, rows))
}

fn is_parked(tx: &Connection, id: i64) -> Result<bool, Error> {
    tx.prepare_cached("SELECT EXISTS (SELECT 1 FROM parked WHERE id = ?1)")?
        .query_row([id], |row| row.get(0))
}

/// The dead letter of a record that ended the process again and again.
pub(super) fn accused() -> DeadLetter {
    DeadLetter {
        stage: "crash".into(),
        message: format!(
            "the process ended {ALONE_MAX} times while this record alone was worked on; it was not tried again"
        ),
        ..DeadLetter::default()
    }
}
