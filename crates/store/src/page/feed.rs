//! A reader's feed: exact at any depth, in one snapshot.
//!
//! In:    a reader, what the feed is made of, where the page begins.
//! Out:   the newest records under keys that the reader follows, by authors that they do not hide.
//! Never: a record twice, however many of its keys are followed.
//!
//! For up to [`SEEK_KEYS_MAX`] keys the engine merges the entries of each key.
//! Who follows more is served by a walk over the whole index: so many seeks
//! would cost more than looking at everybody's newest records.

use std::collections::HashSet;

use decide::account::Status;
use decide::ids::{FollowId, IndexId, KeyId};
use decide::rows::{Account, Follow};
use decide::value::Cell as _;

use super::budget::Budget;
use super::fill::{Filled, Wanted};
use super::filter::Filter;
use super::place::Place;
use super::row::Page;
use super::stream::{Streams, Way};
use super::visibility::Under;
use super::{equal, sort};
use crate::error::StoreError;
use crate::port::{Asked, Range, Snapshot};

/// Followed keys up to which each is sought on its own. Few in debug builds, so that tests walk.
pub const SEEK_KEYS_MAX: usize = if cfg!(debug_assertions) { 4 } else { 5_000 };

/// One target of a feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub index: IndexId,
    /// The NSID of its collection; empty in a merged index.
    pub collection: String,
    /// The feed ends after so many visible records of it.
    pub cap: Option<usize>,
}

/// What a feed is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Feed {
    /// Shown in one order.
    pub targets: Vec<Target>,
    /// Where its readers say which keys they follow.
    pub follows: Vec<FollowId>,
    /// Where they say whom they mute or block.
    pub hides: Vec<FollowId>,
    /// Readers see their own records.
    pub include_self: bool,
}

/// Which page of a feed.
#[derive(Debug, Clone, Copy)]
pub struct FeedQuery<'q> {
    pub feed: &'q Feed,
    /// The DID of whoever reads.
    pub reader: &'q str,
    pub before: Option<&'q Place>,
    /// Caps count before it.
    pub filter: &'q Filter<'q>,
    pub budget: Budget<'q>,
}

/// A page of a feed.
pub fn feed(snapshot: &dyn Snapshot, query: &FeedQuery<'_>) -> Result<Page, StoreError> {
    match Reader::load(snapshot, query.feed, query.reader)? {
        Some(reader) => Ok(reader.page(snapshot, query)?.into()),
        None => Ok(Page::default()),
    }
}

/// Whom a reader follows and hides.
#[derive(Debug)]
pub(super) struct Reader {
    /// Sorted, and without those that are hidden.
    keys: Vec<KeyId>,
    /// The same, where they are so many that they are looked up.
    set: HashSet<KeyId>,
    hidden: HashSet<KeyId>,
}

impl Reader {
    /// Whom a reader follows and hides; `None` if nobody knows the reader, or its account is hidden
    /// and its follows with it. Two round trips.
    pub(super) fn load(
        snapshot: &dyn Snapshot,
        feed: &Feed,
        did: &str,
    ) -> Result<Option<Self>, StoreError> {
        let asked = Asked {
            keys: vec![did],
            ..Asked::default()
        };
        let names = snapshot.names(&asked)?;
        let Some(&reader) = names.keys.get(did) else {
            return Ok(None);
        };
        let of_source =
            |source: &FollowId| Range::of::<Follow>(vec![source.to_value(), reader.to_value()]);
        let mut ranges = vec![Range::of::<Account>(vec![reader.to_value()])];
        ranges.extend(feed.follows.iter().chain(&feed.hides).map(of_source));
        let mut rows = snapshot.range(&ranges)?.into_iter();
        let account = rows
            .next()
            .map(|rows| rows.typed::<Account>())
            .transpose()?;
        let account = account.and_then(|mut accounts| accounts.pop());
        if account.is_some_and(|account| !Status::from_code(account.status).visible()) {
            return Ok(None);
        }
        let mut keys: Vec<KeyId> = Vec::new();
        for rows in rows.by_ref().take(feed.follows.len()) {
            keys.reserve(rows.len() + 1);
            let follows = rows.typed::<Follow>()?;
            keys.extend(follows.into_iter().map(|follow| follow.key));
        }
        if feed.include_self {
            keys.push(reader);
        }
        let mut hidden = HashSet::new();
        for rows in rows {
            let hides = rows.typed::<Follow>()?;
            hidden.extend(hides.into_iter().map(|follow| follow.key));
        }
        keys.retain(|key| !hidden.contains(key));
        keys.sort_unstable();
        keys.dedup();
        let set = match keys.len() > SEEK_KEYS_MAX {
            true => keys.iter().copied().collect(),
            false => HashSet::new(),
        };
        Ok(Some(Self { keys, set, hidden }))
    }

    /// How candidates are found.
    fn way(&self) -> Way<'_> {
        match self.set.is_empty() {
            true => Way::Keys(&self.keys),
            false => Way::Walk(&self.set),
        }
    }

    /// A page of the reader's feed. The order, and an equality, are those of its one target.
    pub(super) fn page(
        &self,
        snapshot: &dyn Snapshot,
        query: &FeedQuery<'_>,
    ) -> Result<Filled, StoreError> {
        let targets = &query.feed.targets;
        let caps: Vec<Option<usize>> = targets.iter().map(|target| target.cap).collect();
        let wanted = Wanted {
            filter: query.filter,
            hidden: &self.hidden,
            under: None,
            before: query.before,
            caps: &caps,
            budget: query.budget,
        };
        let walk = |wanted: &Wanted<'_>| {
            let is_endless = wanted.caps.iter().all(Option::is_none);
            let mut streams = Streams::default();
            for target in targets {
                // Where a feed ends its newest entries must be counted, so reading begins at the top.
                let from = wanted.before.filter(|_| is_endless);
                let index = (target.index, target.collection.as_str());
                streams.add(index, self.way(), from);
            }
            wanted.fill(snapshot, &mut streams)
        };
        let [target] = targets.as_slice() else {
            return walk(&wanted);
        };
        let keys: HashSet<KeyId> = match query.filter.is_indexed() {
            true => self.keys.iter().copied().collect(),
            false => HashSet::new(),
        };
        let among = Wanted {
            under: Some((target.index, Under::OneOf(&keys))),
            ..wanted
        };
        let collection = target.collection.as_str();
        match (query.filter.sort, target.cap) {
            (Some(order), None) => sort::sorted(snapshot, &among, order, collection),
            (Some(order), Some(cap)) => {
                // A feed that ends is no longer than its cap: all of it is read, then sorted.
                let whole = Wanted {
                    before: None,
                    budget: Budget {
                        limit: cap,
                        scan_max: usize::MAX,
                        bytes_max: usize::MAX,
                        ..query.budget
                    },
                    ..wanted
                };
                sort::arranged(walk(&whole)?, order, query.before, &query.budget)
            }
            (None, Some(_)) => walk(&wanted),
            (None, None) => {
                let bounded = |scan_max| {
                    let budget = Budget {
                        scan_max,
                        ..query.budget
                    };
                    walk(&Wanted { budget, ..wanted })
                };
                equal::page(snapshot, &among, collection, false, &bounded)
            }
        }
    }
}
