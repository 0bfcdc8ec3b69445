//! Accounts that are to be fetched although no chain of theirs broke: found
//! in a list, or touched by a gap that nobody can see the edges of.
//!
//! Both happen in the transaction that moves the cursor of whoever found out,
//! so a crash can neither forget an account nor a gap.

use rusqlite::Error;

use super::accounts::DUE;
use super::apply::Apply;
use crate::store::account::AccountStatus;
use crate::store::batch::BACKFILL;

impl Apply<'_> {
    /// Marks accounts of which nothing is here yet.
    pub(super) fn adopt(&mut self, dids: &[String]) -> Result<(), Error> {
        for did in dids {
            let key = match self.known_did(did)? {
                Some((key, known)) if known.tip.rev == 0 && known.snapshot == 0 => {
                    if known.repair != 0 {
                        continue;
                    }
                    key
                }
                Some(_) => continue,
                None => {
                    let key = self.memory.key(self.tx, did)?;
                    self.tx
                        .prepare_cached("INSERT INTO account (key) VALUES (?1)")?
                        .execute([key])?;
                    key
                }
            };
            self.mark(key, did, DUE)?;
        }
        Ok(())
    }

    /// Marks every account that is in step, doubts every account's standing, and has every list read again from its beginning.
    pub(super) fn all_due(&mut self) -> Result<(), Error> {
        let deleted = AccountStatus::Deleted.code();
        self.memory.accounts.clear();
        self.tx
            .prepare_cached("UPDATE account SET repair = ?1 WHERE repair = 0 AND status <> ?2")?
            .execute([DUE, deleted])?;
        self.tx
            .prepare_cached("UPDATE account SET doubt = 1 WHERE status <> ?1")?
            .execute([deleted])?;
        self.tx
            .prepare_cached("UPDATE source SET cursor = 0 WHERE name LIKE ?1")?
            .execute([format!("{BACKFILL}%")])?;
        Ok(())
    }
}
