//! Readers whose follows are not all here, accounts that are being fetched, and what the process
//! says of itself.
//!
//! A reader is known to a feed when its history came whole while all that the
//! feed reads of it was kept. Asking, giving up and the end of waiting each
//! happen in a transaction, so a crash forgets none of them.

use crate::account::{DUE_EPOCH, Status};
use crate::ids::{KeyId, Micros};
use crate::rows::{Account, Fetching, FirstRead, Heartbeat, WrongClock};
use crate::step::{Step, each};
use crate::value::Cell;
use crate::world::{Halt, first};

/// How long a reader whose host did not answer is left alone.
const AGAIN_US: Micros = 600_000_000;
/// Readers that were given up long ago and are forgotten at once.
const FORGOTTEN_MAX: usize = 8;
/// How many readers wait for their first read.
pub const WAITING: &str = "first reads";

/// Whether what a reader follows is here, as a feed needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// All of it is.
    Known,
    /// Its repository is being fetched.
    Waiting,
    /// Its host did not give it; it is not asked again for a while.
    Failed,
    /// Nobody asked for it yet.
    Unknown,
    /// Not all of it, and its account is hidden: nobody gives out its repository.
    Hidden,
}

/// Whether a reader's history came under the layout `needed` or a later one. A feed whose follows
/// come by no network needs none (0).
pub fn state(
    account: Option<&Account>,
    asked: Option<&FirstRead>,
    needed: i64,
    now_us: Micros,
) -> State {
    match (account, asked) {
        _ if needed == 0 => State::Known,
        (Some(account), _) if account.covered >= needed => State::Known,
        (Some(account), _) if !Status::from_code(account.status).visible() => State::Hidden,
        (_, Some(asked)) if asked.asked_us.is_some() => State::Waiting,
        (_, Some(asked)) => match asked.failed_us {
            Some(failed_us) if now_us.saturating_sub(failed_us) < AGAIN_US => State::Failed,
            _ => State::Unknown,
        },
        _ => State::Unknown,
    }
}

impl Step<'_, '_> {
    /// Notes that a reader's repository is to be fetched, unless too many wait already.
    pub(crate) fn first_read(
        &mut self,
        did: &str,
        needed: i64,
        waiting_max: usize,
    ) -> Result<(), Halt> {
        let now_us = self.world.now_us;
        let old = first::<FirstRead>("first_read_by_failed", Vec::new(), FORGOTTEN_MAX);
        self.world.want_scan(old.clone());
        let waiting = self.world.total_now(WAITING);
        let (key, account) = self.account(did)?;
        let asked = self.world.get::<FirstRead>(vec![key.to_value()])?;
        if state(account.as_ref(), asked.as_ref(), needed, now_us) != State::Unknown
            || waiting? >= i64::try_from(waiting_max).unwrap_or(i64::MAX)
        {
            return Ok(());
        }
        for row in self.world.scan::<FirstRead>(old)? {
            if row
                .failed_us
                .is_some_and(|it| now_us.saturating_sub(it) >= AGAIN_US)
            {
                self.world.delete::<FirstRead>(vec![row.reader.to_value()]);
            }
        }
        self.world.put(&FirstRead {
            reader: key,
            asked_us: Some(now_us),
            failed_us: None,
        });
        *self.world.total(WAITING) += 1;
        self.world.writes.repair.push(key);
        Ok(())
    }

    /// A reader's host does not answer.
    pub(crate) fn give_up_reader(&mut self, did: &str) -> Result<(), Halt> {
        let key = self.world.key(did);
        let asked = self.world.get::<FirstRead>(vec![key.to_value()])?;
        if let Some(mut asked) = asked.filter(|asked| asked.asked_us.is_some()) {
            asked.asked_us = None;
            asked.failed_us = Some(self.world.now_us);
            self.world.put(&asked);
            *self.world.total(WAITING) -= 1;
        }
        Ok(())
    }

    /// A repository came, or will not come any more: its reader waits no longer.
    pub(crate) fn first_read_done(&mut self, key: KeyId) -> Result<(), Halt> {
        if let Some(asked) = self.world.get::<FirstRead>(vec![key.to_value()])? {
            *self.world.total(WAITING) -= i64::from(asked.asked_us.is_some());
            self.world.delete::<FirstRead>(vec![key.to_value()]);
        }
        Ok(())
    }

    /// Marks an account before it is fetched.
    pub(crate) fn fetch_begun(&mut self, did: &str) -> Result<(), Halt> {
        let author = self.world.key(did);
        let known = self.world.get::<Fetching>(vec![author.to_value()])?;
        self.world.put(&Fetching {
            author,
            begun_us: self.world.now_us,
            attempts: known.map_or(0, |known| known.attempts) + 1,
        });
        Ok(())
    }

    /// Attempts are over, whatever came of them: the process lives.
    pub(crate) fn fetch_ended(&mut self, dids: &[String]) -> Result<(), Halt> {
        each(dids, |did| {
            let author = self.world.key(did);
            if self
                .world
                .get::<Fetching>(vec![author.to_value()])?
                .is_some()
            {
                self.world.delete::<Fetching>(vec![author.to_value()]);
            }
            Ok(())
        })
    }

    /// Every known account is due.
    pub(crate) fn all_due(&mut self) {
        *self.world.total(DUE_EPOCH) += 1;
    }

    /// The process says how it is.
    pub(crate) fn heartbeat(&mut self, report: &str) {
        self.world.put(&Heartbeat {
            id: 1,
            at_us: self.world.now_us,
            report: report.to_owned(),
        });
    }

    /// Notes a wrong clock, unless one is noted already.
    pub(crate) fn wrong_clock(&mut self, off_us: Micros) -> Result<(), Halt> {
        if self
            .world
            .get::<WrongClock>(vec![1i64.to_value()])?
            .is_none()
        {
            self.world.put(&WrongClock {
                id: 1,
                at_us: self.world.now_us,
                off_us,
            });
        }
        Ok(())
    }
}
