//! The names in a batch, which are given numbers before it is decided.

use std::collections::BTreeSet;

use crate::batch::{Batch, Event, Op, Order, Put, Target, Verdict};
use crate::content::split;
use crate::wants::Names;

/// Every name in a batch: keys, then collections.
pub fn names(batch: &Batch) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let mut names = NameSet::default();
    for (_, event) in &batch.events {
        match event {
            Event::Commit(commit) => names.ops(&commit.did, &commit.ops),
            Event::Sync { did, .. } | Event::Account { did, .. } | Event::Identity { did, .. } => {
                names.keys.insert(did);
            }
            Event::Undecodable { did, .. } => names.keys.extend(did.as_deref()),
            Event::Filtered(_) => {}
        }
    }
    for order in &batch.orders {
        match order {
            Order::Fetched { did, ops, .. } => names.ops(did, ops),
            Order::Repository(slice) => {
                names.collections.insert(&slice.collection);
                names.ops(&slice.did, &slice.ops);
            }
            Order::Release { did, frames } => {
                names.keys.insert(did);
                for commit in frames.iter().flat_map(|frame| &frame.commit) {
                    names.ops(did, &commit.ops);
                }
            }
            Order::Replay { verdict, .. } => names.verdict(verdict),
            Order::HostStatus { did, .. }
            | Order::RepositoryDone { did, .. }
            | Order::FirstRead { did, .. }
            | Order::Reader(did)
            | Order::GaveUp(did)
            | Order::FetchBegun(did) => {
                names.keys.insert(did);
            }
            Order::FetchEnded(dids) => names.keys.extend(dids.iter().map(String::as_str)),
            Order::Listed(dids) => names.keys.extend(dids.iter().map(String::as_str)),
            Order::Discard(_)
            | Order::Expire { .. }
            | Order::Shrink
            | Order::AllDue
            | Order::Heartbeat(_)
            | Order::WrongClock(_)
            | Order::Retry(_)
            | Order::GiveUp(_)
            | Order::Job { .. }
            | Order::Queues
            | Order::Drain(_) => {}
        }
    }
    (names.keys, names.collections)
}

/// Names of a record that is derived anew, and that have no numbers yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unnamed {
    pub keys: BTreeSet<String>,
    pub collections: BTreeSet<String>,
}

impl Unnamed {
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.collections.is_empty()
    }

    /// Adds the names of a record that have no number; says whether there are any.
    pub(crate) fn add(&mut self, put: &Put, known: &Names) -> bool {
        let mut names = NameSet::default();
        names.put(put);
        let keys = names.keys.into_iter();
        let keys = keys.filter(|key| !known.keys.contains_key(*key));
        self.keys.extend(keys.map(str::to_owned));
        let collections = names.collections.into_iter();
        let collections = collections.filter(|nsid| !known.collections.contains_key(*nsid));
        self.collections.extend(collections.map(str::to_owned));
        !self.is_empty()
    }
}

#[derive(Debug, Default)]
struct NameSet<'b> {
    keys: BTreeSet<&'b str>,
    collections: BTreeSet<&'b str>,
}

impl<'b> NameSet<'b> {
    fn ops(&mut self, did: &'b str, ops: &'b [Op]) {
        self.keys.insert(did);
        for op in ops {
            self.collections.insert(&op.collection);
            self.verdict(&op.verdict);
        }
    }

    fn verdict(&mut self, verdict: &'b Verdict) {
        if let Verdict::Put(put) = verdict {
            self.put(put);
        }
    }

    fn put(&mut self, put: &'b Put) {
        let derived = &put.derived;
        let of_entries = derived.entries.iter().flat_map(|(_, keys)| keys);
        let of_parts = derived
            .parts
            .iter()
            .flat_map(|part| part.keys.iter().chain([&part.author]));
        let of_follows = derived.follows.iter().map(|(_, key)| key);
        let all = of_entries
            .chain(of_parts)
            .chain(of_follows)
            .chain(&derived.person);
        self.keys.extend(all.map(String::as_str));
        let linked = put.linked.iter().flatten();
        for (did, nsid, _) in linked.filter_map(|uri| split(uri)) {
            self.keys.insert(did);
            self.collections.insert(nsid);
        }
        for need in &put.needs {
            match &need.target {
                Target::Record {
                    did, collection, ..
                } => {
                    self.keys.insert(did);
                    self.collections.insert(collection);
                }
                Target::Naming { collection, .. } => {
                    self.collections.insert(collection);
                }
            }
        }
    }
}
