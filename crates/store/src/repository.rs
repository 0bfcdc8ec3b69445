//! A repository that was fetched whole, given to a store slice by slice.
//!
//! In:    its records, by collection and key, and its revision.
//! Out:   the store holds what it holds, up to that revision; then its account is in step, or the
//!        frames that were held meanwhile are to be released.
//! Never: more in one transaction than a slice and what is stored beside it.

use std::collections::BTreeMap;

use decide::account::Repair;
use decide::account::SLICE_MAX;
use decide::batch::{Batch, Cid, Op, Order, Reached, Slice};
use decide::ids::{KeyId, Micros, Rev};
use decide::rows::{Account, Held};
use decide::rules::Rules;
use decide::value::Cell as _;

use crate::apply::{Applied, apply};
use crate::error::StoreError;
use crate::port::{Range, Rows, Snapshot, Store};

/// A repository. Of a collection that is kept and that it does not have, the list is empty; what is
/// stored of other collections is left alone.
#[derive(Debug, Clone)]
pub struct Repository {
    /// Whose counters move.
    pub source: String,
    pub did: String,
    pub rev: Rev,
    pub data: Option<Cid>,
    /// By collection and key.
    pub records: BTreeMap<String, BTreeMap<String, Op>>,
}

/// Replaces what is stored of a repository; says whether that was done. It is not while the account
/// is deleted. `tell` sees what each transaction did.
pub fn replace(
    store: &dyn Store,
    rules: &Rules,
    now_us: Micros,
    repository: Repository,
    tell: &mut dyn FnMut(Applied),
) -> Result<bool, StoreError> {
    let Repository {
        source,
        did,
        rev,
        data,
        records,
    } = repository;
    let mut give = |order: Order| {
        let batch = Batch {
            source: source.clone(),
            now_us,
            orders: vec![order],
            ..Batch::default()
        };
        let mut applied = apply(store, rules, &batch)?;
        let reached = applied.reached.pop().unwrap_or(Reached::Refused);
        tell(applied);
        Ok::<_, StoreError>(reached)
    };
    for (collection, mut left) in records {
        let mut after = None;
        loop {
            let through = left.keys().nth(SLICE_MAX).cloned();
            let rest = through.as_ref().map(|key| left.split_off(key));
            let mut ops: Vec<Op> = left.into_values().collect();
            left = rest.unwrap_or_default();
            let is_last = through.is_none();
            // A slice ends with its last record, so that the next one begins there.
            let through = ops.last().map(|op| op.rkey.clone()).filter(|_| !is_last);
            loop {
                let slice = Slice {
                    did: did.clone(),
                    rev,
                    collection: collection.clone(),
                    after: after.clone(),
                    through: through.clone(),
                    ops: ops.clone(),
                };
                match give(Order::Repository(slice))? {
                    Reached::End => break,
                    Reached::Refused => return Ok(false),
                    Reached::Key(key) => {
                        ops.retain(|op| op.rkey > key);
                        after = Some(key);
                    }
                }
            }
            after = through;
            if is_last {
                break;
            }
        }
    }
    Ok(give(Order::RepositoryDone { did, rev, data })? == Reached::End)
}

/// Accounts whose held frames are to be released, at most `max`.
pub fn releasing(snapshot: &dyn Snapshot, max: usize) -> Result<Vec<KeyId>, StoreError> {
    let range = Range {
        index: "account_by_repair",
        max,
        ..Range::of::<Account>(vec![Some(Repair::Releasing.code()).to_value()])
    };
    let rows = snapshot.range(&[range])?.pop().map(Rows::typed::<Account>);
    let rows = rows.transpose()?.unwrap_or_default();
    Ok(rows.into_iter().map(|account| account.key).collect())
}

/// The oldest frames that are held for an account, at most `max`.
pub fn held(snapshot: &dyn Snapshot, account: KeyId, max: usize) -> Result<Vec<Held>, StoreError> {
    let range = Range {
        max,
        ..Range::of::<Held>(vec![account.to_value()])
    };
    let rows = snapshot.range(&[range])?.pop().map(Rows::typed::<Held>);
    Ok(rows.transpose()?.unwrap_or_default())
}
