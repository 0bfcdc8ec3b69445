//! Dead letters: kept, listed, counted, closed.
//!
//! In:    refused records, and frames that could not be used.
//! Out:   dead letters by number and filter.
//! Never: two dead letters for the same bytes; one of a record that is deleted,
//!        replaced or whose account is gone; more bytes than the configuration allows.
//!
//! A refused record leaves a tombstone (`REFUSED`) at its place. So only an
//! operation that meets such a tombstone looks for a dead letter to close.

use std::collections::BTreeSet;

use decide::accounting::Outcome;
use rusqlite::{Connection, Error, OptionalExtension, Row, ToSql, params};
use sha2::{Digest, Sha256};

use super::apply::{Apply, Place};
use super::names::hash;
use crate::clock::Micros;
use crate::store::Waiting;
use crate::store::batch::DeadLetter;
use crate::store::letter::{Closed, Fate, LetterCount, LetterQuery};

const COLUMNS: &str = "id, did, collection, rkey, rev, stage, message, path, expected, received, raw, cursor, time, rule, cid,
    arrivals, replayed";

/// Bytes of a row beside its texts.
const ROW_BYTES: usize = 200;
/// Dead letters removed with one look at the oldest.
const OLDEST_MAX: usize = 100;

fn to_letter(row: &Row<'_>) -> Result<DeadLetter, Error> {
    let path: String = row.get(7)?;
    Ok(DeadLetter {
        id: row.get(0)?,
        did: row.get(1)?,
        collection: row.get(2)?,
        rkey: row.get(3)?,
        rev: row.get::<_, i64>(4)?.cast_unsigned(),
        stage: row.get(5)?,
        message: row.get(6)?,
        path: serde_json::from_str(&path).unwrap_or_default(),
        expected: row.get(8)?,
        received: row.get(9)?,
        raw: row.get(10)?,
        cursor: row.get(11)?,
        time_us: row.get(12)?,
        rule: row.get(13)?,
        cid: row.get(14)?,
        arrivals: row.get(15)?,
        replayed_us: row.get(16)?,
    })
}

/// One dead letter.
pub(super) fn letter(connection: &Connection, id: i64) -> Result<Option<DeadLetter>, Error> {
    connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM dead WHERE id = ?1"))?
        .query_row([id], to_letter)
        .optional()
}

/// The rows that a filter asks for, from its own parameters on.
const MATCHES: &str =
    "(?1 IS NULL OR collection = ?1) AND (?2 IS NULL OR stage = ?2) AND (?3 IS NULL OR did = ?3)
    AND (?4 IS NULL OR time >= ?4) AND (?5 IS NULL OR time < ?5)";

fn filter(query: &LetterQuery) -> [&dyn ToSql; 5] {
    [
        &query.collection,
        &query.stage,
        &query.did,
        &query.since_us,
        &query.until_us,
    ]
}

/// Dead letters, newest first.
pub(super) fn letters(
    connection: &Connection,
    query: &LetterQuery,
) -> Result<Vec<DeadLetter>, Error> {
    let before = query.before.unwrap_or(i64::MAX);
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let rest: [&dyn ToSql; 2] = [&before, &limit];
    let bound: Vec<&dyn ToSql> = filter(query).into_iter().chain(rest).collect();
    connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM dead WHERE {MATCHES} AND id < ?6 ORDER BY id DESC LIMIT ?7"
        ))?
        .query_map(bound.as_slice(), to_letter)?
        .collect()
}

/// How many dead letters match.
pub(super) fn count(connection: &Connection, query: &LetterQuery) -> Result<i64, Error> {
    // The index by time is used where a beginning is given: rates are asked for all the time.
    let index = match query.since_us {
        Some(_) => "INDEXED BY dead_by_time",
        None => "",
    };
    let since = match query.since_us {
        Some(_) => "AND time >= ?4",
        None => "",
    };
    connection
        .prepare_cached(&format!(
            "SELECT count(*) FROM dead {index} WHERE {MATCHES} {since}"
        ))?
        .query_row(filter(query).as_slice(), |row| row.get(0))
}

