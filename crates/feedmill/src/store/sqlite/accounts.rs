//! Accounts: the chain of their commits, their status, their repair.
//!
//! The chain is the only proof that nothing was lost on the way: each commit
//! names the one before. Where it breaks, the account's frames are held until
//! its repository has been fetched; everybody else's go on.

use record::cid::Cid;
use rusqlite::{Error, OptionalExtension, params};

use super::apply::{Apply, Author, Place, Stamp};
use super::heartbeat;
use super::shelf::Shelf;
use super::skew;
use super::tip::{Tip, mark};
use crate::clock::Micros;
use crate::expression::of_frame;
use crate::store::account::AccountStatus;
use crate::store::batch::{Chain, Commit, Item, Op, Snapshot, Verdict};
use crate::store::change::Change;

/// In step; a resync is due; due, and frames are held.
pub(super) const IN_STEP: i64 = 0;
pub(super) const DUE: i64 = 1;
pub(super) const HOLDING: i64 = 2;

/// What streams say instead of a handle that could not be confirmed; whoever had one keeps it.
const NO_HANDLE: &str = "handle.invalid";

/// An account's row, and its tip.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    pub(super) status: i64,
    pub(super) status_us: i64,
    pub(super) tip: Tip,
    pub(super) snapshot: u64,
    pub(super) repair: i64,
}

/// Why a batch cannot be applied as it is.
#[derive(Debug)]
pub(super) enum Refusal {
    Sql(Error),
    /// More frames were held since the snapshot was prepared.
    Stale,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Sql(error)
    }
}

impl<'a> Apply<'a> {
    /// Applies one item of a batch.
    pub(super) fn item(&mut self, item: &'a Item) -> Result<(), Refusal> {
        self.barrier(item)?;
        self.seq = item.seq();
        match item {
            Item::Commit(commit) => self.commit(commit)?,
            Item::Snapshot(snapshot) => self.snapshot(snapshot)?,
            Item::Fetched { did, rev, ops } => self.fetched(did, *rev, ops)?,
            Item::Sync { did, rev, data } => self.sync(did, *rev, *data)?,
            Item::Account {
                did,
                status,
                time_us,
            } => self.status(did, *status, *time_us)?,
            Item::Standing { did, status } => self.standing(did, *status)?,
            Item::Identity {
                did,
                handle,
                time_us,
            } => self.identity(did, handle.as_deref(), *time_us)?,
            Item::Unopened(letter) => {
                let kept = self.bury(letter)?;
                self.tally.receive(kept.outcome(), 1);
                if kept.new && !letter.did.is_empty() {
                    self.distrust(&letter.did)?;
                }
            }
            Item::Filtered(units) => {
                self.tally.filtered += *units as i64;
                self.tally.received += *units as i64;
            }
            Item::Settle(max) => self.settle(*max)?,
            Item::Turn => self.turn.asked = true,
            Item::Work(rows) => self.work(rows)?,
            Item::Accused(row) => self.accuse(*row)?,
            Item::Replay { letter, verdict } => self.replay(*letter, verdict)?,
            Item::Discard { letter } => self.discard(*letter)?,
            Item::Expire { before_us, max } => self.expire(*before_us, *max)?,
            Item::Listed(dids) => self.adopt(dids)?,
            Item::FirstRead {
                did,
                feed,
                waiting_max,
            } => self.first_read(did, feed, *waiting_max)?,
            Item::Reader { did } => drop(self.memory.key(self.tx, did)?),
            Item::GaveUp { did } => self.give_up_reader(did)?,
            Item::FetchBegun { did } => self.fetch_begun(did)?,
            Item::FetchEnded { dids } => {
                for did in dids {
                    self.fetch_ended(did)?;
                }
            }
            Item::AllDue => self.all_due()?,
            Item::Heartbeat(report) => heartbeat::write(self.tx, self.now_us, report)?,
            Item::WrongClock(off_us) => skew::note(self.tx, self.now_us, *off_us)?,
        }
        Ok(())
    }

    pub(super) fn known(&mut self, key: i64) -> Result<Option<Known>, Error> {
        if let Some(known) = self.memory.accounts.get(&key) {
            return Ok(Some(known.clone()));
        }
        let found = self.read_account(key)?;
        if let Some(known) = &found {
            self.memory.accounts.insert(key, known.clone());
        }
        Ok(found)
    }

    fn read_account(&self, key: i64) -> Result<Option<Known>, Error> {
        self.tx
            .prepare_cached(
                "SELECT status, status_us, snapshot, repair FROM account WHERE key = ?1",
            )?
            .query_row([key], |row| {
                Ok(Known {
                    status: row.get(0)?,
                    status_us: row.get(1)?,
                    tip: self.memory.tips.find(self.tx, key)?,
                    snapshot: row.get::<_, i64>(2)?.cast_unsigned(),
                    repair: row.get(3)?,
                })
            })
            .optional()
    }

