//! Applying one operation: which version wins, and what follows from it.
//!
//! In:    a checked operation, and what is stored at its path.
//! Out:   the record's row, the rows derived from it, a change, and one outcome.
//! Never: an older version over a newer one; a derived row without its record.

use crate::account::{Job, Status};
use crate::accounting::Outcome;
use crate::batch::Fault;
use crate::change::Change;
use crate::content::{Content, Numbered};
use crate::dead::{self, Refusal};
use crate::derived::Placed;
use crate::fate::{Closed, Fate};
use crate::ids::{Micros, Path, RecordId, Rev};
use crate::park::{self, Obstacle, Waiting, Why, record_key};
use crate::place::{self, Subject, Things, Touch};
use crate::rows::{self, Account, Dead, Parked, Record};
use crate::stored::{links_column, links_of, of_row, placed_of};
use crate::value::{Cell, Damaged};
use crate::version::{self, Incoming, State};
use crate::world::{Halt, World};

/// When and how an operation was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp<'a> {
    pub(crate) rev: Rev,
    /// Happened just now, so it enters the live stream.
    pub(crate) live: bool,
    /// Read from the repository as a whole.
    pub(crate) fetched: bool,
    pub(crate) source: &'a str,
    /// The event's own sequence number.
    pub(crate) cursor: i64,
    /// When it came.
    pub(crate) seen_us: Micros,
}

/// Whose operation it is, and on what.
#[derive(Debug, Clone)]
pub(crate) struct At<'a> {
    pub(crate) path: Path,
    pub(crate) did: &'a str,
    pub(crate) nsid: &'a str,
    /// The revision of the account's last snapshot.
    pub(crate) snapshot: Rev,
    /// Whether the account's records are counted.
    pub(crate) visible: bool,
    /// Everything up to that revision was deleted with the account, and a job removes it.
    pub(crate) purged: bool,
}

impl<'a> At<'a> {
    pub(crate) fn of(account: &Account, path: Path, (did, nsid): (&'a str, &'a str)) -> Self {
        Self {
            path,
            did,
            nsid,
            snapshot: account.snapshot,
            visible: Status::from_code(account.status).visible(),
            purged: account.job == Some(Job::Purge.code()),
        }
    }

    pub(crate) fn uri(&self) -> String {
        ["at://", self.did, "/", self.nsid, "/", &self.path.rkey].concat()
    }
}

/// The transaction and its things: what every operation works on.
#[derive(Debug)]
pub(crate) struct Apply<'w, 'a> {
    pub(crate) world: &'w mut World<'a>,
    pub(crate) things: &'w mut Things,
}

impl Apply<'_, '_> {
    /// Asks for all that an operation needs whatever is stored, so that one load brings it.
    pub(crate) fn ask(&mut self, at: (&Path, &str, &str), op: &Numbered) {
        if self.ask_stored(at.0) {
            self.world.missing.ids += op.ids();
        }
        match op {
            Numbered::Put(content) => {
                self.ask_content(at, content);
                if content.linked.is_some() {
                    self.world.want_at::<Dead>(at.0);
                }
            }
            // A dead letter of the same bytes may be there.
            Numbered::Refused { .. } => self.world.want_at::<Dead>(at.0),
            Numbered::Delete => {}
        }
    }

    /// Asks for all that a parked record needs when it is tried again.
    pub(crate) fn ask_again(&mut self, at: (&Path, &str, &str), content: &Content) {
        if self.ask_stored(at.0) {
            // A new record, or a tombstone and a dead letter.
            self.world.missing.ids += 2;
        }
        self.world.want_at::<Dead>(at.0);
        self.ask_content(at, content);
    }

    /// Asks for what is stored at a path; says whether the record is not loaded.
    fn ask_stored(&mut self, path: &Path) -> bool {
        // All at once: what is asked for only when it is known to be needed takes a load more, and a
        // batch has three.
        self.world
            .want::<rows::Waiting>(vec![path.collection.to_value()]);
        self.world.want_at::<Parked>(path);
        self.world.want_at::<Dead>(path);
        self.world.want::<Record>(record_key(path))
    }

