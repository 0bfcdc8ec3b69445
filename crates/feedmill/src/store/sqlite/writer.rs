//! The one writer: a thread that takes batches and makes them durable.
//!
//! Whatever waits when it is free goes into one transaction (group commit).
//! If that fails, each batch is tried alone, so that one bad batch fails alone.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rusqlite::{Connection, TransactionBehavior, params};

use super::accounts::Refusal;
use super::apply::Apply;
use super::derive::Ids;
use super::memory::Memory;
use super::pending::Turn;
use super::{WRITER_CACHE, broken, outbox, rebuild, sql};
use crate::crash;
use crate::store::batch::{Batch, Item};
use crate::store::plan::Plan;
use crate::store::{Committed, StoreError};

/// Batches waiting for the writer; one more and the sender waits.
const WAITING_MAX: usize = 64;
/// Items in one transaction.
const GROUP_ITEMS_MAX: usize = 20_000;

/// What became of a batch, and the batch: memory is cheapest given back where it was taken.
type Answer = SyncSender<(Result<Committed, StoreError>, Batch)>;

/// The newest position this process has written, for those who wait for it.
#[derive(Debug, Default)]
struct Head {
    position: Mutex<i64>,
    moved: Condvar,
}

#[derive(Debug)]
struct Job {
    batch: Batch,
    answer: Answer,
}

/// A handle on the writer thread; dropping it ends the thread after its queue.
#[derive(Debug)]
pub(super) struct Writer {
    head: Arc<Head>,
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread on a connection of its own.
    pub(super) fn start(
        connection: Connection,
        plan: Arc<Plan>,
        ids: Ids,
        settings: &crate::config::Store,
    ) -> Result<Self, StoreError> {
        let (jobs, queue) = sync_channel(WAITING_MAX);
        let head = Arc::new(Head::default());
        let mut desk = Desk {
            connection,
            plan,
            ids,
            memory: Memory::beside(settings.cache_mib.saturating_mul(WRITER_CACHE)),
            outbox_max: settings.outbox_max,
            head: Arc::clone(&head),
            version: 0,
        };
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || desk.run(&queue))
            .map_err(|error| StoreError::Passing(error.to_string()))?;
        Ok(Self {
            head,
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Hands over a batch and waits until it is durable.
    pub(super) fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        let (answer, reply) = sync_channel(1);
        let gone = || StoreError::Broken("the writer thread has ended".into());
        self.jobs
            .as_ref()
            .ok_or_else(gone)?
            .send(Job { batch, answer })
            .map_err(|_| gone())?;
        let (result, _batch) = reply.recv().map_err(|_| gone())?;
        result
    }
}

impl Writer {
    /// Waits until something after `position` was written, or `patience` is over.
    pub(super) fn wait(&self, position: i64, patience: Duration) {
        let mut head = self.head.position.lock();
        if *head <= position {
            // Whether it moved or time ran out, the caller looks for himself.
            self.head.moved.wait_for(&mut head, patience);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the writer has been seen by every caller already.
            drop(thread.join());
        }
    }
}

struct Desk {
    connection: Connection,
    plan: Arc<Plan>,
    ids: Ids,
    memory: Memory,
    outbox_max: u64,
    head: Arc<Head>,
    /// Changes when another process has written, and what is remembered may not be so.
    version: i64,
}

impl Desk {
    fn run(&mut self, queue: &Receiver<Job>) {
        while let Ok(first) = queue.recv() {
            let mut items = first.batch.items.len();
            let mut jobs = vec![first];
            while items < GROUP_ITEMS_MAX {
                let Ok(job) = queue.try_recv() else { break };
                items += job.batch.items.len();
                jobs.push(job);
            }
            self.serve(jobs);
        }
    }

    fn serve(&mut self, jobs: Vec<Job>) {
        let batches: Vec<&Batch> = jobs.iter().map(|job| &job.batch).collect();
        match self.transaction(&batches) {
            Ok(done) => {
                for (job, committed) in jobs.into_iter().zip(done) {
                    // A caller that no longer waits has its work done all the same.
                    drop(job.answer.send((Ok(committed), job.batch)));
                }
            }
            Err(error) if jobs.len() == 1 => {
                for job in jobs {
                    drop(job.answer.send((Err(error.clone()), job.batch)));
                }
            }
            Err(_) => {
                for job in jobs {
                    self.serve(vec![job]);
                }
            }
        }
    }

    fn transaction(&mut self, batches: &[&Batch]) -> Result<Vec<Committed>, StoreError> {
        let result = self.attempt(batches);
        if result.is_err() {
            self.memory.forget();
        }
        result
    }

