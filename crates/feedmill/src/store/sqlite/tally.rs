//! Tallies and ladders: children counted, and records in other orders than time.
//!
//! In:    records that come, go or move; accounts that are hidden or shown.
//! Out:   for each parent the number of its visible children, and for each
//!        ladder a row per record, or per account that children name.
//! Never: a count taken by counting at a read; a hidden account's child counted;
//!        a child that costs as many rows as an account wrote records.

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, Error, OptionalExtension, ToSql, params};

use super::apply::Apply;
use super::derive::{self, Ids, Subject};
use super::group::Touch;
use super::memory::Memory;
use super::names::{find_key, hash};
use super::read::split;
use super::shelf::Shelf;
use crate::config::collection::Match;
use crate::local::{self, LocalId};
use crate::store::AccountStatus;
use crate::store::ladder::Steps;
use crate::store::page::Rung;
use crate::store::plan::{Counted, Derived, LadderId, LaneId, Plan};

impl ToSql for Rung {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>, Error> {
        Ok(match self {
            Self::Number(number) => ToSqlOutput::from(*number),
            Self::Text(text) => ToSqlOutput::from(text.as_str()),
            // Blobs stand after everything else.
            Self::Missing => ToSqlOutput::Owned(Value::Blob(Vec::new())),
        })
    }
}

/// A rung as it was stored.
pub(super) fn rung(value: ValueRef<'_>) -> Rung {
    match value {
        ValueRef::Integer(number) => Rung::Number(number),
        ValueRef::Text(text) => Rung::Text(String::from_utf8_lossy(text).into_owned()),
        _ => Rung::Missing,
    }
}

/// Everything that rows are derived with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Books<'a> {
    pub(super) tx: &'a Connection,
    pub(super) plan: &'a Plan,
    pub(super) ids: &'a Ids,
}

