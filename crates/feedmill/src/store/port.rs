//! Ports: the store as each of its callers sees it.
//!
//! In:    batches from intake; questions from branches, the server and the operator.
//! Out:   answers, each from one snapshot.
//! Never: an answer that mixes two moments.
//!
//! Calls block; the caller gives them a thread. An engine that implements all
//! four is a [`Store`](super::Store).

use std::sync::Arc;
use std::time::Duration;

use super::account::{AccountState, Accounting, Begun, FirstRead};
use super::attempt::Attempt;
use super::batch::{Batch, DeadLetter, Item, Verdict};
use super::change::{Drawn, Follows, LoadPlace, Loaded};
use super::explain::Explained;
use super::graph::{Walk, Walked};
use super::letter::{Fate, LetterCount, LetterQuery};
use super::merged::{ActivityPage, ActivityQuery};
use super::page::{Children, FeedQuery, ListQuery, Page, Position, Row};
use super::plan::{LaneId, SourceId};
use super::queue::Depth;
use super::reference::{Reference, Referrer, ReferrerQuery};
use super::skew::WrongClock;
use super::version::{Standing, Version};
use super::{Committed, Counts, StoreError, Waiting, Writing};
use crate::clock::Micros;

/// The store as intake uses it: work goes in, with the cursor it brings.
///
/// A `commit` is all or nothing and carries the cursor, so a crash may repeat a
/// batch but never skip one. Writing the same batch twice leaves the same rows
/// and is counted as repeated.
pub trait Intake: Send + Sync {
    /// Applies `batch` and moves its source's cursor in one transaction.
    fn commit(&self, batch: Batch) -> Result<Committed, StoreError>;

    /// Marks the batches of a source while they are worked on, from the moment at which the store
    /// can be written to the one at which that ended.
    fn mark(&self, source: &str, attempt: Arc<Attempt>);

    /// Whether the process before this one ended with a record that waited in the store: then no
    /// source's batch is at fault.
    fn waiting_suspected(&self) -> bool;

    /// The cursor of a source; `None` before its first commit.
    fn cursor(&self, source: &str) -> Result<Option<i64>, StoreError>;

    /// Tries parked records whose pause is over, at most `max`, in one transaction.
    fn settle(&self, now_us: Micros, max: usize) -> Result<Committed, StoreError> {
        self.commit(Batch::of_no_source(now_us, Item::Settle(max)))
    }

    /// Works on what waits in queues, as much as one turn takes.
    fn turn(&self, now_us: Micros) -> Result<Committed, StoreError> {
        self.commit(Batch::of_no_source(now_us, Item::Turn))
    }

    /// What the writer is doing. Never waits for the database.
    fn writing(&self) -> Writing;

    /// Forgets dead letters from before a moment, the oldest first and at most `max`, in one transaction.
    fn expire(
        &self,
        now_us: Micros,
        before_us: Micros,
        max: usize,
    ) -> Result<Committed, StoreError> {
        let item = Item::Expire { before_us, max };
        self.commit(Batch::of_no_source(now_us, item))
    }

    /// Dead letters kept, by stage and collection.
    fn dead_by_kind(&self) -> Result<Vec<LetterCount>, StoreError>;

    /// Dead letters that match, whatever the query's `before` and `limit`.
    fn count_dead(&self, query: &LetterQuery) -> Result<i64, StoreError>;
    /// The ingesting process says how it is, for other processes on the same store.
    fn beat(&self, now_us: Micros, report: String) -> Result<(), StoreError> {
        let batch = Batch::of_no_source(now_us, Item::Heartbeat(report));
        self.commit(batch).map(drop)
    }

    /// What it said last, and when; `None` if nobody ever ingested into this store.
    fn heartbeat(&self) -> Result<Option<(Micros, String)>, StoreError>;

    /// Our clock differs from the events' times by so much: noted until what is stored is repaired.
    fn note_wrong_clock(&self, now_us: Micros, off_us: Micros) -> Result<(), StoreError> {
        let batch = Batch::of_no_source(now_us, Item::WrongClock(off_us));
        self.commit(batch).map(drop)
    }

    /// A wrong clock that was noted and not repaired.
    fn wrong_clock(&self) -> Result<Option<WrongClock>, StoreError>;

    /// What waits in each queue, in the order of the configuration.
    fn queues(&self) -> Result<Vec<Depth>, StoreError>;

