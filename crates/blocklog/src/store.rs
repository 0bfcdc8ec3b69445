//! The store of a log: what any place that keeps blocks must promise.
//!
//! In:    sealed blocks, pages pulled from an authority, questions.
//! Out:   positions, pages in read order, the state of spaces and feeds.
//! Never: half of a call; a position or a sequence used twice.
//!
//! One trait serves the authority, which gives positions, and a second one the
//! replica, which learns them. The memory store and the SQLite store pass the
//! same suite.

use crate::block::{BlockKey, Head, Held};
use crate::chain::{Draft, Refused, Sealed, Tip};
use crate::conflict::Aside;
use crate::cursor::Epoch;
use crate::limits::{BLOCK_BYTES, Limits};
use crate::page::{Page, PageMax, Selection, Start};
use crate::replica::{Acknowledged, Adopted, Lane, Mode, Pulled, Target, Upstream};
use crate::signature::Author;

/// Of how many evicted blocks an authority remembers position, hash and head: so
/// that the cursors of readers who stood there can still be told from those of
/// another history, and a block that is pushed again is not taken for a new one.
pub const EVICTED_REMEMBERED_MAX: u64 = 100_000;

/// Why a store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The space was never opened here.
    #[error("the space is not known here")]
    UnknownSpace,
    /// The world is at fault: try again after a pause.
    #[error("the store did not answer")]
    Passing(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The store holds what it cannot hold: stop, and look.
    #[error("the store is damaged: {0}")]
    Damaged(&'static str),
}

/// What the subscriptions of one space may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscriptionsMax {
    /// Live ones.
    pub count: u64,
    /// Bytes of the space's blocks and subscriptions together.
    pub bytes: u64,
}

/// Why a subscription is not remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crowded {
    /// There are as many as there may be.
    Count,
    /// The space has no room for it.
    Bytes,
}

/// Why an append wrote nothing.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Some blocks cannot be accepted; the others were not tried.
    #[error("{} blocks were refused", .0.len())]
    Refused(Vec<Refused>),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Who gives the positions of a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// This store does.
    Authority,
    /// Another does; here blocks wait until it has.
    Replica,
}

/// What a store knows of a space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceState {
    /// Who gives positions.
    pub role: Role,
    /// Whose history this is. A replica takes a new one whenever positions that
    /// it has already served may change.
    pub epoch: Epoch,
    /// In an authority the highest position ever given, which only grows; in a
    /// replica the highest that is held. 0 if none.
    pub position_max: u64,
    /// The head at that position; meaningless in a replica.
    pub head: Head,
    /// In a replica the epoch of the authority whose positions these are; `None` before the
    /// first contact and while it finds out what the authority still has.
    pub upstream: Option<Epoch>,
}

/// What a store knows of a feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedState {
    /// Its id.
    pub feed: String,
    /// Fixed by its first block.
    pub namespace: Option<String>,
    /// The newest block by Lamport time, even if evicted.
    pub tip: Option<Tip>,
    /// Its highest position, even if evicted; 0 if none.
    pub position_max: u64,
    /// Blocks up to this position may be gone; 0 if none are.
    pub evicted_through: u64,
}

/// A remembered set of feeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// Its id.
    pub id: String,
    /// When it ends, in Unix milliseconds.
    pub expires_ms: u64,
    /// What it selects.
    pub selection: Selection,
}

impl Subscription {
    /// What it counts towards `space_bytes_max`.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let named = match &self.selection {
            Selection::Space => 0,
            Selection::Namespace(namespace) => namespace.len(),
            Selection::Feeds(feeds) => feeds.iter().map(String::len).sum(),
        };
        BLOCK_BYTES + named as u64
    }
}

/// How much of a feed stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Everything.
    All,
    /// The newest so many positioned blocks.
    Newest(u64),
    /// Blocks that got their position here at or after this time.
    Since(u64),
}

/// Where the blocks of a log come to rest.
///
/// Calls block; the caller gives them a thread. Each call is atomic and, once
/// it has returned, durable: after a crash it is there whole or not at all.
/// Calls on one space happen one after the other. Methods on a space that was
/// never opened fail with [`StoreError::UnknownSpace`].
pub trait LogStore: Send + Sync {
    /// Make `space` known. `role` and `fresh` count only if it was not.
    fn open(&self, space: &str, role: Role, fresh: Epoch) -> Result<SpaceState, StoreError>;

    /// The space's state; `None` if it was never opened.
    fn space(&self, space: &str) -> Result<Option<SpaceState>, StoreError>;

    /// The ids of all spaces, sorted.
    fn spaces(&self) -> Result<Vec<String>, StoreError>;

    /// Add blocks made elsewhere: all, or none and every reason.
    ///
    /// The answer has one position per block, in order. A block that is held
    /// already keeps the position it has; one that was evicted, and is among the
    /// newest [`EVICTED_REMEMBERED_MAX`], had its own and stays gone. In a replica
    /// the new ones have none yet, and feeds that it does not replicate are refused.
    /// `namespace` is given to feeds that are new.
    fn append(
        &self,
        space: &str,
        namespace: Option<&str>,
        blocks: &[Sealed],
        now_ms: u64,
        limits: &Limits,
    ) -> Result<Vec<Option<u64>>, AppendError>;

    /// Make and add the next blocks of a feed. Sequences are taken inside the
    /// call, so any number of writers at once lose nothing. A replica refuses feeds
    /// that it does not replicate.
    fn write(
        &self,
        space: &str,
        feed: &FeedName<'_>,
        author: &Author,
        drafts: &[Draft],
        now_ms: u64,
    ) -> Result<Vec<Held>, AppendError>;

