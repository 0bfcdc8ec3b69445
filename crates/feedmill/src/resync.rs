//! Resync: repairing an account whose chain broke.
//!
//! In:    accounts the store has marked.
//! Out:   their repositories, fetched from their own hosts, applied as
//!        snapshots together with the frames held since.
//! Never: more than `resync_max` at once, nor more of one host than it likes; a
//!        failure that is not tried again, unless only a reader asked for the account.
//!
//! Where a gap may have hidden how an account stands, and where a host does not
//! give out a repository, the host is asked for the account's standing first.

mod rest;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use metrics::counter;
use record::key::PublicKey;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

use self::rest::{Fault, Rest, Rests};
use crate::check::chain;
use crate::clock::{Clock, Micros};
use crate::crash;
use crate::decode::{Decoder, RepositoryError};
use crate::host::{Hosts, Permit};
use crate::identity::{IdentityError, Resolver};
use crate::metrics as names;
use crate::status::Status;
use crate::store::batch::{Batch, Item, Snapshot};
use crate::store::{AccountStatus, SharedStore, StoreError};

/// Largest repository fetched.
const REPO_BYTES_MAX: usize = 1 << 30;
/// How long a repository may take: a large one from a slow host is far above an ordinary answer.
const REPO_TIMEOUT: Duration = Duration::from_secs(600);
/// How often marked accounts are looked for without a hint: those that another process marked.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Accounts looked at in one turn, beside those that are busy or resting.
const LOOK_MAX: usize = 1000;
/// How often a snapshot is prepared again because frames arrived meanwhile.
const STALE_MAX: usize = 20;

/// What it takes to repair one account.
#[derive(Debug, Clone)]
pub struct Resync {
    pub source: String,
    pub store: SharedStore,
    pub decoder: Decoder,
    pub resolver: Arc<Resolver>,
    pub hosts: Arc<Hosts>,
    pub clock: Clock,
    pub status: Arc<Status>,
}

/// What `getRepoStatus` says.
#[derive(Deserialize)]
struct Standing {
    active: bool,
    status: Option<String>,
}