/// How many there are of each stage and collection.
pub(super) fn by_kind(connection: &Connection) -> Result<Vec<LetterCount>, Error> {
    connection
        .prepare_cached("SELECT stage, collection, rows FROM dead_kind")?
        .query_map([], |row| {
            Ok(LetterCount {
                stage: row.get(0)?,
                collection: row.get(1)?,
                count: row.get(2)?,
            })
        })?
        .collect()
}

/// What waits and what is dead.
pub(super) fn waiting(connection: &Connection) -> Result<Waiting, Error> {
    connection
        .prepare_cached(
            "SELECT (SELECT count(*) FROM parked WHERE dead IS NULL),
                (SELECT min(due) FROM parked WHERE due IS NOT NULL), (SELECT rows FROM size WHERE name = 'dead'),
                (SELECT count(*) FROM pending), (SELECT rows FROM size WHERE name = 'dead bytes'), (SELECT min(time) FROM dead),
                (SELECT rows FROM size WHERE name = 'pending bytes'), (SELECT rows FROM size WHERE name = 'parked bytes'),
                (SELECT rows FROM size WHERE name = 'held bytes'), (SELECT rows FROM size WHERE name = 'outbox bytes')",
        )?
        .query_row([], |row| {
            Ok(Waiting {
                parked: row.get(0)?,
                due_us: row.get(1)?,
                dead: row.get(2)?,
                pending: row.get(3)?,
                dead_bytes: row.get(4)?,
                dead_since_us: row.get(5)?,
                pending_bytes: row.get(6)?,
                parked_bytes: row.get(7)?,
                held_bytes: row.get(8)?,
                outbox_bytes: row.get(9)?,
            })
        })
}

/// What tells a dead letter from others: its place and its bytes, by their name where they have one.
fn content(letter: &DeadLetter) -> [u8; 16] {
    let bytes = match letter.cid.is_empty() {
        true => &letter.raw,
        false => &letter.cid,
    };
    let mut digest = Sha256::new();
    for part in [&letter.did, &letter.collection, &letter.rkey, bytes] {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part.as_bytes());
    }
    let mut content = [0; 16];
    content
        .iter_mut()
        .zip(digest.finalize())
        .for_each(|(to, from)| *to = from);
    content
}

/// The hash of the URI of its record; `None` if it is about no record.
fn place(letter: &DeadLetter) -> Option<i64> {
    let (did, collection, rkey) = (&letter.did, &letter.collection, &letter.rkey);
    (!rkey.is_empty()).then(|| hash(&["at://", did, "/", collection, "/", rkey].concat()))
}

fn bytes(letter: &DeadLetter) -> i64 {
    let texts = [&letter.raw, &letter.message, &letter.expected];
    let length: usize = texts.iter().map(|text| text.len()).sum();
    i64::try_from(ROW_BYTES + length + letter.received.len()).unwrap_or(i64::MAX)
}

/// A dead letter that was kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    pub(super) id: i64,
    /// It is new; otherwise the same bytes are a dead letter already.
    pub(super) new: bool,
}

impl Kept {
    /// What became of the unit that it is about.
    pub(super) fn outcome(self) -> Outcome {
        match self.new {
            true => Outcome::Dead,
            false => Outcome::Repeated,
        }
    }
}

