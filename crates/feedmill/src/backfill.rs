//! Backfill: accounts that a stream will never mention.
//!
//! In:    a relay or host, and the collections that are kept.
//! Out:   in the store, every account that has records in them marked for the
//!        resync, which fetches it.
//! Never: a fetch of its own: how many run at once is decided in one place.
//!
//! A relay streams what it still has; whoever has been quiet for longer is
//! found only in its list of accounts. Each page is adopted in the transaction
//! that moves the list's cursor, so a restart goes on where it was. A list is
//! read again after some hours: an account whose first commit was lost on the
//! way is in it, and nowhere else.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use metrics::counter;
use serde::Deserialize;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::check::chain;
use crate::clock::Clock;
use crate::host::Cause;
use crate::metrics as names;
use crate::reach::fetch::{Ask, FetchError, Fetcher, PAGE_BYTES_MAX, Reply};
use crate::status::Status;
use crate::store::batch::{self, Batch, Item};
use crate::store::{SharedStore, StoreError};

/// Accounts asked for at once.
const PAGE_MAX: usize = 1000;
/// Pages of one list, so that a host cannot keep us for ever.
const PAGES_MAX: usize = 1_000_000;
/// How often it is looked whether a list is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Pause after a failure, doubling up to `PAUSE_MAX`.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// Reads lists of accounts.
#[derive(Debug)]
pub struct Backfill {
    /// The host whose lists are read.
    pub url: String,
    /// NSIDs of the collections that are kept.
    pub collections: Vec<String>,
    /// Seconds until a list is read again; 0 reads it at every start.
    pub every_s: i64,
    pub store: SharedStore,
    pub fetcher: Arc<Fetcher>,
    pub clock: Clock,
    pub status: Arc<Status>,
}

/// Why a list could not be read to its end.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("host")]
    Host(#[from] FetchError),
    #[error("store")]
    Store(#[from] StoreError),
    #[error("the list has more pages than are read")]
    Endless,
}

#[derive(Deserialize)]
struct Page {
    cursor: Option<String>,
    repos: Vec<Repo>,
}

#[derive(Deserialize)]
struct Repo {
    did: String,
    /// Only `listRepos` says it; whoever is listed by collection is there.
    active: Option<bool>,
}

/// Where a list is. Kept as a number in the store: a page's cursor from zero
/// on, or below zero the time at which the end was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    At(i64),
    DoneAt(i64),
}

impl Progress {
    fn from_cursor(cursor: Option<i64>) -> Self {
        match cursor {
            Some(number) if number < 0 => Self::DoneAt(-number),
            Some(number) => Self::At(number),
            None => Self::At(0),
        }
    }

    fn cursor(self) -> i64 {
        match self {
            Self::At(number) => number,
            Self::DoneAt(time_us) => -time_us,
        }
    }
}

