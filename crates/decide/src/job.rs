//! Work on all records of an account, in slices: a batch never grows by what an account has.
//!
//! In:    an account with a job, and the next rows of it.
//! Out:   those rows removed or counted, and how far the job is.
//! Never: a row done twice or left out, whatever arrives between two slices.
//!
//! A purge removes everything up to the revision at which the account was
//! deleted; its job is the account's `snapshot`, so what arrives later stays. A
//! recount makes the counters count a record exactly if its account is visible,
//! by the flag that each record has.

use serde::{Deserialize, Serialize};

use crate::account::{Job, SLICE_MAX, Status};
use crate::accounting::Outcome;
use crate::apply::At;
use crate::fate::Closed;
use crate::ids::{KeyId, Path};
use crate::park;
use crate::place::{self, Subject};
use crate::rows::{Account, Dead, Held, Parked, Record};
use crate::step::{Step, each};
use crate::stored::placed_of;
use crate::table::{Row, damaged};
use crate::value::{Cell, Value};
use crate::version::State;
use crate::wants::Scan;
use crate::world::{Halt, first};

/// How far a job is: what it walks, and the last row that it did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    part: Part,
    after: Vec<Cursor>,
}

/// What a job walks, in this order. A recount is done after the records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Part {
    #[default]
    Records,
    Parked,
    Dead,
    Held,
}

impl Part {
    fn next(self) -> Option<Self> {
        match self {
            Self::Records => Some(Self::Parked),
            Self::Parked => Some(Self::Dead),
            Self::Dead => Some(Self::Held),
            Self::Held => None,
        }
    }
}

/// A column of a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Cursor {
    Int(i64),
    Text(String),
}

impl From<&Cursor> for Value {
    fn from(cursor: &Cursor) -> Self {
        match cursor {
            Cursor::Int(number) => Self::Int(*number),
            Cursor::Text(text) => Self::Text(text.clone()),
        }
    }
}

impl Progress {
    fn of(text: Option<&str>) -> Result<Self, Halt> {
        let Some(text) = text else {
            return Ok(Self::default());
        };
        Ok(serde_json::from_str(text).map_err(|_| damaged::<Account>("job_at"))?)
    }

    fn to_column(&self) -> String {
        serde_json::to_string(self).expect("plain data is always JSON")
    }

    /// The next rows of an account, in an order that begins with it.
    fn scan<R: Row>(&self, index: &'static str, account: KeyId) -> Scan {
        Scan {
            after: self.after.iter().map(Value::from).collect(),
            ..first::<R>(index, vec![account.to_value()], SLICE_MAX)
        }
    }
}

/// A path of a row, as a place in an order.
fn place(collection: i64, rkey: &str) -> Vec<Cursor> {
    vec![Cursor::Int(collection), Cursor::Text(rkey.to_owned())]
}

impl Step<'_, '_> {
    /// Does a slice of an account's job, if it is still as far as `at` says.
    pub(crate) fn job(&mut self, key: KeyId, at: Option<&str>) -> Result<(), Halt> {
        let progress = Progress::of(at)?;
        self.ask_slice(key, &progress);
        let account = self.world.get::<Account>(vec![key.to_value()])?;
        let Some(account) = account.filter(|account| account.job_at.as_deref() == at) else {
            return Ok(());
        };
        let last = match (Job::from_code(account.job), progress.part) {
            (None, _) => return Ok(()),
            (Some(Job::Purge), Part::Records) => self.purge_records(&account, &progress)?,
            (Some(Job::Purge), Part::Parked) => self.purge_parked(&account, &progress)?,
            (Some(Job::Purge), Part::Dead) => self.purge_dead(&account, &progress)?,
            (Some(Job::Purge), Part::Held) => self.purge_held(&account, &progress)?,
            (Some(Job::Recount), _) => self.recount(&account, &progress)?,
        };
        let part = progress.part;
        let next = match last {
            Some(after) => Some(Progress { part, after }),
            None if account.job == Some(Job::Recount.code()) => None,
            None => part.next().map(|part| Progress {
                part,
                after: Vec::new(),
            }),
        };
        self.go_on(account, next)
    }

    /// Asks for the next rows before it is known whether there is a job: that saves a load.
    fn ask_slice(&mut self, key: KeyId, progress: &Progress) {
        self.world.want_scan(match progress.part {
            Part::Records => progress.scan::<Record>("", key),
            Part::Parked => progress.scan::<Parked>("parked_by_path", key),
            Part::Dead => progress.scan::<Dead>("dead_by_path", key),
            Part::Held => progress.scan::<Held>("", key),
        });
        self.world.key_name(key).ok();
    }

    /// Keeps how far a job is, or ends it.
    fn go_on(&mut self, mut account: Account, next: Option<Progress>) -> Result<(), Halt> {
        if let Some(next) = next {
            account.job_at = Some(next.to_column());
            self.world.put(&account);
            return Ok(());
        }
        account.job_at = None;
        account.job = None;
        let returns = account.returns.take().map(Status::from_code);
        match returns {
            Some(status) => {
                let did = self.world.key_name(account.key)?;
                self.become_status(account, did, status);
            }
            None => self.world.put(&account),
        }
        Ok(())
    }

