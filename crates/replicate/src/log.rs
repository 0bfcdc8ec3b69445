//! The log of this process: the store, its rules, and who listens.
//!
//! In:    requests from peers; blocks and drafts from within.
//! Out:   answers; news for whoever waits.
//! Never: a store call on a thread that drives sockets.

use super::access::{Caller, Keys};
use super::hub::{Hub, News};
use super::rate::Rate;
use super::settings::{LogSettings, Right};
use super::sqlite::SqliteLog;
use super::sqlite::published::{Desk, Notice, PublishError};
use super::threads::{Making, Threads};
use crate::metrics as names;
use crate::time::Time;
use blocklog::block::Held;
use blocklog::chain::Draft;
use blocklog::cursor::Epoch;
use blocklog::limits::Limits;
use blocklog::message::Fault;
use blocklog::signature::Author;
use blocklog::store::{AppendError, FeedName, LogStore, Role, StoreError};
use blocklog::writers::Writers;
use metrics::counter;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Blocks evicted in one transaction.
const EVICT_SLICE_MAX: usize = 1000;

/// Full slices evicted before the keeper looks after other things.
const EVICT_SLICES_MAX: usize = 100;

/// Feeds looked at together by the retention.
const RETAIN_FEEDS_MAX: usize = 1000;

/// The log of this process. Clones are the same log.
#[derive(Debug, Clone)]
pub struct Log {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Arc<SqliteLog>,
    settings: LogSettings,
    limits: Limits,
    writers: Writers,
    keys: Keys,
    time: Time,
    hub: Hub,
    rate: Rate,
    connections: AtomicUsize,
    threads: Threads,
}

impl Log {
    /// A log over `store` with these rules, for those who hold these keys.
    #[must_use]
    pub fn new(store: Arc<SqliteLog>, settings: LogSettings, keys: Keys, time: Time) -> Self {
        let inner = Inner {
            store,
            limits: settings.limits(),
            writers: settings.writers(),
            rate: Rate::new(settings.append_blocks_per_second_max),
            settings,
            keys,
            time,
            hub: Hub::default(),
            connections: AtomicUsize::new(0),
            threads: Threads::new(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Where the blocks are.
    #[must_use]
    pub fn store(&self) -> &Arc<SqliteLog> {
        &self.inner.store
    }

    /// Who listens to what.
    #[must_use]
    pub fn hub(&self) -> &Hub {
        &self.inner.hub
    }

    /// The rules.
    #[must_use]
    pub fn settings(&self) -> &LogSettings {
        &self.inner.settings
    }

    /// The limits of messages.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// The limits of messages of one space.
    pub(crate) fn limits_of(&self, space: &str) -> Limits {
        Limits {
            space_bytes_max: self.inner.settings.bytes_max_of(space),
            ..self.inner.limits.clone()
        }
    }

    /// Under which names one may append.
    pub(crate) fn writers(&self) -> &Writers {
        &self.inner.writers
    }

    /// WebSocket connections open now.
    pub(super) fn connections(&self) -> &AtomicUsize {
        &self.inner.connections
    }

    /// Read on a thread that may block; `None` if that ended early.
    pub(crate) async fn reading<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.inner.threads.read(work).await
    }

    /// A place to make a page in.
    pub(crate) async fn make(&self) -> Option<Making> {
        self.inner.threads.make().await
    }

    /// The same for what an append needs before its turn, which waits for no reader.
    pub(crate) async fn preparing<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.inner.threads.prepare(work).await
    }

    /// Unix milliseconds.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.inner.time.now_ms()
    }

    /// Make `space` known, with a fresh epoch if it was not.
    ///
    /// # Errors
    /// If the store fails.
    pub fn open_space(&self, space: &str, role: Role) -> Result<(), StoreError> {
        self.inner
            .store
            .open(space, role, Epoch(random()))
            .map(|_| ())
    }

    /// Whether `caller` may do this to `space`.
    ///
    /// # Errors
    /// That a token is needed, or that the caller's does not allow it.
    pub(crate) fn may(&self, right: Right, space: &str, caller: &Caller) -> Result<(), Fault> {
        let who = self.inner.settings.who(right, space);
        self.inner.keys.allow(who, right, space, caller)
    }

