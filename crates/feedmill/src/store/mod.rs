//! The store: where checked records come to rest, and what is true.
//!
//! In:    batches of checked work, each with the cursor it brings.
//! Out:   records, pages of collections and feeds, changes in order.
//! Never: a cursor that moved without its work; an older version over a newer.
//!
//! Everything else in the process is derived from here and can be lost.

// What happened to each unit of work.
pub mod account;
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
// Records as clients know them.
pub mod shown;
// The embedded implementation.
pub mod sqlite;

pub use account::{AccountStatus, Accounting};
pub use batch::{Batch, Commit, Item, Op, Put, Verdict};
pub use change::{Change, Drawn, Follows, Loaded};
pub use letter::{Fate, LetterQuery};
pub use merged::{Activity, ActivityFilter, ActivityPage, ActivityQuery};
pub use page::{Children, FeedQuery, Lens, ListQuery, Page, Position, Row};
pub use plan::{LaneId, Plan, SourceId};
pub use reference::{Reference, Referrer, ReferrerQuery};
pub use version::{Content, Standing, Version};

use std::sync::Arc;
use std::time::Duration;

/// Why the store did not answer. Sorted by what the caller does.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The world is at fault (busy, disk full, gone): wait and try again.
    #[error("the store cannot answer now: {0}")]
    Passing(String),
    /// Our own data or code is at fault: stop before it spreads.
    #[error("the store is damaged or misused: {0}")]
    Broken(String),
}

/// What a commit did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Committed {
    /// Units by what became of them, in this batch alone.
    pub accounting: Accounting,
    /// The outbox position after it.
    pub position: i64,
    /// Accounts that were found out of step and need a resync.
    pub broken: Vec<String>,
    /// What became of parked records and dead letters that were tried again.
    pub fates: Vec<Fate>,
    /// What was done for each queue.
    pub worked: Vec<queue::Worked>,
    /// Records buried, by stage and collection.
    pub buried: Vec<(String, String, u64)>,
}

