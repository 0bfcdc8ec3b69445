//! A repository that was fetched whole, in slices, and then the frames that were held meanwhile.
//!
//! In:    records of one collection between two keys, and what is stored there.
//! Out:   those records applied, absent ones deleted, up to the revision of the repository.
//! Never: a newer record touched by an older repository; a held frame before the repository, or
//!        after a newer one.
//!
//! From the first slice on, what streams say at or below the repository's
//! revision is superseded: the rest of it is on its way. An account's events are
//! held until the last frame that was held before is applied.

use std::collections::BTreeSet;

use crate::account::{DUE_EPOCH, Job, Repair, SLICE_MAX, Status};
use crate::accounting::Outcome;
use crate::apply::{At, Stamp};
use crate::batch::{Commit, Reached, Released, Slice, Stage};
use crate::chain;
use crate::commit::advance;
use crate::dead::{self, Refusal};
use crate::fate::Closed;
use crate::ids::{CollectionId, KeyId, Path, Rev};
use crate::park;
use crate::place;
use crate::rows::{Account, Dead, Fetching, FirstRead, Held, Parked, Record};
use crate::step::{Step, each};
use crate::stored::placed_of;
use crate::table::Row;
use crate::value::{Cell, Value};
use crate::version::State;
use crate::wants::Scan;
use crate::world::{Halt, first};

/// What is stored in the keys that a slice covers.
struct Found {
    records: Vec<Record>,
    parked: Vec<Parked>,
    /// The last key of which everything was read.
    through: Option<String>,
}

fn scan<R: Row>(index: &'static str, at: (KeyId, CollectionId), after: Option<&str>) -> Scan {
    let after = after.map(|rkey| Value::Text(rkey.to_owned()));
    Scan {
        after: after.into_iter().collect(),
        ..first::<R>(index, vec![at.0.to_value(), at.1.to_value()], SLICE_MAX)
    }
}

/// The last key that was read whole: the one before the last, if there may be more rows.
fn whole<'r>(keys: impl ExactSizeIterator<Item = &'r str>) -> Option<String> {
    if keys.len() < SLICE_MAX {
        return None;
    }
    let keys: BTreeSet<&str> = keys.collect();
    let last = keys.iter().nth_back(1).or(keys.last());
    last.map(|rkey| (*rkey).to_owned())
}

impl Step<'_, '_> {
    /// Applies a slice of a repository.
    pub(crate) fn slice(&mut self, slice: &Slice) -> Result<(), Halt> {
        let at = (
            self.world.key(&slice.did),
            self.world.collection(&slice.collection),
        );
        let found = self.between(at, slice);
        let (key, known) = self.account(&slice.did)?;
        let mut account = self.met(key, known)?;
        if is_gone(&account) {
            self.world.writes.reached.push(Reached::Refused);
            return Ok(());
        }
        account.snapshot = account.snapshot.max(slice.rev);
        account.newest = account.newest.max(slice.rev);
        self.world.put(&account);
        let found = found?;
        let covers = |rkey: &str| {
            let ends = [slice.through.as_deref(), found.through.as_deref()];
            ends.into_iter().flatten().all(|end| rkey <= end)
        };
        let source = self.world.source;
        let stamp = Stamp {
            rev: slice.rev,
            live: false,
            fetched: true,
            source,
            cursor: 0,
            seen_us: self.world.now_us,
        };
        let ops = slice.ops.iter().filter(|op| covers(&op.rkey));
        let mut present = BTreeSet::new();
        for op in ops {
            present.insert(op.rkey.as_str());
            let outcome = self.op(&account, &slice.did, stamp, op);
            self.receive(outcome)?;
        }
        let absent =
            |rkey: &str, rev: Rev| covers(rkey) && rev <= slice.rev && !present.contains(rkey);
        let gone: Vec<&Record> = found
            .records
            .iter()
            .filter(|row| absent(&row.rkey, row.rev) && State::from_code(row.state) == State::Live)
            .collect();
        self.delete(&account, (&slice.did, &slice.collection), stamp, &gone)?;
        self.close(&found, at, slice, &absent)?;
        let end = found
            .through
            .filter(|end| slice.through.as_ref().is_none_or(|it| end < it));
        let reached = end.map_or(Reached::End, Reached::Key);
        self.world.writes.reached.push(reached);
        Ok(())
    }

