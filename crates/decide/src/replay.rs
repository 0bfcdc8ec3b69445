//! Dead letters: tried again, discarded, forgotten.
//!
//! In:    a dead letter's number, and what today's checks say of its record.
//! Out:   the record applied, superseded or parked, and the dead letter gone; or the dead letter
//!        under its number, with today's reason.
//! Never: a dead letter gone before the transaction in which its record found a place.

use crate::accounting::Outcome;
use crate::apply::{Apply, At, Stamp};
use crate::batch::Verdict;
use crate::content::{Numbered, split};
use crate::dead::{self, DEAD_BYTES, path_of};
use crate::fate::{Closed, Fate};
use crate::ids::{DeadId, Micros};
use crate::park::{self, Obstacle, Waiting, record_key};
use crate::rows::{Account, Dead, Parked, Record};
use crate::step::{Step, each};
use crate::stored::of_row;
use crate::value::Cell;
use crate::version::{self, Incoming, State};
use crate::world::{Halt, first};

/// Dead letters that one batch forgets.
const OLDEST_MAX: usize = 100;

impl Step<'_, '_> {
    /// Tries a dead letter's record again.
    pub(crate) fn replay(&mut self, id: DeadId, verdict: &Verdict) -> Result<(), Halt> {
        let Some(dead) = self.world.get::<Dead>(vec![id.to_value()])? else {
            self.world.writes.fates.push(Fate::Gone);
            return Ok(());
        };
        let Some((did, nsid, _)) = split(&dead.uri) else {
            // It is about no record: there is nothing to apply.
            self.world.writes.fates.push(Fate::Dead);
            return Ok(());
        };
        let path = path_of(&dead);
        let op = Numbered::of(verdict, self.world.names, self.world.rules.layout);
        self.apply().ask((&path, did, nsid), &op);
        // A record and a row that waits, or a tombstone.
        self.world.want_ids(2);
        let account = self.world.get::<Account>(vec![path.author.to_value()])?;
        let at = At::of(&account.unwrap_or_default(), path, (did, nsid));
        // What waits behind it leaves first, or it would be met as its own rival.
        self.end_wait(&dead)?;
        let outcome = self.apply().replay(&at, &dead, &op)?;
        if outcome != Outcome::Dead {
            dead::remove(self.world, &dead);
        }
        let counts = self.world.counts(&dead.source);
        counts.move_to(Outcome::Dead, outcome, 1);
        self.world.writes.fates.push(outcome.into());
        Ok(())
    }

    /// Ends the wait of a dead letter's record for what it lacked.
    fn end_wait(&mut self, dead: &Dead) -> Result<(), Halt> {
        if dead.rkey.is_empty() {
            return Ok(());
        }
        for parked in self.world.at::<Parked>(&path_of(dead))? {
            if parked.dead == Some(dead.id) {
                park::remove(self.world, &parked);
            }
        }
        Ok(())
    }

    /// Forgets a dead letter; its unit stays counted as dead: that is what became of it.
    fn forget(&mut self, dead: &Dead) -> Result<(), Halt> {
        self.end_wait(dead)?;
        dead::remove(self.world, dead);
        Ok(())
    }

    /// Forgets dead letters, as asked.
    pub(crate) fn discard(&mut self, ids: &[DeadId]) -> Result<(), Halt> {
        each(ids, |id| {
            let dead = self.world.get::<Dead>(vec![id.to_value()])?;
            let fate = match &dead {
                Some(dead) => {
                    self.forget(dead)?;
                    Fate::Discarded
                }
                None => Fate::Gone,
            };
            self.world.writes.fates.push(fate);
            Ok(())
        })
    }

    /// Forgets the oldest dead letters, if they are from before a moment.
    pub(crate) fn expire(&mut self, before_us: Micros) -> Result<(), Halt> {
        let oldest = self.oldest()?;
        let old: Vec<Dead> = oldest
            .into_iter()
            .filter(|dead| dead.time_us < before_us)
            .collect();
        self.forget_all(&old, Closed::Age)
    }

    /// Forgets the oldest dead letters, as long as there are more bytes of them than may be.
    pub(crate) fn shrink(&mut self) -> Result<(), Halt> {
        let bytes = self.world.total_now(DEAD_BYTES);
        let oldest = self.oldest()?;
        let mut over = bytes?.saturating_sub(self.world.rules.dead_bytes_max);
        let mut forgotten = Vec::new();
        for dead in oldest {
            if over > 0 {
                over -= dead.bytes;
                forgotten.push(dead);
            }
        }
        self.forget_all(&forgotten, Closed::Size)
    }

    fn oldest(&mut self) -> Result<Vec<Dead>, Halt> {
        let scan = first::<Dead>("dead_by_time", Vec::new(), OLDEST_MAX);
        self.world.scan::<Dead>(scan)
    }

    fn forget_all(&mut self, all: &[Dead], cause: Closed) -> Result<(), Halt> {
        each(all, |dead| self.forget(dead))?;
        if !all.is_empty() {
            *self.world.writes.closed.entry(cause).or_default() += all.len() as u64;
        }
        Ok(())
    }
}

impl Apply<'_, '_> {
    fn replay(&mut self, at: &At<'_>, dead: &Dead, op: &Numbered) -> Result<Outcome, Halt> {
        let stored = self.world.get::<Record>(record_key(&at.path))?;
        let content = match op {
            Numbered::Put(content) => content,
            Numbered::Delete => return Ok(Outcome::Superseded),
            Numbered::Refused { .. } if stored.as_ref().is_some_and(|it| it.rev > dead.rev) => {
                return Ok(Outcome::Superseded);
            }
            Numbered::Refused { fault, .. } => {
                self.still_dead(dead, fault);
                return Ok(Outcome::Dead);
            }
        };
        let incoming = Incoming {
            rev: dead.rev,
            state: State::Live,
            cid: content.cid.as_deref(),
            fetched: false,
        };
        let settled = version::settled(stored.as_ref().map(of_row), at.snapshot, incoming);
        if let Some(outcome) = settled {
            return Ok(outcome);
        }
        let met = (dead.rev, State::Live);
        let cid = content.cid.as_deref();
        if let Some(outcome) = park::meet(self.world, &at.path, met, (false, cid))? {
            return Ok(outcome);
        }
        self.ask_replaced(at, stored.as_ref())?;
        let stamp = Stamp {
            rev: dead.rev,
            live: false,
            fetched: false,
            source: &dead.source,
            cursor: dead.cursor,
            seen_us: self.world.now_us,
        };
        match self.obstacle(at, content)? {
            None => {
                self.put(at, stamp, stored, content)?;
                Ok(Outcome::Applied)
            }
            Some(Obstacle::Missing(lack)) => {
                let waiting = Waiting {
                    path: &at.path,
                    uri: &dead.uri,
                    rev: dead.rev,
                    live: false,
                    source: &dead.source,
                    cursor: dead.cursor,
                    content,
                    lack,
                    was: Some(dead.id),
                };
                park::park(self.world, &waiting)?;
                Ok(Outcome::Parked)
            }
            Some(Obstacle::Broken(fault)) => {
                self.clear(at, stamp, stored, State::Refused)?;
                self.still_dead(dead, &fault);
                Ok(Outcome::Dead)
            }
        }
    }

    fn still_dead(&mut self, dead: &Dead, fault: &crate::batch::Fault) {
        let replayed_us = Some(self.world.now_us);
        let dead = Dead {
            replayed_us,
            ..dead.clone()
        };
        dead::revise(self.world, dead, fault);
    }
}