    pub(super) fn known_did(&mut self, did: &str) -> Result<Option<(i64, Known)>, Error> {
        match self.memory.known_key(self.tx, did)? {
            Some(key) => Ok(self.known(key)?.map(|known| (key, known))),
            None => Ok(None),
        }
    }

    fn commit(&mut self, commit: &'a Commit) -> Result<(), Error> {
        if commit.was_held {
            let units = commit.ops.len() as i64 + commit.filtered as i64;
            self.tally.held -= units;
            self.tally.received -= units;
        } else {
            crate::crash::poison(&commit.frame);
        }
        let Some((key, known)) = self.committer(commit)? else {
            self.count_filtered(commit);
            return Ok(());
        };
        if let Some(chain) = commit.chain {
            let fresh = known.tip.rev == 0;
            let breaks = known.repair == HOLDING || !follows(&known, chain);
            if commit.rev > known.tip.rev && !fresh && breaks {
                return self.hold(key, &known, commit);
            }
            if fresh && chain.since.is_some() && known.repair == IN_STEP {
                // History before the first commit we saw exists elsewhere: fetch it, but hold nothing.
                self.mark(key, &commit.did, DUE)?;
            }
        }
        if commit.rev > known.tip.rev {
            let data = commit.chain.and_then(|chain| chain.data).map(mark);
            let rev = commit.rev;
            self.memory.tips.to(key, Tip { rev, data });
            if let Some(mut cached) = self.memory.accounts.get_mut(&key) {
                cached.tip = Tip { rev, data };
            }
        }
        self.count_filtered(commit);
        let author = Author {
            key,
            did: &commit.did,
            snapshot: known.snapshot,
        };
        let stamp = Stamp {
            rev: commit.rev,
            live: commit.live,
            snapshot: false,
        };
        of_frame(|| {
            commit.ops.iter().try_for_each(|op| {
                match self.plan.queues.by_collection.get(&op.collection) {
                    Some(&queue) if !commit.was_held => self.queue(queue, author, stamp, op),
                    _ => self.op(author, stamp, op),
                }
            })
        })
    }

    /// Whose commit it is; `None` for a new repository that holds nothing of interest.
    fn committer(&mut self, commit: &Commit) -> Result<Option<(i64, Known)>, Error> {
        let genesis = commit.chain.filter(|chain| chain.since.is_none());
        // Who is known from the first commit on is known whole.
        let covered = match genesis {
            Some(chain) if chain.data.is_some() => self.ids.layout,
            _ => 0,
        };
        match self.known_did(&commit.did)? {
            Some((key, known)) => {
                if covered > 0 && known.tip.rev == 0 && known.snapshot == 0 {
                    self.tx
                        .prepare_cached("UPDATE account SET covered = ?2 WHERE key = ?1")?
                        .execute([key, covered])?;
                }
                Ok(Some((key, known)))
            }
            None if commit.ops.is_empty() && genesis.is_none() => Ok(None),
            None => Ok(Some((self.meet(&commit.did, covered)?, Known::default()))),
        }
    }

    /// Applies records that were fetched one by one. The chain must not move: it would hide
    /// what the stream has yet to bring, and what it lost.
    fn fetched(&mut self, did: &str, rev: u64, ops: &[Op]) -> Result<(), Error> {
        let (key, known) = match self.known_did(did)? {
            Some(found) => found,
            None => (self.meet(did, 0)?, Known::default()),
        };
        let author = Author {
            key,
            did,
            snapshot: known.snapshot,
        };
        let stamp = Stamp {
            rev,
            live: true,
            snapshot: true,
        };
        for op in ops {
            self.op(author, stamp, op)?;
        }
        Ok(())
    }

    /// Makes the row of an account that is new to us; `covered`: the layout, if its history begins here.
    fn meet(&mut self, did: &str, covered: i64) -> Result<i64, Error> {
        let key = self.memory.key(self.tx, did)?;
        self.tx
            .prepare_cached("INSERT INTO account (key, covered) VALUES (?1, ?2)")?
            .execute([key, covered])?;
        Ok(key)
    }

    pub(super) fn count_filtered(&mut self, commit: &Commit) {
        self.tally.filtered += commit.filtered as i64;
        self.tally.received += commit.filtered as i64;
    }

    pub(super) fn mark(&mut self, key: i64, did: &str, repair: i64) -> Result<(), Error> {
        self.memory.accounts.remove(&key);
        self.tx
            .prepare_cached("UPDATE account SET repair = ?2 WHERE key = ?1")?
            .execute(params![key, repair])?;
        self.broken.push(did.to_owned());
        Ok(())
    }

