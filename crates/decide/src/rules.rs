//! The configuration, as decisions need it: plain data.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::batch::{Fault, Put};
use crate::ids::{IndexId, Micros};
use crate::queue::Queues;

/// What is kept of how many records are under each key of a feed index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Counted {
    #[default]
    Nothing,
    /// How many there are.
    Records,
    /// How many authors they have.
    Authors,
}

/// How the records of a merged index form groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merging {
    /// How long after its first record a group takes further ones.
    pub window_us: Micros,
    /// Records of one (author, thing) that are merged; further ones are entries of their own.
    pub thing_max: usize,
}

/// One feed index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexRules {
    pub counted: Counted,
    /// Set for merged indexes.
    pub merging: Option<Merging>,
}

/// A stored record, as the configuration's expressions see it.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'s> {
    pub did: &'s str,
    pub nsid: &'s str,
    pub rkey: &'s str,
    /// JSON text.
    pub body: &'s str,
}

/// What only the configuration's own expressions and paths can answer. Pure: the same record gives
/// the same answer.
pub trait Expressions: std::fmt::Debug + Send + Sync {
    /// What the checks say of a stored record today. Its CID and first sight are left out.
    fn derive(&self, record: Subject<'_>) -> Put;

    /// The first rule over other records that a record breaks; `live` gives the body of the live
    /// record at a URI.
    fn broken(&self, record: Subject<'_>, live: &dyn Fn(&str) -> Option<String>) -> Option<Fault>;
}

/// Everything decisions are made by.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The number of this layout of indexes; 0 before the first one.
    pub layout: i64,
    pub indexes: BTreeMap<IndexId, IndexRules>,
    /// Whose work is done first.
    pub queues: Queues,
    /// Records parked at once; of more, the oldest become dead letters.
    pub parked_max: usize,
    /// Bytes of dead letters; of more, the oldest are forgotten.
    pub dead_bytes_max: i64,
    pub expressions: Option<Arc<dyn Expressions>>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            layout: 0,
            indexes: BTreeMap::new(),
            queues: Queues::default(),
            parked_max: 0,
            dead_bytes_max: i64::MAX,
            expressions: None,
        }
    }
}

impl Rules {
    /// How the records of an index are counted.
    pub fn counted(&self, index: IndexId) -> Counted {
        self.indexes
            .get(&index)
            .map_or(Counted::Nothing, |rules| rules.counted)
    }

    /// How the records of an index are merged. One that is not merged has groups of one.
    pub fn merging(&self, index: IndexId) -> Merging {
        let rules = self.indexes.get(&index);
        rules.and_then(|rules| rules.merging).unwrap_or(Merging {
            window_us: 0,
            thing_max: 0,
        })
    }
}
