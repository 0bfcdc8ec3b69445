//! Appends of several threads that share a transaction, and a store that dies in the midst of it.
//!
//! To die is to leave the transaction and the process's memory as they are: the thread that leads
//! the group unwinds, and the file is opened again.

use super::model::SPACE;
use crate::sqlite::{Moment, Remembered, SqliteLog, within};
use blocklog::limits::Limits;
use blocklog::message::{AppendRequest, Appended};
use blocklog::store::AppendError;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// How many stores have died inside a group.
static DIED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Where the store of this thread dies.
    static KILL: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// A place that a store passes.
pub(super) fn here(name: &'static str) {
    if KILL.get() == Some(name) {
        DIED.fetch_add(1, Ordering::Relaxed);
        // Unlike a panic it says nothing.
        resume_unwind(Box::new(()));
    }
}

pub(super) fn count() -> u64 {
    DIED.load(Ordering::Relaxed)
}

type Outcome = Result<Vec<Option<u64>>, AppendError>;

/// Append what came together in one transaction; `None` if the store was to die.
pub(super) fn together(
    store: &SqliteLog,
    appends: Vec<AppendRequest>,
    now_ms: u64,
    limits: &Limits,
    kill: Option<&'static str>,
) -> Option<Vec<Outcome>> {
    let append = |request: AppendRequest| {
        let limits = limits.clone();
        KILL.set(kill);
        let job = move |moment: &Moment<'_>, known: &mut Remembered| {
            within::append(moment, known, SPACE, &request, now_ms, &limits)
        };
        store.grouped_here(1, job)
    };
    let held = store.writer.lock();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = appends
            .into_iter()
            .map(|request| {
                let waiting = store.waiting();
                let append = &append;
                let died_or_done = move || catch_unwind(AssertUnwindSafe(|| append(request)));
                let thread = scope.spawn(died_or_done);
                while store.waiting() == waiting {
                    std::thread::yield_now(); // they come in the order of the requests
                }
                thread
            })
            .collect();
        drop(held);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    if kill.is_some() {
        return None;
    }
    let placed = |appended: Appended| appended.positions.into_iter().map(Some).collect();
    let outcomes = outcomes
        .into_iter()
        .map(|outcome| outcome.unwrap().map(placed));
    Some(outcomes.collect())
}
