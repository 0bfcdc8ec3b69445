//! Loading: whether the timelines answer yet, and what they must show when they begin to.
//!
//! In:    records loaded, by the thread that loads; positions that somebody was told of.
//! Out:   progress for the operator; leave for the loaded engine to take over.
//! Never: an engine that takes over and shows less than the store's pages showed: whoever was told
//!        of a change while pages came from the store must find it in memory too.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// How far the timelines are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Records loaded so far.
    pub records: u64,
    /// About how many there are; the store goes on changing.
    pub expected: u64,
}

impl Progress {
    /// Per cent, rounded down; below 100 until the timelines answer.
    pub fn percent(&self) -> u64 {
        (self.records * 100 / self.expected.max(1)).min(99)
    }
}

/// The state of loading.
#[derive(Debug)]
pub(super) struct Loading {
    state: Mutex<State>,
    moved: Condvar,
    waiting: AtomicUsize,
    is_loading: AtomicBool,
    records: AtomicU64,
    expected: AtomicU64,
}

#[derive(Debug)]
struct State {
    is_loading: bool,
    /// The newest position that pages from the store were promised to show.
    promised: i64,
}

impl Loading {
    /// Nothing is loaded yet.
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                is_loading: true,
                promised: 0,
            }),
            moved: Condvar::new(),
            waiting: AtomicUsize::new(0),
            is_loading: AtomicBool::new(true),
            records: AtomicU64::new(0),
            expected: AtomicU64::new(0),
        }
    }

    /// The engine is given up: pages come from the store until [`Loading::finish`].
    pub(super) fn begin(&self, expected: u64) {
        self.records.store(0, Ordering::Relaxed);
        self.expected.store(expected, Ordering::Relaxed);
        let mut state = self.state.lock();
        if !state.is_loading {
            state.promised = 0;
        }
        state.is_loading = true;
        self.is_loading.store(true, Ordering::Release);
        self.moved.notify_all(); // the store shows what they wait for
    }

    pub(super) fn add(&self, records: u64) {
        self.records.fetch_add(records, Ordering::Relaxed);
    }

    /// Has a loaded engine take over, unless it lacks what was promised; then it has to catch up.
    pub(super) fn finish(&self, position: i64, take_over: impl FnOnce()) -> bool {
        let mut state = self.state.lock();
        if position < state.promised {
            return false;
        }
        take_over();
        state.is_loading = false;
        self.is_loading.store(false, Ordering::Release);
        true
    }

    pub(super) fn is_loading(&self) -> bool {
        self.is_loading.load(Ordering::Acquire)
    }

    /// `None` once the timelines answer.
    pub(super) fn progress(&self) -> Option<Progress> {
        self.is_loading().then(|| Progress {
            records: self.records.load(Ordering::Relaxed),
            expected: self.expected.load(Ordering::Relaxed),
        })
    }

    /// The engine made a position public.
    ///
    /// The fence orders it before the look for waiting threads; theirs, in [`Loading::wait`], orders
    /// the count before the look at the position. So one of the two sees the other.
    pub(super) fn moved(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            let _state = self.state.lock();
            self.moved.notify_all();
        }
    }

    /// Waits until pages show `position`; false if they do not after `patience`.
    pub(super) fn wait(&self, position: i64, patience: Duration, shown: impl Fn() -> i64) -> bool {
        if !self.is_loading() && shown() >= position {
            return true;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let until = Instant::now() + patience;
        let mut state = self.state.lock();
        let is_shown = loop {
            if state.is_loading {
                state.promised = state.promised.max(position);
                break true; // pages come from the store
            }
            if shown() >= position {
                break true;
            }
            if self.moved.wait_until(&mut state, until).timed_out() {
                break shown() >= position;
            }
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        is_shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicI64;

    #[test]
    fn an_engine_that_lacks_what_was_promised_does_not_take_over() {
        let loading = Loading::new();
        assert!(loading.wait(7, Duration::ZERO, || 0), "the store shows it");
        assert!(!loading.finish(6, || panic!("it lacks the change 7")));
        assert!(loading.is_loading());
        assert!(loading.finish(7, || {}));
        assert_eq!(loading.progress(), None);
    }

    #[test]
    fn whoever_waits_for_a_position_is_woken_by_it() {
        let (loading, at) = (Arc::new(Loading::new()), Arc::new(AtomicI64::new(0)));
        assert!(loading.finish(0, || {}));
        for position in 1..1000 {
            let (waits, shown) = (Arc::clone(&loading), Arc::clone(&at));
            let waiting = std::thread::spawn(move || {
                let patience = Duration::from_secs(600);
                waits.wait(position, patience, || shown.load(Ordering::Acquire))
            });
            at.store(position, Ordering::Release);
            loading.moved();
            assert!(waiting.join().unwrap());
        }
        assert!(
            !loading.wait(5000, Duration::ZERO, || 0),
            "nobody waits for ever"
        );
    }

    #[test]
    fn progress_never_says_all_before_it_is_so() {
        let progress = |records, expected| Progress { records, expected }.percent();
        assert_eq!(
            [progress(0, 0), progress(5, 10), progress(20, 10)],
            [0, 50, 99]
        );
    }
}
