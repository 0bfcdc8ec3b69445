//! Next-batch work: what is to be done although nobody sends anything.
//!
//! In:    a snapshot, and the time.
//! Out:   orders for one batch, each of bounded size; none when nothing is due.
//! Never: a decision. An order that is out of date when its batch is decided does nothing.
//!
//! What would make a batch grow without bound (a record that releases others, a
//! queue that is behind) is left to later batches, and this is how they learn of it.

use std::collections::BTreeSet;

use decide::batch::Order;
use decide::dead::DEAD_BYTES;
use decide::ids::{Micros, ParkedId};
use decide::rows::{Account, Depth, Outcomes, Parked, Pending, Total};
use decide::rules::Rules;
use decide::table::{Row, damaged};
use decide::value::{Cell as _, Value};

use crate::error::StoreError;
use crate::port::{Range, Rows, Snapshot};

/// Parked records tried in one batch.
const RETRIES_MAX: usize = if cfg!(debug_assertions) { 5 } else { 1_000 };
/// Bytes of parked records tried in one batch; one record is tried whatever its size.
pub const RETRY_BYTES_MAX: usize = if cfg!(debug_assertions) {
    4_000
} else {
    8 << 20
};

/// What waits in one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub queue: String,
    pub operations: i64,
    /// When the first of them came.
    pub since_us: Option<Micros>,
}

/// The orders of the next batch.
pub fn next(
    snapshot: &dyn Snapshot,
    rules: &Rules,
    now_us: Micros,
) -> Result<Vec<Order>, StoreError> {
    let mut orders = Vec::new();
    let mut due = waiters(snapshot, "parked_by_woken", RETRIES_MAX)?;
    let paused = waiters(snapshot, "parked_by_due", RETRIES_MAX)?;
    due.extend(paused.into_iter().filter(|one| one.at_us <= now_us));
    let ids = within(due, RETRY_BYTES_MAX);
    if !ids.is_empty() {
        orders.push(Order::Retry(ids));
    }
    orders.extend(job(snapshot)?);
    let bytes = Range::of::<Total>(vec![Value::Text(DEAD_BYTES.to_owned())]);
    let bytes = snapshot.range(&[bytes])?.pop().map(Rows::typed::<Total>);
    let bytes = bytes.transpose()?.unwrap_or_default();
    if bytes.iter().any(|total| total.n > rules.dead_bytes_max) {
        orders.push(Order::Shrink);
    }
    orders.extend(excess(snapshot, rules)?);
    for depth in first::<Depth>(snapshot, "", usize::MAX)? {
        let known = rules.queues.list.iter().any(|one| one.name == depth.queue);
        let used = known && rules.queues.is_used();
        match depth.n > 0 {
            true if used => orders.push(Order::Queues),
            true => orders.push(Order::Drain(depth.queue)),
            false => {}
        }
    }
    orders.dedup_by(|a, b| matches!((a, b), (Order::Queues, Order::Queues)));
    Ok(orders)
}

/// Parked records beyond the limit: those that would be tried first.
fn excess(snapshot: &dyn Snapshot, rules: &Rules) -> Result<Option<Order>, StoreError> {
    let outcomes = first::<Outcomes>(snapshot, "", usize::MAX)?;
    let parked = outcomes.iter().filter(|row| row.outcome == "parked");
    let parked: i64 = parked.map(|row| row.n).sum();
    let beyond = parked.saturating_sub(i64::try_from(rules.parked_max).unwrap_or(i64::MAX));
    let beyond = usize::try_from(beyond).unwrap_or(0).min(RETRIES_MAX);
    if beyond == 0 {
        return Ok(None);
    }
    let oldest = waiters(snapshot, "parked_by_due", beyond)?;
    Ok(Some(Order::GiveUp(within(oldest, RETRY_BYTES_MAX))))
}

/// The first account with a job: its next slice.
fn job(snapshot: &dyn Snapshot) -> Result<Option<Order>, StoreError> {
    let account = first::<Account>(snapshot, "account_by_job", 1)?.pop();
    Ok(account.map(|account| Order::Job {
        account: account.key,
        at: account.job_at,
    }))
}

/// A parked record in an order of time.
#[derive(Debug)]
struct Waiter {
    at_us: Micros,
    id: ParkedId,
    bytes: usize,
}

/// The first parked records in an order, without their texts.
fn waiters(
    snapshot: &dyn Snapshot,
    index: &'static str,
    max: usize,
) -> Result<Vec<Waiter>, StoreError> {
    let range = Range {
        index,
        max,
        ..Range::of::<Parked>(Vec::new())
    };
    let waiter = |row: Vec<Value>| match &row[..] {
        [Value::Int(at_us), Value::Int(id), Value::Int(bytes)] => Ok(Waiter {
            at_us: *at_us,
            id: ParkedId(*id),
            bytes: usize::try_from(*bytes).unwrap_or_default(),
        }),
        _ => Err(damaged::<Parked>("bytes").into()),
    };
    keys(snapshot, range)?.into_iter().map(waiter).collect()
}

/// Each record once, as many as fit into `bytes_max`, and one if there is any.
fn within(waiters: Vec<Waiter>, bytes_max: usize) -> Vec<ParkedId> {
    let mut bytes = 0;
    let (mut ids, mut seen) = (Vec::new(), BTreeSet::new());
    for one in waiters {
        bytes += one.bytes;
        if !ids.is_empty() && (bytes > bytes_max || ids.len() == RETRIES_MAX) {
            break;
        }
        if seen.insert(one.id) {
            ids.push(one.id);
        }
    }
    ids
}

fn keys(snapshot: &dyn Snapshot, range: Range) -> Result<Vec<Vec<Value>>, StoreError> {
    Ok(snapshot.keys(&[range])?.pop().unwrap_or_default())
}

/// How much waits in each queue, and since when.
pub fn waiting(snapshot: &dyn Snapshot) -> Result<Vec<Waiting>, StoreError> {
    let depths = first::<Depth>(snapshot, "", usize::MAX)?;
    let oldest = |depth: &Depth| Range {
        max: 1,
        ..Range::of::<Pending>(vec![depth.queue.to_value()])
    };
    let oldest: Vec<Range> = depths.iter().map(oldest).collect();
    let oldest = snapshot.range(&oldest)?;
    let each = depths.into_iter().zip(oldest);
    each.map(|(depth, oldest)| {
        let oldest = oldest.typed::<Pending>()?.pop();
        Ok(Waiting {
            queue: depth.queue,
            operations: depth.n,
            since_us: oldest.map(|row| row.seen_us),
        })
    })
    .collect()
}

/// The first rows of a table in one order.
fn first<R: Row>(
    snapshot: &dyn Snapshot,
    index: &'static str,
    max: usize,
) -> Result<Vec<R>, StoreError> {
    let range = Range {
        index,
        max,
        ..Range::of::<R>(Vec::new())
    };
    let mut found = snapshot.range(&[range])?;
    found.pop().map_or_else(|| Ok(Vec::new()), Rows::typed)
}
