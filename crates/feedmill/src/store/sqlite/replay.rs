//! A dead letter's record, tried again.
//!
//! In:    a dead letter's number, and what today's checks say of its record.
//! Out:   the record applied, superseded or parked, and the dead letter gone; or
//!        the dead letter under its number, with today's reason.
//! Never: a dead letter gone before the transaction in which its record found a place.

use decide::accounting::Outcome;
use rusqlite::{Error, OptionalExtension, params};

use super::apply::{Apply, Author, Place, REFUSED, Stamp, settled};
use super::dead;
use super::parked::{Obstacle, Wait, about};
use crate::store::batch::{DeadLetter, Verdict};
use crate::store::letter::Fate;

impl Apply<'_> {
    /// Tries a dead letter's record again, with what today's checks say of it.
    pub(super) fn replay(&mut self, id: i64, verdict: &Verdict) -> Result<(), Error> {
        let source: Option<String> = self
            .tx
            .prepare_cached("SELECT source FROM dead WHERE id = ?1")?
            .query_row([id], |row| row.get(0))
            .optional()?;
        let (Some(source), Some(letter)) = (source, dead::letter(self.tx, id)?) else {
            self.fates.push(Fate::Gone);
            return Ok(());
        };
        // What waits behind it leaves first, or it would be met as its own rival.
        self.end_wait(id)?;
        let outcome = self.replay_letter(&source, &letter, verdict)?;
        match outcome {
            Outcome::Dead => {
                self.tx
                    .prepare_cached("UPDATE dead SET replayed = ?2 WHERE id = ?1")?
                    .execute(params![id, self.now_us])?;
            }
            _ => drop(self.remove_letter(id)?),
        }
        self.moved(&source).move_to(Outcome::Dead, outcome, 1);
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
        let put = match verdict {
            Verdict::Put(put) => put,
            Verdict::Delete => return Ok(Outcome::Superseded),
            Verdict::Refused(_) if stored.is_some_and(|stored| stored.rev > letter.rev) => {
                return Ok(Outcome::Superseded);
            }
            Verdict::Refused(fault) => {
                self.revise(letter.id, fault)?;
                return Ok(Outcome::Dead);
            }
        };
        if let Some(outcome) = settled(stored.as_ref(), at.author, stamp, verdict) {
            return Ok(outcome);
        }
        if let Some(outcome) = self.meet_parked(&at, stamp, verdict)? {
            return Ok(outcome);
        }
        match self.obstacle(&at, put)? {
            None => {
                self.put(&at, stamp, stored, put)?;
                self.arrived(&at, put);
                Ok(Outcome::Applied)
            }
            Some(Obstacle::Missing(need)) => {
                let wait = Wait {
                    source,
                    cursor: letter.cursor,
                    was: Some(letter.id),
                };
                self.park(&at, stamp, put, &need, wait)?;
                Ok(Outcome::Parked)
            }
            Some(Obstacle::Broken(fault)) => {
                self.clear(&at, stamp, stored, REFUSED)?;
                self.revise(letter.id, &about(&at, letter.rev, put, *fault))?;
                Ok(Outcome::Dead)
            }
        }
    }
}