    fn attempt(&mut self, batches: &[&Batch]) -> Result<Vec<Committed>, StoreError> {
        let begun = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate);
        let tx = begun.map_err(sql)?;
        let version = version(&tx)?;
        if self.version != version {
            rebuild::hold(&tx, &self.ids).map_err(sql)?;
            self.memory.forget();
            self.version = version;
        }
        let mut done = Vec::with_capacity(batches.len());
        let mut head = outbox::head(&tx).map_err(sql)?;
        for batch in batches {
            let mut apply = Apply {
                tx: &tx,
                memory: &mut self.memory,
                plan: &self.plan,
                ids: &self.ids,
                source: &batch.source,
                cursor: batch.cursor.unwrap_or_default(),
                now_us: batch.now_us,
                tally: Default::default(),
                changes: Vec::with_capacity(batch.items.len()),
                broken: Vec::new(),
                live: Default::default(),
                others: Default::default(),
                released: Vec::new(),
                parked_some: false,
                fates: Vec::new(),
                turn: Turn::new(&tx, &self.plan).map_err(sql)?,
                origin: None,
                buried: Default::default(),
            };
            apply_all(&mut apply, &batch.items)?;
            let (changes, tally, broken, live) =
                (apply.changes, apply.tally, apply.broken, apply.live);
            let (others, fates, turn, buried) =
                (apply.others, apply.fates, apply.turn, apply.buried);
            head = outbox::append(&tx, head, &changes).map_err(sql)?;
            count_live(&tx, live).map_err(sql)?;
            crash::point("commit.before-cursor");
            for (source, moved) in &others {
                account_for(&tx, source, None, batch.now_us, moved).map_err(sql)?;
            }
            if !batch.source.is_empty() {
                account_for(&tx, &batch.source, batch.cursor, batch.now_us, &tally).map_err(sql)?;
            }
            done.push(Committed {
                accounting: tally,
                position: head,
                broken,
                fates,
                worked: turn.worked(&self.plan),
                buried: buried
                    .into_iter()
                    .map(|((stage, collection), count)| (stage, collection, count))
                    .collect(),
            });
        }
        self.memory.settle(&tx).map_err(sql)?;
        outbox::trim(&tx, head, self.outbox_max).map_err(sql)?;
        crash::point("commit.before");
        tx.commit().map_err(sql)?;
        crash::point("commit.after");
        *self.head.position.lock() = head;
        self.head.moved.notify_all();
        Ok(done)
    }
}

/// Counts the records of collections that came and went.
fn count_live(
    tx: &Connection,
    live: impl IntoIterator<Item = (i64, i64)>,
) -> Result<(), rusqlite::Error> {
    let mut count = tx.prepare_cached("UPDATE collection SET live = live + ?2 WHERE id = ?1")?;
    for (collection, delta) in live {
        count.execute(params![collection, delta])?;
    }
    Ok(())
}

/// Another number than before: another process has written meanwhile.
fn version(tx: &Connection) -> Result<i64, StoreError> {
    tx.pragma_query_value(None, "data_version", |row| row.get(0))
        .map_err(sql)
}

fn apply_all<'a>(apply: &mut Apply<'a>, items: &'a [Item]) -> Result<(), StoreError> {
    for item in items {
        apply.item(item).map_err(|refusal| match refusal {
            Refusal::Sql(error) => sql(error),
            Refusal::Stale => {
                StoreError::Passing("frames were held meanwhile; prepare the snapshot again".into())
            }
        })?;
    }
    apply.take_turn().map_err(sql)?;
    apply.bury_excess().map_err(sql)?;
    let all = || apply.others.values().chain([&apply.tally]);
    if !all().all(crate::store::Accounting::adds_up) {
        return Err(broken(format!(
            "the accounting of a batch does not add up: {:?} {:?}",
            apply.tally, apply.others
        )));
    }
    Ok(())
}

fn account_for(
    tx: &Connection,
    source: &str,
    cursor: Option<i64>,
    now_us: crate::clock::Micros,
    tally: &crate::store::Accounting,
) -> Result<(), rusqlite::Error> {
    tx.prepare_cached(
        "INSERT INTO source (name, cursor, updated_us, applied, repeated, superseded, filtered, pending, parked, held, dead, received)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
         ON CONFLICT (name) DO UPDATE SET cursor = coalesce(excluded.cursor, cursor), updated_us = excluded.updated_us,
            applied = applied + excluded.applied, repeated = repeated + excluded.repeated,
            superseded = superseded + excluded.superseded, filtered = filtered + excluded.filtered,
            pending = pending + excluded.pending, parked = parked + excluded.parked, held = held + excluded.held,
            dead = dead + excluded.dead, received = received + excluded.received",
    )?
    .execute(params![
        source, cursor, now_us, tally.applied, tally.repeated, tally.superseded, tally.filtered,
        tally.pending, tally.parked, tally.held, tally.dead, tally.received
    ])?;
    Ok(())
}