impl Backfill {
    /// Reads lists when they are due, until `stop` is set.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut pause = PAUSE;
        let mut first = true;
        // Until the lists were looked at once, nobody knows whether something is missing.
        self.status.listing.store(true, Ordering::Relaxed);
        while !*stop.borrow() {
            let read = tokio::select! {
                read = self.pass(first) => read,
                _ = stop.changed() => break,
            };
            let rest = match read {
                Ok(()) => {
                    first = false;
                    pause = PAUSE;
                    self.status.listing.store(false, Ordering::Relaxed);
                    LOOK_EVERY
                }
                // Not a failure: the host has enough to do.
                Err(Failed::Host(FetchError::Later(pause))) => {
                    counter!(names::BACKFILL, "state" => "put-off").increment(1);
                    pause
                }
                Err(error) => {
                    warn!(
                        url = self.url,
                        error = chain(&error),
                        pause_s = pause.as_secs(),
                        "a list of accounts could not be read; it will be tried again"
                    );
                    let rest = pause;
                    pause = (pause * 2).min(PAUSE_MAX);
                    rest
                }
            };
            tokio::select! {
                () = tokio::time::sleep(rest) => {}
                _ = stop.changed() => break,
            }
        }
    }

    /// Reads every list that is due.
    async fn pass(&self, first: bool) -> Result<(), Failed> {
        for collection in &self.collections {
            let row = format!("{}{} {collection}", batch::BACKFILL, self.url);
            let now_us = self.clock.now_us();
            let from = match Progress::from_cursor(self.store.cursor(&row)?) {
                Progress::At(number) => number,
                Progress::DoneAt(_) if first && self.every_s == 0 => 0,
                Progress::DoneAt(at_us) if self.every_s > 0 => {
                    if now_us - at_us < self.every_s * 1_000_000 {
                        continue;
                    }
                    0
                }
                Progress::DoneAt(_) => continue,
            };
            self.status.listing.store(true, Ordering::Relaxed);
            self.list(&row, collection, from).await?;
        }
        Ok(())
    }

    /// Reads one list from a cursor to its end.
    async fn list(&self, row: &str, collection: &str, from: i64) -> Result<(), Failed> {
        info!(
            url = self.url,
            collection, from, "reading a list of accounts"
        );
        let mut cursor = (from > 0).then(|| from.to_string());
        let mut reached = from;
        for _ in 0..PAGES_MAX {
            let page = self.page(collection, cursor.as_deref()).await?;
            let here = page
                .repos
                .into_iter()
                .filter(|repo| repo.active != Some(false));
            let dids: Vec<String> = here.map(|repo| repo.did).collect();
            cursor = page.cursor.filter(|next| !next.is_empty());
            // A cursor that is not a number cannot be kept: after a restart such a list begins anew.
            let number = cursor.as_ref().and_then(|next| next.parse().ok());
            reached = number.unwrap_or(reached);
            let progress = match cursor {
                Some(_) => Progress::At(reached),
                None => Progress::DoneAt(self.clock.now_us().max(1)),
            };
            self.adopt(row, dids, progress).await?;
            if cursor.is_none() {
                return Ok(());
            }
        }
        Err(Failed::Endless)
    }

    /// A page of the accounts with records of a collection; of all, where a host cannot tell.
    async fn page(&self, collection: &str, cursor: Option<&str>) -> Result<Page, Failed> {
        let ask = async |method: &str, collection: Option<&str>| {
            let mut address = format!(
                "{}/xrpc/com.atproto.sync.{method}?limit={PAGE_MAX}",
                self.url.trim_end_matches('/')
            );
            for (name, value) in [("collection", collection), ("cursor", cursor)] {
                if let Some(value) = value {
                    let value = escaped(value);
                    address.push_str(&format!("&{name}={value}"));
                }
            }
            let ask = Ask::new(Cause::List, &address).named().heavy();
            self.fetcher.fetch(ask.bytes_max(PAGE_BYTES_MAX)).await
        };
        let mut reply: Reply = ask("listReposByCollection", Some(collection)).await?;
        if matches!(reply.status, 404 | 501) {
            reply = ask("listRepos", None).await?;
        }
        Ok(reply.good()?.json()?)
    }

    async fn adopt(&self, row: &str, dids: Vec<String>, progress: Progress) -> Result<(), Failed> {
        let listed = dids.len() as u64;
        let batch = Batch {
            source: row.to_owned(),
            cursor: Some(progress.cursor()),
            now_us: self.clock.now_us(),
            items: vec![Item::Listed(dids)],
        };
        let store = Arc::clone(&self.store);
        let committed = tokio::task::spawn_blocking(move || store.commit(batch))
            .await
            .map_err(|_| StoreError::Passing("the blocking task ended early".into()))??;
        let adopted = committed.broken.len() as u64;
        self.status.listed.fetch_add(listed, Ordering::Relaxed);
        self.status.adopted.fetch_add(adopted, Ordering::Relaxed);
        counter!(names::BACKFILL, "state" => "listed").increment(listed);
        counter!(names::BACKFILL, "state" => "adopted").increment(adopted);
        if adopted > 0 {
            self.status.marked.send_modify(|count| *count += adopted);
        }
        Ok(())
    }
}

/// A value as it may stand in a query.
fn escaped(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    let escape = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    value.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_survives_being_a_number() {
        for progress in [
            Progress::At(0),
            Progress::At(7),
            Progress::DoneAt(1_700_000),
        ] {
            assert_eq!(Progress::from_cursor(Some(progress.cursor())), progress);
        }
        assert_eq!(Progress::from_cursor(None), Progress::At(0));
    }

    #[test]
    fn a_cursor_is_escaped_in_a_query() {
        assert_eq!(escaped("a/b+c d&e:1"), "a%2Fb%2Bc%20d%26e:1");
    }
}
