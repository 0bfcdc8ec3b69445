//! Connections that answer reads, a bounded number of them.
//!
//! In:    something to be read.
//! Out:   what it read, on a connection that was its own meanwhile.
//! Never: two on one connection; more connections than there were at first.

use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;

/// Connections, and who waits for one.
#[derive(Debug)]
pub(super) struct Pool {
    idle: Mutex<Vec<Connection>>,
    freed: Condvar,
}

impl Pool {
    pub(super) fn of(connections: Vec<Connection>) -> Self {
        Self {
            idle: Mutex::new(connections),
            freed: Condvar::new(),
        }
    }

    /// Runs `read` as soon as a connection is free.
    pub(super) fn lend<T>(&self, read: impl FnOnce(&mut Connection) -> T) -> T {
        let mut idle = self.idle.lock();
        let mut connection = loop {
            match idle.pop() {
                Some(connection) => break connection,
                None => self.freed.wait(&mut idle),
            }
        };
        drop(idle);
        let value = read(&mut connection);
        self.idle.lock().push(connection);
        self.freed.notify_one();
        value
    }
}