    /// Whether the file may still grow.
    ///
    /// # Errors
    /// That it may not.
    pub(crate) fn has_room(&self) -> Result<(), Fault> {
        let max = self.inner.settings.bytes_max;
        if self.inner.store.file_bytes() < max {
            return Ok(());
        }
        Err(Fault::Full {
            limit: "bytes_max".into(),
            max,
        })
    }

    /// Take so many blocks from what may be appended to `space` now.
    ///
    /// # Errors
    /// The milliseconds to wait.
    pub(super) fn take(&self, space: &str, blocks: u64) -> Result<(), u64> {
        self.inner.rate.take(space, blocks, self.now_ms())
    }

    /// Write the next blocks of a feed from within this process. Blocks.
    ///
    /// # Errors
    /// If the store fails.
    pub fn write(
        &self,
        space: &str,
        feed: &FeedName<'_>,
        author: &Author,
        drafts: &[Draft],
    ) -> Result<Vec<Held>, AppendError> {
        let written = self
            .inner
            .store
            .write(space, feed, author, drafts, self.now_ms())?;
        let position_max = written
            .iter()
            .filter_map(|held| held.position)
            .max()
            .unwrap_or(0);
        self.tell(
            space,
            position_max,
            BTreeSet::from([feed.feed.to_owned()]),
            feed.namespace,
        );
        Ok(written)
    }

    /// Publish notices of the river, and move its place in the outbox. Blocks.
    ///
    /// # Errors
    /// If another process has published meanwhile, or the store fails.
    pub fn publish(
        &self,
        desk: &Desk<'_>,
        from: Option<i64>,
        to: Option<i64>,
        notices: &[Notice],
    ) -> Result<(), PublishError> {
        let told = self.inner.store.publish(desk, from, to, notices)?;
        if told.blocks > 0 {
            counter!(names::LOG_BLOCKS, "by" => "river").increment(told.blocks);
            let namespace = Some(desk.namespace);
            self.tell(desk.space, told.position_max, told.feeds, namespace);
        }
        Ok(())
    }

    /// Tell whoever listens that feeds have grown.
    pub fn tell(
        &self,
        space: &str,
        position_max: u64,
        feeds: BTreeSet<String>,
        namespace: Option<&str>,
    ) {
        let news = News::of(position_max, feeds, namespace);
        self.inner.hub.tell(space, news);
    }

    /// Evict what the settings do not keep, in every space this log is the
    /// authority of: all of it, unless that is very much. Blocks.
    ///
    /// # Errors
    /// If the store fails.
    pub fn retain(&self) -> Result<Retained, StoreError> {
        let (store, now_ms) = (&self.inner.store, self.now_ms());
        let mut retained = Retained::default();
        let mut slices = EVICT_SLICES_MAX;
        if self.inner.settings.keeps_all() {
            return Ok(retained);
        }
        for space in store.spaces()? {
            if store
                .space(&space)?
                .is_none_or(|state| state.role != Role::Authority)
            {
                continue;
            }
            let mut after: Option<String> = None;
            loop {
                let feeds = store.feeds(&space, None, after.as_deref(), RETAIN_FEEDS_MAX)?;
                let Some(last) = feeds.last() else { break };
                after = Some(last.feed.clone());
                for feed in &feeds {
                    let keep = self.inner.settings.keep(&feed.feed).at(now_ms);
                    // Each slice is a transaction of its own, so that writers get between them.
                    loop {
                        let gone = store.evict(&space, &feed.feed, keep, EVICT_SLICE_MAX)?;
                        retained.gone += gone;
                        if gone < EVICT_SLICE_MAX as u64 {
                            break;
                        }
                        slices -= 1;
                        if slices == 0 {
                            retained.is_behind = true;
                            return Ok(retained);
                        }
                    }
                }
            }
        }
        Ok(retained)
    }
}

/// What the retention did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retained {
    /// Blocks that went.
    pub gone: u64,
    /// Whether more must go.
    pub is_behind: bool,
}

/// Sixteen random bytes.
pub(super) fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    bytes
}
