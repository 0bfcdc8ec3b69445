//! The one writer: a thread that takes batches and makes them durable.
//!
//! Whatever waits when it is free goes into one transaction (group commit).
//! If that fails, each batch is tried alone, so that one bad batch fails alone.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;

use rusqlite::{Connection, TransactionBehavior, params};

use super::accounts::Refusal;
use super::apply::Apply;
use super::derive::Ids;
use super::error::is_damage;
use super::head::Head;
use super::marks::{RowMark, Sources};
use super::memory::Memory;
use super::pending::Turn;
use super::{WRITER_CACHE, broken, outbox, rebuild, sql};
use crate::clock::Micros;
use crate::crash;
use crate::metrics as names;
use crate::store::attempt::Attempt;
use crate::store::batch::{Batch, DIRECT, Item};
use crate::store::measure;
use crate::store::plan::Plan;
use crate::store::writing::{Notes, Phase, Writing};
use crate::store::{Committed, StoreError};
use crate::wal::{self, Wal};

/// Batches waiting for the writer; one more and the sender waits.
const WAITING_MAX: usize = 64;
/// Items in one transaction.
const GROUP_ITEMS_MAX: usize = 20_000;

/// What became of a batch, and the batch: memory is cheapest given back where it was taken.
type Answer = SyncSender<(Result<Committed, StoreError>, Batch)>;

#[derive(Debug)]
struct Job {
    batch: Batch,
    answer: Answer,
}

