//! Epochs: which history a position is of.
//!
//! In:    who has the file open, and whether the last one closed it.
//! Out:   the epoch that goes on, or a new one.
//! Never: a new epoch while another process works with the file; an old position taken for one of
//!        a history that lost what it stood for.
//!
//! Everybody who has a store open shares a lock on a file beside it. The system
//! gives that up when a process ends in whatever way, so whoever gets the lock
//! alone knows that nobody else is there. The last one to close writes the same
//! random number into both files. Where the first one to open does not find
//! that, the machine may have lost the last commits, or a backup is in place of
//! the store: a new epoch begins. Of the one before it is known how far it
//! came, so positions up to there are still good.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use decide::ids::Position;
use rusqlite::{Connection, OptionalExtension as _, Transaction};

use super::schema;
use crate::error::StoreError;

/// Epochs that are remembered; each is a row.
const EPOCHS_MAX: i64 = 10_000;

/// The file that everybody who has a store open has a lock on.
#[derive(Debug)]
pub(super) struct Lock(File);

fn beside(store: &Path) -> PathBuf {
    let mut name = OsString::from(store);
    name.push("-open");
    name.into()
}

fn failed(error: &std::io::Error) -> StoreError {
    StoreError::Engine(format!(
        "the file that says who has the store open: {error}"
    ))
}

impl Lock {
    /// Joins those who have a store open, and begins an epoch if one must begin. Inside a
    /// transaction that writes, so that one opens at a time.
    pub(super) fn open(tx: &Transaction<'_>, store: &Path) -> Result<Self, StoreError> {
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).read(true).write(true);
        let mut lock = Self(
            options
                .open(beside(store))
                .map_err(|error| failed(&error))?,
        );
        if lock.is_alone()? {
            let closed: i64 = tx.query_row("SELECT closed FROM head", [], |row| row.get(0))?;
            if closed == 0 || lock.read()? != closed.to_string() {
                begin(tx)?;
            }
            tx.execute("UPDATE head SET closed = 0", [])?;
            lock.0.unlock().map_err(|error| failed(&error))?;
        }
        lock.0.lock_shared().map_err(|error| failed(&error))?;
        Ok(lock)
    }

    /// Leaves; the last one says that everything that was committed is in the file.
    pub(super) fn close(mut self, tx: &Transaction<'_>) -> Result<(), StoreError> {
        self.0.unlock().map_err(|error| failed(&error))?;
        if self.is_alone()? {
            let number = random()?;
            self.write(&number.to_string())?;
            tx.execute("UPDATE head SET closed = ?1", [number])?;
        }
        Ok(())
    }

    fn is_alone(&self) -> Result<bool, StoreError> {
        match self.0.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(failed(&error)),
        }
    }

    fn read(&mut self) -> Result<String, StoreError> {
        let mut text = String::new();
        let read = self.0.rewind();
        let read = read.and_then(|()| (&self.0).take(64).read_to_string(&mut text));
        read.map_err(|error| failed(&error))?;
        Ok(text)
    }

    fn write(&mut self, text: &str) -> Result<(), StoreError> {
        let written = self.0.set_len(0).and_then(|()| self.0.rewind());
        let written = written.and_then(|()| self.0.write_all(text.as_bytes()));
        let written = written.and_then(|()| self.0.sync_all());
        written.map_err(|error| failed(&error))
    }
}

fn random() -> Result<i64, StoreError> {
    let random = getrandom::u64().map_err(|error| StoreError::Engine(error.to_string()))?;
    // Positive, and exact as a number of JSON.
    Ok((random >> 11).cast_signed().max(1))
}

/// Begins an epoch; of the one before it is kept how far it came.
fn begin(tx: &Transaction<'_>) -> Result<(), StoreError> {
    let before = schema::head(tx)?;
    if before.epoch != 0 {
        let sql = "INSERT INTO epoch (epoch, last) VALUES (?1, ?2)";
        tx.execute(sql, [before.epoch, before.n])?;
        let sql = "DELETE FROM epoch WHERE number <= (SELECT max(number) FROM epoch) - ?1";
        tx.execute(sql, [EPOCHS_MAX])?;
    }
    tx.execute("UPDATE head SET epoch = ?1", [random()?])?;
    Ok(())
}

/// Why changes after a position cannot be given; `None` if they can.
pub(super) fn gone(
    connection: &Connection,
    after: Position,
) -> Result<Option<&'static str>, StoreError> {
    let head = schema::head(connection)?;
    let last = match after.epoch == head.epoch {
        true => head.n,
        false => {
            let sql = "SELECT last FROM epoch WHERE epoch = ?1";
            let mut statement = connection.prepare_cached(sql)?;
            let last = statement.query_row([after.epoch], |row| row.get(0));
            match last.optional()? {
                Some(last) => last,
                None => return Ok(Some("it is of another history")),
            }
        }
    };
    let trimmed = schema::trimmed(connection)?;
    Ok(match after.n {
        n if n > last && after.epoch != head.epoch => Some("it was lost"),
        n if n > last => Some("it is ahead of the store"),
        n if n < trimmed => Some("what follows it was trimmed"),
        _ => None,
    })
}
