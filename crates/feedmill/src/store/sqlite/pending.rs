//! What waits in queues: in memory until the batch ends, else in the store.
//!
//! In:    checked operations of a batch, and those that waited before.
//! Out:   as many of them applied as one turn takes, the most urgent first;
//!        the rest as rows, in the transaction that moves the cursor.
//! Never: an operation before an older one of its queue; an account or sync
//!        event before what its account said earlier; a unit counted twice.
//!
//! Where no queues are configured nothing is put off: there is nobody to
//! prefer. Rows left by an earlier configuration are still worked off.

use decide::accounting::Outcome;
use record::cid::Cid;
use rusqlite::{Connection, Error, OptionalExtension, params};

use super::apply::{Apply, Author, Stamp};
use super::derive;
use super::marks::accused;
use super::names::find_collection;
use crate::clock::Micros;
use crate::store::batch::{DeadLetter, Item, Op, Put, Verdict, Waiting};
use crate::store::plan::Plan;
use crate::store::queue::{Depth, Worked};

/// Where and when an operation came that waited.
#[derive(Debug)]
pub(super) struct Origin {
    source: String,
    cursor: i64,
    seen_us: Micros,
}

/// An operation of this batch that waits for its end.
#[derive(Debug, Clone, Copy)]
struct Deferred<'a> {
    /// Its place in the batch.
    number: usize,
    author: Author<'a>,
    stamp: Stamp,
    op: &'a Op,
    /// The number of the event that brought it.
    seq: i64,
}

/// One batch's queues.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    /// Operations are put off at all.
    defers: bool,
    /// There are rows.
    stored: bool,
    /// What waits is to be worked on, although the batch brings nothing.
    pub(super) asked: bool,
    number: usize,
    lines: Vec<Vec<Deferred<'a>>>,
    /// By queue: (done, spilled).
    worked: Vec<(u64, u64)>,
}

impl Turn<'_> {
    pub(super) fn new(tx: &Connection, plan: &Plan) -> Result<Self, Error> {
        let stored: bool = tx
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM pending)")?
            .query_row([], |row| row.get(0))?;
        let queues = plan.queues.list.len();
        Ok(Self {
            defers: stored || plan.queues.is_used(),
            stored,
            asked: false,
            number: 0,
            lines: vec![Vec::new(); queues],
            worked: vec![(0, 0); queues],
        })
    }

    fn done(&mut self, queue: usize) {
        if let Some((done, _)) = self.worked.get_mut(queue) {
            *done += 1;
        }
    }

    /// What was done for each queue.
    pub(super) fn worked(&self, plan: &Plan) -> Vec<Worked> {
        let all = plan.queues.list.iter().zip(&self.worked);
        all.filter(|(_, worked)| **worked != (0, 0))
            .map(|(queue, (done, spilled))| Worked {
                queue: queue.name.clone(),
                done: *done,
                spilled: *spilled,
            })
            .collect()
    }
}

impl<'a> Apply<'a> {
    /// The source and cursor of the operation that is worked on.
    pub(super) fn origin(&self) -> (String, i64) {
        match &self.origin {
            Some(origin) => (origin.source.clone(), origin.cursor),
            None => (self.source.to_owned(), self.seq),
        }
    }

    /// When the operation that is worked on was first seen.
    pub(super) fn seen_us(&self) -> Micros {
        self.origin
            .as_ref()
            .map_or(self.now_us, |origin| origin.seen_us)
    }

    /// Applies an operation now, or puts it off to the end of the batch.
    pub(super) fn queue(
        &mut self,
        queue: usize,
        author: Author<'a>,
        stamp: Stamp,
        op: &'a Op,
    ) -> Result<(), Error> {
        if !self.turn.defers {
            self.turn.done(queue);
            return self.op(author, stamp, op);
        }
        self.turn.number += 1;
        let deferred = Deferred {
            number: self.turn.number,
            author,
            stamp,
            op,
            seq: self.seq,
        };
        if let Some(line) = self.turn.lines.get_mut(queue) {
            line.push(deferred);
        }
        Ok(())
    }