    /// What waits and what is dead, for gauges and thresholds.
    fn waiting(&self) -> Result<Waiting, StoreError>;

    /// The last known state of an account; `None` if never heard of.
    fn account(&self, did: &str) -> Result<Option<AccountState>, StoreError>;

    /// Accounts that wait for a resync, at most `limit`. A hidden one waits until it is back,
    /// for its host does not give its repository out; unless its standing is in doubt.
    fn broken_accounts(&self, limit: usize) -> Result<Vec<String>, StoreError>;

    /// Readers whose repositories are waited for, at most `limit`, in the order in which they asked.
    fn waiting_readers(&self, limit: usize) -> Result<Vec<String>, StoreError>;

    /// Accounts whose fetch began and did not end.
    fn fetches_begun(&self) -> Result<Vec<Begun>, StoreError>;

    /// Frames held for an account since its chain broke, in order.
    fn held(&self, did: &str) -> Result<Vec<Vec<u8>>, StoreError>;
}

/// The store as branches use it: changes in order, and what they start from.
pub trait Outbox: Send + Sync {
    /// The newest outbox position.
    fn head(&self) -> Result<i64, StoreError>;

    /// Changes after `position`, oldest first, at most about `limit`. Those who draw wait for nobody
    /// who reads.
    fn draw(&self, position: i64, limit: usize) -> Result<Drawn, StoreError>;

    /// The same for a reader who missed them.
    fn missed(&self, position: i64, limit: usize) -> Result<Drawn, StoreError>;

    /// Waits until there are changes after `position`, `enough` is true, or `patience` is over.
    /// After making `enough` true, call [`Outbox::wake`].
    fn wait(&self, position: i64, patience: Duration, enough: &dyn Fn() -> bool);

    /// Has every thread that waits test its condition again.
    fn wake(&self);

    /// A number that is another one after every commit noticed, of this process or another: while it
    /// stays the same, nothing in the store has changed.
    fn commits(&self) -> u64;

    /// About how many records each lane holds, in the order of the plan.
    fn lane_sizes(&self) -> Result<Vec<u64>, StoreError>;

    /// The number under which changes carry a lane; `None` if the plan has no such lane.
    fn lane_number(&self, lane: LaneId) -> Option<i64>;

    /// The number under which changes carry a follow source.
    fn source_number(&self, source: SourceId) -> Option<i64>;

    /// Visits a slice of what timelines in memory start from, in one snapshot: hidden accounts, then
    /// each lane's newest records, at most `lane_max` of each. Returns where the next slice begins.
    ///
    /// Slices are of different moments. Take the head of the outbox first: whoever applies every
    /// change after it, up to the head after the last slice, holds what is true there.
    fn load(
        &self,
        from: LoadPlace,
        lane_max: usize,
        visit: &mut dyn FnMut(Loaded<'_>),
    ) -> Result<Option<LoadPlace>, StoreError>;

    /// The keys that a reader's follow and hide records name, one for each record, in one snapshot.
    fn follows(
        &self,
        reader: i64,
        follows: &[SourceId],
        hides: &[SourceId],
    ) -> Result<Follows, StoreError>;

    /// Lane and key of every place in feeds where an account's records stand under other keys than
    /// its own, whether it is visible or not; `None` if it has more than `records_max` of them.
    fn keys_of(
        &self,
        account: i64,
        records_max: usize,
    ) -> Result<Option<Vec<(i64, i64)>>, StoreError>;

    /// Live records by number, whether their authors are visible or not; for branches.
    fn kept(&self, ids: &[i64]) -> Result<Vec<Row>, StoreError>;

    /// Live records with numbers above `after`, by number, visible or not; for branches that start anew.
    fn kept_after(&self, after: i64, limit: usize) -> Result<Vec<Row>, StoreError>;

    /// What stands at each URI now, live or gone, in the order asked and in one snapshot; `None`
    /// where nothing ever did, or all trace of it is purged.
    fn versions(&self, uris: &[&str]) -> Result<Vec<Option<Version>>, StoreError>;

    /// The same for all records, behind the number `after`, with their numbers.
    fn versions_after(&self, after: i64, limit: usize) -> Result<Vec<(i64, Version)>, StoreError>;

    /// How an account stands; `None` if never heard of.
    fn standing(&self, did: &str) -> Result<Option<Standing>, StoreError>;

    /// The same for all accounts whose status was ever told, behind the number `after`.
    fn standings(&self, after: i64, limit: usize) -> Result<Vec<Standing>, StoreError>;
}

/// The store as the server uses it: records, and pages of them.
pub trait Pages: Send + Sync {
    /// The live, visible record at `uri`; `None` if never seen, deleted or hidden.
    fn record(&self, uri: &str) -> Result<Option<Row>, StoreError>;

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