    /// Removes records; returns the last place, if there may be more.
    fn purge_records(
        &mut self,
        account: &Account,
        progress: &Progress,
    ) -> Result<Option<Vec<Cursor>>, Halt> {
        let did = self.world.key_name(account.key);
        let rows = self
            .world
            .scan::<Record>(progress.scan::<Record>("", account.key))?;
        for row in &rows {
            let names = self.world.collection_name(row.collection);
            if let (Ok(did), Ok(nsid)) = (&did, names) {
                let tail = place::merged_tail(did, nsid, &row.rkey);
                place::ask(
                    self.world,
                    self.things,
                    (&path_of(row), &tail),
                    &placed_of(row)?,
                );
            }
        }
        let did = did?;
        each(&rows, |row| {
            if row.rev > account.snapshot {
                return Ok(());
            }
            let nsid = self.world.collection_name(row.collection)?;
            if State::from_code(row.state) == State::Live {
                let at = At::of(account, path_of(row), (did, nsid));
                self.apply().withdraw(&at, row, false)?;
            }
            self.world.delete::<Record>(park::record_key(&path_of(row)));
            Ok(())
        })?;
        let last = rows.last().map(|row| place(row.collection.0, &row.rkey));
        Ok(last.filter(|_| rows.len() == SLICE_MAX))
    }

    fn purge_parked(
        &mut self,
        account: &Account,
        progress: &Progress,
    ) -> Result<Option<Vec<Cursor>>, Halt> {
        let scan = progress.scan::<Parked>("parked_by_path", account.key);
        let rows = self.world.loaded::<Parked>(&scan)?;
        each(&rows, |row| match row.rev <= account.snapshot {
            true => park::end(self.world, row, Outcome::Superseded),
            false => Ok(()),
        })?;
        let last = rows.last().map(|row| {
            let mut last = place(row.collection.0, &row.rkey);
            last.push(Cursor::Int(row.id.0));
            last
        });
        Ok(last.filter(|_| rows.len() == SLICE_MAX))
    }

    fn purge_dead(
        &mut self,
        account: &Account,
        progress: &Progress,
    ) -> Result<Option<Vec<Cursor>>, Halt> {
        let scan = progress.scan::<Dead>("dead_by_path", account.key);
        let rows = self.world.loaded::<Dead>(&scan)?;
        for row in rows.iter().filter(|row| row.rev <= account.snapshot) {
            crate::dead::supersede(self.world, row, Closed::Account);
        }
        let last = rows.last().map(|row| {
            let mut last = place(row.collection.0, &row.rkey);
            last.push(Cursor::Int(row.id.0));
            last
        });
        Ok(last.filter(|_| rows.len() == SLICE_MAX))
    }

    fn purge_held(
        &mut self,
        account: &Account,
        progress: &Progress,
    ) -> Result<Option<Vec<Cursor>>, Halt> {
        let rows = self
            .world
            .scan::<Held>(progress.scan::<Held>("", account.key))?;
        for row in rows.iter().filter(|row| row.rev <= account.snapshot) {
            let key = Held::TABLE.key_of(&row.to_values());
            self.world.delete::<Held>(key);
            let counts = self.world.counts(&row.source);
            counts.move_to(Outcome::Held, Outcome::Superseded, row.units);
        }
        let last = rows
            .last()
            .map(|row| vec![Cursor::Int(row.rev.0.cast_signed())]);
        Ok(last.filter(|_| rows.len() == SLICE_MAX))
    }

    /// Counts records in or out, as their account is visible or not.
    fn recount(
        &mut self,
        account: &Account,
        progress: &Progress,
    ) -> Result<Option<Vec<Cursor>>, Halt> {
        let visible = Status::from_code(account.status).visible();
        let rows = self
            .world
            .scan::<Record>(progress.scan::<Record>("", account.key))?;
        let changes =
            |row: &&Record| State::from_code(row.state) == State::Live && row.counted != visible;
        let others: Vec<&Record> = rows.iter().filter(changes).collect();
        for row in &others {
            place::ask_counts(self.world, &path_of(row), &placed_of(row)?);
        }
        each(&others, |row| {
            let subject = Subject {
                path: &path_of(row),
                did: "",
                nsid: "",
                record: row.id,
                time_us: row.time_us,
                counted: visible,
                live: false,
            };
            place::recount(self.world, subject, &placed_of(row)?, row.counted)?;
            self.world.put(&Record {
                counted: visible,
                ..(*row).clone()
            });
            Ok(())
        })?;
        let last = rows.last().map(|row| place(row.collection.0, &row.rkey));
        Ok(last.filter(|_| rows.len() == SLICE_MAX))
    }
}

fn path_of(row: &Record) -> Path {
    Path {
        author: row.author,
        collection: row.collection,
        rkey: row.rkey.clone(),
    }
}