    /// Before an account or a repository as a whole changes, everything that it said before is done.
    pub(super) fn barrier(&mut self, item: &Item) -> Result<(), Error> {
        let did = match item {
            Item::Account { did, .. } | Item::Standing { did, .. } | Item::Sync { did, .. } => did,
            Item::Snapshot(snapshot) => &snapshot.did,
            _ => return Ok(()),
        };
        if !self.turn.defers {
            return Ok(());
        }
        let Some(key) = self.memory.known_key(self.tx, did)? else {
            return Ok(());
        };
        if self.turn.stored {
            let mut statement = self
                .tx
                .prepare_cached("SELECT id FROM pending WHERE author = ?1 ORDER BY id")?;
            let ids: Vec<i64> = statement
                .query_map([key], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            drop(statement);
            for id in ids {
                self.work_off(id)?;
            }
            self.rows_done();
        }
        let mut theirs = Vec::new();
        for (queue, line) in self.turn.lines.iter_mut().enumerate() {
            theirs.extend(
                line.extract_if(.., |it| it.author.key == key)
                    .map(|it| (it.number, queue, it)),
            );
        }
        theirs.sort_unstable_by_key(|(number, _, _)| *number);
        let seq = self.seq;
        for (_, queue, it) in theirs {
            self.turn.done(queue);
            self.seq = it.seq;
            self.op(it.author, it.stamp, it.op)?;
        }
        self.seq = seq;
        Ok(())
    }

    /// The end of a batch: the most urgent is done, the rest becomes rows.
    pub(super) fn take_turn(&mut self) -> Result<(), Error> {
        let brought = self.turn.lines.iter().any(|line| !line.is_empty());
        let waited = self.turn.asked && self.turn.stored;
        if !brought && !waited {
            return Ok(());
        }
        let lines = std::mem::take(&mut self.turn.lines);
        if self.suspected {
            return self.spill_all(&lines);
        }
        let queues = &self.plan.queues;
        let mut stored = Vec::with_capacity(lines.len());
        let mut waiting = Vec::with_capacity(lines.len());
        for (index, (line, queue)) in lines.iter().zip(&queues.list).enumerate() {
            let rows = self.oldest(index)?;
            waiting.push(rows.len() + line.len().min(queue.depth_max));
            stored.push(rows);
        }
        let shares = queues.shares(&waiting);
        for queue in queues.order() {
            let (Some(rows), Some(line), Some(&share)) =
                (stored.get(queue), lines.get(queue), shares.get(queue))
            else {
                continue;
            };
            // Whoever waits in the store came before all of this batch.
            for id in rows.iter().take(share) {
                self.work_off(*id)?;
            }
            self.rows_done();
            let fresh = share.saturating_sub(rows.len());
            for it in line.iter().take(fresh) {
                self.turn.done(queue);
                self.seq = it.seq;
                self.op(it.author, it.stamp, it.op)?;
            }
            for it in line.iter().skip(fresh) {
                self.spill(queue, it)?;
            }
        }
        Ok(())
    }

    fn spill_all(&mut self, lines: &[Vec<Deferred<'_>>]) -> Result<(), Error> {
        for (queue, line) in lines.iter().enumerate() {
            for it in line {
                self.spill(queue, it)?;
            }
        }
        Ok(())
    }

    /// The batch's own work goes on after records that waited. Where it has none, they are meant until all is written.
    pub(super) fn rows_done(&self) {
        if !self.source.is_empty() {
            self.rows.end();
        }
    }

    /// Works on these records that waited.
    pub(super) fn work(&mut self, rows: &[Waiting]) -> Result<(), Error> {
        for row in rows {
            match row {
                Waiting::Pending(id) => self.work_off(*id)?,
                Waiting::Parked(id) => self.try_parked(*id)?,
            }
        }
        self.release()
    }

    /// Makes a record that waited a dead letter, without looking into it.
    pub(super) fn accuse(&mut self, row: Waiting) -> Result<(), Error> {
        match row {
            Waiting::Pending(id) => {
                let Some(row) = self.row(id, true)? else {
                    return Ok(());
                };
                self.work_off_row(id, row)
            }
            Waiting::Parked(id) => self.accuse_parked(id),
        }
    }

    /// The first rows of a queue, no more than a turn could take.
    fn oldest(&self, queue: usize) -> Result<Vec<i64>, Error> {
        if !self.turn.stored {
            return Ok(Vec::new());
        }
        self.tx
            .prepare_cached("SELECT id FROM pending WHERE queue = ?1 ORDER BY id LIMIT ?2")?
            .query_map(
                params![queue as i64, self.plan.queues.quota_max as i64],
                |row| row.get(0),
            )?
            .collect()
    }

    fn spill(&mut self, queue: usize, it: &Deferred<'_>) -> Result<(), Error> {
        let collection = self.memory.collection(self.tx, &it.op.collection)?;
        let (put, letter) = match &it.op.verdict {
            Verdict::Put(put) => (Some(put), None),
            Verdict::Delete => (None, None),
            Verdict::Refused(letter) => (None, serde_json::to_string(letter).ok()),
        };
        let links = put.and_then(|put| serde_json::to_string(&put.links).ok());
        let cid = put.and_then(|put| put.cid.map(|cid| cid.as_bytes().to_vec()));
        let body = put.map(|put| put.body.as_str());
        let told_us = put.and_then(|put| put.seen_us).unwrap_or(i64::MAX);
        self.tx
            .prepare_cached(
                "INSERT INTO pending (queue, source, cursor, author, collection, rkey, rev, live, seen, cid, body, time, links, letter)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
            )?
            .execute(params![
                queue as i64, self.source, it.seq, it.author.key, collection, it.op.rkey,
                it.stamp.rev.cast_signed(), it.stamp.live, told_us.min(self.now_us), cid, body,
                put.and_then(|put| put.time_us), links, letter
            ])?;
        self.tally.pending += 1;
        self.tally.received += 1;
        if let Some((_, spilled)) = self.turn.worked.get_mut(queue) {
            *spilled += 1;
        }
        Ok(())
    }

    /// Applies one row and counts it where it came from.
    fn work_off(&mut self, id: i64) -> Result<(), Error> {
        self.rows.begin(Waiting::Pending(id));
        let Some(row) = self.row(id, false)? else {
            return Ok(());
        };
        if let Verdict::Put(put) = &row.op.verdict {
            crate::crash::poison_waiting(put.body.as_bytes());
        }
        self.work_off_row(id, row)
    }

    fn work_off_row(&mut self, id: i64, row: Row) -> Result<(), Error> {
        self.tx
            .prepare_cached("DELETE FROM pending WHERE id = ?1")?
            .execute([id])?;
        let snapshot = self.known(row.author)?.unwrap_or_default().snapshot;
        let author = Author {
            key: row.author,
            did: &row.did,
            snapshot,
        };
        let source = row.origin.source.clone();
        self.origin = Some(row.origin);
        let decided = self.decide(author, row.stamp, &row.op);
        self.origin = None;
        self.moved(&source).move_to(Outcome::Pending, decided?, 1);
        self.turn.done(row.queue);
        self.release()
    }

    /// A row; one that is accused is refused, and nothing is made of its record.
    fn row(&self, id: i64, accused: bool) -> Result<Option<Row>, Error> {
        let row = self
            .tx
            .prepare_cached(
                "SELECT p.queue, p.source, p.cursor, p.author, k.text, c.nsid, p.rkey, p.rev, p.live, p.seen, p.cid, p.body,
                    p.time, p.links, p.letter
                 FROM pending p JOIN key k ON k.id = p.author JOIN collection c ON c.id = p.collection WHERE p.id = ?1",
            )?
            .query_row([id], |row| {
                let did: String = row.get(4)?;
                let nsid: String = row.get(5)?;
                let verdict = match accused {
                    true => refusal(&did, &nsid, row)?,
                    false => self.verdict(&did, &nsid, row)?,
                };
                Ok(Row {
                    queue: usize::try_from(row.get::<_, i64>(0)?).unwrap_or_default(),
                    origin: Origin {
                        source: row.get(1)?,
                        cursor: row.get(2)?,
                        seen_us: row.get(9)?,
                    },
                    author: row.get(3)?,
                    stamp: Stamp {
                        rev: row.get::<_, i64>(7)?.cast_unsigned(),
                        live: row.get(8)?,
                        snapshot: false,
                    },
                    op: Op {
                        collection: nsid,
                        rkey: row.get(6)?,
                        verdict,
                    },
                    did,
                })
            })
            .optional()?;
        Ok(row)
    }

    fn verdict(&self, did: &str, nsid: &str, row: &rusqlite::Row<'_>) -> Result<Verdict, Error> {
        if let Some(body) = row.get::<_, Option<String>>(11)? {
            let links: String = row.get(13)?;
            return Ok(Verdict::Put(Put {
                cid: cid_of(row)?,
                time_us: row.get(12)?,
                seen_us: None, // its origin carries it
                links: serde_json::from_str(&links).unwrap_or_default(),
                // Derived anew: the configuration may have changed while it waited.
                derived: derive::of_body(self.plan, nsid, did, &body),
                body,
            }));
        }
        let letter: Option<String> = row.get(14)?;
        let letter = letter.map(|text| serde_json::from_str::<DeadLetter>(&text));
        Ok(match letter {
            Some(letter) => Verdict::Refused(letter.unwrap_or_default()),
            None => Verdict::Delete,
        })
    }
}

fn cid_of(row: &rusqlite::Row<'_>) -> Result<Option<Cid>, Error> {
    let bytes: Option<Vec<u8>> = row.get(10)?;
    Ok(bytes.and_then(|bytes| Cid::from_bytes(&bytes).ok()))
}

/// What is said of a record that ended the process again and again.
fn refusal(did: &str, nsid: &str, row: &rusqlite::Row<'_>) -> Result<Verdict, Error> {
    Ok(Verdict::Refused(DeadLetter {
        did: did.to_owned(),
        collection: nsid.to_owned(),
        rkey: row.get(6)?,
        rev: row.get::<_, i64>(7)?.cast_unsigned(),
        raw: row.get::<_, Option<String>>(11)?.unwrap_or_default(),
        cid: cid_of(row)?.map(|cid| cid.to_string()).unwrap_or_default(),
        ..accused()
    }))
}

#[derive(Debug)]
struct Row {
    queue: usize,
    origin: Origin,
    author: i64,
    did: String,
    stamp: Stamp,
    op: Op,
}

/// Gives what waits to the queues that the configuration has today.
pub(super) fn align(tx: &Connection, plan: &Plan) -> Result<(), Error> {
    tx.execute("UPDATE pending SET queue = 0", [])?;
    for (nsid, queue) in &plan.queues.by_collection {
        if let Some(collection) = find_collection(tx, nsid)? {
            tx.execute(
                "UPDATE pending SET queue = ?2 WHERE collection = ?1",
                params![collection, *queue as i64],
            )?;
        }
    }
    Ok(())
}

/// What waits in each queue.
pub(super) fn depths(connection: &Connection, plan: &Plan) -> Result<Vec<Depth>, Error> {
    let mut statement = connection.prepare_cached(
        "SELECT count(*), (SELECT seen FROM pending WHERE queue = ?1 ORDER BY id LIMIT 1) FROM pending WHERE queue = ?1",
    )?;
    let queues = plan.queues.list.iter().enumerate();
    queues
        .map(|(index, queue)| {
            statement.query_row([index as i64], |row| {
                Ok(Depth {
                    queue: queue.name.clone(),
                    waiting: row.get(0)?,
                    since_us: row.get(1)?,
                })
            })
        })
        .collect()
}
