//! What every engine promises.
//!
//! A [`Unit`] is one transaction: what it loads is what it commits upon. A
//! [`Snapshot`] is one moment: everything read through it is of that moment.
//! Changes are dense and in commit order. An engine compares numbers, texts
//! by their bytes, and bytes; it knows nothing else about rows.

use std::collections::BTreeSet;
use std::time::Duration;

use decide::change::Change;
use decide::ids::{CollectionId, IndexId, KeyId, Micros, Position, RecordId};
use decide::rows::Record;
use decide::table::{Row, Table};
use decide::value::{Damaged, Value};
use decide::wants::{Loaded, Names, Wants};
use decide::writes::Writes;

use crate::error::StoreError;

/// A store, as intake, consumers, pages and operators see it.
pub trait Store: Send + Sync {
    /// Gives every name a number, in a transaction of its own. A name keeps its number for ever.
    fn intern(
        &self,
        keys: &BTreeSet<&str>,
        collections: &BTreeSet<&str>,
    ) -> Result<Names, StoreError>;

    /// Begins a transaction. Dropped without a commit, it never was.
    fn begin(&self) -> Result<Box<dyn Unit + '_>, StoreError>;

    /// One moment of the store.
    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, StoreError>;

    /// Changes after a position, oldest first: at least one batch if there is any, then as many
    /// as fit into `max_bytes` of their stored form.
    fn changes(&self, after: Position, max_bytes: usize) -> Result<Vec<Changed>, StoreError>;

    /// Waits until there are changes after a position; returns whether there are.
    fn wait(&self, after: Position, timeout: Duration) -> bool;

    /// Forgets changes at or before a position.
    fn trim(&self, through: Position) -> Result<(), StoreError>;

    /// Takes or renews a lease; `false` while somebody else has it.
    fn lease(
        &self,
        name: &str,
        holder: &str,
        now_us: Micros,
        ttl: Duration,
    ) -> Result<bool, StoreError>;
}

/// One transaction.
pub trait Unit {
    /// Reads everything asked for, in one round trip.
    fn load(&mut self, wants: &Wants) -> Result<Loaded, StoreError>;

    /// Writes everything, the cursor and the changes with it; returns the position of the last
    /// change.
    fn commit(self: Box<Self>, writes: &Writes) -> Result<Position, StoreError>;
}

/// One moment. Each call but `position` is one round trip, however much it asks for.
pub trait Snapshot {
    /// The position of the last change in it.
    fn position(&self) -> Position;

    /// Names with their numbers, asked for by either. Unknown ones are absent.
    fn names(&self, asked: &Asked<'_>) -> Result<Names, StoreError>;

    /// Rows of some orders, in the order asked.
    fn range(&self, ranges: &[Range]) -> Result<Vec<Rows>, StoreError>;

    /// The same, but only the columns of the order and of the primary key, one after the other: no
    /// text of a row is read.
    fn keys(&self, ranges: &[Range]) -> Result<Vec<Vec<Vec<Value>>>, StoreError>;

    /// How many rows begin with a prefix, counted up to the range's `max`.
    fn count(&self, ranges: &[Range]) -> Result<Vec<usize>, StoreError>;

    /// The newest entries of some indexes, each newest first and each place once, with their records.
    fn newest(&self, asked: &[Newest<'_>]) -> Result<Vec<Vec<Candidate>>, StoreError>;

    /// Records by number, in the order asked; `None` where there is none.
    fn records(&self, ids: &[RecordId]) -> Result<Vec<Option<Stored>>, StoreError>;
}

/// Names that are asked for, by text or by number.
#[derive(Debug, Clone, Default)]
pub struct Asked<'a> {
    pub keys: Vec<&'a str>,
    pub collections: Vec<&'a str>,
    pub key_ids: Vec<KeyId>,
    pub collection_ids: Vec<CollectionId>,
}

/// Rows that begin with `prefix` in one order of a table.
#[derive(Debug, Clone)]
pub struct Range {
    pub table: &'static Table,
    /// The name of an index; empty for the order of the primary key.
    pub index: &'static str,
    pub prefix: Vec<Value>,
    /// Only rows after (in the direction of reading) these further columns of the order.
    pub after: Vec<Value>,
    /// Rows that equal `after` in these columns are read too.
    pub inclusive: bool,
    pub descending: bool,
    pub max: usize,
}

impl Range {
    /// All rows that begin with a prefix, in the order of the primary key.
    pub fn of<R: Row>(prefix: Vec<Value>) -> Self {
        Self {
            table: R::TABLE,
            index: "",
            prefix,
            after: Vec::new(),
            inclusive: false,
            descending: false,
            max: usize::MAX,
        }
    }

    /// The columns of its order.
    pub fn columns(&self) -> &'static [&'static str] {
        let index = self.table.indexes.iter().find(|one| one.name == self.index);
        index.map_or(self.table.key, |index| index.columns)
    }

    /// The columns of its order, then those of the primary key that are not among them.
    pub fn all_columns(&self) -> Vec<&'static str> {
        let columns = self.columns();
        let key = self.table.key.iter();
        let key = key.filter(|name| !columns.contains(*name));
        columns.iter().chain(key).copied().collect()
    }
}

/// Rows of one table, cell after cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    width: usize,
    cells: Vec<Value>,
}

impl Rows {
    /// No rows of a table.
    pub fn of(table: &Table) -> Self {
        Self {
            width: table.columns.len().max(1),
            cells: Vec::new(),
        }
    }

    /// Appends the next cell of a row.
    pub fn push(&mut self, cell: Value) {
        self.cells.push(cell);
    }

    pub fn len(&self) -> usize {
        self.cells.len() / self.width
    }

    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &[Value]> {
        self.cells.chunks_exact(self.width)
    }

    /// The rows in their own type, without a copy of their texts.
    pub fn typed<R: Row>(mut self) -> Result<Vec<R>, StoreError> {
        let rows = self.cells.chunks_exact_mut(self.width);
        Ok(rows.map(R::take).collect::<Result<_, _>>()?)
    }
}

impl Extend<Value> for Rows {
    fn extend<T: IntoIterator<Item = Value>>(&mut self, cells: T) {
        self.cells.extend(cells);
    }
}

/// What [`Snapshot::newest`] is asked.
#[derive(Debug, Clone, Copy)]
pub struct Newest<'n> {
    pub index: IndexId,
    /// Only entries under one of these keys; `None`: all there are.
    pub keys: Option<&'n [KeyId]>,
    /// Only entries older than this time and tail.
    pub before: Option<(Micros, &'n str)>,
    pub max: usize,
}

/// A record, and the status of its account; 0 where nothing was ever said about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub record: Record,
    pub status: i64,
}

/// An entry with its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub time_us: Micros,
    pub tail: String,
    pub stored: Stored,
}

/// An entry whose record is not there.
pub(crate) fn dangling() -> StoreError {
    StoreError::Damaged(Damaged {
        table: "entry",
        column: "record",
    })
}

/// A change and its own position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    pub position: Position,
    pub change: Change,
}
