//! Applying operations: which version wins, and what follows from it.
//!
//! In:    checked operations, one transaction.
//! Out:   rows, derived rows, references, changes, and one count per operation.
//! Never: an older version over a newer one, in any order of arrival.

use std::collections::{BTreeMap, BTreeSet};

use decide::accounting::Outcome;
use decide::ids::Rev;
use decide::version::{self, State};
use rusqlite::{Connection, Error, OptionalExtension, params};

use super::derive::{self, Ids, Subject};
use super::group::Touch;
use super::marks::RowMark;
use super::memory::Memory;
use super::names::hash;
use super::pending::{Origin, Turn};
use super::reference::{self, Link};
use super::retime;
use super::shelf;
use crate::clock::Micros;
use crate::store::account::Accounting;
use crate::store::batch::{Op, Put, Verdict};
use crate::store::change::{Change, Published};
use crate::store::letter::{Closed, Fate};
use crate::store::plan::{Derived, Plan};

pub(super) const LIVE: i64 = 0;
pub(super) const DELETED: i64 = 1;
pub(super) const REFUSED: i64 = 2;

/// One transaction's work in progress.
#[derive(Debug)]
pub(super) struct Apply<'a> {
    pub(super) tx: &'a Connection,
    pub(super) memory: &'a mut Memory,
    pub(super) plan: &'a Plan,
    pub(super) ids: &'a Ids,
    pub(super) source: &'a str,
    /// The number of the event that is worked on.
    pub(super) seq: i64,
    pub(super) now_us: Micros,
    /// What this batch brought.
    pub(super) tally: Accounting,
    /// Units of the same source that came before and moved from one counter to another.
    pub(super) moves: Accounting,
    pub(super) changes: Vec<Change>,
    pub(super) broken: Vec<String>,
    /// Live records gained or lost, by collection number.
    pub(super) live: BTreeMap<i64, i64>,
    /// Counters moved for other sources, whose records were released.
    pub(super) others: BTreeMap<String, Accounting>,
    /// Keys that have come and for which somebody may wait.
    pub(super) released: Vec<String>,
    pub(super) parked_some: bool,
    /// Marks records that waited while they are worked on.
    pub(super) rows: &'a RowMark,
    /// The batch is suspected: nothing that waited is worked on with it.
    pub(super) suspected: bool,
    /// What waits for the end of the batch, when queues decide.
    pub(super) turn: Turn<'a>,
    /// Where and when the operation came that is worked on, if not in this batch.
    pub(super) origin: Option<Origin>,
    /// Dead letters by stage and collection.
    pub(super) buried: BTreeMap<(String, String), u64>,
    /// Dead letters that are not kept any longer, by cause.
    pub(super) closed: BTreeMap<Closed, u64>,
    pub(super) fates: Vec<Fate>,
    /// Of records that were released by an arrival.
    pub(super) woken: Vec<Fate>,
}

/// Whose operation it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Author<'a> {
    pub(super) key: i64,
    pub(super) did: &'a str,
    /// The revision of the account's last snapshot.
    pub(super) snapshot: u64,
}

/// When and how an operation was made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp {
    pub(super) rev: u64,
    /// Happened just now, so it enters the live stream.
    pub(super) live: bool,
    /// Part of a snapshot: the same content under another revision is no news.
    pub(super) snapshot: bool,
}

#[derive(Debug)]
pub(super) struct Stored {
    pub(super) id: i64,
    pub(super) rev: u64,
    pub(super) state: i64,
    pub(super) time: i64,
    seen: i64,
    cid: Option<Vec<u8>>,
}

impl Stored {
    /// What was there last was refused, so it may have a dead letter.
    pub(super) fn is_refused(&self) -> bool {
        self.state == REFUSED
    }
}