impl Books<'_> {
    /// Enters a record's rungs, and counts it with its parents; or, with the time and the
    /// body it was entered with, takes all that back.
    pub(super) fn touch(
        &self,
        memory: &mut Memory,
        subject: Subject<'_>,
        nsid: &str,
        derived: &Derived,
        touch: Touch,
    ) -> Result<(), Error> {
        for (ladder, rung) in &derived.rungs {
            self.step(*ladder, subject, rung, touch)?;
        }
        self.parent(subject, nsid, touch)?;
        let delta = match touch {
            Touch::Came => 1,
            Touch::Goes => -1,
        };
        self.child(memory, subject, derived, delta)
    }

    fn step(&self, on: LadderId, at: Subject<'_>, rung: &Rung, touch: Touch) -> Result<(), Error> {
        match touch {
            Touch::Came => self.climb(on, at, rung),
            Touch::Goes => self.descend(on, at, rung),
        }
    }

    fn climb(&self, ladder: LadderId, at: Subject<'_>, rung: &Rung) -> Result<(), Error> {
        let Some(ladder) = self.ids.ladders.get(ladder.0) else {
            return Ok(());
        };
        self.tx
            .prepare_cached("INSERT OR REPLACE INTO rung (ladder, rung, time, tail, record) VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![ladder, rung, at.time, at.tail(), at.record])?;
        Ok(())
    }

    fn descend(&self, ladder: LadderId, at: Subject<'_>, rung: &Rung) -> Result<(), Error> {
        let Some(ladder) = self.ids.ladders.get(ladder.0) else {
            return Ok(());
        };
        self.tx
            .prepare_cached(
                "DELETE FROM rung WHERE ladder = ?1 AND rung = ?2 AND time = ?3 AND tail = ?4",
            )?
            .execute(params![ladder, rung, at.time, at.tail()])?;
        Ok(())
    }

    /// Enters or strikes a record on the ladders of its children's counts.
    fn parent(&self, at: Subject<'_>, nsid: &str, touch: Touch) -> Result<(), Error> {
        let ladders = self.plan.ladders.iter().enumerate();
        for (index, ladder) in ladders.filter(|(_, ladder)| ladder.nsid == nsid) {
            let Steps::Count { lane, .. } = &ladder.steps else {
                continue;
            };
            let uri = format!("at://{}/{nsid}/{}", at.did, at.rkey);
            let rung = Rung::Number(count(self.tx, self.ids, *lane, &parent_name(at.did, &uri))?);
            self.step(LadderId(index), at, &rung, touch)?;
        }
        Ok(())
    }

    /// Counts a record with the parents it names, unless its author is hidden.
    pub(super) fn child(
        &self,
        memory: &mut Memory,
        at: Subject<'_>,
        derived: &Derived,
        delta: i64,
    ) -> Result<(), Error> {
        let mut lanes = derived.lanes.iter();
        let counted = lanes.any(|(lane, _)| self.counted(*lane) != Counted::Not);
        match counted && is_visible(self.tx, at.author)? {
            true => self.count_all(memory, at.author, derived, delta),
            false => Ok(()),
        }
    }

    /// Whether an author who counts once for a key now begins to count, or ceases to.
    fn is_heard(&self, lane: i64, key: i64, author: i64, delta: i64) -> Result<bool, Error> {
        let children: i64 = self
            .tx
            .prepare_cached(
                "INSERT INTO voice (lane, key, author, count) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (lane, key, author) DO UPDATE SET count = count + ?4 RETURNING count",
            )?
            .query_row([lane, key, author, delta], |row| row.get(0))?;
        if children == 0 {
            self.tx
                .prepare_cached("DELETE FROM voice WHERE lane = ?1 AND key = ?2 AND author = ?3")?
                .execute([lane, key, author])?;
        }
        Ok(children == delta.max(0))
    }

    /// Changes a count, and the rungs of the parent that it counts for.
    fn count(
        &self,
        memory: &mut Memory,
        (lane, counted): (LaneId, Counted),
        (key, author): (&str, i64),
        delta: i64,
    ) -> Result<(), Error> {
        let Some(&number) = self.ids.lanes.get(lane.0) else {
            return Ok(());
        };
        let name = memory.key(self.tx, key)?;
        if counted == Counted::Authors && !self.is_heard(number, name, author, delta)? {
            return Ok(());
        }
        let before = count(self.tx, self.ids, lane, key)?;
        self.tx
            .prepare_cached(
                "INSERT INTO tally (lane, key, count) VALUES (?1, ?2, ?3) ON CONFLICT (lane, key) DO UPDATE SET count = count + ?3",
            )?
            .execute([number, name, delta])?;
        let ladders = self.plan.ladders.iter().enumerate();
        for (index, ladder) in ladders {
            match &ladder.steps {
                Steps::Count { lane: other, .. } if *other == lane => {
                    let Some(parent) = Parent::find(self.tx, key, &ladder.nsid)? else {
                        continue;
                    };
                    let at = parent.subject();
                    self.descend(LadderId(index), at, &Rung::Number(before))?;
                    self.climb(LadderId(index), at, &Rung::Number(before + delta))?;
                }
                Steps::Renown { lane: other, .. } if *other == lane => {
                    self.rise(LadderId(index), name, before, before + delta)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Moves an account on a ladder of accounts, whatever it wrote. Whom nobody names stands nowhere.
    fn rise(&self, ladder: LadderId, account: i64, from: i64, to: i64) -> Result<(), Error> {
        let Some(ladder) = self.ids.ladders.get(ladder.0) else {
            return Ok(());
        };
        if from > 0 {
            self.tx
                .prepare_cached(
                    "DELETE FROM rung WHERE ladder = ?1 AND rung = ?2 AND time = ?3 AND tail = ''",
                )?
                .execute([*ladder, from, account])?;
        }
        if to > 0 {
            // Within one value accounts have no order: their number stands where a record's time would.
            self.tx
                .prepare_cached("INSERT OR REPLACE INTO rung (ladder, rung, time, tail, record) VALUES (?1, ?2, ?3, '', ?3)")?
                .execute([*ladder, to, account])?;
        }
        Ok(())
    }

    /// Puts every account that children name on a new ladder of accounts, by the counts that are there.
    pub(super) fn rise_new(&self, new: &[usize]) -> Result<(), Error> {
        for index in new {
            let steps = self.plan.ladders.get(*index).map(|ladder| &ladder.steps);
            let Some(Steps::Renown { lane, .. }) = steps else {
                continue;
            };
            let (ladders, lanes) = (&self.ids.ladders, &self.ids.lanes);
            if let (Some(ladder), Some(lane)) = (ladders.get(*index), lanes.get(lane.0)) {
                self.tx.execute(
                    "INSERT OR REPLACE INTO rung (ladder, rung, time, tail, record)
                     SELECT ?1, count, key, '', key FROM tally WHERE lane = ?2 AND count > 0",
                    [ladder, lane],
                )?;
            }
        }
        Ok(())
    }

    /// Counts or discounts everything of an account that is shown or hidden.
    pub(super) fn recount(
        &self,
        memory: &mut Memory,
        author: i64,
        did: &str,
        delta: i64,
    ) -> Result<(), Error> {
        let mut counted: Vec<&str> = self
            .plan
            .lanes
            .iter()
            .filter(|lane| lane.counted != Counted::Not)
            .map(|lane| lane.nsid.as_str())
            .collect();
        counted.sort_unstable();
        counted.dedup();
        for nsid in counted {
            let listing = self.plan.listing(nsid);
            let Some(listing) = listing.and_then(|id| self.ids.lanes.get(id.0)) else {
                continue;
            };
            let mut body = self
                .tx
                .prepare_cached("SELECT body FROM record WHERE id = ?1 AND state = 0")?;
            for record in Shelf::of(*listing).records(self.tx, author, &memory.authored)? {
                let body: String = body.query_row([record], |row| row.get(0))?;
                let derived = derive::of_body(self.plan, nsid, did, &body);
                self.count_all(memory, author, &derived, delta)?;
            }
        }
        Ok(())
    }

    fn count_all(
        &self,
        memory: &mut Memory,
        author: i64,
        derived: &Derived,
        delta: i64,
    ) -> Result<(), Error> {
        for (lane, keys) in &derived.lanes {
            let counted = self.counted(*lane);
            if counted != Counted::Not {
                for key in keys {
                    self.count(memory, (*lane, counted), (key, author), delta)?;
                }
            }
        }
        Ok(())
    }

    fn counted(&self, lane: LaneId) -> Counted {
        let lane = self.plan.lanes.get(lane.0);
        lane.map_or(Counted::Not, |lane| lane.counted)
    }

    /// Puts a record on new ladders only.
    pub(super) fn climb_new(
        &self,
        at: Subject<'_>,
        nsid: &str,
        derived: &Derived,
        new: &[usize],
    ) -> Result<(), Error> {
        for (ladder, rung) in derived
            .rungs
            .iter()
            .filter(|(ladder, _)| new.contains(&ladder.0))
        {
            self.climb(*ladder, at, rung)?;
        }
        for index in new {
            let Some(ladder) = self
                .plan
                .ladders
                .get(*index)
                .filter(|ladder| ladder.nsid == nsid)
            else {
                continue;
            };
            if let Steps::Count { lane, .. } = &ladder.steps {
                let uri = format!("at://{}/{nsid}/{}", at.did, at.rkey);
                let count = count(self.tx, self.ids, *lane, &parent_name(at.did, &uri))?;
                self.climb(LadderId(*index), at, &Rung::Number(count))?;
            }
        }
        Ok(())
    }
}

/// A live record that children name.
#[derive(Debug)]
struct Parent {
    record: i64,
    author: i64,
    did: String,
    rkey: String,
    time: i64,
}

impl Parent {
    fn find(connection: &Connection, key: &str, nsid: &str) -> Result<Option<Self>, Error> {
        let uri = match key.starts_with("at://") {
            true => key.to_owned(),
            false => match LocalId::parse(key) {
                Ok(id) => id.uri(nsid),
                Err(_) => return Ok(None),
            },
        };
        let Some((did, named, rkey)) = split(&uri).filter(|(_, named, _)| *named == nsid) else {
            return Ok(None);
        };
        connection
            .prepare_cached(
                "SELECT r.id, r.author, r.time FROM record r JOIN key k ON k.id = +r.author JOIN collection c ON c.id = +r.collection
                 WHERE r.hash = ?1 AND r.rkey = ?2 AND k.text = ?3 AND c.nsid = ?4 AND r.state = 0",
            )?
            .query_row(params![hash(&uri), rkey, did, named], |row| {
                Ok(Self {
                    record: row.get(0)?,
                    author: row.get(1)?,
                    time: row.get(2)?,
                    did: did.to_owned(),
                    rkey: rkey.to_owned(),
                })
            })
            .optional()
    }

    fn subject(&self) -> Subject<'_> {
        Subject {
            record: self.record,
            author: self.author,
            did: &self.did,
            rkey: &self.rkey,
            time: self.time,
        }
    }
}

/// How children name a record.
pub(super) fn parent_name(did: &str, uri: &str) -> String {
    if did == local::REPO {
        return LocalId::of_uri(uri).map_or_else(String::new, |id| id.to_string());
    }
    uri.to_owned()
}

/// How children name a record, by what they name of it.
pub(super) fn name_by(by: Match, did: &str, uri: &str) -> String {
    match by {
        Match::Did => did.to_owned(),
        Match::Uri => parent_name(did, uri),
    }
}

/// How many visible children stand under a key.
pub(super) fn count(
    connection: &Connection,
    ids: &Ids,
    lane: LaneId,
    key: &str,
) -> Result<i64, Error> {
    let (Some(lane), Some(key)) = (ids.lanes.get(lane.0), find_key(connection, key)?) else {
        return Ok(0);
    };
    let count = connection
        .prepare_cached("SELECT count FROM tally WHERE lane = ?1 AND key = ?2")?
        .query_row([lane, &key], |row| row.get(0))
        .optional()?;
    Ok(count.unwrap_or(0))
}

fn is_visible(connection: &Connection, account: i64) -> Result<bool, Error> {
    let status: Option<i64> = connection
        .prepare_cached("SELECT status FROM account WHERE key = ?1")?
        .query_row([account], |row| row.get(0))
        .optional()?;
    Ok(AccountStatus::from_code(status.unwrap_or_default()).visible())
}

impl<'a> Apply<'a> {
    /// The books of this transaction.
    pub(super) fn books(&self) -> Books<'a> {
        Books {
            tx: self.tx,
            plan: self.plan,
            ids: self.ids,
        }
    }
}
