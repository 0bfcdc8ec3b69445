//! Pages that are asked for one value of a field.
//!
//! In:    filters, one of which is an equality.
//! Out:   the page, from the rows of that value alone; in the order of time.
//! Never: a page that costs as much as the larger of two lists, where the
//!        smaller one has it too.
//!
//! Where everybody may see everything the rows of the value are walked. Of a
//! feed, or of one author's records, nobody knows beforehand which are fewer:
//! these, or all records of the value. So both are walked by turns, ever
//! longer, until one of them has the page.

use std::collections::VecDeque;

use rusqlite::{Error, params};

use super::pick::{Gate, Pick};
use super::read::tail;
use crate::store::filter::{Filter, Test};
use crate::store::ladder::Steps;
use crate::store::page::{Page, Position, Rung};

/// Rows of one value read at once.
const CHUNK: usize = 128;

/// Records looked at in the first turn, and how much longer each next one is.
const TURN: usize = 500;
const LONGER: usize = 8;

/// The rows of one rung, newest first.
#[derive(Debug)]
struct Level {
    ladder: i64,
    rung: Rung,
    buffer: VecDeque<(i64, String, i64)>,
    below: (i64, String),
    ended: bool,
}

impl Pick<'_> {
    /// The page; `None` if no filter asks for one value. `walk` makes the same page from what the
    /// gate lets through, looking at no more than it is told.
    pub(super) fn narrowed(
        &self,
        walk: &dyn Fn(usize) -> Result<Page, Error>,
    ) -> Result<Option<Page>, Error> {
        let mut turn = match self.gate {
            Gate::All => self.scan_max,
            Gate::Key(_) | Gate::Follower { .. } => TURN,
        };
        loop {
            turn = turn.min(self.scan_max);
            let Some(one) = self.of_value(turn)? else {
                return Ok(None);
            };
            if self.is_whole(&one) || matches!(self.gate, Gate::All) {
                return Ok(Some(one));
            }
            let other = walk(turn)?;
            if self.is_whole(&other) {
                return Ok(Some(other));
            }
            if turn == self.scan_max {
                // Both are right as far as they go.
                let further = if one.next < other.next { one } else { other };
                return Ok(Some(further));
            }
            turn *= LONGER;
        }
    }

    /// Whether a page is as long as it can be.
    fn is_whole(&self, page: &Page) -> bool {
        page.next.is_none() || page.is_full(self.limit)
    }

    /// The page from the rows of the value, looking at `looked_max` of them.
    fn of_value(&self, looked_max: usize) -> Result<Option<Page>, Error> {
        let Some(mut levels) = self.levels() else {
            return Ok(None);
        };
        let (mut page, mut looked) = (Page::default(), 0);
        let mut last: Option<(i64, String)> = None;
        while let Some((time_us, tail, record)) = self.newest(&mut levels)? {
            let here = (time_us, tail);
            if last.as_ref() == Some(&here) {
                continue; // the same record by another meaning of what was asked
            }
            let (did, rkey) = here.1.split_once('/').unwrap_or_default();
            let uri = format!("at://{did}/{}/{rkey}", self.nsid);
            let place = Position { time_us, uri };
            last = Some(here);
            looked += 1;
            if let Some(row) = self.admitted(record, &place)? {
                if page.is_full(self.limit) {
                    return Ok(Some(page.ended()));
                }
                page.push(row);
            }
            if looked >= looked_max {
                page.next = Some(place);
                return Ok(Some(page));
            }
        }
        Ok(Some(page))
    }

    /// Where records of the value asked for stand.
    fn levels(&self) -> Option<Vec<Level>> {
        let (path, rungs) = self.lens.filters.iter().find_map(|filter| match filter {
            Filter::Field(field) if field.test == Test::Equal => {
                Some((field.path.as_str(), field.operand.rungs()?))
            }
            _ => None,
        })?;
        let below = match self.before {
            Some(before) => (before.time_us, tail(&before.uri)),
            None => (i64::MAX, String::new()),
        };
        let asked = |steps: &Steps| match steps {
            Steps::Field { path: other, .. } | Steps::Items { path: other, .. } => other == path,
            Steps::Count { .. } | Steps::Renown { .. } => false,
        };
        let ladders = self.plan.ladders.iter().zip(&self.ids.ladders);
        let mut levels = Vec::new();
        for (ladder, number) in ladders {
            if ladder.nsid == self.nsid && asked(&ladder.steps) {
                levels.extend(rungs.iter().map(|rung| Level {
                    ladder: *number,
                    rung: rung.clone(),
                    buffer: VecDeque::new(),
                    below: below.clone(),
                    ended: false,
                }));
            }
        }
        (!levels.is_empty()).then_some(levels)
    }

    /// Takes the newest row of all levels.
    fn newest(&self, levels: &mut [Level]) -> Result<Option<(i64, String, i64)>, Error> {
        for level in levels.iter_mut() {
            if level.buffer.is_empty() && !level.ended {
                self.fetch(level)?;
            }
        }
        let newest = levels
            .iter_mut()
            .filter(|level| !level.buffer.is_empty())
            .max_by(|a, b| a.buffer.front().cmp(&b.buffer.front()));
        Ok(newest.and_then(|level| level.buffer.pop_front()))
    }

    fn fetch(&self, level: &mut Level) -> Result<(), Error> {
        let mut statement = self.connection.prepare_cached(
            "SELECT time, tail, record FROM rung WHERE ladder = ?1 AND rung = ?2 AND (time, tail) < (?3, ?4)
             ORDER BY time DESC, tail DESC LIMIT ?5",
        )?;
        let (time, tail) = &level.below;
        let rows = params![level.ladder, level.rung, time, tail, CHUNK as i64];
        let found = statement.query_map(rows, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        level.buffer = found.collect::<Result<_, Error>>()?;
        level.ended = level.buffer.len() < CHUNK;
        if let Some((time, tail, _)) = level.buffer.back() {
            level.below = (*time, tail.clone());
        }
        Ok(())
    }
}
