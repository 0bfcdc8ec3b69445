//! Where the store is: a file, or memory that its connections share by a name.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::{Connection, OpenFlags};

use super::error::sql;
use super::schema;
use crate::store::StoreError;

/// Where the file is, or the name of a database in memory.
#[derive(Debug)]
pub(super) enum Place {
    File(PathBuf),
    Memory(String),
}

impl Place {
    pub(super) fn of(url: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        match url.strip_prefix("sqlite://") {
            Some(path) => Self::File(path.into()),
            // Each store in memory is its own; its connections share it by name.
            None => Self::Memory(format!("feedmill-{}", NEXT.fetch_add(1, Ordering::Relaxed))),
        }
    }

    pub(super) fn connect(&self, cache_mib: u32) -> Result<Connection, StoreError> {
        let connection = match self {
            Self::File(path) => Connection::open(path),
            Self::Memory(name) => Connection::open_with_flags(
                format!("file:/{name}?vfs=memdb"),
                OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI,
            ),
        }
        .map_err(sql)?;
        #[cfg(test)]
        let connection = crate::effort::watched(connection).map_err(sql)?;
        schema::prepare(&connection, cache_mib).map_err(sql)?;
        Ok(connection)
    }
}
