//! One account's repository: from its host to the disk, through the checks, into the store.

use std::sync::Arc;
use std::time::Duration;

use record::key::PublicKey;
use serde::Deserialize;

use super::rest::Fault;
use super::{Kind, Resync};
use crate::check::chain;
use crate::crash;
use crate::decode::{Repository, RepositoryError};
use crate::identity::IdentityError;
use crate::reach::archive::{Archive, Room};
use crate::reach::fetch::{Ask, FetchError, Fetched};
use crate::store::batch::{Batch, Item, Snapshot};
use crate::store::{AccountStatus, StoreError};

/// How often a snapshot is prepared again because frames arrived meanwhile.
const STALE_MAX: usize = 20;

/// What `getRepoStatus` says.
#[derive(Deserialize)]
struct Standing {
    active: bool,
    status: Option<String>,
}

/// What an attempt that did not fail came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repaired {
    /// A snapshot of so many records.
    Applied(usize),
    /// The account is hidden, or nothing had to be fetched.
    Unneeded,
}

impl Repaired {
    pub(super) fn records(self) -> usize {
        match self {
            Self::Applied(records) => records,
            Self::Unneeded => 0,
        }
    }
}

/// Why an account could not be repaired now.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    #[error("identity")]
    Identity(#[from] IdentityError),
    #[error("host")]
    Host(#[from] FetchError),
    #[error("the host has no repository of this account to give out")]
    NotGiven,
    #[error("repository")]
    Repository(#[from] RepositoryError),
    #[error("its repository is older than what its stream said; it is fetched again")]
    Behind,
    #[error("store")]
    Store(#[from] StoreError),
    #[error("the blocking task ended early")]
    Task(#[from] tokio::task::JoinError),
}

impl Failed {
    pub(super) fn fault(&self) -> Fault {
        match self {
            Self::Host(FetchError::Later(pause)) | Self::Identity(IdentityError::Later(pause)) => {
                Fault::Busy((*pause).max(Duration::from_secs(1)))
            }
            Self::Host(FetchError::TooSlow | FetchError::TooLarge(_))
            | Self::Identity(IdentityError::Unreachable(
                FetchError::TooSlow | FetchError::TooLarge(_),
            )) => Fault::Abuse,
            Self::Identity(error) if error.is_lasting() => Fault::Lasting,
            Self::Host(FetchError::Forbidden(_)) | Self::NotGiven => Fault::Lasting,
            Self::Repository(_) => Fault::Useless,
            _ => Fault::Passing,
        }
    }
}

impl Resync {
    pub(super) async fn repair(&self, did: &str, kind: Kind) -> Result<Repaired, Failed> {
        let host = self.resolver.host_for(did, kind.cause()).await?;
        let (store, account) = (Arc::clone(&self.store), did.to_owned());
        let known = tokio::task::spawn_blocking(move || store.account(&account)).await??;
        let is_known = known.is_some();
        let (doubtful, broken) = known.map_or((false, true), |it| (it.doubtful, it.broken));
        let is_wanted = broken || kind == Kind::Reader;
        if doubtful {
            let standing = self.standing((&host, did), kind, is_known).await?;
            if !(standing.visible() && is_wanted) {
                return Ok(Repaired::Unneeded);
            }
        }
        let address = format!("{host}/xrpc/com.atproto.sync.getRepo?did={did}");
        let ask = Ask::new(kind.cause(), &address);
        match self.resolver.fetcher().archive(ask).await? {
            Fetched::Archive(archive) => self.take(did, archive).await,
            Fetched::Refused(status @ (400 | 404 | 410)) => {
                match self.standing((&host, did), kind, is_known).await?.visible() {
                    true => Err(FetchError::Status(status).into()),
                    false if is_known => Ok(Repaired::Unneeded), // it waits until the account is back
                    false => Err(Failed::NotGiven),
                }
            }
            Fetched::Refused(status) => Err(FetchError::Status(status).into()),
        }
    }

    /// Asks its host how an account stands, and keeps that of an account that is known until the stream says
    /// more. One that its host does not know is hidden and not purged: it may be on its way to another one.
    async fn standing(
        &self,
        (host, did): (&str, &str),
        kind: Kind,
        is_known: bool,
    ) -> Result<AccountStatus, Failed> {
        let address = format!("{host}/xrpc/com.atproto.sync.getRepoStatus?did={did}");
        let ask = Ask::new(kind.cause(), &address).heavy();
        let reply = self.resolver.fetcher().fetch(ask).await?;
        let status = match reply.status {
            400 | 404 | 410 => AccountStatus::Deactivated,
            _ => {
                let told: Standing = reply.good()?.json()?;
                AccountStatus::of(told.active, told.status.as_deref())
            }
        };
        if is_known {
            let did = did.to_owned();
            let batch = self.batch(vec![Item::Standing { did, status }]);
            let store = Arc::clone(&self.store);
            tokio::task::spawn_blocking(move || store.commit(batch)).await??;
        }
        Ok(status)
    }

    /// Applies an archive as soon as there is room for it in memory.
    async fn take(&self, did: &str, archive: Archive) -> Result<Repaired, Failed> {
        let key = match self.decoder.asks_for_signatures() {
            true => Some(self.resolver.key(did).await?),
            false => None,
        };
        let room = archive.room().await?;
        let is_whole = room.is_whole();
        let (archive, opened) = self.open(did, archive, room, key).await?;
        let opened = match opened {
            // What is made of it is larger than is usual; alone it may have all memory for archives.
            Err(Failed::Repository(RepositoryError::Swollen(_))) if !is_whole => {
                let room = archive.whole_room().await?;
                self.open(did, archive, room, key).await?.1
            }
            opened => opened,
        };
        Ok(Repaired::Applied(opened?))
    }

    /// Applies an archive on a thread that may block, in this room.
    async fn open(
        &self,
        did: &str,
        mut archive: Archive,
        room: Room,
        key: Option<PublicKey>,
    ) -> Result<(Archive, Result<usize, Failed>), Failed> {
        let (resync, did) = (self.clone(), did.to_owned());
        let opened = tokio::task::spawn_blocking(move || {
            let applied = resync.apply(&did, &mut || {
                // The bytes are gone before what was made of them is applied.
                let (bytes, key) = (archive.read(&room)?, key.as_ref());
                let opened = resync.decoder.repository(&did, &bytes, key, room.bytes());
                Ok(opened?)
            });
            (archive, applied)
        });
        Ok(opened.await?)
    }

    /// Applies a fetched repository and the frames held meanwhile, in one transaction.
    pub fn apply_repository(&self, did: &str, bytes: &[u8]) -> Result<usize, String> {
        let mut open = || Ok(self.decoder.repository(did, bytes, None, usize::MAX)?);
        self.apply(did, &mut open).map_err(|error| chain(&error))
    }

    fn apply(
        &self,
        did: &str,
        open: &mut dyn FnMut() -> Result<Repository, Failed>,
    ) -> Result<usize, Failed> {
        let mut attempts = 0;
        loop {
            // Opened anew where frames came in between: that is rare, and a copy would cost as much memory again.
            let repository = open()?;
            let records = repository.ops.len();
            let frames = self.store.held(did)?;
            let mut items = vec![Item::Snapshot(Snapshot {
                did: did.to_owned(),
                rev: repository.rev,
                data: Some(repository.data),
                ops: repository.ops,
                held: frames.len(),
            })];
            items.extend(
                frames
                    .into_iter()
                    .filter_map(|frame| self.decoder.reopen(frame))
                    .map(Item::Commit),
            );
            crash::point("resync.before-commit");
            attempts += 1;
            match self.store.commit(self.batch(items)) {
                Ok(committed) if committed.broken.iter().any(|broken| broken == did) => {
                    return Err(Failed::Behind);
                }
                Ok(_) => return Ok(records),
                Err(error) if error.passes() && attempts < STALE_MAX => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn batch(&self, items: Vec<Item>) -> Batch {
        Batch {
            source: self.source.clone(),
            cursor: None,
            now_us: self.clock.now_us(),
            items,
        }
    }
}
