//! A batch, from its names to its commit.

use std::collections::BTreeMap;

use decide::accounting::Accounting;
use decide::batch::{Batch, Reached};
use decide::decide::{Undecided, decide, wants};
use decide::fate::{Closed, Fate};
use decide::ids::{CollectionId, KeyId, Position};
use decide::names::{Unnamed, names};
use decide::rules::Rules;
use decide::wants::Names;

use crate::error::StoreError;
use crate::port::Store;

/// Loads of one batch, at most: what it names, what that refers to, and what this leads to.
const LOADS_MAX: usize = 3;

/// What became of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// The position of its last change.
    pub position: Position,
    /// How often it read rows.
    pub loads: usize,
    /// What it did, for those who count: units by source, operations by queue.
    pub counts: BTreeMap<String, Accounting>,
    pub worked: BTreeMap<String, (u64, u64)>,
    /// Units that the batch brought, without earlier ones that moved.
    pub arrived: Accounting,
    /// Accounts that are now to be fetched.
    pub repair: Vec<KeyId>,
    /// What became of parked records and dead letters that were tried again, in their order.
    pub fates: Vec<Fate>,
    /// What became of parked records that were tried because what they lacked arrived.
    pub woken: Vec<Fate>,
    /// Dead letters that are not kept any longer, by cause.
    pub closed: BTreeMap<Closed, u64>,
    /// Dead letters more or fewer, by stage and collection.
    pub dead: BTreeMap<(String, CollectionId), i64>,
    /// How far each slice of a repository was done.
    pub reached: Vec<Reached>,
}

/// How often a batch is begun at most: records that waited may have new names.
const BEGINS_MAX: usize = 3;

/// Decides a batch and commits it.
pub fn apply(store: &dyn Store, rules: &Rules, batch: &Batch) -> Result<Applied, StoreError> {
    let (keys, collections) = names(batch);
    let mut names = store.intern(&keys, &collections)?;
    for _ in 0..BEGINS_MAX {
        match begin(store, rules, batch, &names)? {
            Begun::Applied(applied) => return Ok(*applied),
            Begun::Unnamed(unnamed) => {
                let keys = unnamed.keys.iter().map(String::as_str).collect();
                let collections = unnamed.collections.iter().map(String::as_str).collect();
                let more = store.intern(&keys, &collections)?;
                names.keys.extend(more.keys);
                names.collections.extend(more.collections);
            }
        }
    }
    Err(StoreError::TooManyLoads(BEGINS_MAX))
}

/// What a transaction led to.
enum Begun {
    Applied(Box<Applied>),
    /// Nothing: these names need numbers first.
    Unnamed(Unnamed),
}

fn begin(
    store: &dyn Store,
    rules: &Rules,
    batch: &Batch,
    names: &Names,
) -> Result<Begun, StoreError> {
    let mut unit = store.begin()?;
    let mut loaded = unit.load(&wants(batch, names, rules))?;
    let mut loads = 1;
    let writes = loop {
        match decide(batch, names, rules, &loaded) {
            Ok(writes) => break writes,
            Err(Undecided::Damaged(damaged)) => return Err(damaged.into()),
            Err(Undecided::Intern(unnamed)) => return Ok(Begun::Unnamed(unnamed)),
            Err(Undecided::Load(_)) if loads == LOADS_MAX => {
                return Err(StoreError::TooManyLoads(LOADS_MAX));
            }
            Err(Undecided::Load(more)) => {
                loaded.extend(unit.load(&more)?);
                loads += 1;
            }
        }
    };
    let position = unit.commit(&writes)?;
    Ok(Begun::Applied(Box::new(Applied {
        position,
        loads,
        counts: writes.counts,
        worked: writes.worked,
        arrived: writes.arrived,
        repair: writes.repair,
        fates: writes.fates,
        woken: writes.woken,
        closed: writes.closed,
        dead: writes.dead_kinds,
        reached: writes.reached,
    })))
}
