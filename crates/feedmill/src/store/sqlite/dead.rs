//! Dead letters: kept, listed, replayed, discarded.
//!
//! In:    refused records; later, what today's checks say of them.
//! Out:   letters by number and filter; their records applied.
//! Never: a letter gone before the transaction in which its record was
//!        applied, superseded, parked or buried anew.

use rusqlite::{Connection, Error, OptionalExtension, Row, params};

use super::apply::{Apply, Author, Outcome, Place, REFUSED, Stamp, settled};
use super::parked::{Obstacle, about};
use crate::store::Waiting;
use crate::store::batch::{DeadLetter, Verdict};
use crate::store::letter::{Fate, LetterQuery};

const COLUMNS: &str = "id, did, collection, rkey, rev, stage, message, path, expected, received, raw, cursor, time, rule, cid";

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
    })
}

/// One dead letter.
pub(super) fn letter(connection: &Connection, id: i64) -> Result<Option<DeadLetter>, Error> {
    connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM dead WHERE id = ?1"))?
        .query_row([id], to_letter)
        .optional()
}

/// Dead letters, newest first.
pub(super) fn letters(
    connection: &Connection,
    query: &LetterQuery,
) -> Result<Vec<DeadLetter>, Error> {
    connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM dead WHERE id < ?1 AND (?2 IS NULL OR collection = ?2) AND (?3 IS NULL OR stage = ?3)
             AND (?4 IS NULL OR did = ?4) AND (?5 IS NULL OR time >= ?5) AND (?6 IS NULL OR time < ?6)
             ORDER BY id DESC LIMIT ?7"
        ))?
        .query_map(
            params![
                query.before.unwrap_or(i64::MAX),
                query.collection,
                query.stage,
                query.did,
                query.since_us,
                query.until_us,
                query.limit as i64
            ],
            to_letter,
        )?
        .collect()
}

/// What waits and what is dead.
pub(super) fn waiting(connection: &Connection) -> Result<Waiting, Error> {
    connection
        .prepare_cached(
            "SELECT (SELECT count(*) FROM parked WHERE dead IS NULL),
                (SELECT min(due) FROM parked WHERE due IS NOT NULL), (SELECT rows FROM size WHERE name = 'dead'), (SELECT count(*) FROM pending)",
        )?
        .query_row([], |row| {
            Ok(Waiting {
                parked: row.get(0)?,
                due_us: row.get(1)?,
                dead: row.get(2)?,
                pending: row.get(3)?,
            })
        })
}

impl Apply<'_> {
    /// Keeps a dead letter of this batch.
    pub(super) fn bury(&mut self, letter: &DeadLetter) -> Result<(), Error> {
        let (source, cursor) = self.origin();
        self.bury_for(&source, cursor, letter)?;
        Ok(())
    }

    /// Keeps a dead letter of another source or moment; returns its number.
    pub(super) fn bury_for(
        &mut self,
        source: &str,
        cursor: i64,
        letter: &DeadLetter,
    ) -> Result<i64, Error> {
        let path = serde_json::to_string(&letter.path).unwrap_or_default();
        let kind = (letter.stage.clone(), letter.collection.clone());
        *self.buried.entry(kind).or_default() += 1;
        self.tx
            .prepare_cached(
                "INSERT INTO dead (source, did, collection, rkey, rev, stage, message, path, expected, received, raw, cursor, time, rule, cid)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
            )?
            .execute(params![
                source, letter.did, letter.collection, letter.rkey, letter.rev.cast_signed(), letter.stage,
                letter.message, path, letter.expected, letter.received, letter.raw, cursor, self.now_us,
                letter.rule, letter.cid
            ])?;
        Ok(self.tx.last_insert_rowid())
    }

    /// Tries a dead letter's record again, with what today's checks say of it.
    pub(super) fn replay(&mut self, id: i64, verdict: &Verdict) -> Result<(), Error> {
        let source: Option<String> = self
            .tx
            .prepare_cached("SELECT source FROM dead WHERE id = ?1")?
            .query_row([id], |row| row.get(0))
            .optional()?;
        let (Some(source), Some(letter)) = (source, letter(self.tx, id)?) else {
            self.fates.push(Fate::Gone);
            return Ok(());
        };
        // The letter and what waits behind it leave first; the transaction brings them back if it fails.
        self.remove_letter(id)?;
        let outcome = self.replay_letter(&source, &letter, verdict)?;
        let counters = self.moved(&source);
        counters.dead -= 1;
        *outcome.counter(counters) += 1;
        self.fates.push(outcome.into());
        self.release()
    }

    fn replay_letter(
        &mut self,
        source: &str,
        letter: &DeadLetter,
        verdict: &Verdict,
    ) -> Result<Outcome, Error> {
        let key = self.memory.key(self.tx, &letter.did)?;
        let known = self.known(key)?.unwrap_or_default();
        let collection = self.memory.collection(self.tx, &letter.collection)?;
        let author = Author {
            key,
            did: &letter.did,
            snapshot: known.snapshot,
        };
        let at = Place::new(author, collection, &letter.collection, &letter.rkey);
        let stamp = Stamp {
            rev: letter.rev,
            live: false,
            snapshot: false,
        };
        let stored = self.find(&at)?;
        match verdict {
            Verdict::Delete => return Ok(Outcome::Superseded),
            Verdict::Refused(fault) => {
                if stored.is_some_and(|stored| stored.rev > letter.rev) {
                    return Ok(Outcome::Superseded);
                }
                self.bury_for(source, letter.cursor, fault)?;
                return Ok(Outcome::Dead);
            }
            Verdict::Put(_) => {}
        }
        if let Some(outcome) = settled(stored.as_ref(), at.author, stamp, verdict) {
            return Ok(outcome);
        }
        if let Some(outcome) = self.meet_parked(&at, stamp, verdict)? {
            return Ok(outcome);
        }
        let Verdict::Put(put) = verdict else {
            return Ok(Outcome::Superseded);
        };
        match self.obstacle(&at, put)? {
            None => {
                self.put(&at, stamp, stored, put)?;
                self.arrived(&at, put);
                Ok(Outcome::Applied)
            }
            Some(Obstacle::Missing(need)) => {
                self.park(&at, stamp, put, &need, source, letter.cursor)?;
                Ok(Outcome::Parked)
            }
            Some(Obstacle::Broken(fault)) => {
                self.clear(&at, stamp, stored, REFUSED)?;
                self.bury_for(source, letter.cursor, &about(&at, letter.rev, put, fault))?;
                Ok(Outcome::Dead)
            }
        }
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

    fn remove_letter(&self, id: i64) -> Result<bool, Error> {
        self.tx
            .prepare_cached("DELETE FROM parked WHERE dead = ?1")?
            .execute([id])?;
        let gone = self
            .tx
            .prepare_cached("DELETE FROM dead WHERE id = ?1")?
            .execute([id])?;
        Ok(gone == 1)
    }
}
