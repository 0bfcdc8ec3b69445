//! Parked records: early, not wrong, waiting under what they lack.
//!
//! In:    records that passed their checks and need another that is not here.
//! Out:   the same records applied, when the other comes or when they are
//!        tried again; or dead letters that still wake when it comes late.
//! Never: two versions of one record parked; a parked version over a newer
//!        one; a unit that is in no counter or in two.
//!
//! A row stays when its record is buried, with the number of the dead letter:
//! that is how the dead are found when what they lacked arrives at last.

// A row of the table.
mod row;

use decide::accounting::Outcome;
use decide::retry::parked_pause_us;
use record::cid::Cid;
use record::json;
use record::value::Value;
use rusqlite::{Error, OptionalExtension, params};

use row::Parked;

use super::apply::{Apply, Place, REFUSED, Stamp, Stored, settled};
use super::marks::accused;
use super::names::{find_collection, hash};
use super::{read, reference};
use crate::clock::Micros;
use crate::expression::Scope;
use crate::store::Accounting;
use crate::store::batch::{DeadLetter, Put, Verdict, Waiting};
use crate::store::letter::{Closed, Fate};
use crate::store::need::{Need, Target};

/// Records released at once by one arrival; the rest follow as due.
const RELEASED_MAX: i64 = 1000;

/// Why a record that passed its checks cannot be applied now.
#[derive(Debug)]
pub(super) enum Obstacle {
    /// Something it needs is not here.
    Missing(Need),
    /// It breaks a rule over records it refers to.
    Broken(Box<DeadLetter>),
}

/// Why a parked record is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Occasion {
    /// What it lacked has come.
    Arrival,
    /// Its pause is over.
    Due,
    /// There are too many, and it is the oldest.
    Excess,
}

/// Where a record came from that begins to wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait<'w> {
    pub(super) source: &'w str,
    pub(super) cursor: i64,
    /// The number of the dead letter it was, if it was replayed.
    pub(super) was: Option<i64>,
}