impl Apply<'_> {
    /// Applies one operation and counts it.
    pub(super) fn op(&mut self, author: Author<'_>, stamp: Stamp, op: &Op) -> Result<(), Error> {
        let outcome = self.decide(author, stamp, op)?;
        self.tally.receive(outcome, 1);
        self.release()
    }

    pub(super) fn decide(
        &mut self,
        author: Author<'_>,
        stamp: Stamp,
        op: &Op,
    ) -> Result<Outcome, Error> {
        let collection = self.memory.collection(self.tx, &op.collection)?;
        let at = Place::new(author, collection, &op.collection, &op.rkey);
        let stored = self.find(&at)?;
        if let Some(verdict) = settled(stored.as_ref(), author, stamp, &op.verdict) {
            return Ok(verdict);
        }
        if self.plan.needs.may_wait(&op.collection)
            && let Some(outcome) = self.meet_parked(&at, stamp, &op.verdict)?
        {
            return Ok(outcome);
        }
        match &op.verdict {
            Verdict::Put(put) => self.admit(&at, stamp, stored, put),
            Verdict::Delete => {
                if stored.as_ref().is_some_and(Stored::is_refused) {
                    self.close(&at, stamp.rev, Closed::Deleted)?;
                }
                self.clear(&at, stamp, stored, DELETED)?;
                Ok(Outcome::Applied)
            }
            Verdict::Refused(letter) => {
                self.clear(&at, stamp, stored, REFUSED)?;
                Ok(self.bury(letter)?.outcome())
            }
        }
    }

    pub(super) fn find(&mut self, at: &Place<'_>) -> Result<Option<Stored>, Error> {
        if self.memory.fresh.lacks(self.tx, at.hash)? {
            return Ok(None);
        }
        self.tx
            .prepare_cached(
                "SELECT id, rev, state, time, seen, cid FROM record
                 WHERE hash = ?1 AND author = ?2 AND collection = ?3 AND rkey = ?4",
            )?
            .query_row(
                params![at.hash, at.author.key, at.collection, at.rkey],
                |row| {
                    Ok(Stored {
                        id: row.get(0)?,
                        rev: row.get::<_, i64>(1)?.cast_unsigned(),
                        state: row.get(2)?,
                        time: row.get(3)?,
                        seen: row.get(4)?,
                        cid: row.get(5)?,
                    })
                },
            )
            .optional()
    }

    pub(super) fn put(
        &mut self,
        at: &Place<'_>,
        stamp: Stamp,
        stored: Option<Stored>,
        put: &Put,
    ) -> Result<(), Error> {
        // First sight survives edits, not recreation.
        let seen = match &stored {
            Some(old) if old.state == LIVE => old.seen,
            _ => put.seen_us.unwrap_or(i64::MAX).min(self.seen_us()),
        };
        let time = retime::time_of(put.time_us, seen);
        let cid = put.cid.as_ref().map(|cid| cid.as_bytes().as_slice());
        let links = reference::to_text(&put.links)?;
        let mut place_again = true;
        let mut stands_there = false;
        let mut moved = false;
        let id = match &stored {
            Some(old) => {
                if old.state == LIVE {
                    let was = self.was(at, old.id)?;
                    self.forget_links(old.id, &was.links);
                    stands_there = old.time == time;
                    if !stands_there {
                        self.memory.authored.remove(&at.authored(old.id, old.time));
                    }
                    moved = self.unplace_if_moved(at, old, time, put, &was.derived)?;
                    place_again = moved;
                } else {
                    *self.live.entry(at.collection).or_default() += 1;
                }
                self.tx
                    .prepare_cached("UPDATE record SET rev = ?2, state = 0, time = ?3, seen = ?4, cid = ?5, body = ?6, links = ?7 WHERE id = ?1")?
                    .execute(params![old.id, stamp.rev.cast_signed(), time, seen, cid, put.body, links])?;
                old.id
            }
            None => {
                *self.live.entry(at.collection).or_default() += 1;
                self.tx
                    .prepare_cached(
                        "INSERT INTO record (hash, collection, author, rkey, tail, rev, state, time, seen, cid, body, links)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7, ?8, ?9, ?10, ?11)",
                    )?
                    .execute(params![
                        at.hash, at.collection, at.author.key, at.rkey, at.tail(), stamp.rev.cast_signed(), time, seen, cid, put.body, links
                    ])?;
                self.memory.fresh.came(at.hash);
                self.tx.last_insert_rowid()
            }
        };
        if !stands_there {
            self.memory.authored.add(&at.authored(id, time));
        }
        self.refer(id, &put.links);
        let came = (Touch::Came, stamp.live);
        let lanes = match place_again {
            true => self.touch(at, at.subject(id, time), &put.derived, came)?,
            false => Vec::new(),
        };
        self.changes.push(Change::Put {
            record: id,
            uri: at.uri.clone(),
            live: stamp.live,
            moved,
            lanes,
        });
        Ok(())
    }

    /// Adds or removes all that is derived from a record, just now or not; returns its places.
    fn touch(
        &mut self,
        at: &Place<'_>,
        subject: Subject<'_>,
        derived: &Derived,
        touch: (Touch, bool),
    ) -> Result<Vec<Published>, Error> {
        self.books()
            .touch(self.memory, subject, at.nsid, derived, touch.0)?;
        let (tx, memory, ids) = (self.tx, &mut *self.memory, self.ids);
        derive::touch(tx, memory, ids, subject, derived, touch, &mut self.changes)
    }

    /// Takes an edited record's derived rows away if the edit moves it; says whether it did.
    fn unplace_if_moved(
        &mut self,
        at: &Place<'_>,
        old: &Stored,
        time: i64,
        put: &Put,
        was: &Derived,
    ) -> Result<bool, Error> {
        if *was == put.derived && old.time == time {
            return Ok(false);
        }
        let subject = at.subject(old.id, old.time);
        let lanes = self.touch(at, subject, was, (Touch::Goes, true))?;
        // For those who draw, a moved record is a delete and an insert.
        self.changes.push(Change::Delete {
            record: old.id,
            uri: at.uri.clone(),
            lanes,
        });
        Ok(true)
    }

    /// What a stored record derived.
    fn was(&self, at: &Place<'_>, id: i64) -> Result<Was, Error> {
        let (body, links): (Option<String>, Option<String>) = self
            .tx
            .prepare_cached("SELECT body, links FROM record WHERE id = ?1")?
            .query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let body = body.as_deref().unwrap_or("null");
        Ok(Was {
            derived: derive::of_body(self.plan, at.nsid, at.author.did, body),
            links: reference::from_text(links.as_deref())?,
        })
    }

    /// Leaves a tombstone, whatever stood there.
    pub(super) fn clear(
        &mut self,
        at: &Place<'_>,
        stamp: Stamp,
        stored: Option<Stored>,
        state: i64,
    ) -> Result<(), Error> {
        let Some(old) = stored else {
            self.tx
                .prepare_cached(
                    "INSERT INTO record (hash, collection, author, rkey, tail, rev, state, time, seen)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8)",
                )?
                .execute(params![
                    at.hash,
                    at.collection,
                    at.author.key,
                    at.rkey,
                    at.tail(),
                    stamp.rev.cast_signed(),
                    state,
                    self.seen_us()
                ])?;
            self.memory.fresh.came(at.hash);
            return Ok(());
        };
        if old.state == LIVE {
            self.withdraw(at, old.id, old.time)?;
        }
        self.tx
            .prepare_cached(
                "UPDATE record SET rev = ?2, state = ?3, cid = NULL, body = NULL, links = NULL WHERE id = ?1",
            )?
            .execute(params![old.id, stamp.rev.cast_signed(), state])?;
        Ok(())
    }

    /// Takes a live record out of every lane, follow list and pile.
    pub(super) fn withdraw(&mut self, at: &Place<'_>, id: i64, time: i64) -> Result<(), Error> {
        let Was { derived, links } = self.was(at, id)?;
        let subject = at.subject(id, time);
        let lanes = self.touch(at, subject, &derived, (Touch::Goes, true))?;
        self.forget_links(id, &links);
        self.memory.authored.remove(&at.authored(id, time));
        *self.live.entry(at.collection).or_default() -= 1;
        self.changes.push(Change::Delete {
            record: id,
            uri: at.uri.clone(),
            lanes,
        });
        Ok(())
    }

    fn refer(&mut self, id: i64, links: &[Link]) {
        for entry in entries(id, links) {
            self.memory.referred.add(&entry);
        }
    }

    fn forget_links(&mut self, id: i64, links: &[Link]) {
        for entry in entries(id, links) {
            self.memory.referred.remove(&entry);
        }
    }
}