impl Apply<'_> {
    /// Keeps a dead letter of the event that is worked on.
    pub(super) fn bury(&mut self, letter: &DeadLetter) -> Result<Kept, Error> {
        let (source, cursor) = self.origin();
        self.bury_for(&source, cursor, letter, None)
    }

    /// Keeps a dead letter of another source or moment, under the number `was` if it had one.
    pub(super) fn bury_for(
        &mut self,
        source: &str,
        cursor: i64,
        letter: &DeadLetter,
        was: Option<i64>,
    ) -> Result<Kept, Error> {
        let content = content(letter);
        let known: Option<i64> = self
            .tx
            .prepare_cached("SELECT id FROM dead WHERE content = ?1")?
            .query_row([content], |row| row.get(0))
            .optional()?;
        if let Some(id) = known {
            self.revise(id, letter)?;
            self.tx
                .prepare_cached(
                    "UPDATE dead SET arrivals = arrivals + 1, cursor = iif(?2 >= rev AND ?3 > 0, ?3, cursor), rev = max(rev, ?2)
                     WHERE id = ?1",
                )?
                .execute(params![id, letter.rev.cast_signed(), cursor])?;
            return Ok(Kept { id, new: false });
        }
        let place = place(letter);
        if place.is_some() {
            let uri = (&*letter.did, &*letter.collection, &*letter.rkey);
            self.close_at(uri, letter.rev, Closed::Newer)?;
        }
        let kind = (letter.stage.clone(), letter.collection.clone());
        *self.buried.entry(kind).or_default() += 1;
        let path = serde_json::to_string(&letter.path).unwrap_or_default();
        self.tx
            .prepare_cached(
                "INSERT INTO dead (id, source, did, collection, rkey, rev, stage, message, path, expected, received, raw, cursor,
                    time, rule, cid, content, place, bytes)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
            )?
            .execute(params![
                was, source, letter.did, letter.collection, letter.rkey, letter.rev.cast_signed(), letter.stage,
                letter.message, path, letter.expected, letter.received, letter.raw, cursor, self.now_us,
                letter.rule, letter.cid, content, place, bytes(letter)
            ])?;
        let id = self.tx.last_insert_rowid();
        Ok(Kept { id, new: true })
    }

    /// Writes today's reason into a dead letter.
    pub(super) fn revise(&self, id: i64, letter: &DeadLetter) -> Result<(), Error> {
        let path = serde_json::to_string(&letter.path).unwrap_or_default();
        self.tx
            .prepare_cached(
                "UPDATE dead SET stage = ?2, message = ?3, path = ?4, expected = ?5, received = ?6, rule = ?7 WHERE id = ?1",
            )?
            .execute(params![
                id, letter.stage, letter.message, path, letter.expected, letter.received, letter.rule
            ])?;
        Ok(())
    }

    /// Closes the dead letter of the record at a place up to a revision, if there is one.
    pub(super) fn close(&mut self, at: &Place<'_>, rev: u64, cause: Closed) -> Result<(), Error> {
        self.close_at((at.author.did, at.nsid, at.rkey), rev, cause)
    }

    fn close_at(
        &mut self,
        (did, nsid, rkey): (&str, &str, &str),
        rev: u64,
        cause: Closed,
    ) -> Result<(), Error> {
        let place = hash(&["at://", did, "/", nsid, "/", rkey].concat());
        let found: Vec<(i64, String)> = self
            .tx
            .prepare_cached(
                "SELECT id, source FROM dead WHERE place = ?1 AND did = ?2 AND collection = ?3 AND rkey = ?4 AND rev <= ?5",
            )?
            .query_map(params![place, did, nsid, rkey, rev.cast_signed()], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .collect::<Result<_, _>>()?;
        self.close_all(found, cause)
    }

    /// Closes every dead letter of an account that is gone, and with them what they hold of it.
    pub(super) fn close_account(&mut self, did: &str) -> Result<(), Error> {
        let found: Vec<(i64, String)> = self
            .tx
            .prepare_cached("SELECT id, source FROM dead WHERE did = ?1")?
            .query_map([did], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        self.close_all(found, Closed::Account)
    }

    /// Closes dead letters of records that a repository fetched whole no longer holds, and of those
    /// that could not be believed before it was fetched.
    pub(super) fn close_fetched(
        &mut self,
        did: &str,
        rev: u64,
        present: &BTreeSet<(&str, &str)>,
    ) -> Result<(), Error> {
        type Found = (i64, String, String, String, String);
        let found: Vec<Found> = self
            .tx
            .prepare_cached(
                "SELECT id, source, collection, rkey, stage FROM dead WHERE did = ?1 AND rkey <> '' AND rev <= ?2",
            )?
            .query_map(params![did, rev.cast_signed()], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
            })?
            .collect::<Result<_, _>>()?;
        for (id, source, nsid, rkey, stage) in found {
            let there = present.contains(&(nsid.as_str(), rkey.as_str()));
            let cause = match there {
                false => Closed::Deleted,
                true if stage == "verify" => Closed::Newer,
                true => continue,
            };
            self.close_all(vec![(id, source)], cause)?;
        }
        Ok(())
    }

    /// Removes dead letters whose units are counted as superseded from now on.
    fn close_all(&mut self, found: Vec<(i64, String)>, cause: Closed) -> Result<(), Error> {
        for (id, source) in found {
            self.remove_letter(id)?;
            *self.closed.entry(cause).or_default() += 1;
            let counters = self.moved(&source);
            counters.dead -= 1;
            counters.superseded += 1;
        }
        Ok(())
    }

    /// Forgets a dead letter. Its unit stays counted as dead: that is what became of it.
    pub(super) fn discard(&mut self, id: i64) -> Result<(), Error> {
        let fate = if self.remove_letter(id)? {
            Fate::Discarded
        } else {
            Fate::Gone
        };
        self.fates.push(fate);
        Ok(())
    }

    /// Forgets dead letters from before a moment.
    pub(super) fn expire(&mut self, before_us: Micros, max: usize) -> Result<(), Error> {
        let ids: Vec<i64> = self
            .tx
            .prepare_cached("SELECT id FROM dead WHERE time < ?1 ORDER BY time LIMIT ?2")?
            .query_map(params![before_us, max as i64], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        self.forget(&ids, Closed::Age)
    }

    /// Forgets the oldest dead letters until no more bytes are kept than may be.
    pub(super) fn bound_dead(&mut self) -> Result<(), Error> {
        if self.buried.is_empty() {
            return Ok(());
        }
        let bytes_max = i64::try_from(self.plan.dead_bytes_max).unwrap_or(i64::MAX);
        loop {
            let mut over: i64 = self
                .tx
                .prepare_cached("SELECT rows FROM size WHERE name = 'dead bytes'")?
                .query_row([], |row| row.get(0))?;
            over -= bytes_max;
            if over <= 0 {
                return Ok(());
            }
            let mut oldest = self
                .tx
                .prepare_cached("SELECT id, bytes FROM dead ORDER BY time, id LIMIT ?1")?;
            let oldest: Vec<(i64, i64)> = oldest
                .query_map([OLDEST_MAX as i64], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<Result<_, _>>()?;
            let mut ids = Vec::new();
            for (id, bytes) in oldest {
                if over > 0 {
                    ids.push(id);
                    over -= bytes;
                }
            }
            if ids.is_empty() {
                return Ok(()); // nothing is left that could be forgotten
            }
            self.forget(&ids, Closed::Size)?;
        }
    }

    fn forget(&mut self, ids: &[i64], cause: Closed) -> Result<(), Error> {
        for id in ids {
            self.remove_letter(*id)?;
            *self.closed.entry(cause).or_default() += 1;
        }
        Ok(())
    }

    /// Removes a dead letter, and the record that waits behind it for what it lacked.
    pub(super) fn remove_letter(&self, id: i64) -> Result<bool, Error> {
        self.end_wait(id)?;
        let gone = self
            .tx
            .prepare_cached("DELETE FROM dead WHERE id = ?1")?
            .execute([id])?;
        Ok(gone == 1)
    }

    /// Ends the wait of a dead letter's record for what it lacked.
    pub(super) fn end_wait(&self, id: i64) -> Result<(), Error> {
        self.tx
            .prepare_cached("DELETE FROM parked WHERE dead = ?1")?
            .execute([id])?;
        Ok(())
    }
}
