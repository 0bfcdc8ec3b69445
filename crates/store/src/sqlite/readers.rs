//! Connections of readers: few are open, and whoever comes when all are in use waits a while.

use std::path::Path;
use std::time::{Duration, Instant};

use decide::ids::Position;
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;

use super::{Settings, connect};
use crate::error::StoreError;

/// The connections.
#[derive(Debug)]
pub(super) struct Readers {
    idle: Mutex<Idle>,
    returned: Condvar,
    wait_max: Duration,
}

#[derive(Debug)]
struct Idle {
    connections: Vec<Connection>,
    /// How many may still be opened.
    unopened: usize,
}

impl Readers {
    pub(super) fn new(settings: Settings) -> Self {
        let idle = Idle {
            connections: Vec::new(),
            unopened: settings.readers_max.max(1),
        };
        Self {
            idle: Mutex::new(idle),
            returned: Condvar::new(),
            wait_max: settings.reader_wait_max,
        }
    }

    /// A connection to the file of these readers.
    pub(super) fn get(&self, file: &Path) -> Result<Reader<'_>, StoreError> {
        let until = Instant::now() + self.wait_max;
        let mut idle = self.idle.lock();
        while idle.connections.is_empty() && idle.unopened == 0 {
            if self.returned.wait_until(&mut idle, until).timed_out() {
                return Err(StoreError::Busy);
            }
        }
        let connection = match idle.connections.pop() {
            Some(connection) => connection,
            None => {
                idle.unopened -= 1;
                drop(idle);
                connect(file).inspect_err(|_| self.discard())?
            }
        };
        Ok(Reader {
            readers: self,
            connection: Some(connection),
            position: Position::default(),
        })
    }

    fn discard(&self) {
        self.idle.lock().unopened += 1;
        self.returned.notify_one();
    }
}

/// A connection, perhaps in a read transaction; it goes back to the idle ones.
#[derive(Debug)]
pub(super) struct Reader<'r> {
    readers: &'r Readers,
    connection: Option<Connection>,
    pub(super) position: Position,
}

impl Reader<'_> {
    pub(super) fn connection(&self) -> Result<&Connection, StoreError> {
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
        if ended {
            self.readers.idle.lock().connections.push(connection);
            self.readers.returned.notify_one();
        } else {
            self.readers.discard();
        }
    }
}
