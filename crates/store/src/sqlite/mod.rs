//! The default engine: one SQLite file.
//!
//! One connection writes, others read; a reader sees the last commit and
//! waits for nobody (WAL). The statements for every table are made from its
//! declaration (`statement`). A position's epoch changes when a file is
//! opened whose last user did not close it, since a transaction that consumers
//! saw may have been lost with the machine.

mod commit;
mod load;
mod newest;
mod schema;
mod statement;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use decide::change::Change;
use decide::ids::{CollectionId, KeyId, Micros, Position, RecordId};
use decide::wants::{Loaded, Names, Wants};
use decide::writes::Writes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rusqlite::{Connection, TransactionBehavior};

use crate::error::StoreError;
use crate::port::{Asked, Candidate, Changed, Newest, Range, Rows, Snapshot, Store, Stored, Unit};

/// Idle connections that are kept for readers.
const IDLE_READERS_MAX: usize = 8;
/// How long a statement waits for another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// A store in one file.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    writer: Mutex<Connection>,
    readers: Mutex<Vec<Connection>>,
    /// The last position that was committed, for those who wait for it.
    head: Mutex<Position>,
    committed: Condvar,
}

impl Sqlite {
    /// Opens a store, or makes one.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let writer = connect(path)?;
        schema::prepare(&writer)?;
        let head = schema::head(&writer)?;
        Ok(Self {
            path: path.to_owned(),
            writer: Mutex::new(writer),
            readers: Mutex::default(),
            head: Mutex::new(head),
            committed: Condvar::new(),
        })
    }

    /// Marks the file as closed in order; the next opening continues its epoch.
    pub fn close(self) -> Result<(), StoreError> {
        Ok(schema::close(&self.writer.lock())?)
    }

    fn reader(&self) -> Result<Reader<'_>, StoreError> {
        let idle = self.readers.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => connect(&self.path)?,
        };
        Ok(Reader {
            store: self,
            connection: Some(connection),
            position: Position::default(),
        })
    }
}

fn connect(path: &Path) -> Result<Connection, StoreError> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(128);
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(connection)
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked, DiskFull};
        match error.sqlite_error_code() {
            Some(DatabaseBusy | DatabaseLocked) => Self::Locked,
            Some(DiskFull) => Self::Full,
            _ => Self::Engine(error.to_string()),
        }
    }
}

impl Store for Sqlite {
    fn intern(
        &self,
        keys: &BTreeSet<&str>,
        collections: &BTreeSet<&str>,
    ) -> Result<Names, StoreError> {
        let mut writer = self.writer.lock();
        let tx = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut names = Names::default();
        for text in keys {
            let id = commit::number(&tx, "key_name", text)?;
            names.keys.insert((*text).to_owned(), KeyId(id));
        }
        for nsid in collections {
            let id = CollectionId(commit::number(&tx, "collection_name", nsid)?);
            names.collections.insert((*nsid).to_owned(), id);
        }
        tx.commit()?;
        Ok(names)
    }

    fn begin(&self) -> Result<Box<dyn Unit + '_>, StoreError> {
        let writer = self.writer.lock();
        writer.execute_batch("BEGIN IMMEDIATE")?;
        Ok(Box::new(SqliteUnit {
            store: self,
            writer,
            open: true,
        }))
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, StoreError> {
        let mut reader = self.reader()?;
        reader.connection()?.execute_batch("BEGIN")?;
        // The first read of a transaction decides which moment it sees.
        reader.position = schema::head(reader.connection()?)?;
        Ok(Box::new(reader))
    }

    fn changes(&self, after: Position, max_bytes: usize) -> Result<Vec<Changed>, StoreError> {
        let reader = self.reader()?;
        let connection = reader.connection()?;
        let head = schema::head(connection)?;
        let trimmed = schema::trimmed(connection)?;
        let why = match after {
            Position { epoch, .. } if epoch != head.epoch => Some("it is of another history"),
            Position { n, .. } if n < trimmed => Some("what follows it was trimmed"),
            Position { n, .. } if n > head.n => Some("it is ahead of the store"),
            _ => None,
        };
        if let Some(why) = why {
            let asked = format!("{}/{}", after.epoch, after.n);
            return Err(StoreError::Gone { asked, why });
        }
        let sql = "SELECT n, change FROM outbox WHERE n > ?1 ORDER BY n";
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([after.n])?;
        let (mut found, mut bytes) = (Vec::new(), 0);
        while let Some(row) = rows.next()? {
            let text: String = row.get(1)?;
            bytes += text.len();
            if !found.is_empty() && bytes > max_bytes {
                break;
            }
            let change: Change = serde_json::from_str(&text)
                .map_err(|error| StoreError::Engine(error.to_string()))?;
            let n = row.get(0)?;
            let position = Position { n, ..head };
            found.push(Changed { position, change });
        }
        Ok(found)
    }