/// A handle on the writer thread; dropping it ends the thread after its queue.
#[derive(Debug)]
pub(super) struct Writer {
    marks: Arc<Sources>,
    notes: Arc<Notes>,
    /// The process before this one ended with a record that waited.
    waiting_suspected: bool,
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread on a connection of its own.
    pub(super) fn start(
        (connection, rows): (Connection, RowMark),
        plan: Arc<Plan>,
        ids: Ids,
        settings: &crate::config::Store,
        head: &Arc<Head>,
    ) -> Result<Self, StoreError> {
        let (jobs, queue) = sync_channel(WAITING_MAX);
        let mut desk = Desk::new((connection, rows), plan, ids, settings, head)?;
        let notes = Arc::clone(&desk.notes);
        let marks = Arc::clone(&desk.marks);
        let waiting_suspected = desk.rows.is_suspecting();
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || desk.run(&queue))
            .map_err(|error| StoreError::Passing(error.to_string()))?;
        Ok(Self {
            marks,
            notes,
            waiting_suspected,
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Hands over a batch and waits until it is durable.
    pub(super) fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        let (answer, reply) = sync_channel(1);
        let gone = || {
            let cause = broken("the writer thread has ended; restart the process".into());
            self.notes.damaged(&cause);
            cause
        };
        let number = self.notes.handed_over(batch.now_us);
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        let sent = jobs.send(Job { batch, answer });
        let answered = sent.map_err(|_| gone()).and_then(|()| {
            let (result, _batch) = reply.recv().map_err(|_| gone())?;
            result
        });
        self.notes.answered(number);
        answered
    }

    /// Marks the batches of a source while they are worked on.
    pub(super) fn mark(&self, source: &str, attempt: Arc<Attempt>) {
        self.marks.insert(source, attempt);
    }

    pub(super) fn waiting_suspected(&self) -> bool {
        self.waiting_suspected
    }

    /// An error of somebody who reads, noted if it is damage.
    pub(super) fn noted(&self, error: rusqlite::Error) -> StoreError {
        let is_damage = is_damage(&error);
        let error = sql(error);
        if is_damage {
            self.notes.damaged(&error);
        }
        error
    }

    /// What the thread is doing.
    pub(super) fn writing(&self) -> Writing {
        self.notes.read()
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
    marks: Arc<Sources>,
    rows: RowMark,
    connection: Connection,
    plan: Arc<Plan>,
    ids: Ids,
    memory: Memory,
    outbox: outbox::Keep,
    head: Arc<Head>,
    notes: Arc<Notes>,
    /// Changes when another process has written, and what is remembered may not be so.
    version: i64,
    wal: Wal,
    /// Whether a commit waits until the disk has it.
    syncs: bool,
}

impl Desk {
    fn new(
        (connection, rows): (Connection, RowMark),
        plan: Arc<Plan>,
        ids: Ids,
        settings: &crate::config::Store,
        head: &Arc<Head>,
    ) -> Result<Self, StoreError> {
        let wal = Wal::limit("store", &connection, settings.wal_mib_max).map_err(sql)?;
        Ok(Self {
            marks: Arc::default(),
            rows,
            connection,
            plan,
            ids,
            memory: Memory::beside(settings.cache_mib.saturating_mul(WRITER_CACHE)),
            outbox: outbox::Keep {
                changes_max: settings.outbox_max,
                bytes_max: settings.outbox_bytes_max,
            },
            head: Arc::clone(head),
            notes: Arc::new(Notes::default()),
            version: 0,
            wal,
            syncs: false,
        })
    }

    /// The next job; meanwhile a log that is too large is cut back as soon as readers allow it.
    fn next(&mut self, queue: &Receiver<Job>) -> Option<Job> {
        while self.wal.is_over() {
            match queue.recv_timeout(wal::PAUSE) {
                Err(RecvTimeoutError::Timeout) => self.wal.cut(&self.connection),
                received => return received.ok(),
            }
        }
        queue.recv().ok()
    }

    fn run(&mut self, queue: &Receiver<Job>) {
        while let Some(first) = self.next(queue) {
            let mut items = first.batch.items.len();
            let mut jobs = vec![first];
            while items < GROUP_ITEMS_MAX {
                let Ok(job) = queue.try_recv() else { break };
                items += job.batch.items.len();
                jobs.push(job);
            }
            self.serve_all(jobs);
        }
    }

    /// Serves jobs together, except for those that are suspected; before them what waited and is.
    fn serve_all(&mut self, jobs: Vec<Job>) {
        let now_us = jobs.iter().map(|job| job.batch.now_us).max();
        if let Err(error) = self.clear_suspicion(now_us.unwrap_or_default()) {
            for job in jobs {
                drop(job.answer.send((Err(error.clone()), job.batch)));
            }
            return;
        }
        let mut together = Vec::new();
        for job in jobs {
            if self.marks.suspects(&job.batch) {
                self.serve(std::mem::take(&mut together));
                self.serve(vec![job]);
            } else {
                together.push(job);
            }
        }
        self.serve(together);
    }

    /// Works on the record with which the process before this one ended, and on those before it, in transactions of
    /// their own, so that nothing else is blamed if it ends again.
    fn clear_suspicion(&mut self, now_us: Micros) -> Result<(), StoreError> {
        while self.rows.is_suspecting() {
            let Some(work) = self.rows.next(&self.connection).map_err(sql)? else {
                self.rows.passed();
                break;
            };
            let is_last = self.rows.is_last(&work);
            self.transaction(&[&Batch::of_no_source(now_us, work)])?;
            if is_last {
                self.rows.passed();
            }
        }
        Ok(())
    }

    fn serve(&mut self, jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
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
        // The newest: the thread was busy with others before.
        let now_us = batches.iter().map(|batch| batch.now_us).max();
        let now_us = now_us.unwrap_or_default();
        let result = self.attempt(batches, now_us);
        self.rows.end();
        self.rows.reset(result.is_err());
        self.marks.each(batches, Attempt::end);
        match &result {
            Ok(_) => self.notes.ended(now_us, None),
            Err(error) => {
                self.memory.forget();
                self.notes.ended(now_us, Some(error));
            }
        }
        result
    }

    /// Whoever wrote directly was told that it is done, and cannot send it again as a stream does:
    /// a group with such a write is on the disk before it is answered.
    fn sync_for(&mut self, batches: &[&Batch]) -> Result<(), StoreError> {
        let syncs = batches.iter().any(|batch| batch.source == DIRECT);
        if self.syncs != syncs {
            let mode = if syncs { "FULL" } else { "NORMAL" };
            let set = self.connection.pragma_update(None, "synchronous", mode);
            set.map_err(sql)?;
            self.syncs = syncs;
        }
        Ok(())
    }

    fn attempt(
        &mut self,
        batches: &[&Batch],
        now_us: Micros,
    ) -> Result<Vec<Committed>, StoreError> {
        self.sync_for(batches)?;
        self.notes.phase(Phase::Locking, now_us);
        let begun = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate);
        let tx = begun.map_err(sql)?;
        self.marks.each(batches, Attempt::begin);
        self.notes.phase(Phase::Applying, now_us);
        let version = version(&tx)?;
        if self.version != version {
            rebuild::hold(&tx, &self.ids).map_err(sql)?;
            self.memory.forget();
            self.version = version;
        }
        let mut done = Vec::with_capacity(batches.len());
        let mut head = outbox::head(&tx).map_err(sql)?;
        for batch in batches {
            let fixed = Fixed {
                plan: &self.plan,
                ids: &self.ids,
                rows: &self.rows,
                suspected: self.marks.suspects(batch),
            };
            let applied = apply_batch(&tx, &mut self.memory, fixed, batch, head)?;
            head = applied.position;
            done.push(applied);
        }
        // Things are regrouped once, however many batches touched them.
        let mut regrouped = Vec::new();
        self.memory
            .edits
            .regroup(&tx, &mut regrouped)
            .map_err(sql)?;
        head = outbox::append(&tx, head, &regrouped).map_err(sql)?;
        for committed in &mut done {
            committed.position = head;
        }
        self.memory.settle(&tx).map_err(sql)?;
        outbox::trim(&tx, head, self.outbox).map_err(sql)?;
        crash::point("commit.before");
        // From here on only the disk is waited for, whatever the records are.
        self.rows.end();
        self.marks.each(batches, Attempt::end);
        self.notes.phase(Phase::Committing, now_us);
        tx.commit().map_err(sql)?;
        crash::point("commit.after");
        self.head.publish(head);
        let sync = if self.syncs { "full" } else { "normal" };
        ::metrics::counter!(names::STORE_COMMITS, "sync" => sync).increment(1);
        done.iter().for_each(measure::count);
        self.wal.committed(&self.connection);
        Ok(done)
    }
}

/// What a batch is applied with and does not change.
#[derive(Clone, Copy)]
struct Fixed<'a> {
    plan: &'a Plan,
    ids: &'a Ids,
    rows: &'a RowMark,
    suspected: bool,
}