    /// One page in read order. Its cost depends on the page and the number of
    /// feeds named, not on how many blocks are held.
    fn page(
        &self,
        space: &str,
        selection: &Selection,
        start: &Start,
        max: PageMax,
    ) -> Result<Page, StoreError>;

    /// The block with this key.
    fn block(&self, space: &str, key: &BlockKey) -> Result<Option<Held>, StoreError>;

    /// The head at `position`: `None` if it was never given, or its block was
    /// evicted before the newest [`EVICTED_REMEMBERED_MAX`]. The head at 0 is the
    /// default.
    fn head(&self, space: &str, position: u64) -> Result<Option<Head>, StoreError>;

    /// The highest position given before `time_ms`; 0 if none.
    fn position_before(&self, space: &str, time_ms: u64) -> Result<u64, StoreError>;

    /// One feed.
    fn feed(&self, space: &str, feed: &str) -> Result<Option<FeedState>, StoreError>;

    /// Feeds by id, behind `after`; of one namespace if it is given.
    fn feeds(
        &self,
        space: &str,
        namespace: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<FeedState>, StoreError>;

    /// Remember a subscription, or renew it; why not, where it does not fit. Expired ones are
    /// forgotten. What subscriptions take is never counted against an append: who may only read
    /// must not be able to stop the writers.
    fn subscribe(
        &self,
        space: &str,
        subscription: &Subscription,
        now_ms: u64,
        max: SubscriptionsMax,
    ) -> Result<Option<Crowded>, StoreError>;

    /// The subscription, expired or not.
    fn subscription(&self, space: &str, id: &str) -> Result<Option<Subscription>, StoreError>;

    /// Drop the oldest positioned blocks of a feed beyond `keep`, at most
    /// `slice_max` of them. Returns how many went. Counters stay.
    fn evict(
        &self,
        space: &str,
        feed: &str,
        keep: Keep,
        slice_max: usize,
    ) -> Result<u64, StoreError>;

    /// Drop the payload of one block for good. `false` if it is not held.
    fn purge(&self, space: &str, key: &BlockKey) -> Result<bool, StoreError>;
}

/// A feed to write to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedName<'a> {
    /// Its id.
    pub feed: &'a str,
    /// The namespace it gets if it is new.
    pub namespace: Option<&'a str>,
}

/// What a store of a replica promises besides.
///
/// Everything the replication needs after a crash is here: lanes, their cursors,
/// the upstream's epoch and whether a healing walk is under way.
pub trait ReplicaStore: LogStore {
    /// What is known of the authority.
    fn upstream(&self, space: &str) -> Result<Upstream, StoreError>;

    /// The lanes, feeds first, then the space.
    fn lanes(&self, space: &str) -> Result<Vec<Lane>, StoreError>;

    /// Set how a target is replicated, from its beginning.
    /// `None` forgets the target's own setting.
    fn set_lane(&self, space: &str, target: &Target, mode: Option<Mode>) -> Result<(), StoreError>;

    /// Blocks that wait for a position, in Lamport order: of `only` these feeds
    /// if given, otherwise of all feeds but those in `apart`.
    fn pending(
        &self,
        space: &str,
        only: Option<&[String]>,
        apart: &[String],
        max: PageMax,
    ) -> Result<Vec<Held>, StoreError>;

    /// Take the positions an authority gave to pushed blocks. A block standing
    /// at a position that now belongs to another waits again.
    fn acknowledge(
        &self,
        space: &str,
        positions: &[(BlockKey, u64)],
        now_ms: u64,
    ) -> Result<Acknowledged, StoreError>;

    /// Set aside blocks the authority refuses for good; they are kept and read,
    /// but not pushed again.
    fn set_aside(&self, space: &str, blocks: &[(BlockKey, &str)]) -> Result<(), StoreError>;

    /// Make what is held in `(after, covered]` equal to a pulled page, and move
    /// the lanes' cursors. A block that was written here and whose key another has is
    /// written again under a new sequence; one that cannot be is kept as a conflict.
    fn adopt(&self, space: &str, pulled: &Pulled<'_>, now_ms: u64) -> Result<Adopted, StoreError>;

    /// The authority is not what it was: every lane starts over under the new
    /// epoch, and until `end_healing` positions are suspect.
    fn begin_healing(&self, space: &str, epoch: Epoch) -> Result<(), StoreError>;

    /// Every lane has caught up. What still claims a position that no lane has
    /// answered for waits again: those above `position_max`, and all of feeds that
    /// are not replicated. Returns how many do.
    fn end_healing(&self, space: &str, position_max: u64) -> Result<u64, StoreError>;

    /// A feed in which blocks that were written here are set aside for a reason that another
    /// sequence cures ([`CURABLE`](crate::conflict::CURABLE)), and may be written again.
    fn lost_feed(&self, space: &str) -> Result<Option<String>, StoreError>;

    /// Write such blocks of a feed again, and the waiting ones that follow them, behind
    /// everything that is known and behind `newest`, the authority's newest block of the feed.
    /// Returns how many were.
    fn reissue(&self, space: &str, feed: &str, newest: Option<&Tip>) -> Result<u64, StoreError>;

    /// Blocks that the authority does not have and will not take as they are: those whose key
    /// another block took, and those set aside. At most `max` of each.
    fn conflicts(&self, space: &str, max: usize) -> Result<Vec<Aside>, StoreError>;
}
