//! Piles: ordered sets of short byte strings that come in no order.
//!
//! In:    entries to add and to take away, within a transaction.
//! Out:   the entries in order, from any place downward ([`Descent`]).
//! Never: an entry in two places; a transaction that pays for much more than it adds.
//!
//! An index dirties a page for every entry that comes in no order, and a page
//! costs ten times what its entry does: it is found, logged, summed and copied
//! back. So entries are packed into *sheets* of one page, and sheets stand in
//! levels, each eight times as large as the one above. What a transaction
//! adds is merged into a small level, where many fall on one sheet. What is too
//! much there moves on, a stretch of neighbours at a time, into the sheets of
//! the next level at the same place. An entry is written some twenty times on
//! its way down, but a hundred at once each time.
//!
//! What is taken away is not looked for: its end is added, and where the two
//! meet on their way down both vanish. Of one thing no level holds more than one
//! or the other, and what is newer lies above.

mod descent;
pub(super) mod form;
mod sheet;

use std::collections::{BTreeSet, btree_set};
use std::ops::Bound::{Excluded, Included};

use rusqlite::{Connection, Error, OptionalExtension, params};

use super::broken;
pub(super) use descent::Descent;
use sheet::{ENTRY_BYTES_MAX, Entries, Sheet, Sign, cut, signed, split};

/// Entries of the first level; each further one may hold [`LEVEL_RATIO`] times as many.
const FIRST_MAX: usize = 4_096;
const LEVEL_RATIO: usize = 8;
/// Levels of a pile: the last one would hold five hundred thousand millions.
const LEVELS_MAX: usize = 10;
/// Entries that move down at once, at least.
const MOVED_MIN: usize = 1_024;
/// Sheets looked up at once for a move.
const MOVED_SHEETS: usize = 64;

/// Which set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pile {
    /// Live records under their authors, by time.
    Authored = 1,
    /// Records under what they refer to.
    Referred = 2,
}

/// No entry begins so.
const ABOVE_ALL: &[u8] = &[0xff; 16];

/// How a level stands.
#[derive(Debug, Clone, Default)]
struct Level {
    count: usize,
    /// Where the next stretch that moves down begins.
    turn: Vec<u8>,
    changed: bool,
}

/// What the writer adds to a pile in one transaction, and how the pile's levels stand.
#[derive(Debug)]
pub(super) struct Added {
    pile: Pile,
    entries: BTreeSet<Box<[u8]>>,
    /// How many of them are ends.
    ends: usize,
    levels: Option<Vec<Level>>,
}

impl Added {
    pub(super) fn to(pile: Pile) -> Self {
        Self {
            pile,
            entries: BTreeSet::new(),
            ends: 0,
            levels: None,
        }
    }

    pub(super) fn add(&mut self, entry: &[u8]) {
        self.change(entry, Sign::There, Sign::Gone);
    }

    /// Takes away what is there. That it was not is noticed when its end has come all the way down.
    pub(super) fn remove(&mut self, entry: &[u8]) {
        self.change(entry, Sign::Gone, Sign::There);
    }

    fn change(&mut self, entry: &[u8], now: Sign, undone: Sign) {
        debug_assert!(entry.len() < ENTRY_BYTES_MAX, "an entry must fit a sheet");
        // Ends are few: where there are none, none can be undone.
        let may_undo = undone == Sign::There || self.ends > 0;
        if may_undo && self.entries.remove(&*signed(entry, undone)) {
            self.ends -= usize::from(undone == Sign::Gone);
        } else {
            self.ends += usize::from(now == Sign::Gone);
            self.entries.insert(signed(entry, now));
        }
    }

