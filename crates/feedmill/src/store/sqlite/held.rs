//! Held frames: what an account says between a break of its chain and the fetch of its repository.
//!
//! In:    commits of an account whose chain broke; its repository when it was fetched.
//! Out:   frames that are applied after the repository, in order.
//! Never: more bytes than `held_account_bytes_max` of one account or `held_bytes_max` of all; a unit that is not
//!        counted; an account in step whose repository is older than a frame that was dropped.
//!
//! Beyond the limits a frame is dropped and its units stay counted as held: the repository brings what it said. From
//! then on every frame of the account is dropped, so that what is kept is a beginning without a gap. `dropped` has one
//! row for each account and source, whatever they send.

use rusqlite::{Error, OptionalExtension, params};

use super::accounts::{HOLDING, Known};
use super::apply::Apply;
use crate::store::batch::Commit;

impl Apply<'_> {
    /// Keeps a commit until the repository of its account has been fetched.
    pub(super) fn hold(&mut self, key: i64, known: &Known, commit: &Commit) -> Result<(), Error> {
        if known.repair != HOLDING {
            self.mark(key, &commit.did, HOLDING)?;
        }
        if commit.ops.is_empty() {
            self.count_filtered(commit); // nothing in it to keep; the snapshot brings its revision
            return Ok(());
        }
        let units = commit.ops.len() as i64 + commit.filtered as i64;
        let kept = match self.has_room(key, commit)? {
            true => self.keep(key, commit, units)?,
            false => self.drop_frame(key, commit, units)?,
        };
        let counter = if kept {
            &mut self.tally.held
        } else {
            &mut self.tally.repeated
        };
        *counter += units;
        self.tally.received += units;
        Ok(())
    }

    /// Whether one more frame may be kept.
    fn has_room(&self, key: i64, commit: &Commit) -> Result<bool, Error> {
        let (dropped, account, all): (bool, i64, i64) = self
            .tx
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM dropped WHERE account = ?1),
                    coalesce((SELECT bytes FROM held_sum WHERE account = ?1), 0),
                    (SELECT rows FROM size WHERE name = 'held bytes')",
            )?
            .query_row([key], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let frame = i64::try_from(commit.frame.len()).unwrap_or(i64::MAX);
        let fits = |bytes: i64, max: u64| {
            bytes.saturating_add(frame) <= i64::try_from(max).unwrap_or(i64::MAX)
        };
        Ok(!dropped
            && fits(account, self.plan.held_account_bytes_max)
            && fits(all, self.plan.held_bytes_max))
    }

    /// Keeps a frame; false if it is kept already.
    fn keep(&self, key: i64, commit: &Commit, units: i64) -> Result<bool, Error> {
        let added = self
            .tx
            .prepare_cached("INSERT OR IGNORE INTO held (account, source, units, rev, frame) VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![key, self.source, units, commit.rev.cast_signed(), &*commit.frame])?;
        Ok(added == 1)
    }

    /// Counts a frame that is not kept; false if it came before.
    fn drop_frame(&self, key: i64, commit: &Commit, units: i64) -> Result<bool, Error> {
        let rev = commit.rev.cast_signed();
        let newest: Option<i64> = self
            .tx
            .prepare_cached(
                "SELECT max(rev) FROM (SELECT max(rev) AS rev FROM dropped WHERE account = ?1
                 UNION ALL SELECT max(rev) FROM held WHERE account = ?1)",
            )?
            .query_row([key], |row| row.get(0))?;
        if newest.is_some_and(|newest| rev <= newest) {
            return Ok(false);
        }
        self.tx
            .prepare_cached(
                "INSERT INTO dropped (account, source, units, rev) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (account, source) DO UPDATE SET units = units + ?3, rev = ?4",
            )?
            .execute(params![key, self.source, units, rev])?;
        Ok(true)
    }

    /// Ends what was dropped of an account up to a revision: its repository holds what became of it. Whether all of it
    /// is; otherwise the repository is older than a frame that was dropped, and must be fetched once more.
    pub(super) fn end_dropped(&mut self, key: i64, rev: u64) -> Result<bool, Error> {
        let newest: Option<i64> = self
            .tx
            .prepare_cached("SELECT max(rev) FROM dropped WHERE account = ?1")?
            .query_row([key], |row| row.get(0))?;
        let Some(newest) = newest else {
            return Ok(true);
        };
        if rev.cast_signed() < newest {
            return Ok(false);
        }
        let dropped: Vec<(String, i64)> = self
            .tx
            .prepare_cached("DELETE FROM dropped WHERE account = ?1 RETURNING source, units")?
            .query_map([key], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        self.supersede(dropped);
        Ok(true)
    }

    /// Ends all that is held of an account that is gone.
    pub(super) fn end_held(&mut self, key: i64) -> Result<(), Error> {
        let held: Vec<(String, i64)> = self
            .tx
            .prepare_cached(
                "SELECT source, sum(units) FROM held WHERE account = ?1 GROUP BY source",
            )?
            .query_map([key], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        self.tx
            .prepare_cached("DELETE FROM held WHERE account = ?1")?
            .execute([key])?;
        self.supersede(held);
        self.end_dropped(key, i64::MAX.cast_unsigned())?;
        Ok(())
    }

    /// Counts units that were held as superseded, where they came from.
    fn supersede(&mut self, held: Vec<(String, i64)>) {
        for (source, units) in held {
            let counters = self.moved(&source);
            counters.held -= units;
            counters.superseded += units;
        }
    }

    /// How many frames of an account are kept.
    pub(super) fn count_held(&self, key: i64) -> Result<i64, Error> {
        let count = self
            .tx
            .prepare_cached("SELECT count(*) FROM held WHERE account = ?1")?
            .query_row([key], |row| row.get(0))
            .optional()?;
        Ok(count.unwrap_or(0))
    }
}