    /// What a frame said is lost, so its account is fetched whole.
    fn distrust(&mut self, did: &str) -> Result<(), Error> {
        match self.known_did(did)? {
            Some((key, known)) if known.repair != HOLDING => self.mark(key, did, HOLDING),
            Some(_) => Ok(()),
            None => {
                let key = self.meet(did, 0)?;
                self.mark(key, did, DUE)
            }
        }
    }

    fn sync(&mut self, did: &str, rev: u64, data: Option<Cid>) -> Result<(), Error> {
        self.tally.received += 1;
        match self.known_did(did)? {
            None => self.tally.filtered += 1,
            Some((_, known)) if known.tip.rev == rev && known.tip.data == data.map(mark) => {
                self.tally.repeated += 1
            }
            Some((_, known)) if rev <= known.tip.rev => self.tally.superseded += 1,
            Some((key, known)) => {
                if known.repair != HOLDING {
                    self.mark(key, did, HOLDING)?;
                }
                self.tally.applied += 1;
            }
        }
        Ok(())
    }

    fn snapshot(&mut self, snapshot: &Snapshot) -> Result<(), Refusal> {
        let key = self.memory.key(self.tx, &snapshot.did)?;
        if self.count_held(key)? != snapshot.held as i64 {
            return Err(Refusal::Stale);
        }
        let known = self.known(key)?.unwrap_or_default();
        let author = Author {
            key,
            did: &snapshot.did,
            snapshot: known.snapshot,
        };
        let stamp = Stamp {
            rev: snapshot.rev,
            live: false,
            snapshot: true,
        };
        for op in &snapshot.ops {
            self.op(author, stamp, op)?;
        }
        self.delete_absent(author, snapshot)?;
        self.memory.accounts.remove(&key);
        if snapshot.rev >= known.tip.rev {
            let (rev, data) = (snapshot.rev, snapshot.data.map(mark));
            self.memory.tips.to(key, Tip { rev, data });
        }
        // One that is older than a frame that was dropped is not complete: the account stays due.
        let complete = self.end_dropped(key, snapshot.rev)?;
        let repair = if complete { IN_STEP } else { DUE };
        self.tx
            .prepare_cached(
                "INSERT INTO account (key, snapshot, repair, covered) VALUES (?1, ?2, ?4, ?3)
                 ON CONFLICT (key) DO UPDATE SET snapshot = max(snapshot, ?2), repair = ?4, covered = ?3",
            )?
            .execute(params![key, snapshot.rev.cast_signed(), self.ids.layout, repair])?;
        if !complete {
            self.broken.push(snapshot.did.clone());
        }
        self.first_read_done(&snapshot.did)?;
        self.fetch_ended(&snapshot.did)?;
        // The frames follow in this batch; those that still do not fit are held anew.
        self.tx
            .prepare_cached("DELETE FROM held WHERE account = ?1")?
            .execute([key])?;
        Ok(())
    }

    /// Deletes what the snapshot no longer holds.
    fn delete_absent(&mut self, author: Author<'_>, snapshot: &Snapshot) -> Result<(), Error> {
        let present: std::collections::BTreeSet<(&str, &str)> = snapshot
            .ops
            .iter()
            .map(|op| (op.collection.as_str(), op.rkey.as_str()))
            .collect();
        for (nsid, rkey) in self.live_of(author.key)? {
            if !present.contains(&(nsid.as_str(), rkey.as_str())) {
                let op = Op {
                    collection: nsid,
                    rkey,
                    verdict: Verdict::Delete,
                };
                let stamp = Stamp {
                    rev: snapshot.rev,
                    live: false,
                    snapshot: true,
                };
                self.op(author, stamp, &op)?;
            }
        }
        self.end_parked(author.key, snapshot.rev, &|nsid, rkey| {
            present.contains(&(nsid, rkey))
        })?;
        self.close_fetched(author.did, snapshot.rev, &present)
    }

    /// Every live record of an author: (collection, rkey).
    fn live_of(&self, author: i64) -> Result<Vec<(String, String)>, Error> {
        let mut found = Vec::new();
        for (index, lane) in self.plan.lanes.iter().enumerate() {
            if !lane.lists_authors() {
                continue;
            }
            let Some(id) = self.ids.lanes.get(index) else {
                continue;
            };
            let mut rkey = self
                .tx
                .prepare_cached("SELECT rkey FROM record WHERE id = ?1")?;
            for record in Shelf::of(*id).records(self.tx, author, &self.memory.authored)? {
                let rkey = rkey.query_row([record], |row| row.get(0))?;
                found.push((lane.nsid.clone(), rkey));
            }
        }
        Ok(found)
    }

