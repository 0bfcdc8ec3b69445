//! Search: which records of a collection hold words, newest first.
//!
//! In:    records, drawn from the outbox; then words.
//! Out:   candidates for a page, in its order: never too few, perhaps some too many.
//! Never: a page whose cost grows with the collection; an answer of its own.
//!
//! The index is a file beside the store, made of the records alone. It is a
//! little behind the store, so it answers nobody: the store takes its
//! candidates, adds what changed since, and holds each against the record as
//! it is, in one snapshot. A word is found by the same rule here and there:
//! the index is given the words that [`Search`] sees, not the text.

// The tables, and where a record stands in them.
mod docs;
// From the outbox into the tables.
mod draw;
// From words to candidates.
mod find;

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rusqlite::{Connection, Error, OpenFlags};
use tracing::warn;

use crate::branch::BranchError;
use crate::config::{self, Config};
use crate::file;
use crate::metrics as names;
use crate::store::page::{Candidates, Position};
use crate::store::search::Search;
use crate::store::{StoreError, budget};
use crate::wal::Wal;

pub use draw::SearchBranch;

/// Page cache of each connection, in KiB.
const CACHE_KIB: i64 = 8 * 1024;
/// Connections kept for the next question.
const IDLE_MAX: usize = 4;

/// A collection that can be searched.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Searchable {
    nsid: String,
    fields: Vec<String>,
    /// The field by which its records are ordered, if it is not the moment of first sight.
    time: Option<String>,
}

/// The index of all collections that can be searched.
#[derive(Debug)]
pub struct SearchIndex {
    place: Place,
    collections: Vec<Searchable>,
    /// The text of all that decides what is in the tables.
    spec: String,
    idle: Mutex<Vec<Handle>>,
    /// Of the connection that writes; `None` until it has.
    wal: Mutex<Option<Wal>>,
    wal_mib_max: u64,
    /// Grows when the file is made anew: connections to the one before are not used again.
    generation: AtomicU64,
}

/// A connection to one generation of the file.
#[derive(Debug)]
struct Handle {
    connection: Connection,
    generation: u64,
}

impl Deref for Handle {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for Handle {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

/// Where the tables are.
#[derive(Debug)]
enum Place {
    File(PathBuf),
    Memory(String),
}

impl Place {
    fn beside(store: &config::Store) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        match store.search_file() {
            Some(path) => Self::File(path),
            // Each store in memory has its own index.
            None => Self::Memory(format!("search-{}", NEXT.fetch_add(1, Ordering::Relaxed))),
        }
    }
}

impl SearchIndex {
    /// Opens or creates the index of a configuration; `None` if nothing can be searched.
    pub fn open(config: &Config) -> Result<Option<Arc<Self>>, BranchError> {
        let searchable = config.collections.values();
        let mut collections: Vec<Searchable> = searchable
            .filter(|collection| !collection.searchable.is_empty())
            .map(|collection| Searchable {
                nsid: collection.collection.clone(),
                fields: collection.searchable.clone(),
                time: collection.time_path().map(str::to_owned),
            })
            .collect();
        collections.sort_by(|a, b| a.nsid.cmp(&b.nsid));
        if collections.is_empty() {
            return Ok(None);
        }
        let spec = collections
            .iter()
            .map(|it| {
                let time = it.time.as_deref().unwrap_or("first sight");
                format!("{} {} timed by {time}", it.nsid, it.fields.join(" "))
            })
            .collect::<Vec<_>>()
            .join("\n");
        let index = Self {
            place: Place::beside(&config.store),
            spec: format!("{}\n{spec}", docs::VERSION),
            collections,
            idle: Mutex::new(Vec::new()),
            wal: Mutex::default(),
            wal_mib_max: config.store.wal_mib_max,
            generation: AtomicU64::new(0),
        };
        if let Err(error) = index.prepare() {
            index.repaired(error).map_err(keep)?;
            index.prepare().map_err(keep)?;
        }
        Ok(Some(Arc::new(index)))
    }

    fn prepare(&self) -> Result<(), Error> {
        let connection = self.connection()?;
        self.give_back(connection); // a database in memory lives as long as a connection to it
        Ok(())
    }