    fn between(&mut self, at: (KeyId, CollectionId), slice: &Slice) -> Result<Found, Halt> {
        let after = slice.after.as_deref();
        let records = self.world.loaded::<Record>(&scan::<Record>("", at, after));
        let parked = scan::<Parked>("parked_by_path", at, after);
        let parked = self.world.loaded::<Parked>(&parked);
        let dead = self
            .world
            .loaded::<Dead>(&scan::<Dead>("dead_by_path", at, after));
        let (records, parked, dead) = (records?, parked?, dead?);
        let ends = [
            whole(records.iter().map(|row| row.rkey.as_str())),
            whole(parked.iter().map(|row| row.rkey.as_str())),
            whole(dead.iter().map(|row| row.rkey.as_str())),
        ];
        Ok(Found {
            records,
            parked,
            through: ends.into_iter().flatten().min(),
        })
    }

    /// Deletes records that the repository no longer has.
    fn delete(
        &mut self,
        account: &Account,
        (did, nsid): (&str, &str),
        stamp: Stamp<'_>,
        gone: &[&Record],
    ) -> Result<(), Halt> {
        for row in gone {
            let tail = place::merged_tail(did, nsid, &row.rkey);
            let path = path_of(row);
            place::ask(self.world, self.things, (&path, &tail), &placed_of(row)?);
        }
        each(gone, |row| {
            let at = At::of(account, path_of(row), (did, nsid));
            let stored = Some((*row).clone());
            self.apply().clear(&at, stamp, stored, State::Deleted)?;
            self.world.receive(Outcome::Applied, 1);
            Ok(())
        })
    }

    /// Ends the wait of records that the repository no longer has, and closes their dead letters;
    /// and those of records that could not be believed before it was fetched.
    fn close(
        &mut self,
        found: &Found,
        at: (KeyId, CollectionId),
        slice: &Slice,
        absent: &dyn Fn(&str, Rev) -> bool,
    ) -> Result<(), Halt> {
        let parked = found.parked.iter().filter(|row| absent(&row.rkey, row.rev));
        each(&parked.collect::<Vec<_>>(), |row| {
            park::end(self.world, row, Outcome::Superseded)
        })?;
        let after = slice.after.as_deref();
        // Those that the records of the slice closed are not among them any more.
        for row in self
            .world
            .scan::<Dead>(scan::<Dead>("dead_by_path", at, after))?
        {
            let read = found.through.as_ref().is_none_or(|end| row.rkey <= *end);
            let read = read && slice.through.as_ref().is_none_or(|end| row.rkey <= *end);
            let believed = row.stage == Stage::Verify.word();
            match absent(&row.rkey, row.rev) {
                true => dead::supersede(self.world, &row, Closed::Deleted),
                false if read && believed && row.rev <= slice.rev => {
                    dead::supersede(self.world, &row, Closed::Newer);
                }
                false => {}
            }
        }
        Ok(())
    }

    /// All of a repository is here. Its account is in step once nothing is held any more.
    pub(crate) fn repository_done(
        &mut self,
        did: &str,
        rev: Rev,
        data: Option<Vec<u8>>,
    ) -> Result<(), Halt> {
        let (key, known) = self.account(did)?;
        let held = self
            .world
            .scan::<Held>(first::<Held>("", vec![key.to_value()], 1));
        self.world.want::<Fetching>(vec![key.to_value()]);
        self.world.want::<FirstRead>(vec![key.to_value()]);
        let epoch = self.world.total_now(DUE_EPOCH);
        let mut account = self.met(key, known)?;
        if is_gone(&account) {
            self.world.writes.reached.push(Reached::Refused);
            return Ok(());
        }
        if rev >= account.rev {
            account.rev = rev;
            account.data = data;
        }
        account.snapshot = account.snapshot.max(rev);
        account.covered = self.world.rules.layout;
        account.epoch = epoch?;
        account.repair = (!held?.is_empty()).then(|| Repair::Releasing.code());
        self.world.put(&account);
        self.world.get::<Fetching>(vec![key.to_value()])?;
        self.world.delete::<Fetching>(vec![key.to_value()]);
        self.first_read_done(key)?;
        self.world.writes.reached.push(Reached::End);
        Ok(())
    }

