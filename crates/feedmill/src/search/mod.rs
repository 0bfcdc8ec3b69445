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

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rusqlite::{Connection, Error, OpenFlags};

use crate::branch::BranchError;
use crate::config::{self, Config};
use crate::store::StoreError;
use crate::store::page::{Candidates, Position};
use crate::store::search::Search;

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
}

/// The index of all collections that can be searched.
#[derive(Debug)]
pub struct SearchIndex {
    place: Place,
    collections: Vec<Searchable>,
    /// The text of all that decides what is in the tables.
    spec: String,
    idle: Mutex<Vec<Connection>>,
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
        match store.url.strip_prefix("sqlite://") {
            Some(path) => Self::File(PathBuf::from(path).with_extension("search.db")),
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
            })
            .collect();
        collections.sort_by(|a, b| a.nsid.cmp(&b.nsid));
        if collections.is_empty() {
            return Ok(None);
        }
        let spec = collections
            .iter()
            .map(|it| format!("{} {}", it.nsid, it.fields.join(" ")))
            .collect::<Vec<_>>()
            .join("\n");
        let index = Self {
            place: Place::beside(&config.store),
            spec: format!("{}\n{spec}", docs::VERSION),
            collections,
            idle: Mutex::new(Vec::new()),
        };
        let connection = index.connection().map_err(keep)?;
        docs::prepare(&connection).map_err(keep)?;
        index.give_back(connection); // a database in memory lives as long as a connection to it
        Ok(Some(Arc::new(index)))
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
        let connection = self.connection().map_err(passing)?;
        let found = find::Finder::begin(Arc::clone(self), connection, table, search, before);
        Ok(found
            .map_err(passing)?
            .map(|finder| Arc::new(finder) as Arc<dyn Candidates>))
    }

    /// The number of a collection's tables.
    fn table(&self, nsid: &str) -> Option<usize> {
        self.collections.iter().position(|it| it.nsid == nsid)
    }

    fn connection(&self) -> Result<Connection, Error> {
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
        Ok(connection)
    }

    fn give_back(&self, connection: Connection) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }
}

fn keep(error: Error) -> BranchError {
    BranchError::Keep(error.to_string())
}

fn passing(error: Error) -> StoreError {
    StoreError::Passing(format!("search: {error}"))
}
