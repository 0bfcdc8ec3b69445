//! Resync: repairing an account whose chain broke, and fetching one that somebody reads as.
//!
//! In:    accounts the store has marked, and readers who wait.
//! Out:   their repositories, fetched from their own hosts, applied as
//!        snapshots together with the frames held since.
//! Never: more than `resync_max` repairs or `reader_fetch_max` readers at once,
//!        so that neither waits for the other; more of one host than it likes;
//!        a failure that is not tried again, unless only a reader asked for the
//!        account; an attempt that a start does not know of.
//!
//! Where a gap may have hidden how an account stands, and where a host does not
//! give out a repository, the host is asked for the account's standing first.

// One account's repository, from its host into the store.
mod repository;
mod rest;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use metrics::counter;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use self::repository::{Failed, Repaired};
use self::rest::{Fault, Rest, Rests};
use crate::check::chain;
use crate::clock::Clock;
use crate::decode::Decoder;
use crate::host::Cause;
use crate::identity::Resolver;
use crate::metrics as names;
use crate::status::Status;
use crate::store::batch::{Batch, Item};
use crate::store::{SharedStore, StoreError};

/// How often marked accounts are looked for without a hint: those that another process marked.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Accounts looked at in one turn, beside those that are busy or resting.
const LOOK_MAX: usize = 1000;

/// What it takes to repair one account.
#[derive(Debug, Clone)]
pub struct Resync {
    pub source: String,
    pub store: SharedStore,
    pub decoder: Decoder,
    pub resolver: Arc<Resolver>,
    pub clock: Clock,
    pub status: Arc<Status>,
}

/// How many run at once, of each kind.
#[derive(Debug, Clone, Copy)]
pub struct AtOnce {
    pub repairs_max: usize,
    pub readers_max: usize,
}

impl AtOnce {
    fn of(self, kind: Kind) -> usize {
        match kind {
            Kind::Repair => self.repairs_max,
            Kind::Reader => self.readers_max,
        }
    }
}

/// Why an account is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The stream broke, or a list named it.
    Repair,
    /// Somebody reads as this account.
    Reader,
}

impl Kind {
    fn cause(self) -> Cause {
        match self {
            Self::Repair => Cause::Repair,
            Self::Reader => Cause::Reader,
        }
    }
}

/// What came of an attempt.
#[derive(Debug, Clone, Copy)]
enum Attempt {
    Done,
    /// It rests, and is tried again.
    Rests(Rest),
    /// Only a reader asked for it, and it waits no longer.
    GivenUp,
}

/// Attempts under way.
#[derive(Default)]
struct Running {
    tasks: JoinSet<Attempt>,
    accounts: HashMap<tokio::task::Id, (Kind, String)>,
}

impl Running {
    fn has_room(&self, kind: Kind, at_once: AtOnce) -> bool {
        let running = self.accounts.values().filter(|(other, _)| *other == kind);
        running.count() < at_once.of(kind)
    }

    fn is_busy(&self, did: &str) -> bool {
        self.accounts.values().any(|(_, other)| other == did)
    }
}