/// Where checked records come to rest.
///
/// Calls block; the caller gives them a thread. A `commit` is all or nothing
/// and carries the cursor, so a crash may repeat a batch but never skip one.
/// Writing the same batch twice leaves the same rows and is counted as
/// repeated. Every read is one snapshot.
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Applies `batch` and moves its source's cursor in one transaction.
    fn commit(&self, batch: Batch) -> Result<Committed, StoreError>;

    /// The cursor of a source; `None` before its first commit.
    fn cursor(&self, source: &str) -> Result<Option<i64>, StoreError>;

    /// Every source with its cursor.
    fn cursors(&self) -> Result<Vec<(String, Option<i64>)>, StoreError>;

    /// The counters of a source since the beginning; of all sources for `None`.
    fn accounting(&self, source: Option<&str>) -> Result<Accounting, StoreError>;

    /// The live, visible record at `uri`; `None` if never seen, deleted or hidden.
    fn record(&self, uri: &str) -> Result<Option<Row>, StoreError>;

    /// Live records by number, whether their authors are visible or not; for branches.
    fn kept(&self, ids: &[i64]) -> Result<Vec<Row>, StoreError>;

    /// Live records with numbers above `after`, by number, visible or not; for branches that start anew.
    fn kept_after(&self, after: i64, limit: usize) -> Result<Vec<Row>, StoreError>;

    /// Live, visible records by the ids that pages carry, in the order asked; gone ones are absent.
    /// Beside them the outbox position at which that was so.
    fn rows(&self, ids: &[i64]) -> Result<(Vec<Row>, i64), StoreError>;

    /// A page of a collection, newest first.
    fn list(&self, query: &ListQuery) -> Result<Page, StoreError>;

    /// For each parent, how many live, visible records of `lane` are published under it, and the
    /// newest `limit` of them; in one snapshot.
    fn children(
        &self,
        lane: LaneId,
        parents: &[String],
        limit: usize,
    ) -> Result<Vec<Children>, StoreError>;

    /// A page of a reader's feed, newest first, from durable rows alone.
    fn feed(&self, query: &FeedQuery) -> Result<Page, StoreError>;

    /// A page of a merged feed, newest first, with all that it shows, in one snapshot.
    fn activities(&self, query: &ActivityQuery) -> Result<ActivityPage, StoreError>;

    /// The activities of a merged lane that begin with these records at these times; `None` if
    /// one of them no longer does, so that the caller asks for the whole page instead.
    fn activities_at(
        &self,
        lane: LaneId,
        firsts: &[(i64, crate::clock::Micros)],
    ) -> Result<Option<Vec<Activity>>, StoreError>;

    /// Why a record is, or is not, in a reader's feed, in one snapshot; `None` if there is no such feed.
    fn explain(
        &self,
        feed: &str,
        reader: &str,
        uri: &str,
    ) -> Result<Option<explain::Explained>, StoreError>;

    /// Where a record stands in the order of its collection, also after its deletion.
    fn position(&self, uri: &str) -> Result<Option<Position>, StoreError>;

    /// The number under which a key is known; `None` if nobody ever named it.
    fn key(&self, text: &str) -> Result<Option<i64>, StoreError>;

    /// Changes after `position`, oldest first, at most about `limit`.
    fn draw(&self, position: i64, limit: usize) -> Result<Drawn, StoreError>;

    /// Waits until there are changes after `position`, or `patience` is over.
    /// Another process's changes are noticed only by looking, so be patient in small doses.
    fn wait(&self, position: i64, patience: Duration);

    /// Visits what timelines in memory start from, in one snapshot: hidden accounts, then each
    /// lane's newest records, at most `lane_max` of each. Returns the outbox position it stands at.
    fn load(&self, lane_max: usize, visit: &mut dyn FnMut(Loaded<'_>)) -> Result<i64, StoreError>;

    /// The keys that a reader's follow and hide records name, one for each record, in one snapshot.
    fn follows(
        &self,
        reader: i64,
        follows: &[SourceId],
        hides: &[SourceId],
    ) -> Result<Follows, StoreError>;

    /// The newest outbox position.
    fn head(&self) -> Result<i64, StoreError>;

    /// The last known state of an account; `None` if never heard of.
    fn account(&self, did: &str) -> Result<Option<account::AccountState>, StoreError>;

    /// Whether what a reader follows is here, or on its way.
    fn first_read(
        &self,
        did: &str,
        now_us: crate::clock::Micros,
    ) -> Result<account::FirstRead, StoreError>;

    /// The DID of an account known by this handle.
    fn did_of(&self, handle: &str) -> Result<Option<String>, StoreError>;

    /// The newest handle of an account.
    fn handle_of(&self, did: &str) -> Result<Option<String>, StoreError>;

    /// Accounts that wait for a resync, at most `limit`. A hidden one waits until it is back,
    /// for its host does not give its repository out; unless its standing is in doubt.
    fn broken_accounts(&self, limit: usize) -> Result<Vec<String>, StoreError>;

    /// Frames held for an account since its chain broke, in order.
    fn held(&self, did: &str) -> Result<Vec<Vec<u8>>, StoreError>;

    /// Numbers for the operator.
    fn counts(&self) -> Result<Counts, StoreError>;

    /// Dead letters, newest first.
    fn letters(&self, query: &LetterQuery) -> Result<Vec<batch::DeadLetter>, StoreError>;

    /// The newest dead letters before a number.
    fn dead(
        &self,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<batch::DeadLetter>, StoreError> {
        self.letters(&LetterQuery {
            before,
            limit,
            ..LetterQuery::default()
        })
    }

    /// One dead letter; `None` if there is none of this number (any more).
    fn letter(&self, id: i64) -> Result<Option<batch::DeadLetter>, StoreError>;

    /// Tries parked records whose pause is over, at most `max`, in one transaction.
    fn settle(&self, now_us: crate::clock::Micros, max: usize) -> Result<Committed, StoreError> {
        self.commit(Batch::of_no_source(now_us, Item::Settle(max)))
    }

    /// Works on what waits in queues, as much as one turn takes.
    fn turn(&self, now_us: crate::clock::Micros) -> Result<Committed, StoreError> {
        self.commit(Batch::of_no_source(now_us, Item::Turn))
    }

    /// What waits in each queue, in the order of the configuration.
    fn queues(&self) -> Result<Vec<queue::Depth>, StoreError>;

    /// Tries a dead letter's record again: the letter leaves in the transaction that applies the
    /// record, supersedes it, parks it or buries it anew, and its unit is counted there instead.
    fn replay(
        &self,
        now_us: crate::clock::Micros,
        letter: i64,
        verdict: Verdict,
    ) -> Result<Fate, StoreError> {
        let verdict = Box::new(verdict);
        let batch = Batch::of_no_source(now_us, Item::Replay { letter, verdict });
        Ok(self
            .commit(batch)?
            .fates
            .first()
            .copied()
            .unwrap_or(Fate::Gone))
    }

    /// Forgets a dead letter; its unit stays counted as dead.
    fn discard(&self, now_us: crate::clock::Micros, letter: i64) -> Result<Fate, StoreError> {
        let batch = Batch::of_no_source(now_us, Item::Discard { letter });
        Ok(self
            .commit(batch)?
            .fates
            .first()
            .copied()
            .unwrap_or(Fate::Gone))
    }

    /// What waits and what is dead, for gauges and thresholds.
    fn waiting(&self) -> Result<Waiting, StoreError>;

    /// Visible records that refer to a URI.
    fn referrers(&self, query: &ReferrerQuery) -> Result<Vec<Referrer>, StoreError>;

    /// What the visible record at `uri` refers to, after (path, URI); `None` if it is not here.
    fn references(
        &self,
        uri: &str,
        after: Option<&(String, String)>,
        limit: usize,
    ) -> Result<Option<Vec<Reference>>, StoreError>;

    /// What stands at each URI now, live or gone, in the order asked and in one snapshot; `None`
    /// where nothing ever did, or all trace of it is purged.
    fn versions(&self, uris: &[&str]) -> Result<Vec<Option<Version>>, StoreError>;

    /// The same for all records, behind the number `after`, with their numbers.
    fn versions_after(&self, after: i64, limit: usize) -> Result<Vec<(i64, Version)>, StoreError>;

    /// How an account stands; `None` if never heard of.
    fn standing(&self, did: &str) -> Result<Option<Standing>, StoreError>;

    /// The same for all accounts whose status was ever told, behind the number `after`.
    fn standings(&self, after: i64, limit: usize) -> Result<Vec<Standing>, StoreError>;

    /// Walks the graph of references, in one snapshot.
    fn walk(&self, walk: &graph::Walk) -> Result<graph::Walked, StoreError>;

    /// Readers (accounts with at least one follow of this source), at most `limit`, by number.
    fn followers(
        &self,
        source: SourceId,
        after: i64,
        limit: usize,
    ) -> Result<Vec<(i64, String)>, StoreError>;
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
    /// Records that wait in queues.
    pub pending: i64,
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
}
