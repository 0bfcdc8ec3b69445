//! Budget: what one read may cost, and what it has cost so far.
//!
//! In:    a deadline, a limit of bytes, and whether the caller still waits.
//! Out:   reads of this thread that end in time, in the engine too; the steps
//!        they took; pages that end before they are too large.
//! Never: a query that goes on after its caller has left.
//!
//! The caller provides the thread, so the budget belongs to the thread: every
//! read made within [`with`] uses it, however deep. The engine asks
//! `Budget::spend` every `STEPS` steps, and gives up when that says so.
//! Work outside of a request (intake, consumers of the outbox) has no budget.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use rusqlite::{Connection, Error};

/// Steps of the engine between two looks at the budget.
const STEPS: u32 = 1_000;
/// What holding one record against filters costs, in steps, and each 16 bytes of it.
const FILTER_STEPS: u64 = 50;

/// What one read may cost, and has cost.
#[derive(Debug)]
pub struct Budget {
    deadline: Option<Instant>,
    /// Bytes of records on one page; the page ends when they are reached.
    bytes_max: usize,
    cancelled: AtomicBool,
    steps: AtomicU64,
}

impl Budget {
    /// A budget that ends at a time.
    pub fn until(deadline: Instant, bytes_max: usize) -> Self {
        Self {
            deadline: Some(deadline),
            ..Self::of_bytes(bytes_max)
        }
    }

    /// A budget of bytes alone.
    pub fn of_bytes(bytes_max: usize) -> Self {
        Self {
            deadline: None,
            bytes_max,
            cancelled: AtomicBool::new(false),
            steps: AtomicU64::new(0),
        }
    }

    /// Ends whatever uses it; for a caller who does not wait any more.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Steps taken so far.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Whether nobody waits for the answer any more, or it comes too late.
    pub fn is_over(&self) -> bool {
        let late = self.deadline.is_some_and(|at| Instant::now() >= at);
        late || self.cancelled.load(Ordering::Relaxed)
    }

    /// Counts steps; true if the read must end.
    pub(super) fn spend(&self, steps: u64) -> bool {
        self.steps.fetch_add(steps, Ordering::Relaxed);
        self.is_over()
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Budget>>> = const { RefCell::new(None) };
}

/// Gives the thread back the budget it had before.
struct Before(Option<Arc<Budget>>);

impl Drop for Before {
    fn drop(&mut self) {
        let before = self.0.take();
        CURRENT.with_borrow_mut(|current| *current = before);
    }
}

/// Runs `work` so that all its reads use this budget.
pub fn with<T>(budget: &Arc<Budget>, work: impl FnOnce() -> T) -> T {
    let before = CURRENT.with_borrow_mut(|current| current.replace(Arc::clone(budget)));
    let _before = Before(before);
    work()
}

/// The budget of this thread, if its work has one.
pub(crate) fn current() -> Option<Arc<Budget>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Whether a page of this many bytes must end here.
pub(crate) fn is_page_full(bytes: usize) -> bool {
    CURRENT.with_borrow(|current| {
        let budget = current.as_ref();
        budget.is_some_and(|budget| bytes >= budget.bytes_max)
    })
}

/// Lets the engine look at the budget of this thread while it works on a connection.
pub(crate) fn watch(connection: &mut Connection) -> Result<(), Error> {
    let Some(budget) = current() else {
        return Ok(());
    };
    let spend = move || budget.spend(u64::from(STEPS));
    connection.progress_handler(STEPS.cast_signed(), Some(spend))
}

/// Ends that: the connection is somebody else's next.
pub(crate) fn unwatch(connection: &mut Connection) -> Result<(), Error> {
    connection.progress_handler(0, None::<fn() -> bool>)
}

/// Counts one record held against filters.
pub(super) fn filtered(bytes: usize) {
    CURRENT.with_borrow(|current| {
        if let Some(budget) = current {
            budget.spend(FILTER_STEPS + bytes as u64 / 16);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_budget_of_its_innermost_work() {
        let (outer, inner) = (
            Arc::new(Budget::of_bytes(10)),
            Arc::new(Budget::of_bytes(20)),
        );
        assert!(!is_page_full(usize::MAX), "no budget, no end");
        with(&outer, || {
            assert!(is_page_full(10) && !is_page_full(9));
            with(&inner, || assert!(is_page_full(20) && !is_page_full(19)));
            assert!(is_page_full(10));
        });
        assert!(current().is_none());
    }

    #[test]
    fn a_budget_ends_with_its_deadline_or_its_caller() {
        let late = Budget::until(Instant::now(), 1);
        assert!(late.spend(1));
        let left = Budget::of_bytes(1);
        assert!(!left.spend(7));
        left.cancel();
        assert!(left.spend(7));
        assert_eq!(left.steps(), 14);
    }
}