/// A record's entries under what it names; it may name one target at several paths.
fn entries(id: i64, links: &[Link]) -> BTreeSet<Vec<u8>> {
    let targets = links.iter().map(|(_, target)| target);
    targets.map(|target| reference::entry(target, id)).collect()
}

/// What a stored record derived, and what it refers to.
#[derive(Debug)]
struct Was {
    derived: Derived,
    links: Vec<Link>,
}

/// Where an operation lands.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) author: Author<'a>,
    pub(super) collection: i64,
    pub(super) nsid: &'a str,
    pub(super) rkey: &'a str,
    pub(super) uri: String,
    /// Of the URI.
    pub(super) hash: i64,
}

impl<'a> Place<'a> {
    pub(super) fn new(author: Author<'a>, collection: i64, nsid: &'a str, rkey: &'a str) -> Self {
        let uri = ["at://", author.did, "/", nsid, "/", rkey].concat();
        Self {
            author,
            collection,
            nsid,
            rkey,
            hash: hash(&uri),
            uri,
        }
    }

    fn tail(&self) -> String {
        [self.author.did, "/", self.rkey].concat()
    }

    /// Its entry under its author.
    fn authored(&self, record: i64, time: i64) -> Vec<u8> {
        shelf::authored(self.collection, self.author.key, time, self.rkey, record)
    }

    fn subject(&self, record: i64, time: i64) -> Subject<'_> {
        Subject {
            record,
            author: self.author.key,
            did: self.author.did,
            rkey: self.rkey,
            time,
        }
    }
}

/// The outcome of an operation that changes nothing; `None` if it must be applied.
pub(super) fn settled(
    stored: Option<&Stored>,
    author: Author<'_>,
    stamp: Stamp,
    verdict: &Verdict,
) -> Option<Outcome> {
    let stored = stored.map(|old| version::Stored {
        rev: Rev(old.rev),
        state: State::from_code(old.state),
        cid: old.cid.as_deref(),
    });
    let (state, cid) = match verdict {
        Verdict::Put(put) => (State::Live, put.cid.as_ref().map(|cid| &cid.as_bytes()[..])),
        Verdict::Delete => (State::Deleted, None),
        Verdict::Refused(_) => (State::Refused, None),
    };
    let incoming = version::Incoming {
        rev: Rev(stamp.rev),
        state,
        cid,
        fetched: stamp.snapshot,
    };
    version::settled(stored, Rev(author.snapshot), incoming)
}