    /// Discards a damaged file: everything in it is made of the records. Other errors are returned.
    fn repaired(&self, error: Error) -> Result<(), Error> {
        let Place::File(path) = &self.place else {
            return Err(error);
        };
        if !file::is_damage(&error) {
            return Err(error);
        }
        let mut idle = self.idle.lock();
        if let Err(cause) = file::discard(path) {
            warn!(%cause, file = %path.display(), "a damaged search index cannot be removed");
            return Err(error);
        }
        self.generation.fetch_add(1, Ordering::Relaxed);
        idle.clear();
        *self.wal.lock() = None;
        warn!(%error, file = %path.display(), "the search index was damaged; it is built anew from the records");
        ::metrics::counter!(names::DERIVED_REBUILDS, "file" => "search").increment(1);
        Ok(())
    }

    /// What a search that cannot go on tells; a damaged file is made anew.
    fn met(&self, error: Error) -> StoreError {
        if !file::is_damage(&error) {
            return passing(error);
        }
        let cause = StoreError::Passing(format!("search: {error}"));
        // Whether it could be removed or not, this search is over.
        drop(self.repaired(error));
        cause
    }

    /// What a branch does about an error: a damaged file is made anew when it tries again.
    fn failed(&self, error: Error) -> BranchError {
        match self.repaired(error) {
            Ok(()) => BranchError::Keep("the file was damaged and is made anew".into()),
            Err(error) => keep(error),
        }
    }

    /// Candidates below a position, from one snapshot; `None` if the index is not ready.
    pub fn candidates(
        self: &Arc<Self>,
        nsid: &str,
        search: &Search,
        before: Option<&Position>,
    ) -> Result<Option<Arc<dyn Candidates>>, StoreError> {
        let Some(table) = self.table(nsid) else {
            return Ok(None);
        };
        let begin = |mut connection: Handle| {
            budget::watch(&mut connection)?;
            find::Finder::begin(Arc::clone(self), connection, table, search, before)
        };
        match self.connection().and_then(begin) {
            Ok(found) => Ok(found.map(|finder| Arc::new(finder) as Arc<dyn Candidates>)),
            // Until it is made anew, the store answers.
            Err(error) => self.repaired(error).map(|()| None).map_err(passing),
        }
    }

    /// The number of a collection's tables.
    fn table(&self, nsid: &str) -> Option<usize> {
        self.collections.iter().position(|it| it.nsid == nsid)
    }

    fn connection(&self) -> Result<Handle, Error> {
        // Before the file is opened: it may be made anew meanwhile.
        let generation = self.generation.load(Ordering::Relaxed);
        if let Some(connection) = self.idle.lock().pop() {
            return Ok(connection);
        }
        let connection = match &self.place {
            Place::File(path) => Connection::open(path)?,
            Place::Memory(name) => Connection::open_with_flags(
                format!("file:/{name}?vfs=memdb"),
                OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI,
            )?,
        };
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
        connection.busy_timeout(std::time::Duration::from_secs(30))?;
        connection.set_prepared_statement_cache_capacity(64);
        docs::prepare(&connection)?;
        Ok(Handle {
            connection,
            generation,
        })
    }

    /// After a commit: keeps the write-ahead log within its limit.
    fn committed(&self, connection: &Connection) -> Result<(), Error> {
        let mut wal = self.wal.lock();
        match &mut *wal {
            Some(wal) => wal.committed(connection),
            None => *wal = Some(Wal::limit("search", connection, self.wal_mib_max)?),
        }
        Ok(())
    }

    /// While nothing is written: tries again what readers did not allow.
    fn rest(&self, connection: &Connection) {
        if let Some(wal) = self.wal.lock().as_mut().filter(|wal| wal.is_over()) {
            wal.cut(connection);
        }
    }

    fn give_back(&self, mut connection: Handle) {
        if budget::unwatch(&mut connection).is_err() {
            return;
        }
        let mut idle = self.idle.lock();
        let is_current = connection.generation == self.generation.load(Ordering::Relaxed);
        if is_current && idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }
}

fn keep(error: Error) -> BranchError {
    BranchError::Keep(error.to_string())
}

fn passing(error: Error) -> StoreError {
    if error.sqlite_error_code() == Some(rusqlite::ErrorCode::OperationInterrupted) {
        return StoreError::Ended;
    }
    StoreError::Passing(format!("search: {error}"))
}