impl Apply<'_> {
    /// The counters of a source: this batch's own, or another's that a released record belongs to.
    pub(super) fn moved(&mut self, source: &str) -> &mut Accounting {
        if source == self.source {
            &mut self.moves
        } else {
            self.others.entry(source.to_owned()).or_default()
        }
    }

    /// What the version that waits at this place means for an operation; `Some` ends it.
    pub(super) fn meet_parked(
        &mut self,
        at: &Place<'_>,
        stamp: Stamp,
        verdict: &Verdict,
    ) -> Result<Option<Outcome>, Error> {
        let found = self
            .tx
            .prepare_cached(
                "SELECT id, rev, cid, dead, source FROM parked
                 WHERE hash = ?1 AND author = ?2 AND collection = ?3 AND rkey = ?4",
            )?
            .query_row(
                params![at.hash, at.author.key, at.collection, at.rkey],
                |row| {
                    Ok((
                        row.get::<_, i64>(0)?,
                        row.get::<_, i64>(1)?.cast_unsigned(),
                        row.get::<_, Option<Vec<u8>>>(2)?,
                        row.get::<_, Option<i64>>(3)?,
                        row.get::<_, String>(4)?,
                    ))
                },
            )
            .optional()?;
        let Some((id, rev, cid, dead, source)) = found else {
            return Ok(None);
        };
        let same = stamp.snapshot
            && cid.is_some()
            && matches!(verdict, Verdict::Put(put) if bytes(put.cid) == cid);
        if same {
            // The snapshot confirms what waits; older events must not come between.
            self.tx
                .prepare_cached("UPDATE parked SET rev = max(rev, ?2) WHERE id = ?1")?
                .execute(params![id, stamp.rev.cast_signed()])?;
            return Ok(Some(Outcome::Repeated));
        }
        if stamp.rev < rev {
            return Ok(Some(Outcome::Superseded));
        }
        if stamp.rev == rev && !matches!(verdict, Verdict::Delete) {
            return Ok(Some(Outcome::Repeated));
        }
        self.unpark(id)?;
        if dead.is_none() {
            let counters = self.moved(&source);
            counters.parked -= 1;
            counters.superseded += 1;
        }
        Ok(None)
    }

    /// Applies a record, parks it, or refuses it.
    pub(super) fn admit(
        &mut self,
        at: &Place<'_>,
        stamp: Stamp,
        stored: Option<Stored>,
        put: &Put,
    ) -> Result<Outcome, Error> {
        let refused = stored.as_ref().is_some_and(Stored::is_refused);
        let again = refused && stored.as_ref().is_some_and(|old| old.rev == stamp.rev);
        match self.obstacle(at, put)? {
            None => {
                if refused {
                    self.close(at, stamp.rev, Closed::Newer)?;
                }
                self.put(at, stamp, stored, put)?;
                self.arrived(at, put);
                Ok(Outcome::Applied)
            }
            // It was buried for this before, and its dead letter was settled by hand.
            Some(_) if again => Ok(Outcome::Repeated),
            Some(Obstacle::Missing(need)) => {
                if refused {
                    self.close(at, stamp.rev, Closed::Newer)?;
                }
                let (source, cursor) = self.origin();
                let wait = Wait {
                    source: &source,
                    cursor,
                    was: None,
                };
                self.park(at, stamp, put, &need, wait)?;
                Ok(Outcome::Parked)
            }
            Some(Obstacle::Broken(letter)) => {
                self.clear(at, stamp, stored, REFUSED)?;
                let kept = self.bury(&about(at, stamp.rev, put, *letter))?;
                Ok(kept.outcome())
            }
        }
    }

    /// What stands between a checked record and its place.
    pub(super) fn obstacle(&self, at: &Place<'_>, put: &Put) -> Result<Option<Obstacle>, Error> {
        let linked = self.plan.rules(at.nsid).iter().any(|rule| rule.is_linked());
        if !linked && !self.plan.needs.may_wait(at.nsid) {
            return Ok(None);
        }
        let Ok(value) = json::from_json(&put.body) else {
            return Ok(None); // checked bodies parse; one that does not needs nothing
        };
        for need in self.plan.needs.of(at.nsid, &value) {
            if !self.is_here(&need.target)? {
                return Ok(Some(Obstacle::Missing(need)));
            }
        }
        for rule in self
            .plan
            .rules(at.nsid)
            .iter()
            .filter(|rule| rule.is_linked())
        {
            let mut scope = Scope::of_rules(at.author.did, at.rkey, &value);
            for (name, path) in &rule.with {
                self.bind(&mut scope, name, value.at(path))?;
            }
            if let Some(letter) = rule.broken(&scope, &value) {
                return Ok(Some(Obstacle::Broken(Box::new(letter))));
            }
        }
        Ok(None)
    }

    fn bind(&self, scope: &mut Scope, name: &str, field: Option<&Value<'_>>) -> Result<(), Error> {
        let row = match field.and_then(Value::text) {
            Some(uri) => read::live(self.tx, uri)?,
            None => None,
        };
        let value = row.as_ref().and_then(|body| json::from_json(body).ok());
        scope.bind(name, value.as_ref());
        Ok(())
    }

    /// Whether a live record is what is asked for. Hidden accounts count: they may come back.
    fn is_here(&self, target: &Target) -> Result<bool, Error> {
        match target {
            Target::Record(uri) => Ok(read::live(self.tx, uri)?.is_some()),
            Target::Like { nsid, field, value } => {
                let Some(collection) = find_collection(self.tx, nsid)? else {
                    return Ok(false);
                };
                let mut statement = self.tx.prepare_cached(
                    "SELECT links FROM record WHERE id = ?1 AND collection = ?2 AND state = 0",
                )?;
                let added = Some(&self.memory.referred);
                let mut naming = reference::Naming::new(self.tx, value, None, added)?;
                while let Some(record) = naming.next()? {
                    let read = statement.query_row([record, collection], |row| {
                        reference::from_text(row.get_ref(0)?.as_str_or_null()?)
                    });
                    let Some(links) = read.optional()? else {
                        continue;
                    };
                    if reference::paths_to(&links, value, Some(field))
                        .next()
                        .is_some()
                    {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    /// Notes what an applied record releases.
    pub(super) fn arrived(&mut self, at: &Place<'_>, put: &Put) {
        let needs = &self.plan.needs;
        if needs.is_empty() {
            return;
        }
        let value = match needs.fields(at.nsid) {
            [] => None,
            _ => json::from_json(&put.body).ok(),
        };
        self.released
            .extend(needs.released_by(at.nsid, &at.uri, value.as_ref()));
    }

    pub(super) fn park(
        &mut self,
        at: &Place<'_>,
        stamp: Stamp,
        put: &Put,
        need: &Need,
        wait: Wait<'_>,
    ) -> Result<(), Error> {
        let key = need.target.key();
        let pause_us = parked_pause_us(0).unwrap_or(0);
        let links = serde_json::to_string(&put.links).unwrap_or_default();
        let seen_us = put.seen_us.unwrap_or(i64::MAX).min(self.seen_us());
        self.tx
            .prepare_cached(
                "INSERT INTO parked (source, cursor, author, hash, collection, rkey, rev, live, cid, body, time, links,
                    missing, missing_hash, path, attempt, due, was, seen)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, 1, ?16, ?17, ?18)",
            )?
            .execute(params![
                wait.source, wait.cursor, at.author.key, at.hash, at.collection, at.rkey, stamp.rev.cast_signed(),
                stamp.live, bytes(put.cid), put.body, put.time_us, links,
                key, hash(&key), need.path, self.now_us + pause_us, wait.was, seen_us
            ])?;
        self.parked_some = true;
        Ok(())
    }

    fn unpark(&self, id: i64) -> Result<(), Error> {
        self.tx
            .prepare_cached("DELETE FROM parked WHERE id = ?1")?
            .execute([id])?;
        Ok(())
    }

    /// Lets go what waited for the records that came, and what waited for those.
    pub(super) fn release(&mut self) -> Result<(), Error> {
        while let Some(key) = self.released.pop() {
            if self.suspected {
                self.put_off(&key)?;
                continue;
            }
            let ids: Vec<i64> = self
                .tx
                .prepare_cached("SELECT id FROM parked WHERE missing_hash = ?1 AND missing = ?2 ORDER BY id LIMIT ?3")?
                .query_map(params![hash(&key), key, RELEASED_MAX], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            if ids.len() as i64 == RELEASED_MAX {
                self.put_off(&key)?;
            }
            for id in ids {
                let fate = self.attempt(id, Occasion::Arrival)?;
                self.woken.push(fate.unwrap_or(Fate::Parked));
            }
        }
        self.rows_done();
        Ok(())
    }

    /// What waits for a record that came is tried later.
    fn put_off(&self, key: &str) -> Result<(), Error> {
        self.tx
            .prepare_cached("UPDATE parked SET due = ?3 WHERE missing_hash = ?1 AND missing = ?2")?
            .execute(params![hash(key), key, self.now_us])?;
        Ok(())
    }

    /// Tries one parked record as if what it lacks had come.
    pub(super) fn try_parked(&mut self, id: i64) -> Result<(), Error> {
        self.attempt(id, Occasion::Arrival)?;
        Ok(())
    }

    /// Tries parked records whose pause is over.
    pub(super) fn settle(&mut self, max: usize) -> Result<(), Error> {
        let ids: Vec<i64> = self
            .tx
            .prepare_cached("SELECT id FROM parked WHERE due <= ?1 ORDER BY due, id LIMIT ?2")?
            .query_map(params![self.now_us, max as i64], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        for id in ids {
            if let Some(fate) = self.attempt(id, Occasion::Due)? {
                self.fates.push(fate);
            }
            self.release()?;
        }
        Ok(())
    }

    /// Dead-letters the oldest until no more wait than may, in number and in bytes.
    pub(super) fn bury_excess(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.parked_some) {
            return Ok(());
        }
        let rows_max = i64::try_from(self.plan.parked_max).unwrap_or(i64::MAX);
        let bytes_max = i64::try_from(self.plan.parked_bytes_max).unwrap_or(i64::MAX);
        let mut waiting: i64 = self
            .tx
            .prepare_cached("SELECT count(*) FROM parked WHERE dead IS NULL")?
            .query_row([], |row| row.get(0))?;
        loop {
            let bytes: i64 = self
                .tx
                .prepare_cached("SELECT rows FROM size WHERE name = 'parked bytes'")?
                .query_row([], |row| row.get(0))?;
            if waiting <= rows_max && bytes <= bytes_max {
                return Ok(());
            }
            let oldest: Option<i64> = self
                .tx
                .prepare_cached("SELECT id FROM parked WHERE dead IS NULL ORDER BY id LIMIT 1")?
                .query_row([], |row| row.get(0))
                .optional()?;
            let Some(oldest) = oldest else {
                return Ok(());
            };
            self.attempt(oldest, Occasion::Excess)?;
            waiting -= 1;
        }
    }

    /// Tries one parked record; `None` if it waits on.
    fn attempt(&mut self, id: i64, occasion: Occasion) -> Result<Option<Fate>, Error> {
        self.rows.begin(Waiting::Parked(id));
        let Some(parked) = self.parked(id, true)? else {
            return Ok(None);
        };
        crate::crash::poison_waiting(parked.put.body.as_bytes());
        let at = parked.place();
        let stored = self.find(&at)?;
        // Parked versions are compared by their rows: a snapshot that confirmed one does not end it.
        let stamp = Stamp {
            rev: parked.rev,
            live: parked.live,
            snapshot: true,
        };
        let verdict = Verdict::Put(parked.put.clone());
        let outcome = match settled(stored.as_ref(), at.author, stamp, &verdict) {
            Some(outcome) => outcome,
            None => match self.obstacle(&at, &parked.put)? {
                None => {
                    self.put(&at, stamp, stored, &parked.put)?;
                    self.arrived(&at, &parked.put);
                    Outcome::Applied
                }
                Some(Obstacle::Missing(need)) => {
                    return self.wait_on(&parked, &at, stored, &need, occasion);
                }
                Some(Obstacle::Broken(letter)) => {
                    self.refuse_parked(&parked, stored, *letter)?;
                    Outcome::Dead
                }
            },
        };
        self.end_attempt(&parked, outcome)?;
        Ok(Some(outcome.into()))
    }

    /// Makes a parked record a dead letter.
    fn refuse_parked(
        &mut self,
        parked: &Parked,
        stored: Option<Stored>,
        letter: DeadLetter,
    ) -> Result<(), Error> {
        let at = parked.place();
        let stamp = Stamp {
            rev: parked.rev,
            live: parked.live,
            snapshot: true,
        };
        self.clear(&at, stamp, stored, REFUSED)?;
        let letter = about(&at, parked.rev, &parked.put, letter);
        match parked.dead {
            Some(dead) => self.revise(dead, &letter)?,
            None => {
                self.bury_for(&parked.source, parked.cursor, &letter, parked.was)?;
            }
        }
        Ok(())
    }

    /// The same of one that ended the process again and again.
    pub(super) fn accuse_parked(&mut self, id: i64) -> Result<(), Error> {
        let Some(parked) = self.parked(id, false)? else {
            return Ok(());
        };
        let stored = self.find(&parked.place())?;
        self.refuse_parked(&parked, stored, accused())?;
        self.end_attempt(&parked, Outcome::Dead)
    }

    /// Lets go a record that waits no longer.
    fn end_attempt(&mut self, parked: &Parked, outcome: Outcome) -> Result<(), Error> {
        self.unpark(parked.id)?;
        // Refused for another reason now, it is the same dead letter.
        if let Some(dead) = parked.dead.filter(|_| outcome != Outcome::Dead) {
            self.remove_letter(dead)?;
        }
        let from = match parked.dead {
            Some(_) => Outcome::Dead,
            None => Outcome::Parked,
        };
        self.moved(&parked.source).move_to(from, outcome, 1);
        Ok(())
    }

    /// It still lacks something: it goes on waiting, or its time is up.
    fn wait_on(
        &mut self,
        parked: &Parked,
        at: &Place<'_>,
        stored: Option<Stored>,
        need: &Need,
        occasion: Occasion,
    ) -> Result<Option<Fate>, Error> {
        let key = need.target.key();
        let next = match (occasion, parked.dead) {
            (Occasion::Arrival, _) | (_, Some(_)) => None,
            (Occasion::Due, None) => match parked_pause_us(i64::from(parked.attempt)) {
                None => return self.give_up(parked, at, stored, need).map(Some),
                pause_us => pause_us,
            },
            (Occasion::Excess, None) => return self.give_up(parked, at, stored, need).map(Some),
        };
        // A buried one is due only because its release was put off; it now waits for arrivals again.
        let (due, attempt): (Option<Micros>, u32) = match next {
            Some(pause_us) => (Some(self.now_us + pause_us), parked.attempt + 1),
            None => (None, parked.attempt),
        };
        self.tx
            .prepare_cached(
                "UPDATE parked SET missing = ?2, missing_hash = ?3, path = ?4, attempt = ?5,
                    due = CASE WHEN dead IS NULL THEN coalesce(?6, due) ELSE ?6 END WHERE id = ?1",
            )?
            .execute(params![parked.id, key, hash(&key), need.path, attempt, due])?;
        Ok(None)
    }

    fn give_up(
        &mut self,
        parked: &Parked,
        at: &Place<'_>,
        stored: Option<Stored>,
        need: &Need,
    ) -> Result<Fate, Error> {
        let stamp = Stamp {
            rev: parked.rev,
            live: false,
            snapshot: true,
        };
        self.clear(at, stamp, stored, REFUSED)?;
        let key = need.target.key();
        let fault = DeadLetter {
            stage: "dependency".into(),
            message: format!("{key} did not come; the record is replayed by itself if it does"),
            path: need.path.split('.').map(str::to_owned).collect(),
            expected: "a live record".into(),
            received: key.clone(),
            ..DeadLetter::default()
        };
        let letter = about(at, parked.rev, &parked.put, fault);
        let dead = self
            .bury_for(&parked.source, parked.cursor, &letter, parked.was)?
            .id;
        self.tx
            .prepare_cached("UPDATE parked SET dead = ?2, due = NULL, missing = ?3, missing_hash = ?4 WHERE id = ?1")?
            .execute(params![parked.id, dead, key, hash(&key)])?;
        let counters = self.moved(&parked.source);
        counters.parked -= 1;
        counters.dead += 1;
        Ok(Fate::Buried)
    }

    /// Ends what waits of an account up to a revision, except for `kept`.
    pub(super) fn end_parked(
        &mut self,
        author: i64,
        rev: u64,
        kept: &dyn Fn(&str, &str) -> bool,
    ) -> Result<(), Error> {
        let rows: Vec<(i64, String, String, String, Option<i64>)> = self
            .tx
            .prepare_cached(
                "SELECT p.id, c.nsid, p.rkey, p.source, p.dead FROM parked p JOIN collection c ON c.id = p.collection
                 WHERE p.author = ?1 AND p.rev <= ?2",
            )?
            .query_map(params![author, rev.cast_signed()], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
            })?
            .collect::<Result<_, _>>()?;
        for (id, nsid, rkey, source, dead) in rows {
            if kept(&nsid, &rkey) {
                continue;
            }
            self.unpark(id)?;
            if dead.is_none() {
                let counters = self.moved(&source);
                counters.parked -= 1;
                counters.superseded += 1;
            }
        }
        Ok(())
    }
}

/// A dead letter about a record that was checked.
pub(super) fn about(at: &Place<'_>, rev: u64, put: &Put, fault: DeadLetter) -> DeadLetter {
    DeadLetter {
        did: at.author.did.to_owned(),
        collection: at.nsid.to_owned(),
        rkey: at.rkey.to_owned(),
        rev,
        cid: put.cid.map(|cid| cid.to_string()).unwrap_or_default(),
        raw: put.body.clone(),
        ..fault
    }
}

fn bytes(cid: Option<Cid>) -> Option<Vec<u8>> {
    cid.map(|cid| cid.as_bytes().to_vec())
}