    /// Writes what was added, before the transaction ends.
    pub(super) fn settle(&mut self, tx: &Connection) -> Result<(), Error> {
        let entries = std::mem::take(&mut self.entries);
        self.ends = 0;
        if entries.is_empty() {
            return Ok(());
        }
        let mut stack = Stack::of(tx, self.pile);
        let levels = self.levels(tx)?;
        let new: Vec<&[u8]> = entries.iter().map(|entry| &**entry).collect();
        // What would fill a level anew passes it by, and takes along what is there.
        let is_passed = |level: &usize| new.len() >= level_max(*level);
        let number = (0..LEVELS_MAX - 1).take_while(is_passed).count();
        let passed = levels.iter_mut().enumerate().take(number);
        let passed = passed.map(|(number, level)| {
            level.turn.clear();
            stack.take(number, level, usize::MAX)
        });
        let passed = passed.collect::<Result<Vec<_>, _>>()?;
        let all = passed.iter().fold(new, |all, level| level.with(&all));
        stack.merge(number, &all, levels)?;
        stack.move_down(levels)?;
        for (number, level) in levels.iter_mut().enumerate() {
            if std::mem::take(&mut level.changed) {
                stack.stand(number, level)?;
            }
        }
        stack.drop_spare()
    }

    fn levels(&mut self, tx: &Connection) -> Result<&mut Vec<Level>, Error> {
        let levels = match self.levels.take() {
            Some(levels) => levels,
            None => read_levels(tx, self.pile)?,
        };
        Ok(self.levels.insert(levels))
    }

    /// What begins with a prefix and lies below a bound.
    fn between(&self, prefix: &[u8], bound: &[u8]) -> btree_set::Range<'_, Box<[u8]>> {
        let from = prefix.min(bound);
        self.entries
            .range::<[u8], _>((Included(from), Excluded(bound)))
    }
}

fn level_max(level: usize) -> usize {
    FIRST_MAX * LEVEL_RATIO.pow(level as u32)
}

/// Counts what a level gained or lost.
fn gain(levels: &mut Vec<Level>, number: usize, count: isize) {
    if levels.len() <= number {
        levels.resize_with(number + 1, Level::default);
    }
    if let Some(level) = levels.get_mut(number) {
        level.count = level.count.saturating_add_signed(count);
        level.changed = true;
    }
}

fn read_levels(connection: &Connection, pile: Pile) -> Result<Vec<Level>, Error> {
    let mut levels = Vec::new();
    let mut statement =
        connection.prepare_cached("SELECT level, count, turn FROM level WHERE pile = ?1")?;
    let mut rows = statement.query([pile as i64])?;
    while let Some(row) = rows.next()? {
        let number = row.get::<_, i64>(0)?.clamp(0, LEVELS_MAX as i64 - 1) as usize;
        gain(&mut levels, number, row.get::<_, i64>(1)? as isize);
        if let Some(level) = levels.get_mut(number) {
            (level.turn, level.changed) = (row.get(2)?, false);
        }
    }
    Ok(levels)
}

/// In the last level nothing may be gone that was not there.
fn whole(is_last: bool, entries: &[&[u8]]) -> Result<(), Error> {
    let is_end = |entry: &&[u8]| split(entry).1 == Sign::Gone;
    if !is_last || !entries.iter().any(is_end) {
        return Ok(());
    }
    let cause = "a record is not in an index where it should be; restore the file from a copy";
    Err(Error::ToSqlConversionFailure(Box::new(broken(
        cause.into(),
    ))))
}

/// The sheets of a pile, within a transaction.
#[derive(Debug)]
struct Stack<'a> {
    tx: &'a Connection,
    pile: i64,
    /// Sheets that nothing lies on any more. What is new is written on these first: a row that comes
    /// or goes dirties the pages beside its own.
    spare: Vec<i64>,
}

/// Where a sheet lies: nothing on it is below `first`.
#[derive(Debug)]
struct Fence {
    first: Vec<u8>,
    sheet: i64,
}

impl<'a> Stack<'a> {
    fn of(tx: &'a Connection, pile: Pile) -> Self {
        Self {
            tx,
            pile: pile as i64,
            spare: Vec::new(),
        }
    }

