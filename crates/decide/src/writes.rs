//! What a decision writes: all of it in one transaction, or nothing.

use std::collections::BTreeMap;

use crate::accounting::Accounting;
use crate::batch::Reached;
use crate::change::Change;
use crate::fate::{Closed, Fate};
use crate::ids::{CollectionId, IndexId, KeyId, Micros};
use crate::rows::{Counter, DeadKind, Depth, Kept, Outcomes, Total, Waiting};
use crate::table::{Row, Table};
use crate::value::{Cell, Value};

/// The rows to write and what goes with them. Writing the same set twice leaves the same rows;
/// only the counters (see [`additions`](Self::additions)) are differences, which is why the cursor moves with them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writes {
    /// Whole rows; they replace what has the same primary key.
    pub put: Vec<(&'static Table, Vec<Value>)>,
    /// Primary keys.
    pub delete: Vec<(&'static Table, Vec<Value>)>,
    /// Counters by difference, in the order of their keys.
    pub add: BTreeMap<(IndexId, KeyId), i64>,
    /// Parked records that wait for one of these are tried by a later batch; done after `put`.
    pub wake: Vec<Wake>,
    /// The source's cursor moves here.
    pub cursor: Option<(String, i64)>,
    /// Counters by source.
    pub counts: BTreeMap<String, Accounting>,
    /// Live records gained or lost, by collection.
    pub live: BTreeMap<CollectionId, i64>,
    /// Operations more or fewer that wait in each queue.
    pub depth: BTreeMap<String, i64>,
    /// Dead letters more or fewer, by stage and collection.
    pub dead_kinds: BTreeMap<(String, CollectionId), i64>,
    /// Records more or fewer that wait for others, by collection.
    pub waiting: BTreeMap<CollectionId, i64>,
    /// What is added to numbers of the store as a whole.
    pub totals: BTreeMap<&'static str, i64>,
    /// Units that the batch brought, without earlier ones that moved.
    pub arrived: Accounting,
    /// What became of parked records and dead letters that were tried again, in their order.
    pub fates: Vec<Fate>,
    /// What became of parked records that were tried because what they lacked arrived.
    pub woken: Vec<Fate>,
    /// Dead letters that are not kept any longer, by cause.
    pub closed: BTreeMap<Closed, u64>,
    /// How far each slice of a repository was done.
    pub reached: Vec<Reached>,
    /// What was done for each queue, for metrics: operations done, operations put off.
    pub worked: BTreeMap<String, (u64, u64)>,
    /// What consumers are told, in order.
    pub changes: Vec<Change>,
    /// Accounts that are now to be fetched.
    pub repair: Vec<KeyId>,
}

impl Writes {
    /// Every counter that changes: its table, its primary key, and by how much. The column `n` is
    /// the last one of each of these tables.
    pub fn additions(&self) -> Vec<(&'static Table, Vec<Value>, i64)> {
        let mut all = Vec::with_capacity(self.add.len() + self.live.len());
        for ((index, key), by) in &self.add {
            all.push((Counter::TABLE, vec![index.to_value(), key.to_value()], *by));
        }
        for (collection, by) in &self.live {
            all.push((Kept::TABLE, vec![collection.to_value()], *by));
        }
        for (queue, by) in &self.depth {
            all.push((Depth::TABLE, vec![queue.to_value()], *by));
        }
        for ((stage, collection), by) in &self.dead_kinds {
            let key = vec![Value::Text(stage.clone()), collection.to_value()];
            all.push((DeadKind::TABLE, key, *by));
        }
        for (collection, by) in &self.waiting {
            all.push((Waiting::TABLE, vec![collection.to_value()], *by));
        }
        for (name, by) in &self.totals {
            all.push((Total::TABLE, vec![Value::Text((*name).to_owned())], *by));
        }
        for (source, counts) in &self.counts {
            for (outcome, by) in counts.by_name().into_iter().filter(|(_, by)| *by != 0) {
                let key = vec![Value::Text(source.clone()), Value::Text(outcome.to_owned())];
                all.push((Outcomes::TABLE, key, by));
            }
        }
        all
    }
}

/// Something that records may wait for has arrived.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wake {
    pub hash: i64,
    pub need: String,
    pub woken_us: Micros,
}
