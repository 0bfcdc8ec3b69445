//! Connections that answer reads, a bounded number of them.
//!
//! In:    something to be read.
//! Out:   what it read, on a connection that was its own meanwhile.
//! Never: two on one connection; more connections than there were at first; a
//!        query that goes on when its budget is used up.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rusqlite::{Connection, Error};

use crate::store::budget::{self, Budget};

/// How often one who waits for a connection looks whether its caller still waits.
const LOOK_EVERY: Duration = Duration::from_millis(20);

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

    /// Runs `read` as soon as a connection is free, within the budget of this thread.
    pub(super) fn lend<T>(
        &self,
        read: impl FnOnce(&mut Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let budget = budget::current();
        let mut connection = self.take(budget.as_deref())?;
        let value = budget::watch(&mut connection).and_then(|()| read(&mut connection));
        let value = match budget {
            Some(_) => budget::unwatch(&mut connection).and(value),
            None => value,
        };
        self.idle.lock().push(connection);
        self.freed.notify_one();
        value
    }

    /// Waits for a connection, no longer than the budget allows.
    fn take(&self, budget: Option<&Budget>) -> Result<Connection, Error> {
        let mut idle = self.idle.lock();
        loop {
            // Also where one is free: many short reads must end as one long one does.
            if budget.is_some_and(Budget::is_over) {
                return Err(interrupted());
            }
            match (idle.pop(), budget) {
                (Some(connection), _) => return Ok(connection),
                (None, None) => self.freed.wait(&mut idle),
                (None, Some(_)) => drop(self.freed.wait_for(&mut idle, LOOK_EVERY)),
            }
        }
    }
}

/// What the engine says of a query that was ended.
fn interrupted() -> Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_INTERRUPT);
    Error::SqliteFailure(code, None)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;

    /// It never ends by itself.
    const ENDLESS: &str =
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n";

    fn pool() -> Pool {
        Pool::of(vec![Connection::open_in_memory().unwrap()])
    }

    fn endless(pool: &Pool) -> Result<i64, Error> {
        pool.lend(|connection| connection.query_row(ENDLESS, [], |row| row.get(0)))
    }

    fn is_ended(result: &Result<i64, Error>) -> bool {
        let code = result.as_ref().err().and_then(Error::sqlite_error_code);
        code == Some(rusqlite::ErrorCode::OperationInterrupted)
    }

    #[test]
    fn a_query_ends_in_the_engine_with_its_deadline_and_its_steps_are_counted() {
        let pool = pool();
        let deadline = Instant::now() + Duration::from_millis(20);
        let budget = Arc::new(Budget::until(deadline, 1));
        assert!(is_ended(&budget::with(&budget, || endless(&pool))));
        assert!(budget.steps() > 0);
        // The connection is good for the next one, who has no budget.
        let next = pool.lend(|connection| connection.query_row("SELECT 7", [], |row| row.get(0)));
        assert_eq!(next, Ok(7));
    }

    #[test]
    fn a_query_ends_when_its_caller_has_left() {
        let pool = pool();
        let budget = Arc::new(Budget::of_bytes(1));
        let leaving = Arc::clone(&budget);
        std::thread::scope(|scope| {
            let query = scope.spawn(|| budget::with(&budget, || endless(&pool)));
            while leaving.steps() == 0 {
                std::thread::yield_now();
            }
            leaving.cancel();
            assert!(is_ended(&query.join().unwrap()));
        });
    }

    #[test]
    fn many_short_reads_end_with_their_budget_too_and_nobody_waits_for_a_connection_beyond_it() {
        let pool = pool();
        let budget = Arc::new(Budget::of_bytes(1));
        budget.cancel();
        let read =
            || pool.lend(|connection| connection.query_row("SELECT 7", [], |row| row.get(0)));
        assert!(is_ended(&budget::with(&budget, read)));
        let deadline = Instant::now() + Duration::from_millis(20);
        let late = Arc::new(Budget::until(deadline, 1));
        let held = pool.take(None).unwrap();
        assert!(is_ended(&budget::with(&late, read)), "all are taken");
        drop(held);
    }
}
