//! Readers of whom nothing is here yet: their repositories are asked for once.
//!
//! A reader counts as known when its repository was fetched, or when its chain
//! has been followed from its first commit. Asking, giving up and the end of
//! waiting each happen in a transaction, so a crash forgets none of them.

use rusqlite::{Connection, Error, OptionalExtension, params};

use super::accounts::DUE;
use super::apply::Apply;
use super::names::find_key;
use super::tip::Moved;
use crate::clock::Micros;
use crate::store::account::{AccountStatus, FirstRead};

/// How long a reader whose host did not answer is left alone.
const AGAIN_US: i64 = 600_000_000;

/// How an account stands: what it takes to say whether its history is here.
struct Standing {
    key: i64,
    known: bool,
    waiting: bool,
}

fn standing(connection: &Connection, did: &str, moved: &Moved) -> Result<Option<Standing>, Error> {
    let Some(key) = find_key(connection, did)? else {
        return Ok(None);
    };
    let followed = moved.find(connection, key)?.data.is_some();
    connection
        .prepare_cached("SELECT status, snapshot > 0, repair > 0 FROM account WHERE key = ?1")?
        .query_row([key], |row| {
            let hidden = !AccountStatus::from_code(row.get(0)?).visible();
            Ok(Standing {
                key,
                // Nobody gives out the repository of a hidden account.
                known: row.get::<_, bool>(1)? || followed || hidden,
                waiting: row.get(2)?,
            })
        })
        .optional()
}

/// Whether what a reader follows is here; `moved`: the tips that this transaction has moved.
pub(super) fn state(
    connection: &Connection,
    did: &str,
    now_us: Micros,
    moved: &Moved,
) -> Result<FirstRead, Error> {
    let Some(standing) = standing(connection, did, moved)? else {
        return Ok(FirstRead::Unknown);
    };
    if standing.known {
        return Ok(FirstRead::Known);
    }
    if standing.waiting {
        return Ok(FirstRead::Waiting);
    }
    let failed: Option<i64> = connection
        .prepare_cached("SELECT failed FROM first_read WHERE reader = ?1")?
        .query_row([standing.key], |row| row.get(0))
        .optional()?
        .flatten();
    Ok(match failed {
        Some(failed) if now_us - failed < AGAIN_US => FirstRead::Failed,
        _ => FirstRead::Unknown,
    })
}

impl Apply<'_> {
    /// Marks a reader's account to be fetched, unless too many wait already.
    pub(super) fn first_read(&mut self, did: &str, waiting_max: usize) -> Result<(), Error> {
        if state(self.tx, did, self.now_us, &self.memory.tips)? != FirstRead::Unknown {
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
        self.mark(key, did, DUE)
    }

    /// A reader's host does not answer: it is left alone for a while. An account that the
    /// stream brought as well stays marked.
    pub(super) fn give_up_reader(&mut self, did: &str) -> Result<(), Error> {
        let Some(key) = self.memory.known_key(self.tx, did)? else {
            return Ok(());
        };
        let asked = self
            .tx
            .prepare_cached(
                "UPDATE first_read SET failed = ?2 WHERE reader = ?1 AND failed IS NULL",
            )?
            .execute(params![key, self.now_us])?;
        if asked == 1 && self.memory.tips.find(self.tx, key)?.data.is_none() {
            self.memory.accounts.remove(&key);
            self.tx
                .prepare_cached(
                    "UPDATE account SET repair = 0 WHERE key = ?1 AND repair = ?2 AND snapshot = 0",
                )?
                .execute(params![key, DUE])?;
        }
        Ok(())
    }

    /// A repository came: its reader waits no longer.
    pub(super) fn first_read_done(&mut self, key: i64) -> Result<(), Error> {
        self.tx
            .prepare_cached("DELETE FROM first_read WHERE reader = ?1")?
            .execute([key])?;
        Ok(())
    }
}