/// Applies one batch within a transaction, after `head`.
fn apply_batch(
    tx: &Connection,
    memory: &mut Memory,
    fixed: Fixed<'_>,
    batch: &Batch,
    head: i64,
) -> Result<Committed, StoreError> {
    let Fixed { plan, ids, .. } = fixed;
    let mut apply = Apply {
        tx,
        memory,
        plan,
        ids,
        rows: fixed.rows,
        suspected: fixed.suspected,
        source: &batch.source,
        seq: 0,
        now_us: batch.now_us,
        tally: Default::default(),
        moves: Default::default(),
        changes: Vec::with_capacity(batch.items.len()),
        broken: Vec::new(),
        live: Default::default(),
        others: Default::default(),
        released: Vec::new(),
        parked_some: false,
        fates: Vec::new(),
        woken: Vec::new(),
        turn: Turn::new(tx, plan).map_err(sql)?,
        origin: None,
        buried: Default::default(),
        closed: Default::default(),
    };
    apply_all(&mut apply, &batch.items)?;
    record(apply, batch, head)
}

/// Writes what a batch changed behind `head`, its counters and its cursor.
fn record(apply: Apply<'_>, batch: &Batch, head: i64) -> Result<Committed, StoreError> {
    let (tx, plan, arrived) = (apply.tx, apply.plan, apply.tally);
    let mut total = arrived;
    total.add(&apply.moves);
    let position = outbox::append(tx, head, &apply.changes).map_err(sql)?;
    count_live(tx, apply.live).map_err(sql)?;
    crash::point("commit.before-cursor");
    for (source, moved) in &apply.others {
        account_for(tx, source, None, batch.now_us, moved).map_err(sql)?;
    }
    if !batch.source.is_empty() {
        account_for(tx, &batch.source, batch.cursor, batch.now_us, &total).map_err(sql)?;
    }
    let buried = apply.buried.into_iter();
    Ok(Committed {
        accounting: total,
        arrived,
        position,
        broken: apply.broken,
        fates: apply.fates,
        woken: apply.woken,
        worked: apply.turn.worked(plan),
        buried: buried
            .map(|((stage, collection), count)| (stage, collection, count))
            .collect(),
        closed: apply.closed.into_iter().collect(),
    })
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
                StoreError::Stale("frames were held meanwhile; prepare the snapshot again")
            }
        })?;
    }
    apply.take_turn().map_err(sql)?;
    apply.bury_excess().map_err(sql)?;
    apply.bound_dead().map_err(sql)?;
    let all = || apply.others.values().chain([&apply.tally, &apply.moves]);
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
    now_us: Micros,
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

#[cfg(test)]
mod tests;
