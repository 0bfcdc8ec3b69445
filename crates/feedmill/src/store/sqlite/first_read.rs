//! Readers whose follows are not all here yet: their repositories are asked for once.
//!
//! A reader counts as known to a feed when its history came whole, by a fetch or by its chain from
//! the first commit on, while all that the feed reads of it was kept (`cover`). Asking, giving up and
//! the end of waiting each happen in a transaction, so a crash forgets none of them.

use rusqlite::{Connection, Error, OptionalExtension, params};

use super::accounts::{DUE, IN_STEP};
use super::apply::Apply;
use super::derive::Ids;
use super::names::find_key;
use crate::clock::Micros;
use crate::store::account::{AccountStatus, FirstRead};

/// How long a reader whose host did not answer is left alone.
const AGAIN_US: i64 = 600_000_000;

/// Whether what a reader follows is here, as a feed needs it.
pub(super) fn state(
    connection: &Connection,
    ids: &Ids,
    (did, feed): (&str, &str),
    now_us: Micros,
) -> Result<FirstRead, Error> {
    // A feed whose follows come by no network has all of them.
    let needed = ids.needed.get(feed).copied().unwrap_or_default();
    if needed == 0 {
        return Ok(FirstRead::Known);
    }
    let Some(key) = find_key(connection, did)? else {
        return Ok(FirstRead::Unknown);
    };
    let state = connection
        .prepare_cached(
            "SELECT a.status, a.covered, f.reader IS NOT NULL, f.failed
             FROM account a LEFT JOIN first_read f ON f.reader = a.key WHERE a.key = ?1",
        )?
        .query_row([key], |row| {
            if row.get::<_, i64>(1)? >= needed {
                return Ok(FirstRead::Known);
            }
            if !AccountStatus::from_code(row.get(0)?).visible() {
                return Ok(FirstRead::Hidden);
            }
            Ok(match (row.get(2)?, row.get::<_, Option<i64>>(3)?) {
                (true, None) => FirstRead::Waiting,
                (_, Some(failed)) if now_us - failed < AGAIN_US => FirstRead::Failed,
                _ => FirstRead::Unknown,
            })
        })
        .optional()?;
    Ok(state.unwrap_or(FirstRead::Unknown))
}

impl Apply<'_> {
    /// Marks a reader's account to be fetched, unless too many wait already.
    pub(super) fn first_read(
        &mut self,
        did: &str,
        feed: &str,
        waiting_max: usize,
    ) -> Result<(), Error> {
        if state(self.tx, self.ids, (did, feed), self.now_us)? != FirstRead::Unknown {
            return Ok(());
        }
        let waiting: i64 = self
            .tx
            .prepare_cached("SELECT count(*) FROM first_read WHERE failed IS NULL")?
            .query_row([], |row| row.get(0))?;
        if waiting >= i64::try_from(waiting_max).unwrap_or(i64::MAX) {
            return Ok(());
        }
        let key = self.memory.key(self.tx, did)?;
        self.tx
            .prepare_cached("INSERT OR IGNORE INTO account (key) VALUES (?1)")?
            .execute([key])?;
        self.tx
            .prepare_cached(
                "INSERT OR REPLACE INTO first_read (reader, asked, failed) VALUES (?1, ?2, NULL)",
            )?
            .execute(params![key, self.now_us])?;
        match self.known(key)? {
            Some(known) if known.repair != IN_STEP => Ok(()), // it is to be fetched anyway
            _ => self.mark(key, did, DUE),
        }
    }

    /// A reader's host does not answer: it is left alone for a while. An account that the
    /// stream brought as well stays marked.
    pub(super) fn give_up_reader(&mut self, did: &str) -> Result<(), Error> {
        let Some(key) = self.memory.known_key(self.tx, did)? else {
            return Ok(());
        };
        let asked = self
            .tx
            .prepare_cached("UPDATE first_read SET failed = ?2 WHERE reader = ?1")?
            .execute(params![key, self.now_us])?;
        let tip = self.memory.tips.find(self.tx, key)?;
        if asked == 1 && tip.data.is_none() {
            self.memory.accounts.remove(&key);
            // A gap makes every account doubtful, also one of whom nothing was ever here.
            self.tx
                .prepare_cached(
                    "UPDATE account SET repair = 0, doubt = 0
                     WHERE key = ?1 AND repair <= ?2 AND snapshot = 0 AND (doubt = 0 OR ?3)",
                )?
                .execute(params![key, DUE, tip.rev == 0])?;
        }
        Ok(())
    }

    /// A repository came, or will not come any more: its reader waits no longer.
    pub(super) fn first_read_done(&mut self, key: i64) -> Result<(), Error> {
        self.tx
            .prepare_cached("DELETE FROM first_read WHERE reader = ?1")?
            .execute([key])?;
        Ok(())
    }
}