    fn wait(&self, after: Position, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut head = self.head.lock();
        while *head <= after {
            if self.committed.wait_until(&mut head, until).timed_out() {
                break;
            }
        }
        *head > after
    }

    fn trim(&self, through: Position) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        let tx = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let head = schema::head(&tx)?;
        let through = through.n.min(head.n);
        tx.execute("UPDATE head SET trimmed = max(trimmed, ?1)", [through])?;
        tx.execute("DELETE FROM outbox WHERE n <= ?1", [through])?;
        Ok(tx.commit()?)
    }

    fn lease(
        &self,
        name: &str,
        holder: &str,
        now_us: Micros,
        ttl: Duration,
    ) -> Result<bool, StoreError> {
        let until_us = now_us.saturating_add(i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX));
        let sql = "INSERT INTO lease (name, holder, until_us) VALUES (?1, ?2, ?3)
                   ON CONFLICT (name) DO UPDATE SET holder = ?2, until_us = ?3
                   WHERE holder = ?2 OR until_us <= ?4";
        let writer = self.writer.lock();
        let taken = writer.execute(sql, (name, holder, until_us, now_us))?;
        Ok(taken == 1)
    }
}

#[derive(Debug)]
struct SqliteUnit<'s> {
    store: &'s Sqlite,
    writer: MutexGuard<'s, Connection>,
    open: bool,
}

impl Unit for SqliteUnit<'_> {
    fn load(&mut self, wants: &Wants) -> Result<Loaded, StoreError> {
        let mut loaded = load::read(&self.writer, wants)?;
        loaded.ids = commit::new_ids(&self.writer, wants.ids)?;
        Ok(loaded)
    }

    fn commit(mut self: Box<Self>, writes: &Writes) -> Result<Position, StoreError> {
        let head = commit::write(&self.writer, writes)?;
        self.writer.execute_batch("COMMIT")?;
        self.open = false;
        *self.store.head.lock() = head;
        self.store.committed.notify_all();
        Ok(head)
    }
}

impl Drop for SqliteUnit<'_> {
    fn drop(&mut self) {
        if self.open {
            // An error leaves nothing to do: SQLite rolled back by itself, or the connection is gone.
            self.writer.execute_batch("ROLLBACK").ok();
        }
    }
}

/// A connection in a read transaction; it goes back to the idle ones.
#[derive(Debug)]
struct Reader<'s> {
    store: &'s Sqlite,
    connection: Option<Connection>,
    position: Position,
}

impl Reader<'_> {
    fn connection(&self) -> Result<&Connection, StoreError> {
        let connection = self.connection.as_ref();
        connection.ok_or_else(|| StoreError::Engine("the reader was closed".into()))
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        let ended = connection.is_autocommit() || connection.execute_batch("ROLLBACK").is_ok();
        let mut idle = self.store.readers.lock();
        if ended && idle.len() < IDLE_READERS_MAX {
            idle.push(connection);
        }
    }
}

impl Snapshot for Reader<'_> {
    fn position(&self) -> Position {
        self.position
    }

    fn names(&self, asked: &Asked<'_>) -> Result<Names, StoreError> {
        load::names(self.connection()?, asked)
    }

    fn range(&self, ranges: &[Range]) -> Result<Vec<Rows>, StoreError> {
        load::ranges(self.connection()?, ranges)
    }

    fn count(&self, ranges: &[Range]) -> Result<Vec<usize>, StoreError> {
        load::counts(self.connection()?, ranges)
    }

    fn newest(&self, asked: &[Newest<'_>]) -> Result<Vec<Vec<Candidate>>, StoreError> {
        let connection = self.connection()?;
        let each = asked.iter().map(|one| newest::newest(connection, one));
        each.collect()
    }

    fn records(&self, ids: &[RecordId]) -> Result<Vec<Option<Stored>>, StoreError> {
        newest::records(self.connection()?, ids)
    }
}