    /// Asks for what a record waits for, and for the rows beside its own.
    fn ask_content(&mut self, at: (&Path, &str, &str), content: &Content) {
        let (path, did, nsid) = at;
        drop(park::obstacle(
            self.world,
            (at.1, at.2, &at.0.rkey),
            content,
        ));
        let tail = place::merged_tail(did, nsid, &path.rkey);
        place::ask(self.world, self.things, (path, &tail), &content.placed);
    }

    /// Asks for the rows beside those of a record that is replaced.
    pub(crate) fn ask_replaced(
        &mut self,
        at: &At<'_>,
        stored: Option<&Record>,
    ) -> Result<(), Damaged> {
        let live = stored.filter(|old| State::from_code(old.state) == State::Live);
        if let Some(old) = live {
            let tail = place::merged_tail(at.did, at.nsid, &at.path.rkey);
            place::ask(self.world, self.things, (&at.path, &tail), &placed_of(old)?);
        }
        Ok(())
    }

    /// Decides about one operation.
    pub(crate) fn op(
        &mut self,
        at: &At<'_>,
        stamp: Stamp<'_>,
        op: &Numbered,
    ) -> Result<Outcome, Halt> {
        let stored = self.world.get::<Record>(record_key(&at.path))?;
        let (state, cid) = (op.state(), op.cid());
        let incoming = Incoming {
            rev: stamp.rev,
            state,
            cid,
            fetched: stamp.fetched,
        };
        if let Some(outcome) = version::settled(stored.as_ref().map(of_row), at.snapshot, incoming)
        {
            return Ok(outcome);
        }
        self.ask_replaced(at, stored.as_ref())?;
        if is_refused(stored.as_ref()) {
            self.world.want_at::<Dead>(&at.path);
        }
        let met = (stamp.rev, state);
        match park::meet(self.world, &at.path, met, (stamp.fetched, cid)) {
            Ok(None) => {}
            Ok(Some(outcome)) => return Ok(outcome),
            Err(halt) => {
                // What it needs is asked for all the same, to save a load.
                if let Numbered::Put(content) = op {
                    park::unmet(self.world, content).ok();
                }
                return Err(halt);
            }
        }
        match op {
            Numbered::Put(content) => self.admit(at, stamp, stored, content),
            Numbered::Delete => {
                self.close(at, stamp, stored.as_ref(), Closed::Deleted)?;
                self.clear(at, stamp, stored, State::Deleted)?;
                Ok(Outcome::Applied)
            }
            Numbered::Refused { fault, raw } => self.refuse(at, stamp, stored, (fault, raw)),
        }
    }

    /// Closes the dead letters of a record. A dead letter leaves a tombstone, so without that there
    /// is none.
    fn close(
        &mut self,
        at: &At<'_>,
        stamp: Stamp<'_>,
        stored: Option<&Record>,
        cause: Closed,
    ) -> Result<(), Halt> {
        match is_refused(stored) {
            true => dead::close(self.world, &at.path, stamp.rev, cause),
            false => Ok(()),
        }
    }

    /// Applies a record, parks it, or refuses it.
    fn admit(
        &mut self,
        at: &At<'_>,
        stamp: Stamp<'_>,
        stored: Option<Record>,
        content: &Content,
    ) -> Result<Outcome, Halt> {
        let refused_before = stored.as_ref().is_some_and(|old| {
            State::from_code(old.state) == State::Refused && old.rev == stamp.rev
        });
        match self.obstacle(at, content)? {
            None => {
                self.close(at, stamp, stored.as_ref(), Closed::Newer)?;
                self.put(at, stamp, stored, content)?;
                Ok(Outcome::Applied)
            }
            // It became a dead letter for this before, and somebody discarded that.
            Some(_) if refused_before => Ok(Outcome::Repeated),
            Some(Obstacle::Missing(lack)) => {
                self.close(at, stamp, stored.as_ref(), Closed::Newer)?;
                let uri = at.uri();
                // However long it waits, this was its first sight.
                let told_us = content.seen_us.unwrap_or(Micros::MAX);
                let content = &Content {
                    seen_us: Some(told_us.min(stamp.seen_us)),
                    ..content.clone()
                };
                let waiting = Waiting {
                    path: &at.path,
                    uri: &uri,
                    rev: stamp.rev,
                    live: stamp.live,
                    source: stamp.source,
                    cursor: stamp.cursor,
                    content,
                    lack,
                    was: None,
                };
                park::park(self.world, &waiting)?;
                Ok(Outcome::Parked)
            }
            Some(Obstacle::Broken(fault)) => {
                self.refuse(at, stamp, stored, (&fault, &content.body))
            }
        }
    }

