//! Accounts: their hosting status, their handle, and frames that tell nothing else.

use crate::account::{Job, Repair, Status};
use crate::accounting::Outcome;
use crate::batch::Fault;
use crate::change::Change;
use crate::dead::{self, Refusal};
use crate::ids::{Micros, Rev};
use crate::rows::Account;
use crate::step::Step;
use crate::world::Halt;

/// What streams say instead of a handle that could not be confirmed; the known one is kept.
const NO_HANDLE: &str = "handle.invalid";

/// What was last said of an account, whether it has that status yet or not.
fn hosted(account: &Account) -> Status {
    Status::from_code(account.returns.unwrap_or(account.status))
}

impl Step<'_, '_> {
    pub(crate) fn status(
        &mut self,
        did: &str,
        status: Status,
        time_us: Micros,
    ) -> Result<Outcome, Halt> {
        let (key, known) = self.account(did)?;
        if known.is_none() && status == Status::Active {
            // Nothing of theirs is here, and nothing needs hiding.
            return Ok(Outcome::Filtered);
        }
        let account = self.met(key, known)?;
        if time_us <= account.status_us {
            let same = time_us == account.status_us && status == hosted(&account);
            return Ok(match same {
                true => Outcome::Repeated,
                false => Outcome::Superseded,
            });
        }
        self.set_status(account, did, status, time_us)?;
        Ok(Outcome::Applied)
    }

    /// What a host answered. If that is news, it counts as said a microsecond after the last event:
    /// whatever the stream says after that is newer, whichever clock is ahead.
    pub(crate) fn host_status(&mut self, did: &str, status: Status) -> Result<(), Halt> {
        let (key, known) = self.account(did)?;
        let account = self.met(key, known)?;
        let time_us = account.status_us + i64::from(status != hosted(&account));
        self.set_status(account, did, status, time_us)
    }

    /// The status takes effect at once; what it means for the account's records is done by a job. An
    /// account that was deleted is back when that job is done: until then there are records of before.
    fn set_status(
        &mut self,
        mut account: Account,
        did: &str,
        status: Status,
        time_us: Micros,
    ) -> Result<(), Halt> {
        if !status.visible() {
            // Nobody gives out the repository of a hidden account.
            self.first_read_done(account.key)?;
        }
        account.status_us = time_us;
        if [hosted(&account), status].contains(&Status::Deleted) {
            // What was deleted is not here, so the history is whole for no feed.
            account.covered = 0;
        }
        if status == Status::Deleted {
            account.returns = None;
            // What a stream repeats of it is superseded.
            account.snapshot = account.snapshot.max(account.rev).max(account.newest);
            account.repair = None;
            account.job = Some(Job::Purge.code());
            account.job_at = None;
        } else if account.job == Some(Job::Purge.code()) {
            account.returns = Some(status.code());
            self.world.put(&account);
            return Ok(());
        }
        self.become_status(account, did, status);
        Ok(())
    }

    /// An account has another status now.
    pub(crate) fn become_status(&mut self, mut account: Account, did: &str, status: Status) {
        let was = Status::from_code(account.status);
        account.status = status.code();
        let turns = was.visible() != status.visible();
        if turns && account.job != Some(Job::Purge.code()) {
            account.job = Some(Job::Recount.code());
            account.job_at = None;
        }
        self.world.put(&account);
        if turns {
            self.world.change(Change::Account {
                key: account.key,
                did: did.to_owned(),
                visible: status.visible(),
            });
        }
    }

    pub(crate) fn identity(
        &mut self,
        did: &str,
        handle: Option<&str>,
        time_us: Micros,
    ) -> Result<Outcome, Halt> {
        let (_, Some(mut account)) = self.account(did)? else {
            return Ok(Outcome::Filtered);
        };
        if time_us <= account.handle_us {
            return Ok(Outcome::Repeated);
        }
        account.handle_us = time_us;
        if let Some(handle) = handle.filter(|handle| *handle != NO_HANDLE) {
            account.handle = Some(handle.to_owned());
        }
        self.world.put(&account);
        Ok(Outcome::Applied)
    }

    pub(crate) fn undecodable(
        &mut self,
        seq: i64,
        did: Option<&str>,
        (fault, raw): (&Fault, &str),
    ) -> Result<(), Halt> {
        let author = did.map(|did| self.world.key(did));
        let source = self.world.source;
        let refusal = Refusal {
            path: dead::nowhere(author),
            uri: "",
            rev: Rev(0),
            fault,
            raw,
            source,
            cursor: seq,
        };
        let kept = dead::keep(self.world, &refusal, None)?;
        self.world.receive(kept.outcome(), 1);
        // The same bytes again say nothing new about the account.
        let Some(did) = did.filter(|_| kept.new) else {
            return Ok(());
        };
        // What the frame said is lost, so its account is fetched whole.
        let (key, known) = self.account(did)?;
        let repair = match known {
            Some(_) => Repair::Holding,
            None => Repair::Due,
        };
        let mut account = self.met(key, known)?;
        self.repair(&mut account, repair);
        self.world.put(&account);
        Ok(())
    }

    /// An account that a list named: fetched if nothing of its repository is here.
    pub(crate) fn listed(&mut self, did: &str) -> Result<(), Halt> {
        let (key, known) = self.account(did)?;
        let mut account = self.met(key, known)?;
        if account.rev == Rev(0) && account.snapshot == Rev(0) {
            self.repair(&mut account, Repair::Due);
            self.world.put(&account);
        }
        Ok(())
    }
}
