//! The default engine: one SQLite file.
//!
//! One connection writes, others read; a reader sees the last commit and
//! waits for nobody (WAL). The statements for every table are made from its
//! declaration (`statement`). Several processes may have the file open; see
//! `epoch` for what that means to positions. Consumers of changes have a
//! connection of their own, so nobody who reads pages delays them.

mod commit;
mod epoch;
mod load;
mod names;
mod newest;
mod outbox;
mod readers;
mod schema;
mod statement;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use decide::ids::{CollectionId, KeyId, Micros, Position, RecordId};
use decide::value::Value;
use decide::wants::{Loaded, Names, Wants};
use decide::writes::Writes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rusqlite::{Connection, TransactionBehavior};

use self::names::NameCache;
use self::readers::{Reader, Readers};
use crate::error::StoreError;
use crate::port::{Asked, Candidate, Changed, Newest, Range, Rows, Snapshot, Store, Stored, Unit};

/// How long a statement waits for another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a commit of another process may be unknown to those who wait for changes.
const NOTICE_MAX: Duration = Duration::from_millis(20);

/// What an operator may set.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Pages that are read at once; whoever comes after them waits.
    pub readers_max: usize,
    /// How long they wait.
    pub reader_wait_max: Duration,
    /// Memory for names whose numbers are known.
    pub names_bytes_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            readers_max: 16,
            reader_wait_max: Duration::from_secs(5),
            names_bytes_max: 64 << 20,
        }
    }
}

/// A store in one file.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    writer: Mutex<Connection>,
    readers: Readers,
    /// The connection of those who consume changes.
    consumer: Mutex<Connection>,
    /// Held to look whether there are changes, and to say that there are.
    commits: Mutex<()>,
    committed: Condvar,
    lock: epoch::Lock,
    names: NameCache,
}

impl Sqlite {
    /// Opens a store, or makes one.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, Settings::default())
    }

    /// The same with settings of the operator.
    pub fn open_with(path: &Path, settings: Settings) -> Result<Self, StoreError> {
        let mut writer = connect(path)?;
        // A position of a new epoch must not be lost.
        writer.pragma_update(None, "synchronous", "FULL")?;
        let tx = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        schema::prepare(&tx)?;
        let lock = epoch::Lock::open(&tx, path)?;
        tx.commit()?;
        writer.pragma_update(None, "synchronous", "NORMAL")?;
        Ok(Self {
            path: path.to_owned(),
            writer: Mutex::new(writer),
            readers: Readers::new(settings),
            consumer: Mutex::new(connect(path)?),
            commits: Mutex::new(()),
            committed: Condvar::new(),
            lock,
            names: NameCache::new(settings.names_bytes_max),
        })
    }

    /// Leaves the file in order: if nobody else has it open, the next opening continues its epoch.
    pub fn close(self) -> Result<(), StoreError> {
        let mut writer = self.writer.into_inner();
        writer.pragma_update(None, "synchronous", "FULL")?;
        let tx = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        self.lock.close(&tx)?;
        Ok(tx.commit()?)
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
        let (mut names, keys, collections) = self.names.known(keys, collections);
        if keys.is_empty() && collections.is_empty() {
            return Ok(names);
        }
        let mut writer = self.writer.lock();
        let tx = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut new = Names::default();
        for text in keys {
            let id = commit::number(&tx, "key_name", text)?;
            new.keys.insert(text.to_owned(), KeyId(id));
        }
        for nsid in collections {
            let id = CollectionId(commit::number(&tx, "collection_name", nsid)?);
            new.collections.insert(nsid.to_owned(), id);
        }
        tx.commit()?;
        self.names.learn(&new);
        names.keys.extend(new.keys);
        names.collections.extend(new.collections);
        Ok(names)
    }

    fn begin(&self) -> Result<Box<dyn Unit + '_>, StoreError> {
        let writer = self.writer.lock();
        writer.execute_batch("BEGIN IMMEDIATE")?;
        Ok(Box::new(SqliteUnit {
            store: self,
            writer,
            read: commit::Read::new(),
            open: true,
        }))
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, StoreError> {
        let mut reader = self.readers.get(&self.path)?;
        reader.connection()?.execute_batch("BEGIN")?;
        // The first read of a transaction decides which moment it sees.
        reader.position = schema::head(reader.connection()?)?;
        Ok(Box::new(reader))
    }

    fn changes(&self, after: Position, max_bytes: usize) -> Result<Vec<Changed>, StoreError> {
        let mut consumer = self.consumer.lock();
        // One moment for all of it: what is trimmed meanwhile would be a gap.
        let tx = consumer.transaction()?;
        if let Some(why) = epoch::gone(&tx, after)? {
            let asked = format!("{}/{}", after.epoch, after.n);
            return Err(StoreError::Gone { asked, why });
        }
        outbox::after(&tx, after, max_bytes)
    }

    fn wait(&self, after: Position, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        loop {
            let mut commits = self.commits.lock();
            // A position that cannot be continued is news as well.
            if self.has_changes(after).unwrap_or(true) {
                return true;
            }
            let now = Instant::now();
            if now >= until {
                return false;
            }
            let notice = until.min(now + NOTICE_MAX);
            self.committed.wait_until(&mut commits, notice);
        }
    }

    fn trim(&self, through: Position) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        let tx = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let head = schema::head(&tx)?;
        let through = through.n.min(head.n);
        tx.execute("UPDATE head SET trimmed = max(trimmed, ?1)", [through])?;
        tx.execute("DELETE FROM outbox WHERE last <= ?1", [through])?;
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
    read: commit::Read,
    open: bool,
}

impl Unit for SqliteUnit<'_> {
    fn load(&mut self, wants: &Wants) -> Result<Loaded, StoreError> {
        let mut loaded = load::read(&self.writer, wants)?;
        commit::remember(&mut self.read, &loaded);
        loaded.ids = commit::new_ids(&self.writer, wants.ids)?;
        Ok(loaded)
    }

    fn commit(mut self: Box<Self>, writes: &Writes) -> Result<Position, StoreError> {
        let head = commit::write(&self.writer, &self.read, writes)?;
        self.writer.execute_batch("COMMIT")?;
        self.open = false;
        drop(self.store.commits.lock());
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

impl Sqlite {
    /// Whether there are changes after a position, or it cannot be continued.
    fn has_changes(&self, after: Position) -> Result<bool, StoreError> {
        let mut consumer = self.consumer.lock();
        let tx = consumer.transaction()?;
        let has = schema::head(&tx)?.n > after.n || epoch::gone(&tx, after)?.is_some();
        Ok(has)
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

    fn keys(&self, ranges: &[Range]) -> Result<Vec<Vec<Vec<Value>>>, StoreError> {
        load::keys(self.connection()?, ranges)
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