    /// Merges entries in order into the sheets of a level.
    fn merge(
        &mut self,
        number: usize,
        mut new: &[&[u8]],
        levels: &mut Vec<Level>,
    ) -> Result<(), Error> {
        let (Some(first), Some(last)) = (new.first(), new.last()) else {
            return Ok(());
        };
        let is_last = levels.iter().skip(number + 1).all(|level| level.count == 0);
        let mut gained = 0;
        let fences = self.fences_of(number, first, last)?;
        if fences.is_empty() {
            whole(is_last, new)?;
            gained += new.len() as isize;
            for sheet in cut(new) {
                self.insert(number, &sheet)?;
            }
        }
        let uppers = fences.iter().skip(1).map(Some).chain([None]);
        for (fence, upper) in fences.iter().zip(uppers) {
            let here = upper.map_or(new.len(), |upper| {
                new.partition_point(|entry| *entry < upper.first.as_slice())
            });
            let (own, rest) = new.split_at(here);
            new = rest;
            if !own.is_empty() {
                let old = self.entries(fence.sheet)?;
                let all = old.with(own);
                whole(is_last, &all)?;
                gained += all.len() as isize - old.len() as isize;
                self.rewrite(number, fence, &all)?;
            }
        }
        gain(levels, number, gained);
        Ok(())
    }

    /// Gives a sheet other entries, and what does not fit to further ones.
    fn rewrite(&mut self, level: usize, fence: &Fence, entries: &[&[u8]]) -> Result<(), Error> {
        let sheets = cut(entries);
        let mut sheets = sheets.iter();
        let Some(sheet) = sheets.next() else {
            return self.drop_sheet(level, fence);
        };
        self.write(fence.sheet, &sheet.packed)?;
        if sheet.first < fence.first.as_slice() {
            self.drop_fence(level, &fence.first)?;
            self.put_fence(level, sheet.first, fence.sheet)?;
        }
        sheets.try_for_each(|sheet| self.insert(level, sheet))
    }

    /// The sheets that entries from `first` to `last` fall on, the lowest also for what is below all.
    fn fences_of(&self, level: usize, first: &[u8], last: &[u8]) -> Result<Vec<Fence>, Error> {
        let from: Option<Vec<u8>> = self
            .tx
            .prepare_cached(
                "SELECT first FROM fence WHERE pile = ?1 AND level = ?2 AND first <= ?3 ORDER BY first DESC LIMIT 1",
            )?
            .query_row(params![self.pile, level as i64, first], |row| row.get(0))
            .optional()?;
        let from = from.unwrap_or_default();
        let found = self.fences(level, &from, last, usize::MAX)?;
        match found.is_empty() {
            true => self.fences(level, &from, ABOVE_ALL, 1),
            false => Ok(found),
        }
    }

