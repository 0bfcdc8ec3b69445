//! The log of this process: the store, its rules, and who listens.
//!
//! In:    requests from peers; blocks and drafts from within.
//! Out:   answers; news for whoever waits.
//! Never: a store call on a thread that drives sockets.

use super::hub::{Hub, News};
use super::rate::Rate;
use super::settings::LogSettings;
use super::sqlite::SqliteLog;
use super::sqlite::published::{Desk, Notice, PublishError};
use super::streams;
use crate::clock::Clock;
use crate::metrics as names;
use blocklog::authority::Authority;
use blocklog::block::Held;
use blocklog::chain::Draft;
use blocklog::cursor::Epoch;
use blocklog::limits::Limits;
use blocklog::message::{Answer, Fault, Kind, Reply, Request, RequestId};
use blocklog::signature::Author;
use blocklog::store::{AppendError, FeedName, LogStore, Role, StoreError};
use blocklog::writers::Writers;
use metrics::counter;
use serde_json::Value;
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
    clock: Clock,
    hub: Hub,
    rate: Rate,
    connections: AtomicUsize,
}

impl Log {
    /// A log over `store` with these rules.
    #[must_use]
    pub fn new(store: Arc<SqliteLog>, settings: LogSettings, clock: Clock) -> Self {
        let inner = Inner {
            store,
            limits: settings.limits(),
            writers: settings.writers(),
            rate: Rate::new(settings.append_blocks_per_second_max),
            settings,
            clock,
            hub: Hub::default(),
            connections: AtomicUsize::new(0),
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

    /// WebSocket connections open now.
    pub(super) fn connections(&self) -> &AtomicUsize {
        &self.inner.connections
    }

    /// Unix milliseconds.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.inner.clock.now_us() / 1000).unwrap_or(0)
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

    /// Answer a message. The kind is known if the path named it. Blocks.
    #[must_use]
    pub fn answer(&self, space: &str, kind: Option<Kind>, message: &Value) -> Reply {
        let id = RequestId::of(message, self.inner.limits.request_id_bytes_max);
        let outcome = self.outcome(space, kind, message);
        measure(kind, &outcome);
        Reply { id, outcome }
    }

    fn outcome(&self, space: &str, kind: Option<Kind>, message: &Value) -> Result<Answer, Fault> {
        let inner = &self.inner;
        if !inner.limits.allows_id(space) {
            return Err(Fault::bad(
                "spaceId",
                "is empty, too long, or holds control characters",
            ));
        }
        let request = Request::parse(message, kind, space, &inner.limits)?;
        let now_ms = self.now_ms();
        let is_ours = space == streams::SPACE || inner.settings.publish.as_deref() == Some(space);
        if is_ours && matches!(request, Request::Append(_)) {
            return Err(Fault::NotAllowed); // what stands there is believed to be written by us
        }
        if let Request::Append(append) = &request {
            let taken = self.take(space, append.blocks.len() as u64);
            taken.map_err(|retry_after_ms| Fault::RateLimited { retry_after_ms })?;
        }
        let authority = Authority {
            store: inner.store.as_ref(),
            limits: &inner.limits,
            writers: &inner.writers,
        };
        if inner.settings.make_spaces && inner.store.space(space)?.is_none() {
            self.make_space(space, &request, &authority)?;
        }
        let answer = authority.answer(space, &request, now_ms, &random())?;
        if let (Request::Append(append), Answer::Appended(appended)) = (&request, &answer) {
            let feeds = append
                .blocks
                .iter()
                .map(|sealed| sealed.block.feed.clone())
                .collect();
            let position_max = appended.positions.iter().copied().max().unwrap_or(0);
            self.tell(space, position_max, feeds, append.namespace.as_deref());
        }
        Ok(answer)
    }

    /// Make the space that a request would write to, if the request itself is good.
    fn make_space(
        &self,
        space: &str,
        request: &Request,
        authority: &Authority<'_>,
    ) -> Result<(), Fault> {
        match request {
            Request::Append(append) => authority.check(append)?,
            // Whoever waits for a space may come before the first who writes to it.
            Request::Subscribe(_) => {}
            Request::Query(_) | Request::List(_) => return Ok(()),
        }
        if self.inner.store.spaces()?.len() >= self.inner.settings.spaces_max {
            return Ok(()); // it stays unknown
        }
        Ok(self.open_space(space, Role::Authority)?)
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
        let news = News {
            position_max,
            feeds: Some(Arc::new(feeds)),
            namespace: namespace.map(Arc::from),
        };
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

/// Count an answer.
fn measure(kind: Option<Kind>, outcome: &Result<Answer, Fault>) {
    let kind = match (outcome, kind) {
        (Ok(Answer::Blocks(_)), _) | (Err(_), Some(Kind::Query)) => "query",
        (Ok(Answer::Subscribed(_)), _) | (Err(_), Some(Kind::Subscribe)) => "subscribe",
        (Ok(Answer::Appended(_)), _) | (Err(_), Some(Kind::Append)) => "append",
        (Ok(Answer::Feeds(_)), _) | (Err(_), Some(Kind::List)) => "list",
        (Err(_), None) => "unknown",
    };
    let result = match outcome {
        Ok(Answer::Blocks(page)) => {
            counter!(names::LOG_READ).increment(page.blocks.len() as u64);
            "ok"
        }
        Ok(Answer::Appended(appended)) => {
            counter!(names::LOG_BLOCKS, "by" => "peer").increment(appended.positions.len() as u64);
            "ok"
        }
        Ok(_) => "ok",
        Err(fault) => {
            if let Fault::Refused(blocks) = fault {
                let taken = blocks.iter().filter(|block| block.code == "conflict");
                counter!(names::LOG_CONFLICTS).increment(taken.count() as u64);
            }
            fault.class()
        }
    };
    counter!(names::LOG_REQUESTS, "kind" => kind, "result" => result).increment(1);
}

/// Sixteen random bytes.
pub(super) fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    bytes
}
