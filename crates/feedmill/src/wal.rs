//! The size of a SQLite file's write-ahead log.
//!
//! In:    the commits of the connection that writes the file.
//! Out:   a log file that is cut back once it is larger than its limit and readers allow it.
//! Never: a writer that waits for readers longer than `READERS_WAIT_MAX`; an attempt with every
//!        commit while a reader holds an old snapshot.
//!
//! SQLite moves pages from the log into the file by itself (`wal_autocheckpoint`), but writes the log from
//! its beginning again only in a moment in which no reader uses it. Under steady reading that
//! moment never comes, and the log grows without end. A truncating checkpoint makes it come: readers that
//! begin meanwhile read the file, and those that use the log are waited for, for a moment.
//! A reader that stays longer, such as a backup, delays the cut until it has ended.

use std::path::{Path, PathBuf};
use std::time::Duration;

use metrics::{counter, gauge};
use rusqlite::Connection;
use tracing::warn;

use crate::metrics as names;

/// How long the writer waits for readers of the log.
const READERS_WAIT_MAX: Duration = Duration::from_millis(250);
/// The pause before another attempt while nothing is written.
pub const PAUSE: Duration = Duration::from_secs(1);
/// How much of the limit the log grows before another attempt.
const GROWTH: u64 = 8;

/// The log beside one file.
#[derive(Debug)]
pub struct Wal {
    /// The label of its metrics.
    name: &'static str,
    /// `None` for a database in memory.
    file: Option<PathBuf>,
    bytes_max: u64,
    /// The size at which the next attempt is made.
    attempt_at: u64,
    is_over: bool,
}

impl Wal {
    /// Limits the log of the connection that writes.
    pub fn limit(
        name: &'static str,
        connection: &Connection,
        mib_max: u64,
    ) -> Result<Self, rusqlite::Error> {
        let bytes_max = mib_max.saturating_mul(1 << 20);
        let page_bytes: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        // Rare checkpoints write a page that many transactions touched once.
        let pages = (bytes_max / 2 / page_bytes.max(512).unsigned_abs()).max(1);
        connection.pragma_update(None, "wal_autocheckpoint", pages.cast_signed())?;
        connection.pragma_update(None, "journal_size_limit", bytes_max.cast_signed())?;
        let file = connection.path().filter(|path| Path::new(path).is_file());
        let mut wal = Self {
            name,
            file: file.map(|path| PathBuf::from(format!("{path}-wal"))),
            bytes_max,
            attempt_at: bytes_max,
            is_over: false,
        };
        wal.look();
        Ok(wal)
    }

    /// Whether it is larger than allowed: the writer tries again also while nobody writes.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// After a commit: cuts it back, if it is too large and did not just fail to be.
    pub fn committed(&mut self, connection: &Connection) {
        if self.look() > self.attempt_at {
            self.cut(connection);
        }
    }

    /// Cuts it back, if it is too large and readers leave it in time.
    pub fn cut(&mut self, connection: &Connection) {
        if self.look() <= self.bytes_max {
            return;
        }
        let result = match truncate(connection) {
            Ok(true) => "done",
            Ok(false) => "busy",
            Err(error) => {
                warn!(%error, file = self.name, "a write-ahead log cannot be truncated; trying again");
                "failed"
            }
        };
        counter!(names::WAL_TRUNCATIONS, "file" => self.name, "result" => result).increment(1);
        let bytes = self.look();
        if bytes > self.bytes_max {
            self.attempt_at = bytes + self.bytes_max / GROWTH;
        }
    }

    /// Notes its size.
    fn look(&mut self) -> u64 {
        let file = self.file.as_ref();
        let found = file.and_then(|file| std::fs::metadata(file).ok());
        let bytes = found.map_or(0, |file| file.len());
        gauge!(names::WAL_BYTES, "file" => self.name).set(bytes as f64);
        self.is_over = bytes > self.bytes_max;
        if !self.is_over {
            self.attempt_at = self.bytes_max;
        }
        bytes
    }
}

/// Moves the whole log into the file and empties it; false if a reader still uses it.
fn truncate(connection: &Connection) -> Result<bool, rusqlite::Error> {
    let usual_ms: i64 = connection.pragma_query_value(None, "busy_timeout", |row| row.get(0))?;
    connection.busy_timeout(READERS_WAIT_MAX)?;
    let busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
        row.get::<_, i64>(0)
    });
    connection.busy_timeout(Duration::from_millis(usual_ms.max(0).unsigned_abs()))?;
    Ok(busy? == 0)
}
