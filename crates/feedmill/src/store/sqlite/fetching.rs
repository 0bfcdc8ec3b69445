//! Accounts that are being fetched: a durable mark before each attempt, taken away after it.
//!
//! A mark that a start finds is of an account that was being fetched when the process died. Perhaps
//! it died of that, so the account waits, longer from one such death to the next.

use rusqlite::{Connection, Error, params};

use super::apply::Apply;
use crate::store::account::Begun;

/// Every mark.
pub(super) fn begun(connection: &Connection) -> Result<Vec<Begun>, Error> {
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Begun {
            did: row.get(0)?,
            begun_us: row.get(1)?,
            attempts: row.get(2)?,
        })
    };
    connection
        .prepare_cached("SELECT did, begun, attempts FROM fetching")?
        .query_map([], read)?
        .collect()
}

impl Apply<'_> {
    /// Marks an account before it is fetched.
    pub(super) fn fetch_begun(&mut self, did: &str) -> Result<(), Error> {
        self.tx
            .prepare_cached(
                "INSERT INTO fetching (did, begun, attempts) VALUES (?1, ?2, 1)
                 ON CONFLICT (did) DO UPDATE SET begun = ?2, attempts = attempts + 1",
            )?
            .execute(params![did, self.now_us])?;
        Ok(())
    }

    /// The attempt is over, whatever came of it: the process lives.
    pub(super) fn fetch_ended(&mut self, did: &str) -> Result<(), Error> {
        self.tx
            .prepare_cached("DELETE FROM fetching WHERE did = ?1")?
            .execute([did])?;
        Ok(())
    }
}
