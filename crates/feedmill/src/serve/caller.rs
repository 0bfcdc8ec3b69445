//! The caller of the request at hand: who pays for it, and until when it waits.
//!
//! In:    a request's address, and its account once a token proved one.
//! Out:   the same for whatever answers the request, without passing it on.
//!
//! It belongs to the task that answers, as the budget of a read belongs to its
//! thread (`store::budget`).

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::xxh3_64;

use super::permits::Client;

/// Who asks.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) address: Option<IpAddr>,
    account: OnceLock<String>,
    /// Steps that work outside of the store was worth.
    steps: AtomicU64,
    /// Whether it wants to write.
    pub(super) writes: bool,
    deadline: Instant,
    timeout: Duration,
}

tokio::task_local! {
    static CURRENT: Arc<Caller>;
}

impl Caller {
    pub(super) fn new(address: Option<IpAddr>, writes: bool, timeout: Duration) -> Self {
        Self {
            address,
            account: OnceLock::new(),
            steps: AtomicU64::new(0),
            writes,
            deadline: Instant::now() + timeout,
            timeout,
        }
    }

    /// Runs what answers the caller.
    pub(super) async fn scope<F: Future>(self: Arc<Self>, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }

    /// The caller of this task; this machine itself outside of a request.
    pub(super) fn current(timeout: Duration) -> Arc<Self> {
        let caller = CURRENT.try_with(Arc::clone);
        caller.unwrap_or_else(|_| Arc::new(Self::new(None, false, timeout)))
    }

    /// A token proved which account asks.
    pub(super) fn prove(account: &str) {
        // Outside of a request nobody is charged.
        if let Ok(caller) = CURRENT.try_with(Arc::clone) {
            drop(caller.account.set(account.to_owned()));
        }
    }

    /// The caller of this task has work done that is worth so many steps.
    pub(super) fn cost(steps: u64) {
        // Outside of a request nobody is charged.
        CURRENT
            .try_with(|caller| caller.add(steps))
            .unwrap_or_default();
    }

    pub(super) fn add(&self, steps: u64) {
        self.steps.fetch_add(steps, Ordering::Relaxed);
    }

    /// What was added, once.
    pub(super) fn spent(&self) -> u64 {
        self.steps.swap(0, Ordering::Relaxed)
    }

    pub(super) fn account(&self) -> Option<&str> {
        self.account.get().map(String::as_str)
    }

    /// Whose share is used.
    pub(super) fn client(&self) -> Client {
        match (self.address, self.account()) {
            (Some(address), _) => Client::Address(address),
            (None, Some(account)) => Client::Account(xxh3_64(account.as_bytes())),
            (None, None) => Client::Local,
        }
    }

    /// When it does not wait any more.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The same caller, who goes on asking after its request was answered: a reader who listens.
    pub(super) fn again(&self) -> Arc<Self> {
        let again = Self::new(self.address, false, self.timeout);
        if let Some(account) = self.account() {
            drop(again.account.set(account.to_owned()));
        }
        Arc::new(again)
    }
}
