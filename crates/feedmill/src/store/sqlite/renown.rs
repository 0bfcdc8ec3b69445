//! Pages sorted by how many children name a record's author.
//!
//! In:    a ladder on which accounts stand, a direction, and the place where the page begins.
//! Out:   the page, and the value and place where the next one begins.
//! Never: a record skipped because others share its value, or because nobody
//!        names its author; a walk without end.
//!
//! One child moves everything that an account ever wrote. So accounts stand on
//! the ladder and not their records, and the records of one value are put
//! together when they are read: those of its accounts, merged as a feed merges
//! the keys that are followed, or all by time, asking of each whether its
//! author stands there. Both give the same records in the same order. Accounts
//! that nobody names stand nowhere: their value is 0, and that one is walked.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::ops::ControlFlow::{self, Break, Continue};

use rusqlite::{Error, params};

use super::climb::Walk;
use super::feed::{CHUNK_MAX, Merge, SEEK_KEYS_MAX, WALK_KEYS_MIN, WALKED_PER_KEY};
use super::names::find_collection;
use super::pick::{Gate, Pick};
use super::read::{tail, uri};
use super::shelf::{Shelf, keys_in, lane_of};
use crate::store::page::{Page, Position, Rung, Sort};
use crate::store::plan::LaneId;

/// The accounts of a page, by how many children name them.
#[derive(Debug)]
struct Renown<'a> {
    pick: &'a Pick<'a>,
    ladder: i64,
    /// The lane in which children are counted.
    children: i64,
    /// A lane in which every record that the gate may let through stands under its author alone.
    lane: i64,
    /// The accounts by value, where the gate names all of them.
    named: Option<BTreeMap<i64, HashSet<i64>>>,
    /// Values that were looked up; none of a hidden account.
    values: HashMap<i64, Option<i64>>,
}

impl Pick<'_> {
    pub(super) fn by_renown(
        &self,
        sort: &Sort,
        ladder: i64,
        children: LaneId,
    ) -> Result<Page, Error> {
        let Some(mut renown) = Renown::over(self, ladder, children)? else {
            return Ok(Page::default());
        };
        let mut at = match sort.from {
            Some(Rung::Number(from)) => Some(from),
            Some(Rung::Text(_) | Rung::Missing) => None,
            None => renown.next_value(None, sort.descending)?,
        };
        let mut below = self.before.filter(|_| sort.from.is_some()).cloned();
        let mut walk = Walk::default();
        while let Some(value) = at {
            let from = below.take().unwrap_or_else(above_all);
            if let Break(page) = renown.level(value, &from, &mut walk)? {
                return Ok(page);
            }
            at = renown.next_value(Some(value), sort.descending)?;
            if let Some(next) = at
                && walk.looked >= self.scan_max
            {
                return Ok(walk.cut(&Rung::Number(next), above_all()));
            }
        }
        Ok(walk.page)
    }
}

/// The place above everything of a value.
fn above_all() -> Position {
    Position {
        time_us: i64::MAX,
        uri: String::new(),
    }
}

impl<'a> Renown<'a> {
    /// `None` if there cannot be any record.
    fn over(pick: &'a Pick<'a>, ladder: i64, children: LaneId) -> Result<Option<Self>, Error> {
        let Some(&children) = pick.ids.lanes.get(children.0) else {
            return Ok(None);
        };
        let place = pick.ids.lanes.iter().position(|lane| *lane == pick.lane);
        let planned = place.and_then(|place| pick.plan.lanes.get(place));
        let by_author = planned.is_some_and(|lane| pick.plan.is_by_author(lane));
        let lane = match by_author {
            true => pick.lane,
            false => match find_collection(pick.connection, pick.nsid)? {
                Some(collection) => lane_of(collection),
                None => return Ok(None),
            },
        };
        let mut renown = Self {
            pick,
            ladder,
            children,
            lane,
            named: None,
            values: HashMap::new(),
        };
        match pick.gate {
            Gate::Key(key) if by_author => renown.name(&HashSet::from([key]))?,
            Gate::Follower { followed, .. } if by_author => renown.name(followed)?,
            Gate::All | Gate::Key(_) | Gate::Follower { .. } => {}
        }
        Ok(Some(renown))
    }

    /// Only what these accounts wrote can be on the page.
    fn name(&mut self, accounts: &HashSet<i64>) -> Result<(), Error> {
        let mut named: BTreeMap<i64, HashSet<i64>> = BTreeMap::new();
        for account in accounts {
            if let Some(value) = self.value(*account)? {
                named.entry(value).or_default().insert(*account);
            }
        }
        self.named = Some(named);
        Ok(())
    }

    /// How many children name an account; `None` if it is hidden.
    fn value(&mut self, account: i64) -> Result<Option<i64>, Error> {
        if let Some(value) = self.values.get(&account) {
            return Ok(*value);
        }
        let value = self
            .pick
            .connection
            .prepare_cached(
                "SELECT CASE WHEN coalesce((SELECT status FROM account WHERE key = ?2), 0) % 2 = 0
                 THEN coalesce((SELECT count FROM tally WHERE lane = ?1 AND key = ?2), 0) END",
            )?
            .query_row([self.children, account], |row| row.get(0))?;
        self.values.insert(account, value);
        Ok(value)
    }