    /// A page of a merged feed, newest first, with all that it names (records and handles), in one
    /// snapshot.
    fn activities(&self, query: &ActivityQuery) -> Result<ActivityPage, StoreError>;

    /// The same of the activities that begin with these records at these times; `None` if
    /// one of them no longer does, so that the caller asks for the whole page instead.
    fn activities_at(
        &self,
        lane: LaneId,
        firsts: &[(i64, Micros)],
    ) -> Result<Option<ActivityPage>, StoreError>;

    /// Where a record stands in the order of its collection, also after its deletion.
    fn position(&self, uri: &str) -> Result<Option<Position>, StoreError>;

    /// The number under which a key is known; `None` if nobody ever named it.
    fn key(&self, text: &str) -> Result<Option<i64>, StoreError>;

    /// Visible records that refer to a URI.
    fn referrers(&self, query: &ReferrerQuery) -> Result<Vec<Referrer>, StoreError>;

    /// What the visible record at `uri` refers to, after (path, URI); `None` if it is not here.
    fn references(
        &self,
        uri: &str,
        after: Option<&(String, String)>,
        limit: usize,
    ) -> Result<Option<Vec<Reference>>, StoreError>;

    /// Walks the graph of references, in one snapshot.
    fn walk(&self, walk: &Walk) -> Result<Walked, StoreError>;

    /// The DID of an account known by this handle.
    fn did_of(&self, handle: &str) -> Result<Option<String>, StoreError>;

    /// The newest handle of an account.
    fn handle_of(&self, did: &str) -> Result<Option<String>, StoreError>;

    /// Whether what a reader of a feed follows and hides is here, or on its way.
    fn first_read(&self, did: &str, feed: &str, now_us: Micros) -> Result<FirstRead, StoreError>;
}

/// The store as its operator uses it: counts, dead letters, explanations.
pub trait Desk: Intake {
    /// Every source with its cursor.
    fn cursors(&self) -> Result<Vec<(String, Option<i64>)>, StoreError>;

    /// The counters of a source since the beginning; of all sources for `None`.
    fn accounting(&self, source: Option<&str>) -> Result<Accounting, StoreError>;

    /// Numbers for the operator.
    fn counts(&self) -> Result<Counts, StoreError>;

    /// Readers (accounts with at least one follow of this source), at most `limit`, by number.
    fn followers(
        &self,
        source: SourceId,
        after: i64,
        limit: usize,
    ) -> Result<Vec<(i64, String)>, StoreError>;

    /// Why a record is, or is not, in a reader's feed, in one snapshot; `None` if there is no such feed.
    fn explain(&self, feed: &str, reader: &str, uri: &str)
    -> Result<Option<Explained>, StoreError>;

    /// Dead letters, newest first.
    fn letters(&self, query: &LetterQuery) -> Result<Vec<DeadLetter>, StoreError>;

    /// The newest dead letters before a number.
    fn dead(&self, before: Option<i64>, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        self.letters(&LetterQuery {
            before,
            limit,
            ..LetterQuery::default()
        })
    }

    /// One dead letter; `None` if there is none of this number (any more).
    fn letter(&self, id: i64) -> Result<Option<DeadLetter>, StoreError>;

    /// Tries a dead letter's record again: the letter leaves in the transaction that applies the
    /// record, supersedes it or parks it, and its unit is counted there instead. Refused again, it
    /// keeps its number and says why today.
    fn replay(&self, now_us: Micros, letter: i64, verdict: Verdict) -> Result<Fate, StoreError> {
        let verdict = Box::new(verdict);
        let batch = Batch::of_no_source(now_us, Item::Replay { letter, verdict });
        Ok(self.commit(batch)?.fate())
    }

    /// Forgets a dead letter; its unit stays counted as dead.
    fn discard(&self, now_us: Micros, letter: i64) -> Result<Fate, StoreError> {
        let batch = Batch::of_no_source(now_us, Item::Discard { letter });
        Ok(self.commit(batch)?.fate())
    }
}