    /// Applies frames that were held, up to the first one that still does not follow.
    pub(crate) fn release(&mut self, did: &str, frames: &[Released]) -> Result<(), Halt> {
        let (key, known) = self.account(did)?;
        let left = first::<Held>("", vec![key.to_value()], frames.len() + 1);
        self.world.want_scan(left.clone());
        for frame in frames {
            self.world.want::<Held>(held_key(key, frame.rev));
        }
        let releasing = Some(Repair::Releasing.code());
        let Some(mut account) = known.filter(|account| account.repair == releasing) else {
            return Ok(());
        };
        for frame in frames {
            let Some(held) = self.world.get::<Held>(held_key(key, frame.rev))? else {
                continue;
            };
            match &frame.commit {
                Ok(commit) => {
                    let chain = commit.chain.filter(|_| commit.rev > account.rev);
                    if chain.is_some_and(|chain| !chain::follows(&account, chain)) {
                        account.repair = Some(Repair::Holding.code());
                        self.world.writes.repair.push(key);
                        self.world.put(&account);
                        return Ok(());
                    }
                    self.released(&mut account, &held, commit)?;
                }
                Err((fault, raw)) => {
                    let refusal = Refusal {
                        path: dead::nowhere(Some(key)),
                        uri: "",
                        rev: Rev(0),
                        fault,
                        raw,
                        source: &held.source,
                        cursor: 0,
                    };
                    let kept = dead::keep(self.world, &refusal, None)?;
                    self.take_back(&held);
                    self.world.receive_for(&held.source, kept.outcome(), 1);
                }
            }
        }
        if self.world.scan::<Held>(left)?.is_empty() {
            account.repair = None;
        }
        self.world.put(&account);
        Ok(())
    }

    /// A held frame is as if it came now.
    fn take_back(&mut self, held: &Held) {
        self.world.delete::<Held>(held_key(held.author, held.rev));
        let counts = self.world.counts(&held.source);
        counts.take_back(Outcome::Held, held.units);
        self.world
            .writes
            .arrived
            .take_back(Outcome::Held, held.units);
    }

    fn released(
        &mut self,
        account: &mut Account,
        held: &Held,
        commit: &Commit,
    ) -> Result<(), Halt> {
        self.take_back(held);
        advance(account, commit);
        let filtered = commit.filtered.cast_signed();
        self.world
            .receive_for(&held.source, Outcome::Filtered, filtered);
        let stamp = Stamp {
            rev: commit.rev,
            live: commit.live,
            fetched: false,
            source: &held.source,
            cursor: 0,
            seen_us: self.world.now_us,
        };
        each(&commit.ops, |op| {
            let outcome = self.op(account, &commit.did, stamp, op)?;
            self.world.receive_for(&held.source, outcome, 1);
            Ok(())
        })
    }
}

/// Nothing is brought for an account that is deleted, or while what was deleted is still here.
fn is_gone(account: &Account) -> bool {
    let deleted = Status::from_code(account.status) == Status::Deleted;
    deleted || account.job == Some(Job::Purge.code())
}

fn held_key(author: KeyId, rev: Rev) -> Vec<Value> {
    vec![author.to_value(), rev.to_value()]
}

fn path_of(row: &Record) -> Path {
    Path {
        author: row.author,
        collection: row.collection,
        rkey: row.rkey.clone(),
    }
}