    fn fences(
        &self,
        level: usize,
        from: &[u8],
        through: &[u8],
        limit: usize,
    ) -> Result<Vec<Fence>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.tx
            .prepare_cached(
                "SELECT first, sheet FROM fence WHERE pile = ?1 AND level = ?2 AND first >= ?3 AND first <= ?4
                 ORDER BY first LIMIT ?5",
            )?
            .query_map(params![self.pile, level as i64, from, through, limit], |row| {
                Ok(Fence {
                    first: row.get(0)?,
                    sheet: row.get(1)?,
                })
            })?
            .collect()
    }

    /// Moves what is too much in a level to the next one.
    fn move_down(&mut self, levels: &mut Vec<Level>) -> Result<(), Error> {
        for number in 0..LEVELS_MAX - 1 {
            let Some(level) = levels.get_mut(number) else {
                return Ok(());
            };
            let Some(excess) = level.count.checked_sub(level_max(number) + 1) else {
                continue;
            };
            let moved = self.take(number, level, MOVED_MIN.max(excess + 1))?;
            let entries: Vec<&[u8]> = moved.iter().collect();
            self.merge(number + 1, &entries, levels)?;
        }
        Ok(())
    }

    /// Takes a stretch of neighbours out of a level, whole sheets: about so many entries.
    fn take(&mut self, number: usize, level: &mut Level, wanted: usize) -> Result<Entries, Error> {
        let mut taken = Entries::default();
        while taken.len() < wanted {
            let fences = self.fences(number, &level.turn, ABOVE_ALL, MOVED_SHEETS)?;
            if fences.is_empty() {
                // The end: the next stretch begins at the beginning.
                let again = !level.turn.is_empty() && taken.len() == 0;
                level.turn.clear();
                match again {
                    true => continue,
                    false => break,
                }
            }
            for fence in fences {
                level.turn.clone_from(&fence.first);
                if taken.len() >= wanted {
                    break;
                }
                taken.unpack(&self.packed(fence.sheet)?)?;
                self.drop_sheet(number, &fence)?;
            }
        }
        level.count = level.count.saturating_sub(taken.len());
        level.changed = true;
        Ok(taken)
    }

    fn packed(&self, sheet: i64) -> Result<Vec<u8>, Error> {
        self.tx
            .prepare_cached("SELECT entries FROM sheet WHERE id = ?1")?
            .query_row([sheet], |row| row.get(0))
    }

    fn entries(&self, sheet: i64) -> Result<Entries, Error> {
        let mut entries = Entries::default();
        entries.unpack(&self.packed(sheet)?)?;
        Ok(entries)
    }

    fn write(&self, sheet: i64, packed: &[u8]) -> Result<(), Error> {
        self.tx
            .prepare_cached("UPDATE sheet SET entries = ?2 WHERE id = ?1")?
            .execute(params![sheet, packed])?;
        Ok(())
    }

    fn insert(&mut self, level: usize, sheet: &Sheet<'_>) -> Result<(), Error> {
        let number = match self.spare.pop() {
            Some(number) => {
                self.write(number, &sheet.packed)?;
                number
            }
            None => {
                self.tx
                    .prepare_cached("INSERT INTO sheet (entries) VALUES (?1)")?
                    .execute([&sheet.packed])?;
                self.tx.last_insert_rowid()
            }
        };
        self.put_fence(level, sheet.first, number)
    }

    fn put_fence(&self, level: usize, first: &[u8], sheet: i64) -> Result<(), Error> {
        self.tx
            .prepare_cached(
                "INSERT INTO fence (pile, level, first, sheet) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![self.pile, level as i64, first, sheet])?;
        Ok(())
    }

    fn drop_fence(&self, level: usize, first: &[u8]) -> Result<(), Error> {
        self.tx
            .prepare_cached("DELETE FROM fence WHERE pile = ?1 AND level = ?2 AND first = ?3")?
            .execute(params![self.pile, level as i64, first])?;
        Ok(())
    }

    fn drop_sheet(&mut self, level: usize, fence: &Fence) -> Result<(), Error> {
        self.spare.push(fence.sheet);
        self.drop_fence(level, &fence.first)
    }

    /// Gives back the sheets that were not needed again.
    fn drop_spare(&mut self) -> Result<(), Error> {
        let mut drop = self.tx.prepare_cached("DELETE FROM sheet WHERE id = ?1")?;
        for sheet in self.spare.drain(..) {
            drop.execute([sheet])?;
        }
        Ok(())
    }

    /// Writes how a level stands.
    fn stand(&self, number: usize, level: &Level) -> Result<(), Error> {
        self.tx
            .prepare_cached(
                "INSERT INTO level (pile, level, count, turn) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (pile, level) DO UPDATE SET count = ?3, turn = ?4",
            )?
            .execute(params![
                self.pile,
                number as i64,
                level.count as i64,
                level.turn
            ])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
