//! Commits: whether they follow the one before, and their operations.
//!
//! A commit whose chain is broken is held as it came until its account's
//! repository is here. Of the others the account's newest revision moves, and
//! every operation is applied or waits in its queue.

use crate::account::{Job, Repair};
use crate::accounting::Outcome;
use crate::apply::Stamp;
use crate::batch::{Commit, Op};
use crate::chain::{self, Link};
use crate::ids::Rev;
use crate::rows::{Account, Held};
use crate::step::Step;
use crate::value::Cell;
use crate::world::Halt;

impl<'a> Step<'_, 'a> {
    pub(crate) fn commit(&mut self, seq: i64, commit: &'a Commit) -> Result<(), Halt> {
        let (key, known) = self.account(&commit.did)?;
        let genesis = commit.chain.filter(|chain| chain.since.is_none());
        if known.is_none() && commit.ops.is_empty() && genesis.is_none() {
            // A repository that is new to us and holds nothing of interest.
            self.world
                .receive(Outcome::Filtered, commit.filtered.cast_signed());
            return Ok(());
        }
        let mut account = self.met(key, known)?;
        match chain::link(&account, commit) {
            Link::Hold => return self.hold(account, commit),
            Link::ApplyAndFetch => self.repair(&mut account, Repair::Due),
            Link::Apply => {}
        }
        let whole = genesis.is_some_and(|chain| chain.data.is_some());
        if whole && account.rev == Rev(0) && account.snapshot == Rev(0) {
            // Who is known from the first commit on is known whole.
            account.covered = self.world.rules.layout;
        }
        advance(&mut account, commit);
        self.world
            .receive(Outcome::Filtered, commit.filtered.cast_signed());
        self.world.put(&account);
        let source = self.world.source;
        let stamp = Stamp {
            rev: commit.rev,
            live: commit.live,
            fetched: false,
            source,
            cursor: seq,
            seen_us: self.world.now_us,
        };
        for op in &commit.ops {
            match self.world.rules.queues.of(&op.collection) {
                Some(queue) => self.defer(queue, (account.key, &commit.did), stamp, op),
                None => {
                    let outcome = self.op(&account, &commit.did, stamp, op);
                    self.receive(outcome)?;
                }
            }
        }
        Ok(())
    }

    /// Keeps a commit until its account's repository is here.
    fn hold(&mut self, mut account: Account, commit: &Commit) -> Result<(), Halt> {
        let units = commit.ops.len() as i64 + commit.filtered.cast_signed();
        if account.repair != Some(Repair::Releasing.code()) {
            self.repair(&mut account, Repair::Holding);
        }
        account.newest = account.newest.max(commit.rev);
        self.world.put(&account);
        if commit.ops.is_empty() {
            // Nothing in it to keep; the repository brings its revision.
            self.world.receive(Outcome::Filtered, units);
            return Ok(());
        }
        let held_before = self
            .world
            .get::<Held>(vec![account.key.to_value(), commit.rev.to_value()])?;
        if held_before.is_some() {
            self.world.receive(Outcome::Repeated, units);
            return Ok(());
        }
        let source = self.world.source.to_owned();
        self.world.put(&Held {
            author: account.key,
            rev: commit.rev,
            source,
            units,
            frame: commit.frame.clone(),
        });
        self.world.receive(Outcome::Held, units);
        Ok(())
    }

    pub(crate) fn sync(
        &mut self,
        did: &str,
        rev: Rev,
        data: Option<Vec<u8>>,
    ) -> Result<Outcome, Halt> {
        let (_, Some(mut account)) = self.account(did)? else {
            return Ok(Outcome::Filtered);
        };
        if account.rev == rev && account.data == data {
            return Ok(Outcome::Repeated);
        }
        if rev <= account.rev {
            return Ok(Outcome::Superseded);
        }
        self.repair(&mut account, Repair::Holding);
        self.world.put(&account);
        Ok(Outcome::Applied)
    }

    /// Applies records that were fetched one by one. The chain does not move: that would hide what
    /// the stream has yet to bring.
    pub(crate) fn fetched(&mut self, did: &str, rev: Rev, ops: &[Op]) -> Result<(), Halt> {
        let (key, known) = self.account(did)?;
        let mut account = self.met(key, known)?;
        if account.job == Some(Job::Purge.code()) {
            // What was fetched may be of before the deletion. It is fetched again once that is done.
            let units = ops.len() as i64;
            self.world.receive(Outcome::Superseded, units);
            return Ok(());
        }
        account.newest = account.newest.max(rev);
        self.world.put(&account);
        let source = self.world.source;
        let stamp = Stamp {
            rev,
            live: true,
            fetched: true,
            source,
            cursor: 0,
            seen_us: self.world.now_us,
        };
        for op in ops {
            let outcome = self.op(&account, did, stamp, op);
            self.receive(outcome)?;
        }
        Ok(())
    }
}

/// The account's newest commit is this one, if it is newer.
pub(crate) fn advance(account: &mut Account, commit: &Commit) {
    if commit.rev > account.rev {
        account.rev = commit.rev;
        let data = commit.chain.and_then(|chain| chain.data);
        account.data = data.as_ref().map(chain::digest);
    }
}