impl Resync {
    /// Fetches accounts until `stop` is set.
    pub async fn run(self, at_once: AtOnce, mut stop: watch::Receiver<bool>) {
        let mut marked = self.status.marked.subscribe();
        let mut rests = self.interrupted().await;
        let mut running = Running::default();
        let mut looked = None;
        while !*stop.borrow() {
            // While nothing is written nobody is marked; only a rest may end.
            let commits = Some(self.store.commits());
            if looked != commits || rests.len() > 0 {
                self.begin(at_once, &rests, &mut running).await;
                looked = commits;
            }
            tokio::select! {
                Some(done) = running.tasks.join_next_with_id(), if !running.tasks.is_empty() => {
                    let (id, attempt) = match done {
                        Ok((id, attempt)) => (id, Some(attempt)),
                        Err(error) => (error.id(), None),
                    };
                    if let Some((_, did)) = running.accounts.remove(&id) {
                        settle(did, attempt, &mut rests);
                    }
                    self.tell(&running);
                    looked = None; // there is room for another
                }
                _ = marked.changed() => {}
                _ = stop.changed() => break,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
        running.tasks.shutdown().await;
        let cut = running.accounts.into_values().map(|(_, did)| did).collect();
        self.ended(cut).await;
    }

    /// Those that were being fetched when the process died wait.
    async fn interrupted(&self) -> Rests {
        let store = Arc::clone(&self.store);
        let begun = tokio::task::spawn_blocking(move || store.fetches_begun()).await;
        let (mut rests, now) = (Rests::default(), Instant::now());
        for begun in begun.ok().and_then(Result::ok).unwrap_or_default() {
            let passed_us = self.clock.now_us().saturating_sub(begun.begun_us);
            let passed = Duration::from_micros(passed_us.max(0).unsigned_abs());
            let rest = Rest::interrupted(begun.attempts, passed, now);
            let (did, attempts) = (begun.did, begun.attempts);
            warn!(
                did,
                attempts, "the process ended while it fetched this account; it waits"
            );
            rests.begin(did, rest, now);
        }
        rests
    }

    async fn begin(&self, at_once: AtOnce, rests: &Rests, running: &mut Running) {
        // Those that rest must not hide the others behind them.
        let look_max = LOOK_MAX + rests.len() + running.accounts.len();
        let store = Arc::clone(&self.store);
        let look = move || -> Result<_, StoreError> {
            let readers = store.waiting_readers(look_max)?;
            Ok((readers, store.broken_accounts(look_max)?))
        };
        let looked = tokio::task::spawn_blocking(look).await;
        let (readers, broken) = looked.ok().and_then(Result::ok).unwrap_or_default();
        let readers = readers.into_iter().map(|did| (Kind::Reader, did));
        let broken = broken.into_iter().map(|did| (Kind::Repair, did));
        for (kind, did) in readers.chain(broken) {
            let resting = rests.is_resting(&did, Instant::now());
            if !running.has_room(kind, at_once) || running.is_busy(&did) || resting {
                continue;
            }
            let (resync, account, last) = (self.clone(), did.clone(), rests.last(&did));
            let attempt = async move { resync.attempt(&account, kind, last).await };
            let handle = running.tasks.spawn(attempt);
            running.accounts.insert(handle.id(), (kind, did));
        }
        self.tell(running);
    }

    fn tell(&self, running: &Running) {
        let count = running.accounts.len() as i64;
        self.status.resyncing.store(count, Ordering::Relaxed);
    }

    /// Tries once; `last`: how it rested before.
    async fn attempt(&self, did: &str, kind: Kind, last: Option<Rest>) -> Attempt {
        let tried = match self.begun(did).await {
            Ok(()) => self.repair(did, kind).await,
            Err(error) => Err(error),
        };
        if !matches!(tried, Ok(Repaired::Applied(_))) {
            self.ended(vec![did.to_owned()]).await;
        }
        let error = match tried {
            Ok(repaired) => {
                self.status.resynced.fetch_add(1, Ordering::Relaxed);
                self.status.settled.send_modify(|count| *count += 1);
                counter!(names::RESYNCS, "result" => "ok").increment(1);
                info!(
                    did,
                    records = repaired.records(),
                    "account is in step again"
                );
                return Attempt::Done;
            }
            Err(error) => error,
        };
        let fault = error.fault();
        let rest = Rest::after(last, fault, Instant::now());
        let enough = kind == Kind::Reader && rest.is_enough(fault);
        let given_up = enough && self.give_up(did).await;
        if let Fault::Busy(_) = fault {
            counter!(names::RESYNCS, "result" => "later").increment(1);
        } else {
            self.resolver.forget(did);
            counter!(names::RESYNCS, "result" => "failed").increment(1);
            let (error, pause_s) = (chain(&error), rest.pause_s());
            match given_up {
                true => warn!(did, error, "a reader's repository cannot be fetched"),
                false => warn!(did, error, pause_s, "resync failed; it will be tried again"),
            }
        }
        match given_up {
            true => Attempt::GivenUp,
            false => Attempt::Rests(rest),
        }
    }

    /// A durable word that this account is about to be fetched.
    async fn begun(&self, did: &str) -> Result<(), Failed> {
        let did = did.to_owned();
        let batch = Batch::of_no_source(self.clock.now_us(), Item::FetchBegun { did });
        let store = Arc::clone(&self.store);
        tokio::task::spawn_blocking(move || store.commit(batch)).await??;
        Ok(())
    }

    /// These attempts are over, and the process lives.
    async fn ended(&self, dids: Vec<String>) {
        if dids.is_empty() {
            return;
        }
        let batch = Batch::of_no_source(self.clock.now_us(), Item::FetchEnded { dids });
        let store = Arc::clone(&self.store);
        // If that cannot be written, they wait a little after the next start.
        drop(tokio::task::spawn_blocking(move || store.commit(batch)).await);
    }

    /// Tells the store that a reader waits no longer; whether nobody else wants its account.
    async fn give_up(&self, did: &str) -> bool {
        let (store, did) = (Arc::clone(&self.store), did.to_owned());
        let now_us = self.clock.now_us();
        let told = tokio::task::spawn_blocking(move || {
            let item = Item::GaveUp { did: did.clone() };
            store.commit(Batch::of_no_source(now_us, item))?;
            store.account(&did)
        });
        // If it cannot be told now, the account is tried again and given up later.
        let Ok(Ok(account)) = told.await else {
            return false;
        };
        self.status.settled.send_modify(|count| *count += 1);
        account.is_none_or(|account| !account.broken && !account.doubtful)
    }
}

/// Notes what came of an attempt; `None`: it broke off.
fn settle(did: String, attempt: Option<Attempt>, rests: &mut Rests) {
    let now = Instant::now();
    match attempt {
        Some(Attempt::Done | Attempt::GivenUp) => rests.end(&did),
        Some(Attempt::Rests(rest)) => rests.begin(did, rest, now),
        None => {
            warn!(did, "a resync broke off; it will be tried again");
            let rest = Rest::after(rests.last(&did), Fault::Passing, now);
            rests.begin(did, rest, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::IdentityError;
    use crate::reach::fetch::FetchError;

    #[track_caller]
    fn check(failed: Failed, expected: Fault) {
        assert_eq!(failed.fault(), expected);
    }

    #[test]
    fn a_did_that_does_not_exist_or_cannot_be_resolved_is_not_worth_another_attempt() {
        check(IdentityError::Missing.into(), Fault::Lasting);
        let kind = IdentityError::Unresolvable("only did:plc and did:web can be resolved");
        check(kind.into(), Fault::Lasting);
        check(IdentityError::Silent.into(), Fault::Passing);
        let pause = Duration::from_secs(3);
        check(FetchError::Later(pause).into(), Fault::Busy(pause));
        check(IdentityError::Later(pause).into(), Fault::Busy(pause));
    }

    #[test]
    fn a_host_that_sends_too_much_or_too_slowly_is_left_alone_for_longer() {
        check(FetchError::TooLarge(1).into(), Fault::Abuse);
        check(FetchError::TooSlow.into(), Fault::Abuse);
        let document = IdentityError::Unreachable(FetchError::TooLarge(1));
        check(document.into(), Fault::Abuse);
        check(FetchError::Status(500).into(), Fault::Passing);
    }

    #[test]
    fn of_an_account_that_is_given_up_nothing_is_remembered() {
        let (mut rests, did) = (Rests::default(), "did:plc:nobody");
        let rest = Rest::after(None, Fault::Passing, Instant::now());
        settle(did.into(), Some(Attempt::Rests(rest)), &mut rests);
        assert!(rests.last(did).is_some());
        settle(did.into(), Some(Attempt::GivenUp), &mut rests);
        assert!(rests.last(did).is_none());
    }
}
