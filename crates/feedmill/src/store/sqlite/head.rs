//! The head of the outbox as this process knows it, and who waits for it to move.
//!
//! In:    commits of this process; looks at what other processes committed.
//! Out:   waiting threads, woken.
//! Never: a wake-up lost: a condition is tested under the lock that a wake-up takes;
//!        a look more often than [`LOOK_MIN`], or while nothing changes than [`LOOK_MAX`].
//!
//! Consumers within the process sleep until a commit wakes them. What another
//! process commits is noticed by one thread for all of them, which asks SQLite
//! whether the file changed. That question costs a few microseconds; the pause
//! between two of them doubles while nobody else writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use metrics::counter;
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;

use super::outbox;
use crate::metrics as names;
use crate::store::StoreError;

/// Between two looks while another process writes.
pub(super) const LOOK_MIN: Duration = Duration::from_millis(20);
/// Between two looks while none does: how late its first change can be noticed.
pub(super) const LOOK_MAX: Duration = Duration::from_millis(500);

/// The newest position known, for threads that wait for a later one.
#[derive(Debug, Default)]
pub(super) struct Head {
    position: Mutex<i64>,
    moved: Condvar,
    /// Grows with every commit noticed, whoever made it.
    commits: AtomicU64,
}

impl Head {
    /// A commit of this process.
    pub(super) fn publish(&self, position: i64) {
        self.commits.fetch_add(1, Ordering::Release);
        let mut head = self.position.lock();
        *head = position.max(*head);
        self.moved.notify_all();
    }

    /// Has every waiting thread test its condition again.
    pub(super) fn wake(&self) {
        let _head = self.position.lock();
        self.moved.notify_all();
    }

    /// A number that is another one after every commit noticed.
    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }

    /// Waits for a position after `position`, for `enough`, or until `patience` is over.
    pub(super) fn wait(&self, position: i64, patience: Duration, enough: &dyn Fn() -> bool) {
        let until = Instant::now() + patience;
        let mut head = self.position.lock();
        while *head <= position && !enough() {
            counter!(names::WAITS).increment(1);
            if self.moved.wait_until(&mut head, until).timed_out() {
                return;
            }
        }
    }
}

/// Tells the watching thread to end.
#[derive(Debug, Default)]
struct Stop {
    asked: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn ask(&self) {
        *self.asked.lock() = true;
        self.changed.notify_all();
    }

    /// Sleeps; false when asked to stop.
    fn rest(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut asked = self.asked.lock();
        while !*asked && !self.changed.wait_until(&mut asked, until).timed_out() {}
        !*asked
    }
}

/// The thread that notices what other processes commit.
#[derive(Debug)]
pub(super) struct Watch {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(super) fn start(connection: Connection, head: &Arc<Head>) -> Result<Self, StoreError> {
        let (watched, stop) = (Arc::clone(head), Arc::new(Stop::default()));
        let asked = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("store-watch".into())
            .spawn(move || run(&connection, &watched, &asked))
            .map_err(|error| StoreError::Passing(error.to_string()))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.ask();
        if let Some(thread) = self.thread.take() {
            // It has nothing to hand over, so how it ended is nobody's concern.
            drop(thread.join());
        }
    }
}

fn run(connection: &Connection, head: &Head, stop: &Stop) {
    let mut version = None;
    let mut pause = LOOK_MIN;
    loop {
        let others_wrote = look(connection, head, &mut version).unwrap_or(false);
        pause = match others_wrote {
            true => LOOK_MIN,
            false => (pause * 2).min(LOOK_MAX),
        };
        if !stop.rest(pause) {
            return;
        }
    }
}

/// Looks once; true if the outbox holds what this process did not write.
fn look(
    connection: &Connection,
    head: &Head,
    version: &mut Option<i64>,
) -> Result<bool, rusqlite::Error> {
    counter!(names::STORE_LOOKS).increment(1);
    let now: i64 = connection
        .prepare_cached("PRAGMA data_version")?
        .query_row([], |row| row.get(0))?;
    if version.replace(now) == Some(now) {
        return Ok(false);
    }
    let known = *head.position.lock();
    let position = outbox::head(connection)?;
    head.commits.fetch_add(1, Ordering::Release);
    if position <= known {
        return Ok(false);
    }
    head.publish(position);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_condition_that_holds_before_the_wait_is_not_waited_for() {
        let head = Head::default();
        head.wait(0, Duration::from_secs(600), &|| true);
        head.publish(3);
        head.wait(2, Duration::from_secs(600), &|| false);
    }

    #[test]
    fn a_wake_up_between_the_test_of_a_condition_and_the_wait_is_not_lost() {
        let (head, enough) = (Arc::new(Head::default()), Arc::new(AtomicBool::new(false)));
        for _ in 0..1000 {
            enough.store(false, Ordering::Relaxed);
            let (waits, asked) = (Arc::clone(&head), Arc::clone(&enough));
            let waiting = std::thread::spawn(move || {
                waits.wait(0, Duration::from_secs(600), &|| {
                    asked.load(Ordering::Relaxed)
                });
            });
            enough.store(true, Ordering::Relaxed);
            head.wake();
            waiting.join().unwrap();
        }
    }
}
