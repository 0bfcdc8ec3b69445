//! A batch, from its names to its commit.

use std::collections::BTreeMap;

use decide::accounting::Accounting;
use decide::batch::Batch;
use decide::decide::{Undecided, decide, wants};
use decide::ids::{KeyId, Position};
use decide::names::names;
use decide::rules::Rules;

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
    /// Accounts that are now to be fetched.
    pub repair: Vec<KeyId>,
}

/// Decides a batch and commits it.
pub fn apply(store: &dyn Store, rules: &Rules, batch: &Batch) -> Result<Applied, StoreError> {
    let (keys, collections) = names(batch);
    let names = store.intern(&keys, &collections)?;
    let mut unit = store.begin()?;
    let mut loaded = unit.load(&wants(batch, &names, rules))?;
    let mut loads = 1;
    let writes = loop {
        match decide(batch, &names, rules, &loaded) {
            Ok(writes) => break writes,
            Err(Undecided::Damaged(damaged)) => return Err(damaged.into()),
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
    Ok(Applied {
        position,
        loads,
        counts: writes.counts,
        worked: writes.worked,
        repair: writes.repair,
    })
}
