//! Readers whose follows are not all here yet: their repositories are asked for once.
//!
//! A reader counts as known to a feed when its history came whole, by a fetch or by its chain from
//! the first commit on, while all that the feed reads of it was kept (`cover`). Asking, giving up and
//! the end of waiting each happen in a transaction, so a crash forgets none of them. A reader that
//! waits is a row under its DID and nothing else: it has a key and an account when its repository
//! came. One that was given up is remembered for as long as it is left alone.

use rusqlite::{Connection, Error, OptionalExtension, params};

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
    if let Some(state) = of_account(connection, did, needed)? {
        return Ok(state);
    }
    let asked = connection
        .prepare_cached("SELECT failed FROM first_read WHERE did = ?1")?
        .query_row([did], |row| row.get::<_, Option<i64>>(0))
        .optional()?;
    Ok(match asked {
        Some(None) => FirstRead::Waiting,
        Some(Some(failed)) if now_us.saturating_sub(failed) < AGAIN_US => FirstRead::Failed,
        _ => FirstRead::Unknown,
    })
}

/// What the reader's account says by itself.
fn of_account(connection: &Connection, did: &str, needed: i64) -> Result<Option<FirstRead>, Error> {
    let Some(key) = find_key(connection, did)? else {
        return Ok(None);
    };
    let account: Option<(i64, i64)> = connection
        .prepare_cached("SELECT status, covered FROM account WHERE key = ?1")?
        .query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(match account {
        Some((_, covered)) if covered >= needed => Some(FirstRead::Known),
        Some((status, _)) if !AccountStatus::from_code(status).visible() => Some(FirstRead::Hidden),
        _ => None,
    })
}

/// Readers that wait, those who asked first before the others.
pub(super) fn waiting(connection: &Connection, limit: usize) -> Result<Vec<String>, Error> {
    connection
        .prepare_cached("SELECT did FROM first_read WHERE failed IS NULL ORDER BY asked LIMIT ?1")?
        .query_map([limit as i64], |row| row.get(0))?
        .collect()
}

impl Apply<'_> {
    /// Notes that a reader's repository is to be fetched, unless too many wait already.
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
        let long_ago = self.now_us.saturating_sub(AGAIN_US);
        self.tx
            .prepare_cached("DELETE FROM first_read WHERE failed <= ?1")?
            .execute([long_ago])?;
        self.tx
            .prepare_cached(
                "INSERT OR REPLACE INTO first_read (did, asked, failed) VALUES (?1, ?2, NULL)",
            )?
            .execute(params![did, self.now_us])?;
        self.broken.push(did.to_owned());
        Ok(())
    }

    /// A reader's host does not answer: it is left alone for a while.
    pub(super) fn give_up_reader(&mut self, did: &str) -> Result<(), Error> {
        self.tx
            .prepare_cached("UPDATE first_read SET failed = ?2 WHERE did = ?1 AND failed IS NULL")?
            .execute(params![did, self.now_us])?;
        Ok(())
    }

    /// A repository came, or will not come any more: its reader waits no longer.
    pub(super) fn first_read_done(&mut self, did: &str) -> Result<(), Error> {
        self.tx
            .prepare_cached("DELETE FROM first_read WHERE did = ?1")?
            .execute([did])?;
        Ok(())
    }
}