/// Why an account could not be repaired now.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("identity")]
    Identity(#[from] IdentityError),
    #[error("host")]
    Host(#[from] reqwest::Error),
    /// Not a failure: the host has enough to do.
    #[error("the host asks for a pause of {} ms", .0 / 1000)]
    Later(Micros),
    #[error("the repository is larger than the limit")]
    TooBig,
    #[error("repository")]
    Repository(#[from] RepositoryError),
    #[error("store")]
    Store(#[from] StoreError),
    #[error("the blocking task ended early")]
    Task(#[from] tokio::task::JoinError),
}

impl Failed {
    fn fault(&self) -> Fault {
        match self {
            Self::Later(pause_us) => Fault::Busy(Duration::from_micros(pause_us.unsigned_abs())),
            Self::Identity(error) if error.is_lasting() => Fault::Lasting,
            _ => Fault::Passing,
        }
    }
}

/// What came of an attempt.
#[derive(Debug, Clone, Copy)]
enum Attempt {
    Done,
    /// It rests, and is tried again.
    Rests(Rest),
    /// Only a reader asked for it, and it is not marked any more.
    GivenUp,
}

impl Resync {
    /// Repairs marked accounts until `stop` is set.
    pub async fn run(self, at_once_max: usize, mut stop: watch::Receiver<bool>) {
        let mut marked = self.status.marked.subscribe();
        let mut rests = Rests::default();
        let mut running: HashMap<tokio::task::Id, String> = HashMap::new();
        let mut tasks: JoinSet<Attempt> = JoinSet::new();
        while !*stop.borrow() {
            self.begin(at_once_max, &rests, &mut running, &mut tasks)
                .await;
            tokio::select! {
                Some(done) = tasks.join_next_with_id(), if !tasks.is_empty() => {
                    self.status.resyncing.store(tasks.len() as i64, Ordering::Relaxed);
                    let (id, attempt) = match done {
                        Ok((id, attempt)) => (id, Some(attempt)),
                        Err(error) => (error.id(), None),
                    };
                    if let Some(did) = running.remove(&id) {
                        settle(did, attempt, &mut rests);
                    }
                }
                _ = marked.changed() => {}
                _ = stop.changed() => break,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    async fn begin(
        &self,
        at_once_max: usize,
        rests: &Rests,
        running: &mut HashMap<tokio::task::Id, String>,
        tasks: &mut JoinSet<Attempt>,
    ) {
        // Those that rest must not hide the others behind them.
        let look_max = LOOK_MAX + rests.len() + running.len();
        let store = Arc::clone(&self.store);
        let marked = tokio::task::spawn_blocking(move || store.broken_accounts(look_max)).await;
        for did in marked.ok().and_then(Result::ok).unwrap_or_default() {
            let busy = running.values().any(|other| *other == did);
            let resting = rests.is_resting(&did, Instant::now());
            if tasks.len() >= at_once_max || busy || resting {
                continue;
            }
            let (resync, account, last) = (self.clone(), did.clone(), rests.last(&did));
            let handle = tasks.spawn(async move { resync.attempt(&account, last).await });
            running.insert(handle.id(), did);
        }
        self.status
            .resyncing
            .store(tasks.len() as i64, Ordering::Relaxed);
    }

    /// Tries once; `last`: how it rested before.
    async fn attempt(&self, did: &str, last: Option<Rest>) -> Attempt {
        let error = match self.repair(did).await {
            Ok(records) => {
                self.status.resynced.fetch_add(1, Ordering::Relaxed);
                self.status.settled.send_modify(|count| *count += 1);
                counter!(names::RESYNCS, "result" => "ok").increment(1);
                info!(did, records, "account is in step again");
                return Attempt::Done;
            }
            Err(error) => error,
        };
        let fault = error.fault();
        let rest = Rest::after(last, fault, Instant::now());
        let given_up = rest.is_enough(fault) && self.give_up(did).await;
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

    /// Tells the store, which knows whether anybody but a reader asked for this account; whether nobody did.
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

    async fn repair(&self, did: &str) -> Result<usize, Failed> {
        let host = self.resolver.host(did).await?;
        let (store, account) = (Arc::clone(&self.store), did.to_owned());
        let known = tokio::task::spawn_blocking(move || store.account(&account)).await??;
        let (doubtful, broken) = known.map_or((false, true), |it| (it.doubtful, it.broken));
        if doubtful && !(self.standing(&host, did).await?.visible() && broken) {
            return Ok(0);
        }
        let address = format!("{host}/xrpc/com.atproto.sync.getRepo?did={did}");
        let (mut response, permit) = self.ask(&host, &address).await?;
        if matches!(response.status().as_u16(), 400 | 404 | 410) {
            drop(permit); // whoever holds one must not stand in line for another
            if !self.standing(&host, did).await?.visible() {
                return Ok(0); // it waits until the account is back
            }
        }
        response.error_for_status_ref()?;
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if bytes.len() + chunk.len() > REPO_BYTES_MAX {
                return Err(Failed::TooBig);
            }
            bytes.extend_from_slice(&chunk);
        }
        let key = match self.decoder.asks_for_signatures() {
            true => Some(self.resolver.key(did).await?),
            false => None,
        };
        let (resync, did) = (self.clone(), did.to_owned());
        tokio::task::spawn_blocking(move || resync.apply(&did, &bytes, key.as_ref())).await?
    }

    /// Asks a host, unless it wants to be left alone.
    async fn ask(&self, host: &str, address: &str) -> Result<(reqwest::Response, Permit), Failed> {
        let permit = self.hosts.ask(host, &self.clock).await;
        let permit = permit.map_err(Failed::Later)?;
        let response = self
            .resolver
            .client()
            .get(address)
            .timeout(REPO_TIMEOUT)
            .send()
            .await?;
        let (status, now_us) = (response.status().as_u16(), self.clock.now_us());
        match self.hosts.heard(host, status, response.headers(), now_us) {
            Some(pause_us) => Err(Failed::Later(pause_us)),
            None => Ok((response, permit)),
        }
    }

    /// Asks its host how an account stands, and keeps that until the stream says more. An account that its host
    /// does not know is hidden and not purged: it may be on its way to another one.
    async fn standing(&self, host: &str, did: &str) -> Result<AccountStatus, Failed> {
        let address = format!("{host}/xrpc/com.atproto.sync.getRepoStatus?did={did}");
        let (response, _permit) = self.ask(host, &address).await?;
        let status = match response.status().as_u16() {
            400 | 404 | 410 => AccountStatus::Deactivated,
            _ => {
                let told: Standing = response.error_for_status()?.json().await?;
                AccountStatus::of(told.active, told.status.as_deref())
            }
        };
        let batch = Batch {
            source: self.source.clone(),
            cursor: None,
            now_us: self.clock.now_us(),
            items: vec![Item::Standing {
                did: did.to_owned(),
                status,
            }],
        };
        let store = Arc::clone(&self.store);
        tokio::task::spawn_blocking(move || store.commit(batch)).await??;
        Ok(status)
    }

    /// Applies a fetched repository and the frames held meanwhile, in one transaction.
    pub fn apply_repository(&self, did: &str, bytes: &[u8]) -> Result<usize, String> {
        self.apply(did, bytes, None).map_err(|error| chain(&error))
    }

    fn apply(&self, did: &str, bytes: &[u8], key: Option<&PublicKey>) -> Result<usize, Failed> {
        let repository = self.decoder.repository(did, bytes, key)?;
        let records = repository.ops.len();
        let mut attempts = 0;
        loop {
            let frames = self.store.held(did)?;
            let mut items = vec![Item::Snapshot(Snapshot {
                did: did.to_owned(),
                rev: repository.rev,
                data: Some(repository.data),
                ops: repository.ops.clone(),
                held: frames.len(),
            })];
            items.extend(
                frames
                    .into_iter()
                    .filter_map(|frame| self.decoder.reopen(frame))
                    .map(Item::Commit),
            );
            crash::point("resync.before-commit");
            let batch = Batch {
                source: self.source.clone(),
                cursor: None,
                now_us: self.clock.now_us(),
                items,
            };
            attempts += 1;
            match self.store.commit(batch) {
                Ok(_) => return Ok(records),
                Err(StoreError::Passing(_)) if attempts < STALE_MAX => {}
                Err(error) => return Err(error.into()),
            }
        }
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
        check(Failed::TooBig, Fault::Passing);
        let pause = Duration::from_secs(3);
        check(Failed::Later(3_000_000), Fault::Busy(pause));
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
