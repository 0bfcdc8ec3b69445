//! Deciding a batch: from events and rows to writes.
//!
//! In:    a batch, the numbers of its names, and the rows loaded so far.
//! Out:   the writes of one transaction, or the rows that must be loaded first.
//! Never: a second unit for one event; work that grows with what the batch releases.
//!
//! A caller interns the names ([`names`](crate::names)), loads [`wants`], and calls [`decide`] until it
//! returns writes: two loads normally, three at most.

use crate::account::{DUE_EPOCH, SLICE_MAX};
use crate::accounting::Outcome;
use crate::apply::At;
use crate::batch::{Batch, Event, Op, Order};
use crate::chain;
use crate::content::{Numbered, split};
use crate::ids::{ParkedId, Path};
use crate::park::{Why, content_of};
use crate::place::Things;
use crate::rows::{Account, Parked, Total};
use crate::rules::Rules;
use crate::step::{Step, each};
use crate::table::damaged;
use crate::value::{Cell, Damaged, Value};
use crate::wants::{Loaded, Names, Wants};
pub use crate::world::Undecided;
use crate::world::{Halt, World};
use crate::writes::Writes;

/// What a batch needs for certain: the first load.
pub fn wants(batch: &Batch, names: &Names, rules: &Rules) -> Wants {
    let nothing = Loaded::default();
    let mut world = World::new(rules, names, &nothing, (&batch.source, batch.now_us));
    let mut things = Things::new(operations(batch, rules));
    let mut step = Step::new(&mut world, &mut things);
    all(&mut step, batch).ok();
    // An account that is new begins in today's epoch.
    step.world
        .want::<Total>(vec![Value::Text(DUE_EPOCH.to_owned())]);
    let mut queued = batch.events.iter().filter_map(|(_, event)| match event {
        Event::Commit(commit) => Some(&commit.ops),
        _ => None,
    });
    if queued.any(|ops| {
        ops.iter()
            .any(|op| rules.queues.of(&op.collection).is_some())
    }) {
        step.ask_queues();
    }
    for (did, ops) in named(batch) {
        let author = step.world.key(did);
        for op in ops {
            let path = Path {
                author,
                collection: step.world.collection(&op.collection),
                rkey: op.rkey.clone(),
            };
            let numbered = Numbered::of(&op.verdict, names, rules.layout);
            step.apply().ask((&path, did, &op.collection), &numbered);
        }
    }
    world.missing
}

/// Every account and its operations, as far as they are known before anything is loaded.
fn named(batch: &Batch) -> Vec<(&str, &[Op])> {
    let mut named: Vec<(&str, &[Op])> = Vec::new();
    for (_, event) in &batch.events {
        if let Event::Commit(commit) = event {
            named.push((&commit.did, &commit.ops));
        }
    }
    for order in &batch.orders {
        match order {
            Order::Fetched { did, ops, .. } => named.push((did, ops)),
            Order::Repository(slice) => named.push((&slice.did, &slice.ops)),
            Order::Release { did, frames } => {
                let commits = frames.iter().flat_map(|frame| &frame.commit);
                named.extend(commits.map(|commit| (did.as_str(), &commit.ops[..])));
            }
            _ => {}
        }
    }
    named
}

/// Decides a batch with the rows loaded so far.
pub fn decide(
    batch: &Batch,
    names: &Names,
    rules: &Rules,
    loaded: &Loaded,
) -> Result<Writes, Undecided> {
    let mut world = World::new(rules, names, loaded, (&batch.source, batch.now_us));
    let mut things = Things::new(operations(batch, rules));
    let mut step = Step::new(&mut world, &mut things);
    all(&mut step, batch).map_err(Undecided::Damaged)?;
    things.regroup(&mut world);
    let mut writes = world.finish()?;
    writes.cursor = batch.cursor.map(|cursor| (batch.source.clone(), cursor));
    Ok(writes)
}

/// How many records a batch could touch.
fn operations(batch: &Batch, rules: &Rules) -> usize {
    let events = batch.events.iter().map(|(_, event)| match event {
        Event::Commit(commit) => commit.ops.len(),
        _ => 0,
    });
    let orders = batch.orders.iter().map(|order| match order {
        Order::Fetched { ops, .. } => ops.len(),
        Order::Retry(ids) | Order::GiveUp(ids) => ids.len(),
        Order::Drain(_) => rules.queues.quota_max,
        Order::Job { .. } => SLICE_MAX,
        Order::Repository(slice) => slice.ops.len() + SLICE_MAX,
        Order::Release { frames, .. } => {
            let commits = frames.iter().flat_map(|frame| &frame.commit);
            commits.map(|commit| commit.ops.len()).sum()
        }
        Order::Replay { .. } => 1,
        _ => 0,
    });
    let queued = match rules.queues.is_used() {
        true => rules.queues.quota_max,
        false => 0,
    };
    events.chain(orders).sum::<usize>() + queued
}

