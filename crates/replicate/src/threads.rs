//! Threads: how many requests of the log may block at once.
//!
//! In:    work that waits for the disk.
//! Out:   its result, once there was a thread for it.
//! Never: more threads than the limits: they are the process's, and pages of feeds
//!        need them too; an append that waits for readers; more pages in memory
//!        that no reservation counts yet than [`PAGES_MAX`].

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Reads at once.
const READS_MAX: usize = 16;
/// Appends that are read or checked at once. What they write shares one thread.
const APPENDS_MAX: usize = 16;

/// Pages that are read or written out at once. Each takes several times its size until it is a
/// message, whose bytes are counted.
const PAGES_MAX: usize = 16;

/// A place among those that make a page.
pub(crate) type Making = OwnedSemaphorePermit;

/// Leave to block.
#[derive(Debug)]
pub(crate) struct Threads {
    reads: Semaphore,
    appends: Semaphore,
    pages: Arc<Semaphore>,
}

impl Threads {
    pub(crate) fn new() -> Self {
        Self {
            reads: Semaphore::new(READS_MAX),
            appends: Semaphore::new(APPENDS_MAX),
            pages: Arc::new(Semaphore::new(PAGES_MAX)),
        }
    }

    /// A place to make a page in, kept until its bytes are counted.
    pub(crate) async fn make(&self) -> Option<Making> {
        Arc::clone(&self.pages).acquire_owned().await.ok()
    }

    /// Reads; `None` if the work or the process ended early.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        run(&self.reads, work).await
    }

    /// Reads or checks an append.
    pub(crate) async fn prepare<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        run(&self.appends, work).await
    }
}

async fn run<T: Send + 'static>(
    permits: &Semaphore,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let _permit = permits.acquire().await.ok()?;
    tokio::task::spawn_blocking(work).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    #[tokio::test(flavor = "multi_thread")]
    async fn slow_reads_take_no_more_threads_than_they_may_and_appends_do_not_wait_for_them() {
        let threads = Arc::new(Threads::new());
        let running = Arc::new(AtomicUsize::new(0));
        let (begun, begins) = mpsc::channel();
        let mut ends = Vec::new();
        let reads: Vec<_> = (0..2 * READS_MAX)
            .map(|_| {
                let (threads, running, begun) =
                    (Arc::clone(&threads), Arc::clone(&running), begun.clone());
                let (end, ended) = mpsc::channel::<()>();
                ends.push(end);
                tokio::spawn(async move {
                    let work = move || {
                        let at_once = running.fetch_add(1, Ordering::SeqCst) + 1;
                        begun.send(()).unwrap();
                        ended.recv().unwrap_or_default();
                        running.fetch_sub(1, Ordering::SeqCst);
                        at_once
                    };
                    threads.read(work).await.unwrap()
                })
            })
            .collect();
        let all_begun = tokio::task::spawn_blocking(move || {
            (0..READS_MAX).for_each(|_| begins.recv().unwrap());
            begins
        });
        let begins = all_begun.await.unwrap();
        assert_eq!(threads.prepare(|| 7).await, Some(7));
        drop(ends); // all of them may end
        for read in reads {
            let at_once = read.await.unwrap();
            assert!(at_once <= READS_MAX, "{at_once} at once");
        }
        drop(begun);
        assert_eq!(begins.iter().count(), READS_MAX);
    }
}