    /// The value after another one; the first for `None`. That of accounts whom nobody names is 0.
    fn next_value(&self, after: Option<i64>, descending: bool) -> Result<Option<i64>, Error> {
        if let Some(named) = &self.named {
            let further = match (after, descending) {
                (None, true) => named.last_key_value(),
                (None, false) => named.first_key_value(),
                (Some(after), true) => named.range(..after).next_back(),
                (Some(after), false) => named.range((Excluded(after), Unbounded)).next(),
            };
            return Ok(further.map(|(value, _)| *value));
        }
        let on_ladder = || {
            let after = after.map(Rung::Number);
            let next = self.pick.next_rung(self.ladder, after.as_ref(), descending);
            Ok(match next? {
                Some(Rung::Number(value)) => Some(value),
                Some(Rung::Text(_) | Rung::Missing) | None => None,
            })
        };
        match (after, descending) {
            (Some(..=0), true) => Ok(None),
            (_, true) => on_ladder().map(|value| value.or(Some(0))),
            (None | Some(..0), false) => Ok(Some(0)),
            (Some(_), false) => on_ladder(),
        }
    }

    /// The accounts of a value; `None` if they are too many to be sought one by one, or nobody knows them.
    fn accounts(&self, value: i64) -> Result<Option<HashSet<i64>>, Error> {
        let accounts: HashSet<i64> = match &self.named {
            Some(named) => named.get(&value).cloned().unwrap_or_default(),
            None if value == 0 => return Ok(None),
            None => {
                let most = SEEK_KEYS_MAX as i64 + 1;
                self.pick
                    .connection
                    .prepare_cached(
                        "SELECT g.record FROM rung g LEFT JOIN account a ON a.key = g.record
                         WHERE g.ladder = ?1 AND g.rung = ?2 AND coalesce(a.status, 0) % 2 = 0 LIMIT ?3",
                    )?
                    .query_map([self.ladder, value, most], |row| row.get(0))?
                    .collect::<Result<_, _>>()?
            }
        };
        Ok((accounts.len() <= SEEK_KEYS_MAX).then_some(accounts))
    }

    /// Reads the records of one value below a place; the page, if it ends among them.
    fn level(
        &mut self,
        value: i64,
        from: &Position,
        walk: &mut Walk,
    ) -> Result<ControlFlow<Page>, Error> {
        let mut below = (from.time_us, tail(&from.uri));
        let Some(accounts) = self.accounts(value)? else {
            let walked = self.walked((value, None), &mut below, usize::MAX, walk)?;
            return Ok(walked.map_continue(drop));
        };
        let (pick, here) = (self.pick, Rung::Number(value));
        if accounts.len() >= WALK_KEYS_MIN {
            let few = accounts.len() * WALKED_PER_KEY;
            match self.walked((value, Some(&accounts)), &mut below, few, walk)? {
                Break(page) => return Ok(Break(page)),
                Continue(true) => return Ok(Continue(())),
                Continue(false) if walk.looked + accounts.len() > pick.scan_max => {
                    return Ok(Break(walk.cut(&here, self.place(&below))));
                }
                Continue(false) => {}
            }
        }
        // An account costs as much as a record, whether it has one or not.
        walk.looked += accounts.len().max(1);
        let mut merge = Merge::sought(pick, self.lane, accounts, &self.place(&below))?;
        while let Some((record, place)) = merge.next()? {
            let row = pick.admitted(record, &place)?;
            if let Some(page) = walk.take(row, &here, place, pick.limit, pick.scan_max) {
                return Ok(Break(page));
            }
        }
        Ok(Continue(()))
    }

    fn place(&self, (time_us, tail): &(i64, String)) -> Position {
        Position {
            time_us: *time_us,
            uri: uri(self.pick.nsid, tail),
        }
    }

    /// Walks so many records by time, asking of each whether its author is one of the accounts, or
    /// has the value; whether that was all. `below` moves along.
    fn walked(
        &mut self,
        (value, accounts): (i64, Option<&HashSet<i64>>),
        below: &mut (i64, String),
        rows_max: usize,
        walk: &mut Walk,
    ) -> Result<ControlFlow<Page, bool>, Error> {
        let (pick, here) = (self.pick, Rung::Number(value));
        let mut left = rows_max;
        while left > 0 {
            let chunk = left.min(CHUNK_MAX);
            let rows = self.rows_below(below, chunk)?;
            let ended = rows.len() < chunk;
            for (time_us, tail, record, author) in rows {
                *below = (time_us, tail);
                let stands = match accounts {
                    Some(accounts) => accounts.contains(&author),
                    None => self.value(author)? == Some(value),
                };
                let page = if stands {
                    let place = self.place(below);
                    let row = pick.admitted(record, &place)?;
                    walk.take(row, &here, place, pick.limit, pick.scan_max)
                } else {
                    walk.looked += 1;
                    let is_over = walk.looked >= pick.scan_max;
                    is_over.then(|| walk.cut(&here, self.place(below)))
                };
                if let Some(page) = page {
                    return Ok(Break(page));
                }
            }
            if ended {
                return Ok(Continue(true));
            }
            left -= chunk;
        }
        Ok(Continue(false))
    }

    /// The next records of the lane: time, tail, record and author.
    fn rows_below(
        &self,
        (time, tail): &(i64, String),
        limit: usize,
    ) -> Result<Vec<(i64, String, i64, i64)>, Error> {
        let Shelf { recent, number, .. } = Shelf::of(self.lane);
        let mut statement = self.pick.connection.prepare_cached(&format!(
            "SELECT time, tail, record, keys FROM {recent} WHERE lane = ?1 AND (time, tail) < (?2, ?3)
             ORDER BY time DESC, tail DESC LIMIT ?4",
        ))?;
        let from = params![number, time, tail, limit as i64];
        let rows = statement.query_map(from, |row| {
            // Under its author alone.
            let author = keys_in(row.get_ref(3)?)?.next().unwrap_or_default();
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, author))
        })?;
        rows.collect()
    }
}
