//! The store: where checked records come to rest, and what is true.
//!
//! In:    batches of checked work, each with the cursor it brings.
//! Out:   records, pages of collections and feeds, changes in order.
//! Never: a cursor that moved without its work; an older version over a newer.
//!
//! Everything else in the process is derived from here and can be lost.

// What happened to each unit of work.
pub mod account;
// What one read may cost.
pub mod budget;
// Which batch is being worked on, for the next start.
pub mod attempt;
// What goes in: one transaction of work.
pub mod batch;
// What comes out on the other side: changes in order.
pub mod change;
// Why a record is, or is not, in a reader's feed.
pub mod explain;
// Which records of a page are shown.
pub mod filter;
// Walks over references.
pub mod graph;
// The keys a record stands under.
pub mod keys;
// Orders other than that of time.
pub mod ladder;
// Dead letters as they are asked for.
pub mod letter;
// Groups of records shown as one entry.
pub mod merged;
// What must be there before a record is applied.
pub mod need;
// Pages: positions, rows, cursors.
pub mod page;
// What to derive from records: lanes and follow sources.
pub mod plan;
// The store as each of its callers sees it.
pub mod port;
// Whose work is done first.
pub mod queue;
// References between records.
pub mod reference;
// Where a change leads.
pub(crate) mod routes;
// Business rules, compiled.
pub mod rule;
// Which records hold the words that somebody typed.
pub mod search;
// Newest versions of records, to be handed on.
pub mod version;
// What the writer is doing.
pub mod writing;
// Records as clients know them.
pub mod shown;
// What was stored under a wrong clock.
pub mod skew;
// Counters of what transactions did.
mod measure;
// The embedded engine.
mod sqlite;

pub use account::{AccountStatus, Accounting};
pub use batch::{Batch, Commit, Item, Op, Put, Verdict};
pub use change::{Change, Drawn, Follows, LoadPlace, Loaded};
pub use letter::{Closed, Fate, LetterCount, LetterQuery};
pub use merged::{Activity, ActivityFilter, ActivityPage, ActivityQuery, Named};
pub use page::{Children, FeedQuery, Lens, ListQuery, Page, Position, Row};
pub use plan::{LaneId, Plan, SourceId};
pub use port::{Desk, Intake, Outbox, Pages};
pub use reference::{Reference, Referrer, ReferrerQuery};
pub use version::{Content, Standing, Version};
pub use writing::{Phase, Writing};

use std::sync::Arc;

use crate::config::Config;

/// Why the store did not answer. Sorted by what the caller does.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Another program holds the lock: wait and try again.
    #[error("the store is locked: {0}")]
    Locked(String),
    /// There is no room: wait until somebody makes some.
    #[error("the store's disk is full: {0}")]
    Full(String),
    /// The world is at fault in another way: wait and try again.
    #[error("the store cannot answer now: {0}")]
    Passing(String),
    /// The batch rests on what has changed meanwhile: make it again.
    #[error("the batch is out of date: {0}")]
    Stale(&'static str),
    /// The caller's budget is used up, or the caller has left: answer that it took too long.
    #[error("the read was ended because its budget is used up")]
    Ended,
    /// Our own data or code is at fault: stop before it spreads.
    #[error("the store is damaged or misused: {0}")]
    Broken(String),
}

impl StoreError {
    /// Whether a later attempt may end differently.
    pub fn passes(&self) -> bool {
        !matches!(self, Self::Broken(_))
    }
}

/// What a commit did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Committed {
    /// Units by what became of them, in this batch alone.
    pub accounting: Accounting,
    /// Of those the units that this batch brought, without earlier ones that moved.
    pub arrived: Accounting,
    /// The outbox position after it.
    pub position: i64,
    /// Accounts that were found out of step and need a resync.
    pub broken: Vec<String>,
    /// What became of parked records and dead letters that were tried again.
    pub fates: Vec<Fate>,
    /// What became of parked records that were tried because what they lack arrived.
    pub woken: Vec<Fate>,
    /// What was done for each queue.
    pub worked: Vec<queue::Worked>,
    /// Records buried, by stage and collection.
    pub buried: Vec<(String, String, u64)>,
    /// Dead letters that are not kept any longer, by cause.
    pub closed: Vec<(letter::Closed, u64)>,
}

impl Committed {
    /// What became of the one letter that was asked about.
    fn fate(&self) -> Fate {
        self.fates.first().copied().unwrap_or(Fate::Gone)
    }
}

/// Where checked records come to rest: one engine behind all of its ports.
pub trait Store: Intake + Outbox + Pages + Desk + std::fmt::Debug {
    /// The plan this store follows.
    fn plan(&self) -> &Arc<Plan>;
}

/// Opens or creates the store of a configuration, and brings it in line with its plan.
pub fn open(config: &Config) -> Result<SharedStore, StoreError> {
    let store = sqlite::SqliteStore::open(&config.store, Plan::new(config))?;
    Ok(Arc::new(store))
}

/// Opens the store of a configuration as it is, beside whoever else uses it. Nothing is made or
/// laid out anew: that would pull the lanes from under a running server.
pub fn attach(config: &Config) -> Result<SharedStore, StoreError> {
    let store = sqlite::SqliteStore::attach(&config.store, Plan::new(config))?;
    Ok(Arc::new(store))
}

/// What the ingesting process last said of itself in the store of a configuration, and when.
/// Changes nothing, and does not ask how the store is laid out.
pub fn last_heartbeat(
    config: &Config,
) -> Result<Option<(crate::clock::Micros, String)>, StoreError> {
    sqlite::heartbeat::last(&config.store)
}

/// Gives records that were stored under a wrong clock their right times, in a store that nobody
/// else uses; or only finds them.
pub fn repair_clock(
    config: &Config,
    now_us: crate::clock::Micros,
    only_find: bool,
) -> Result<Vec<skew::Stretch>, StoreError> {
    sqlite::skew::repair_clock(&config.store, &Plan::new(config), now_us, only_find)
}

/// A store shared by all stages.
pub type SharedStore = Arc<dyn Store>;

/// What waits and what is dead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Records parked.
    pub parked: i64,
    /// When the first of them is tried again.
    pub due_us: Option<crate::clock::Micros>,
    /// Dead letters kept.
    pub dead: i64,
    /// Bytes of dead letters kept.
    pub dead_bytes: i64,
    /// When the oldest of them was refused.
    pub dead_since_us: Option<crate::clock::Micros>,
    /// Records that wait in queues.
    pub pending: i64,
    /// Bytes of them.
    pub pending_bytes: i64,
    /// Bytes of parked records.
    pub parked_bytes: i64,
    /// Bytes of frames held for accounts out of step.
    pub held_bytes: i64,
    /// Bytes of changes kept for branches.
    pub outbox_bytes: i64,
}

/// Numbers for the operator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Live records by collection.
    pub records: Vec<(String, i64)>,
    /// Accounts ever seen.
    pub accounts: i64,
    /// Dead letters kept.
    pub dead: i64,
    /// Frames held for accounts out of step.
    pub held: i64,
    /// Records of merged feeds that are not merged: of their thing there are more than `thing_max`.
    pub unmerged: i64,
}
