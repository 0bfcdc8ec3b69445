//! Pages sorted by a value, walked along its ladder.
//!
//! In:    a ladder, a direction, and the place where the page begins.
//! Out:   the page, and the value and place where the next one begins.
//! Never: a record skipped because others share its value; a walk without end.
//!
//! Values go up or down as asked; within one value the order is that of time
//! and URI, as everywhere. So a value is sought, its records are read newest
//! first, then the next value is sought. Records without a value come last,
//! whichever way the others go.

use std::cmp::Ordering;

use rusqlite::{Error, OptionalExtension, params};

use super::pick::Pick;
use super::read::tail;
use super::tally::{count, name_by, rung};
use crate::config::collection::Match;
use crate::store::ladder::Steps;
use crate::store::page::{Page, Position, Row, Rung, Sort};
use crate::store::plan::LaneId;

/// Rows of one value read at once.
const CHUNK: usize = 128;

impl Pick<'_> {
    pub(super) fn sorted(&self, sort: &Sort) -> Result<Page, Error> {
        let Some(&ladder) = self.ids.ladders.get(sort.ladder.0) else {
            return Ok(Page::default());
        };
        let steps = self.plan.ladders.get(sort.ladder.0).map(|it| &it.steps);
        if let Some(Steps::Renown { lane, .. }) = steps {
            return self.by_renown(sort, ladder, *lane);
        }
        let mut at = match &sort.from {
            Some(from) => Some(from.clone()),
            None => self.next_rung(ladder, None, sort.descending)?,
        };
        let mut before = self.before.filter(|_| sort.from.is_some()).cloned();
        let mut walk = Walk::default();
        while let Some(here) = at {
            if let Some(page) = self.level(ladder, &here, before.take(), &mut walk)? {
                return Ok(page);
            }
            at = self.next_rung(ladder, Some(&here), sort.descending)?;
        }
        Ok(walk.page)
    }

    /// The same page of a feed that ends, whose records are few enough to be sorted here.
    pub(super) fn arranged(&self, sort: &Sort, rows: Vec<Row>) -> Result<Page, Error> {
        let mut all = Vec::with_capacity(rows.len());
        for row in rows {
            all.push((self.rung_of(sort, &row)?, row));
        }
        all.sort_by(|a, b| {
            order(sort.descending, &a.0, &b.0).then_with(|| b.1.position().cmp(&a.1.position()))
        });
        let mut walk = Walk::default();
        for (here, row) in all {
            let place = row.position();
            let seen = match (&sort.from, self.before) {
                (Some(from), Some(before)) => {
                    let along = order(sort.descending, &here, from);
                    along.is_lt() || (along.is_eq() && place >= *before)
                }
                _ => false,
            };
            if seen {
                continue;
            }
            if let Some(page) = walk.take(Some(row), &here, place, self.limit, usize::MAX) {
                return Ok(page);
            }
        }
        Ok(walk.page)
    }

    fn rung_of(&self, sort: &Sort, row: &Row) -> Result<Rung, Error> {
        let ladder = self.plan.ladders.get(sort.ladder.0);
        let rung = match ladder.map(|ladder| &ladder.steps) {
            Some(Steps::Count { lane, .. }) => Some(self.counted(*lane, Match::Uri, row)?),
            Some(Steps::Renown { lane, .. }) => Some(self.counted(*lane, Match::Did, row)?),
            Some(Steps::Field { .. }) => {
                let record = record::json::from_json(&row.body).ok();
                record.and_then(|record| ladder?.rungs(&record).pop())
            }
            Some(Steps::Items { .. }) | None => None,
        };
        Ok(rung.unwrap_or(Rung::Missing))
    }

    fn counted(&self, lane: LaneId, by: Match, row: &Row) -> Result<Rung, Error> {
        let name = name_by(by, &row.did, &row.uri);
        count(self.connection, self.ids, lane, &name).map(Rung::Number)
    }

    /// Reads the records of one value; the page, if it ends among them.
    fn level(
        &self,
        ladder: i64,
        here: &Rung,
        before: Option<Position>,
        walk: &mut Walk,
    ) -> Result<Option<Page>, Error> {
        let mut below = before.map_or((i64::MAX, String::new()), |position| {
            (position.time_us, tail(&position.uri))
        });
        loop {
            let rows: Vec<(i64, String, i64)> = self
                .connection
                .prepare_cached(
                    "SELECT time, tail, record FROM rung WHERE ladder = ?1 AND rung = ?2 AND (time, tail) < (?3, ?4)
                     ORDER BY time DESC, tail DESC LIMIT ?5",
                )?
                .query_map(params![ladder, here, below.0, below.1, CHUNK as i64], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                })?
                .collect::<Result<_, _>>()?;
            let ended = rows.len() < CHUNK;
            for (time_us, tail, record) in rows {
                let (did, rkey) = tail.split_once('/').unwrap_or_default();
                let place = Position {
                    time_us,
                    uri: format!("at://{did}/{}/{rkey}", self.nsid),
                };
                let row = self.admitted(record, &place)?;
                if let Some(page) = walk.take(row, here, place, self.limit, self.scan_max) {
                    return Ok(Some(page));
                }
                below = (time_us, tail);
            }
            if ended {
                return Ok(None);
            }
        }
    }

    /// The value after another one; the first for `None`.
    pub(super) fn next_rung(
        &self,
        ladder: i64,
        after: Option<&Rung>,
        descending: bool,
    ) -> Result<Option<Rung>, Error> {
        let query = |sql: &str, bound: &Rung| {
            self.connection
                .prepare_cached(sql)?
                .query_row(params![ladder, bound], |row| Ok(rung(row.get_ref(0)?)))
                .optional()
        };
        const UP: &str =
            "SELECT rung FROM rung WHERE ladder = ?1 AND rung > ?2 ORDER BY rung LIMIT 1";
        const DOWN: &str =
            "SELECT rung FROM rung WHERE ladder = ?1 AND rung < ?2 ORDER BY rung DESC LIMIT 1";
        const FIRST: &str =
            "SELECT rung FROM rung WHERE ladder = ?1 AND ?2 IS NOT NULL ORDER BY rung LIMIT 1";
        match (after, descending) {
            (Some(Rung::Missing), _) => Ok(None),
            (None, false) => query(FIRST, &Rung::Missing),
            (Some(after), false) => query(UP, after),
            (after, true) => {
                let lower = query(DOWN, after.unwrap_or(&Rung::Missing))?;
                Ok(Some(lower.unwrap_or(Rung::Missing)))
            }
        }
    }
}