    /// What stands between a checked record and its place.
    pub(crate) fn obstacle<'c>(
        &mut self,
        at: &At<'_>,
        content: &'c Content,
    ) -> Result<Option<Obstacle<'c>>, Halt> {
        park::obstacle(self.world, (at.did, at.nsid, &at.path.rkey), content)
    }

    /// Tries a parked record again.
    pub(crate) fn retry(
        &mut self,
        at: &At<'_>,
        (parked, content): (&Parked, &Content),
        why: Why,
    ) -> Result<Fate, Halt> {
        let stored = self.world.get::<Record>(record_key(&at.path))?;
        self.ask_replaced(at, stored.as_ref())?;
        // A parked version is compared with what is stored, not with the snapshot that confirmed it.
        let incoming = Incoming {
            rev: parked.rev,
            state: State::Live,
            cid: content.cid.as_deref(),
            fetched: true,
        };
        let stamp = Stamp {
            rev: parked.rev,
            live: parked.live,
            fetched: true,
            source: &parked.source,
            cursor: parked.cursor,
            seen_us: self.world.now_us,
        };
        let settled = version::settled(stored.as_ref().map(of_row), Rev(0), incoming);
        // What was deleted with its account does not come back with it.
        let settled =
            settled.or((at.purged && parked.rev <= at.snapshot).then_some(Outcome::Superseded));
        if let Some(outcome) = settled {
            park::end(self.world, parked, outcome)?;
            return Ok(outcome.into());
        }
        Ok(match self.obstacle(at, content)? {
            None => {
                self.put(at, stamp, stored, content)?;
                park::end(self.world, parked, Outcome::Applied)?;
                Fate::Applied
            }
            Some(Obstacle::Missing(lack)) => {
                let gives_up = park::wait_on(self.world, parked, content, lack, why)?;
                if gives_up {
                    // What its author replaced is gone, whatever becomes of the new version.
                    self.clear(at, stamp, stored, State::Refused)?;
                }
                if gives_up { Fate::Dead } else { Fate::Parked }
            }
            Some(Obstacle::Broken(fault)) => {
                self.clear(at, stamp, stored, State::Refused)?;
                park::refuse(self.world, parked, (&fault, &content.body))?;
                Fate::Dead
            }
        })
    }

    /// Keeps a dead letter; what was at its path is gone.
    fn refuse(
        &mut self,
        at: &At<'_>,
        stamp: Stamp<'_>,
        stored: Option<Record>,
        (fault, raw): (&Fault, &str),
    ) -> Result<Outcome, Halt> {
        self.clear(at, stamp, stored, State::Refused)?;
        let refusal = Refusal {
            path: at.path.clone(),
            uri: &at.uri(),
            rev: stamp.rev,
            fault,
            raw,
            source: stamp.source,
            cursor: stamp.cursor,
        };
        Ok(dead::keep(self.world, &refusal, None)?.outcome())
    }

    pub(crate) fn put(
        &mut self,
        at: &At<'_>,
        stamp: Stamp<'_>,
        stored: Option<Record>,
        content: &Content,
    ) -> Result<(), Halt> {
        let live = stored
            .as_ref()
            .filter(|old| State::from_code(old.state) == State::Live);
        // First sight survives edits, not recreation.
        let told_us = content.seen_us.unwrap_or(Micros::MAX);
        let seen_us = live.map_or(told_us.min(stamp.seen_us), |old| old.seen_us);
        let time_us = content
            .time_us
            .filter(|time_us| *time_us <= seen_us)
            .unwrap_or(seen_us);
        let id = match &stored {
            Some(old) => old.id,
            None => RecordId(self.world.new_id()?),
        };
        let subject = Subject {
            path: &at.path,
            did: at.did,
            nsid: at.nsid,
            record: id,
            time_us,
            counted: at.visible,
            live: stamp.live,
        };
        let in_place = match live {
            Some(old) => self.replace(at, old, subject, content)?,
            None => {
                *self.world.live(at.path.collection) += 1;
                false
            }
        };
        let moved = live.is_some() && !in_place;
        self.world.put(&Record {
            author: at.path.author,
            collection: at.path.collection,
            rkey: at.path.rkey.clone(),
            id,
            rev: stamp.rev,
            state: State::Live.code(),
            time_us,
            seen_us,
            cid: content.cid.clone(),
            body: Some(content.body.clone()),
            links: links_column(&content.links),
            placed: content.placed.to_column(),
            counted: at.visible,
        });
        let mut entries = Vec::new();
        if !in_place {
            let derived = (&content.placed, content.links.as_slice());
            entries = place::touch(self.world, self.things, subject, derived, Touch::Add)?;
        }
        self.world.change(Change::Put {
            record: id,
            uri: at.uri(),
            live: stamp.live,
            moved,
            entries,
        });
        for need in &content.satisfies {
            self.world.wake(need);
        }
        Ok(())
    }

    /// Removes what the version before derived, unless the new one derives the same at the same
    /// time. Then its rows stay in place, except for references and counts, which nobody is told of.
    fn replace(
        &mut self,
        at: &At<'_>,
        old: &Record,
        subject: Subject<'_>,
        content: &Content,
    ) -> Result<bool, Halt> {
        let (placed, links) = (placed_of(old)?, links_of(old)?);
        if placed != content.placed || old.time_us != subject.time_us {
            self.remove(at, old, (&placed, &links), subject.live)?;
            return Ok(false);
        }
        if links != content.links {
            place::references(self.world, subject, &links, Touch::Remove);
            place::references(self.world, subject, &content.links, Touch::Add);
        }
        place::recount(self.world, subject, &placed, old.counted)?;
        Ok(true)
    }

    /// Removes everything derived from a live record, and reports it as deleted.
    fn remove(
        &mut self,
        at: &At<'_>,
        old: &Record,
        derived: (&Placed, &[(String, String)]),
        live: bool,
    ) -> Result<(), Halt> {
        let subject = Subject {
            path: &at.path,
            did: at.did,
            nsid: at.nsid,
            record: old.id,
            time_us: old.time_us,
            counted: old.counted,
            live,
        };
        let entries = place::touch(self.world, self.things, subject, derived, Touch::Remove)?;
        self.world.change(Change::Delete {
            record: old.id,
            uri: at.uri(),
            entries,
        });
        Ok(())
    }

    /// Removes everything derived from a live record, and counts it out.
    pub(crate) fn withdraw(&mut self, at: &At<'_>, old: &Record, live: bool) -> Result<(), Halt> {
        let (placed, links) = (placed_of(old)?, links_of(old)?);
        self.remove(at, old, (&placed, &links), live)?;
        *self.world.live(at.path.collection) -= 1;
        Ok(())
    }

    /// Leaves a tombstone at a path, whatever was there.
    pub(crate) fn clear(
        &mut self,
        at: &At<'_>,
        stamp: Stamp<'_>,
        stored: Option<Record>,
        state: State,
    ) -> Result<(), Halt> {
        let mut tombstone = match stored {
            Some(old) => {
                if State::from_code(old.state) == State::Live {
                    self.withdraw(at, &old, stamp.live)?;
                }
                old
            }
            None => Record {
                author: at.path.author,
                collection: at.path.collection,
                rkey: at.path.rkey.clone(),
                id: RecordId(self.world.new_id()?),
                time_us: stamp.seen_us,
                seen_us: stamp.seen_us,
                ..Record::default()
            },
        };
        tombstone.rev = stamp.rev;
        tombstone.state = state.code();
        (
            tombstone.cid,
            tombstone.body,
            tombstone.links,
            tombstone.placed,
        ) = (None, None, None, None);
        tombstone.counted = false;
        self.world.put(&tombstone);
        Ok(())
    }
}

fn is_refused(stored: Option<&Record>) -> bool {
    stored.is_some_and(|stored| State::from_code(stored.state) == State::Refused)
}