    fn status(&mut self, did: &str, status: AccountStatus, time_us: Micros) -> Result<(), Error> {
        self.tally.received += 1;
        let known = self.known_did(did)?;
        if known.is_none() && status == AccountStatus::Active {
            self.tally.filtered += 1; // nothing of theirs is here, and nothing needs hiding
            return Ok(());
        }
        let (key, known) = match known {
            Some(found) => found,
            None => (self.memory.key(self.tx, did)?, Known::default()),
        };
        if time_us <= known.status_us {
            let same = time_us == known.status_us && status.code() == known.status;
            *(if same {
                &mut self.tally.repeated
            } else {
                &mut self.tally.superseded
            }) += 1;
            return Ok(());
        }
        self.tally.applied += 1;
        self.stand(key, did, &known, (status, time_us))
    }

    /// What a host said when asked. If that is news, it stands a microsecond after the last event: whatever the
    /// stream says after that one is newer, whichever clock is ahead, and a replica can tell the two apart.
    fn standing(&mut self, did: &str, status: AccountStatus) -> Result<(), Error> {
        let (key, known) = match self.known_did(did)? {
            Some(found) => found,
            None => (self.memory.key(self.tx, did)?, Known::default()),
        };
        let time_us = known.status_us + i64::from(status.code() != known.status);
        self.stand(key, did, &known, (status, time_us))
    }

    fn stand(
        &mut self,
        key: i64,
        did: &str,
        known: &Known,
        (status, time_us): (AccountStatus, Micros),
    ) -> Result<(), Error> {
        let was = AccountStatus::from_code(known.status);
        let was_visible = was.visible();
        // What is deleted is gone, so its history is whole for no feed. Nor is it when the account is back: a fetch
        // that was under way may have brought it once more, and older versions left it as whole.
        let gone = [was, status].contains(&AccountStatus::Deleted);
        if was_visible && !status.visible() {
            self.books().recount(self.memory, key, did, -1)?;
        }
        self.tx
            .prepare_cached(
                "INSERT INTO account (key, status, status_us) VALUES (?1, ?2, ?3)
                 ON CONFLICT (key) DO UPDATE
                 SET status = ?2, status_us = ?3, doubt = 0, covered = iif(?4, 0, covered)",
            )?
            .execute(params![key, status.code(), time_us, gone])?;
        self.memory.accounts.remove(&key);
        if !was_visible && status.visible() {
            self.books().recount(self.memory, key, did, 1)?;
        }
        if !status.visible() {
            self.first_read_done(did)?; // nobody gives out the repository of a hidden account
        }
        if status == AccountStatus::Deleted {
            self.purge(key, did, known)?;
        }
        if was_visible != status.visible() {
            self.changes.push(Change::Account {
                key,
                did: did.to_owned(),
                visible: status.visible(),
            });
        }
        Ok(())
    }

    /// Removes everything of a deleted account; what is replayed of it later is superseded.
    fn purge(&mut self, key: i64, did: &str, known: &Known) -> Result<(), Error> {
        let author = Author {
            key,
            did,
            snapshot: known.snapshot,
        };
        for (nsid, rkey) in self.live_of(key)? {
            let collection = self.memory.collection(self.tx, &nsid)?;
            let at = Place::new(author, collection, &nsid, &rkey);
            let Some(stored) = self.find(&at)? else {
                continue;
            };
            self.withdraw(&at, stored.id, stored.time)?;
            self.tx
                .prepare_cached("DELETE FROM record WHERE id = ?1")?
                .execute([stored.id])?;
        }
        self.tx
            .prepare_cached(
                "UPDATE account SET snapshot = max(snapshot, ?2), repair = 0 WHERE key = ?1",
            )?
            .execute(params![key, known.tip.rev.cast_signed()])?;
        self.end_parked(key, u64::MAX >> 1, &|_, _| false)?;
        self.close_account(did)?;
        self.end_held(key)
    }

    fn identity(&mut self, did: &str, handle: Option<&str>, time_us: Micros) -> Result<(), Error> {
        self.tally.received += 1;
        let Some((key, _)) = self.known_did(did)? else {
            self.tally.filtered += 1;
            return Ok(());
        };
        let handle = handle.filter(|handle| *handle != NO_HANDLE);
        let changed = self
            .tx
            .prepare_cached("UPDATE account SET handle = coalesce(?2, handle), handle_us = ?3 WHERE key = ?1 AND handle_us < ?3")?
            .execute(params![key, handle, time_us])?;
        *(if changed == 1 {
            &mut self.tally.applied
        } else {
            &mut self.tally.repeated
        }) += 1;
        Ok(())
    }
}

/// Whether a commit follows directly on what is known.
fn follows(known: &Known, chain: Chain) -> bool {
    let rev = chain.since == Some(known.tip.rev);
    let data = match (known.tip.data, chain.prev_data) {
        (Some(ours), Some(theirs)) => ours == mark(theirs),
        _ => true,
    };
    rev && data
}
