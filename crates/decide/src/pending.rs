//! Operations that wait in queues.
//!
//! In:    the operations that a batch brought to each queue, and the rows that wait there.
//! Out:   as many of them applied as the quota of a batch allows, the most urgent first; the rest
//!        as rows, in the transaction that moves the cursor.
//! Never: an operation before an older one of its queue; a unit counted twice.
//!
//! An account's status does not wait for its operations: it takes effect at
//! once, and what still waits is applied later, hidden, or superseded by it.

use crate::accounting::Outcome;
use crate::apply::Stamp;
use crate::content::{Numbered, split};
use crate::ids::{Micros, Path, PendingId};
use crate::rows::{Account, Dead, Parked, Pending};
use crate::step::{Deferred, Step};
use crate::table::Row;
use crate::value::{Cell, Damaged, Value};
use crate::world::{Halt, World, first};

impl Step<'_, '_> {
    /// Asks for what waits in every queue.
    pub(crate) fn ask_queues(&mut self) {
        let queues = &self.world.rules.queues;
        if queues.is_used() {
            for queue in &queues.list {
                let prefix = vec![queue.name.to_value()];
                self.world
                    .want_scan(first::<Pending>("", prefix, queues.quota_max));
            }
        }
    }

    /// The end of a batch: the most urgent is done, the rest becomes rows.
    pub(crate) fn work_queues(&mut self) -> Result<(), Halt> {
        let rules = self.world.rules;
        let queues = &rules.queues;
        let deferred = std::mem::take(&mut self.deferred);
        let mut stored = Vec::with_capacity(deferred.len());
        for queue in &queues.list {
            stored.push(oldest(self.world, &queue.name, queues.quota_max)?);
        }
        let waiting: Vec<usize> = queues
            .list
            .iter()
            .zip(deferred.iter().zip(&stored))
            .map(|(queue, (new, rows))| rows.len() + new.len().min(queue.depth_max))
            .collect();
        let shares = queues.shares(&waiting);
        for number in queues.order() {
            let (Some(queue), Some(rows), Some(new), Some(&share)) = (
                queues.list.get(number),
                stored.get(number),
                deferred.get(number),
                shares.get(number),
            ) else {
                continue;
            };
            // What waits in the store came before all of this batch.
            for row in rows.iter().take(share) {
                self.work_off(row)?;
            }
            let fresh = share.saturating_sub(rows.len());
            for one in new.iter().take(fresh) {
                let outcome = self.fresh(one);
                self.receive(outcome)?;
                self.worked(&queue.name).0 += 1;
            }
            for one in new.iter().skip(fresh) {
                match self.store(&queue.name, one) {
                    Err(Halt::Missing) => {}
                    done => done?,
                }
            }
        }
        Ok(())
    }

    /// Works on what waits in a queue that the configuration no longer has.
    pub(crate) fn drain(&mut self, queue: &str) -> Result<(), Halt> {
        let quota_max = self.world.rules.queues.quota_max;
        for row in oldest(self.world, queue, quota_max)? {
            self.work_off(&row)?;
        }
        Ok(())
    }

    fn worked(&mut self, queue: &str) -> &mut (u64, u64) {
        let worked = &mut self.world.writes.worked;
        worked.entry(queue.to_owned()).or_default()
    }

    fn fresh(&mut self, one: &Deferred<'_>) -> Result<Outcome, Halt> {
        let account = self.world.get::<Account>(vec![one.author.to_value()])?;
        let account = account.unwrap_or_else(|| Account {
            key: one.author,
            ..Account::default()
        });
        self.op(&account, one.did, one.stamp, one.op)
    }

    /// Stores an operation for a later batch.
    fn store(&mut self, queue: &str, one: &Deferred<'_>) -> Result<(), Halt> {
        let id = PendingId(self.world.new_id()?);
        let op = one.op;
        let mut numbered = Numbered::of(&op.verdict, self.world.names, self.world.rules.layout);
        if let Numbered::Put(content) = &mut numbered {
            let seen_us = content.seen_us.unwrap_or(Micros::MAX);
            content.seen_us = Some(seen_us.min(one.stamp.seen_us));
        }
        let row = Pending {
            queue: queue.to_owned(),
            id,
            author: one.author,
            collection: self.world.collection(&op.collection),
            rkey: op.rkey.clone(),
            rev: one.stamp.rev,
            uri: ["at://", one.did, "/", &op.collection, "/", &op.rkey].concat(),
            op: serde_json::to_string(&numbered).expect("plain data is always JSON"),
            live: one.stamp.live,
            source: one.stamp.source.to_owned(),
            cursor: one.stamp.cursor,
            seen_us: one.stamp.seen_us,
        };
        self.world.put(&row);
        self.world.deepen(queue, 1);
        self.world.receive(Outcome::Pending, 1);
        self.worked(queue).1 += 1;
        Ok(())
    }

    /// Applies an operation that waited, and counts it where it came from.
    fn work_off(&mut self, row: &Pending) -> Result<(), Halt> {
        let damaged = Damaged {
            table: Pending::TABLE.name,
            column: "op",
        };
        let mut op: Numbered = serde_json::from_str(&row.op).map_err(|_| damaged.clone())?;
        let (did, nsid, rkey) = split(&row.uri).ok_or(damaged)?;
        if let Numbered::Put(content) = op {
            op = match self.world.renewed((did, nsid, rkey), *content) {
                Ok(content) => Numbered::Put(Box::new(content)),
                Err(Halt::Missing) => return Ok(()),
                Err(damaged) => return Err(damaged),
            };
        }
        let path = Path {
            author: row.author,
            collection: row.collection,
            rkey: row.rkey.clone(),
        };
        // Its row took a load, so nothing is left for later that may be needed.
        self.world.want_at::<Parked>(&path);
        self.world.want_at::<Dead>(&path);
        self.apply().ask((&path, did, nsid), &op);
        let account = match self.world.get::<Account>(vec![row.author.to_value()]) {
            Ok(account) => account.unwrap_or_default(),
            Err(Halt::Missing) => return Ok(()),
            Err(damaged) => return Err(damaged),
        };
        let stamp = Stamp {
            rev: row.rev,
            live: row.live,
            fetched: false,
            source: &row.source,
            cursor: row.cursor,
            seen_us: row.seen_us,
        };
        let account = Account {
            key: row.author,
            ..account
        };
        let outcome = match self.numbered(&account, (path, did, nsid), stamp, &op) {
            Ok(outcome) => outcome,
            Err(Halt::Missing) => return Ok(()),
            Err(damaged) => return Err(damaged),
        };
        let key = Pending::TABLE.key_of(&row.to_values());
        self.world.delete::<Pending>(key);
        self.world.deepen(&row.queue, -1);
        let counts = self.world.counts(&row.source);
        counts.move_to(Outcome::Pending, outcome, 1);
        self.worked(&row.queue).0 += 1;
        Ok(())
    }
}

/// The first rows of a queue.
fn oldest(world: &mut World<'_>, queue: &str, max: usize) -> Result<Vec<Pending>, Halt> {
    let prefix = vec![Value::Text(queue.to_owned())];
    world.scan(first::<Pending>("", prefix, max))
}