/// The damage that a decision met; one that lacks rows is made again later.
fn damage(done: Result<(), Halt>) -> Result<(), Damaged> {
    match done {
        Ok(()) | Err(Halt::Missing) => Ok(()),
        Err(Halt::Damaged(damaged)) => Err(damaged),
    }
}

/// Decides everything in order. What lacks a row leaves no trace, and the rest goes on, to find
/// out what else is missing.
fn all<'a>(step: &mut Step<'_, 'a>, batch: &'a Batch) -> Result<(), Damaged> {
    let asks = batch
        .orders
        .iter()
        .any(|order| matches!(order, Order::Queues));
    for (seq, event) in &batch.events {
        damage(self::event(step, *seq, event))?;
    }
    for one in &batch.orders {
        damage(order(step, one))?;
    }
    if asks || step.deferred.iter().any(|queue| !queue.is_empty()) {
        step.ask_queues();
        damage(step.work_queues())?;
    }
    Ok(())
}

fn event<'a>(step: &mut Step<'_, 'a>, seq: i64, event: &'a Event) -> Result<(), Halt> {
    let outcome = match event {
        Event::Commit(commit) => return step.commit(seq, commit),
        Event::Sync { did, rev, data } => {
            let data = data.as_ref().map(chain::digest);
            step.sync(did, *rev, data)?
        }
        Event::Account {
            did,
            status,
            time_us,
        } => step.status(did, *status, *time_us)?,
        Event::Identity {
            did,
            handle,
            time_us,
        } => step.identity(did, handle.as_deref(), *time_us)?,
        Event::Undecodable { did, fault, raw } => {
            return step.undecodable(seq, did.as_deref(), (fault, raw));
        }
        Event::Filtered(units) => {
            step.world.receive(Outcome::Filtered, units.cast_signed());
            return Ok(());
        }
    };
    step.world.receive(outcome, 1);
    Ok(())
}

fn order(step: &mut Step<'_, '_>, order: &Order) -> Result<(), Halt> {
    match order {
        Order::Fetched { did, rev, ops } => step.fetched(did, *rev, ops),
        Order::Repository(slice) => step.slice(slice),
        Order::RepositoryDone { did, rev, data } => {
            let data = data.as_ref().map(chain::digest);
            step.repository_done(did, *rev, data)
        }
        Order::Release { did, frames } => step.release(did, frames),
        Order::Replay { id, verdict } => step.replay(*id, verdict),
        Order::Discard(ids) => step.discard(ids),
        Order::Expire { before_us } => step.expire(*before_us),
        Order::Shrink => step.shrink(),
        Order::FirstRead {
            did,
            needed,
            waiting_max,
        } => step.first_read(did, *needed, *waiting_max),
        Order::Reader(_) => Ok(()), // its name has a number from now on
        Order::GaveUp(did) => step.give_up_reader(did),
        Order::FetchBegun(did) => step.fetch_begun(did),
        Order::FetchEnded(dids) => step.fetch_ended(dids),
        Order::AllDue => {
            step.all_due();
            Ok(())
        }
        Order::Heartbeat(report) => {
            step.heartbeat(report);
            Ok(())
        }
        Order::WrongClock(off_us) => step.wrong_clock(*off_us),
        Order::HostStatus { did, status } => step.host_status(did, *status),
        Order::Retry(ids) => each(ids, |id| retry(step, *id, Why::Due)),
        Order::GiveUp(ids) => each(ids, |id| retry(step, *id, Why::Excess)),
        Order::Job { account, at } => step.job(*account, at.as_deref()),
        Order::Listed(dids) => each(dids, |did| step.listed(did)),
        Order::Queues => Ok(()), // done at the end of every batch
        Order::Drain(queue) => step.drain(queue),
    }
}

/// Tries a parked record again.
fn retry(step: &mut Step<'_, '_>, id: ParkedId, why: Why) -> Result<(), Halt> {
    let Some(parked) = step.world.get::<Parked>(vec![id.to_value()])? else {
        return Ok(());
    };
    let (did, nsid, rkey) = split(&parked.uri).ok_or(damaged::<Parked>("uri"))?;
    let content = content_of(&parked)?;
    let content = step.world.renewed((did, nsid, rkey), content)?;
    let path = Path {
        author: parked.author,
        collection: parked.collection,
        rkey: parked.rkey.clone(),
    };
    let mut apply = step.apply();
    apply.ask_again((&path, did, nsid), &content);
    let account = apply.world.get::<Account>(vec![parked.author.to_value()])?;
    let at = At::of(&account.unwrap_or_default(), path, (did, nsid));
    let fate = apply.retry(&at, (&parked, &content), why)?;
    let writes = &mut step.world.writes;
    match parked.woken_us {
        Some(_) => writes.woken.push(fate),
        None => writes.fates.push(fate),
    }
    Ok(())
}
