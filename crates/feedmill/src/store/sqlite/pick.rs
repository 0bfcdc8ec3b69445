//! Pages picked from candidates that an index gives.
//!
//! In:    candidates in the page's order, as of an earlier outbox position.
//! Out:   the page as of this snapshot: what changed since is added, and each
//!        candidate is held against the record as it is.
//! Never: a record missed because the index is behind; one shown twice.

use std::collections::{BTreeSet, HashSet};

use rusqlite::{Connection, Error, OptionalExtension, params};

use super::derive::Ids;
use super::feed::hides;
use super::outbox;
use super::read::{ROW, ROW_FROM, VISIBLE, tail, to_row};
use super::shelf::{Shelf, keys_in};
use super::sieve::passes;
use crate::store::StoreError;
use crate::store::change::Change;
use crate::store::page::{Candidates, Lens, Page, Position, Row};
use crate::store::plan::Plan;

/// Changes that an index may be behind; beyond it the lanes are walked instead.
const BEHIND_MAX: usize = 5_000;

/// Who may see what of a lane.
#[derive(Debug, Clone, Copy)]
pub(super) enum Gate<'a> {
    /// Everybody everything.
    All,
    /// Only what is published under one key.
    Key(i64),
    /// A reader what is published under keys he follows, unless he hides its author.
    Follower {
        followed: &'a HashSet<i64>,
        hidden: &'a HashSet<i64>,
    },
}

/// A page to be picked.
#[derive(Debug)]
pub(super) struct Pick<'a> {
    pub(super) connection: &'a Connection,
    pub(super) nsid: &'a str,
    pub(super) lane: i64,
    pub(super) gate: Gate<'a>,
    pub(super) lens: &'a Lens,
    pub(super) ids: &'a Ids,
    pub(super) plan: &'a Plan,
    pub(super) before: Option<&'a Position>,
    pub(super) limit: usize,
    pub(super) scan_max: usize,
}

impl Pick<'_> {
    /// The page in the lens's order, by whatever index it has; `None` if none can tell.
    ///
    /// `walk` makes the page without one, looking at no more than it is told.
    pub(super) fn page(
        &self,
        walk: &dyn Fn(usize) -> Result<Page, Error>,
    ) -> Result<Option<Page>, Error> {
        match (&self.lens.sort, &self.lens.among) {
            (Some(sort), _) => self.sorted(sort).map(Some),
            (None, Some(among)) => self.picked(&**among),
            (None, None) => self.narrowed(walk),
        }
    }

    /// The page; `None` if the candidates are too far behind.
    fn picked(&self, among: &dyn Candidates) -> Result<Option<Page>, Error> {
        let Some((changed, mut late)) = self.changed_since(among.position())? else {
            return Ok(None);
        };
        let mut page = Page::default();
        let mut looked = 0;
        loop {
            let hits = among.next().map_err(carried)?;
            looked += hits.looked.max(1);
            let mut here: Vec<(i64, Position)> = hits
                .found
                .into_iter()
                .filter(|(record, _)| !changed.contains(record))
                .collect();
            let reached = hits.reached;
            let due = |(_, place): &(i64, Position)| reached.as_ref().is_none_or(|at| place >= at);
            let split = late.partition_point(due);
            here.extend(late.drain(..split));
            here.sort_by(|a, b| b.1.cmp(&a.1));
            for (record, place) in here {
                let above = self.before.is_some_and(|before| place >= *before);
                let Some(row) = (!above)
                    .then(|| self.admitted(record, &place))
                    .transpose()?
                else {
                    continue;
                };
                let Some(row) = row else { continue };
                if page.is_full(self.limit) {
                    return Ok(Some(page.ended()));
                }
                page.push(row);
            }
            match reached {
                None => return Ok(Some(page)),
                Some(reached) if looked >= self.scan_max => {
                    page.next = Some(reached);
                    return Ok(Some(page));
                }
                Some(_) => {}
            }
        }
    }

    /// Records touched since a position, and where those that are still here stand, newest first.
    #[allow(clippy::type_complexity)] // said in the line above
    fn changed_since(
        &self,
        position: i64,
    ) -> Result<Option<(BTreeSet<i64>, Vec<(i64, Position)>)>, Error> {
        let drawn = outbox::draw(self.connection, position, BEHIND_MAX)?;
        if drawn.gone || drawn.changes.len() >= BEHIND_MAX {
            return Ok(None);
        }
        let mut changed = BTreeSet::new();
        for (_, change) in &drawn.changes {
            if let Change::Put { record, .. } | Change::Delete { record, .. } = change {
                changed.insert(*record);
            }
        }
        let mut late = Vec::new();
        for record in &changed {
            if let Some((row, _)) = self.visible(*record)?
                && row.collection == self.nsid
            {
                late.push((*record, row.position()));
            }
        }
        late.sort_by(|a, b| b.1.cmp(&a.1));
        Ok(Some((changed, late)))
    }

    fn visible(&self, record: i64) -> Result<Option<(Row, i64)>, Error> {
        self.connection
            .prepare_cached(&format!(
                "SELECT {ROW}, r.author FROM {ROW_FROM} WHERE r.id = ?1 AND {VISIBLE}"
            ))?
            .query_row([record], |row| Ok((to_row(row)?, row.get(7)?)))
            .optional()
    }

    /// The record, if it stands where the candidate says, may be seen, and passes.
    pub(super) fn admitted(&self, record: i64, place: &Position) -> Result<Option<Row>, Error> {
        if !self.is_published(place)? {
            return Ok(None);
        }
        let Some((row, account)) = self.visible(record)? else {
            return Ok(None);
        };
        let shown = match self.gate {
            Gate::Follower { hidden, .. } => {
                !hides(self.connection, self.plan, hidden, &row, account)?
            }
            Gate::All | Gate::Key(_) => true,
        };
        let fits = shown && row.time_us == place.time_us && row.uri == place.uri;
        Ok(
            match fits && passes(self.connection, self.ids, self.lens, &row)? {
                true => Some(row),
                false => None,
            },
        )
    }

    /// Whether the place is one of the lane that the gate lets through.
    fn is_published(&self, place: &Position) -> Result<bool, Error> {
        let (tail, shelf) = (tail(&place.uri), Shelf::of(self.lane));
        match self.gate {
            Gate::All => Ok(true),
            Gate::Key(key) => {
                let stem = shelf.stem(self.connection, key)?;
                let Some(tie) = stem.tie(&tail) else {
                    return Ok(false);
                };
                shelf.holds(self.connection, key, place.time_us, tie)
            }
            Gate::Follower { followed, .. } => {
                let may = self
                    .connection
                    .prepare_cached(&format!(
                        "SELECT keys FROM {} WHERE lane = ?1 AND time = ?2 AND tail = ?3",
                        shelf.recent
                    ))?
                    .query_row(params![shelf.number, place.time_us, tail], |row| {
                        Ok(keys_in(row.get_ref(0)?)?.any(|key| followed.contains(&key)))
                    })
                    .optional()?;
                Ok(may.unwrap_or(false))
            }
        }
    }
}

/// Another engine's error, on its way through this one.
fn carried(error: StoreError) -> Error {
    Error::ToSqlConversionFailure(Box::new(error))
}