/// The order of two values; those without one come last either way.
fn order(descending: bool, a: &Rung, b: &Rung) -> Ordering {
    match (a, b) {
        (Rung::Missing, _) | (_, Rung::Missing) => a.cmp(b),
        _ if descending => b.cmp(a),
        _ => a.cmp(b),
    }
}

/// A page in the making.
#[derive(Debug, Default)]
pub(super) struct Walk {
    pub(super) page: Page,
    /// The value of the last record on the page.
    last: Option<Rung>,
    pub(super) looked: usize,
}

impl Walk {
    /// Takes one candidate, shown or not; the page, if it ends here.
    pub(super) fn take(
        &mut self,
        row: Option<Row>,
        here: &Rung,
        place: Position,
        limit: usize,
        scan_max: usize,
    ) -> Option<Page> {
        self.looked += 1;
        if let Some(row) = row {
            if self.page.is_full(limit) {
                self.page.next_rung = self.last.take();
                return Some(std::mem::take(&mut self.page).ended());
            }
            self.page.push(row);
            self.last = Some(here.clone());
        }
        (self.looked >= scan_max).then(|| self.cut(here, place))
    }

    /// The page as far as it came; the next one begins below this place.
    pub(super) fn cut(&mut self, here: &Rung, place: Position) -> Page {
        self.page.next = Some(place);
        self.page.next_rung = Some(here.clone());
        std::mem::take(&mut self.page)
    }
}
