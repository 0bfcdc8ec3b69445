//! Effort: what an answer cost SQLite, in steps of its machine. For tests only.
//!
//! In:    connections, as stores open them.
//! Out:   the steps that some work of this thread took.
//! Never: a clock: a busy machine takes longer, but not more steps. A statement that is planned
//!        again each time it is used: that costs more than most of them, and no step tells of it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use rusqlite::trace::{TraceEvent, TraceEventCodes};
use rusqlite::{Connection, StatementStatus};

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
    /// The last statement that was planned again.
    static PLANNED_AGAIN: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Counts what is done over this connection.
pub(crate) fn watched(mut connection: Connection) -> rusqlite::Result<Connection> {
    // A statement that is kept counts on from where it stood.
    let mut stood: HashMap<String, i32> = HashMap::new();
    let count = move |event: TraceEvent<'_>| {
        let TraceEvent::Profile(statement, _) = event else {
            return;
        };
        let now = statement.get_status(StatementStatus::VmStep);
        let before = stood.insert(statement.sql().into_owned(), now);
        let before = before.filter(|before| *before <= now).unwrap_or(0);
        STEPS.set(STEPS.get() + u64::from((now - before).unsigned_abs()));
        if statement.get_status(StatementStatus::RePrepare) > 0 {
            PLANNED_AGAIN.set(Some(statement.sql().into_owned()));
        }
    };
    connection.trace_v2(TraceEventCodes::SQLITE_TRACE_PROFILE, Some(count))?;
    Ok(connection)
}

/// The steps that `work` took, on this thread.
pub(crate) fn of<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = STEPS.get();
    PLANNED_AGAIN.take();
    let done = work();
    let planned_again = PLANNED_AGAIN.take();
    assert_eq!(planned_again, None, "a statement was planned again");
    (STEPS.get() - before, done)
}

/// Nothing grows with what is stored: each cost in a small store, and in one many times its size.
#[track_caller]
pub(crate) fn is_flat(what: &str, small: u64, large: u64) {
    assert!(small > 0, "{what}: nothing was counted");
    assert!(
        large <= small + small / 4 + 20,
        "{what}: {small} steps became {large} as the store grew"
    );
}
