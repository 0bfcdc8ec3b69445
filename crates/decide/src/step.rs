//! A batch in the making: the transaction, the groups it touches, and what waits for its end.

use crate::account::{DUE_EPOCH, Repair};
use crate::accounting::Outcome;
use crate::apply::{Apply, At, Stamp};
use crate::batch::Op;
use crate::content::Numbered;
use crate::ids::{KeyId, Path};
use crate::place::Things;
use crate::rows::Account;
use crate::value::Cell;
use crate::world::{Halt, World};

/// An operation that waits for the end of its batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deferred<'a> {
    pub(crate) author: KeyId,
    pub(crate) did: &'a str,
    pub(crate) stamp: Stamp<'a>,
    pub(crate) op: &'a Op,
}

/// Does something with every one of them: one that lacks rows does not keep the next one from
/// asking for its own.
pub(crate) fn each<T>(all: &[T], mut act: impl FnMut(&T) -> Result<(), Halt>) -> Result<(), Halt> {
    let mut missing = Ok(());
    for one in all {
        match act(one) {
            Err(Halt::Missing) => missing = Err(Halt::Missing),
            done => done?,
        }
    }
    missing
}

/// What the decisions of a batch work on.
#[derive(Debug)]
pub(crate) struct Step<'w, 'a> {
    pub(crate) world: &'w mut World<'a>,
    pub(crate) things: &'w mut Things,
    /// By queue: what this batch brought.
    pub(crate) deferred: Vec<Vec<Deferred<'a>>>,
}

impl<'w, 'a> Step<'w, 'a> {
    pub(crate) fn new(world: &'w mut World<'a>, things: &'w mut Things) -> Self {
        let queues = world.rules.queues.list.len();
        Self {
            world,
            things,
            deferred: vec![Vec::new(); queues],
        }
    }
}

impl<'a> Step<'_, 'a> {
    /// The account of a DID; `None` if nothing is known of it.
    pub(crate) fn account(&mut self, did: &str) -> Result<(KeyId, Option<Account>), Halt> {
        let key = self.world.key(did);
        Ok((key, self.world.get::<Account>(vec![key.to_value()])?))
    }

    /// The account, or a new one that is not due.
    pub(crate) fn met(&mut self, key: KeyId, known: Option<Account>) -> Result<Account, Halt> {
        Ok(match known {
            Some(account) => account,
            None => Account {
                key,
                epoch: self.world.total_now(DUE_EPOCH)?,
                ..Account::default()
            },
        })
    }

    /// Marks an account's repository to be fetched; what is due already stays as it is.
    pub(crate) fn repair(&mut self, account: &mut Account, repair: Repair) {
        if Repair::from_code(account.repair) < Some(repair) {
            account.repair = Some(repair.code());
            self.world.writes.repair.push(account.key);
        }
    }

    /// Puts an operation off to the end of the batch.
    pub(crate) fn defer(
        &mut self,
        queue: usize,
        (author, did): (KeyId, &'a str),
        stamp: Stamp<'a>,
        op: &'a Op,
    ) {
        if let Some(queue) = self.deferred.get_mut(queue) {
            queue.push(Deferred {
                author,
                did,
                stamp,
                op,
            });
        }
    }

    /// Counts an operation of this batch; one that lacks rows is decided again.
    pub(crate) fn receive(&mut self, outcome: Result<Outcome, Halt>) -> Result<(), Halt> {
        match outcome {
            Ok(outcome) => self.world.receive(outcome, 1),
            Err(Halt::Missing) => {}
            Err(damaged) => return Err(damaged),
        }
        Ok(())
    }

    /// Decides about one operation.
    pub(crate) fn op(
        &mut self,
        account: &Account,
        did: &str,
        stamp: Stamp<'_>,
        op: &Op,
    ) -> Result<Outcome, Halt> {
        let numbered = Numbered::of(&op.verdict, self.world.names, self.world.rules.layout);
        let path = Path {
            author: account.key,
            collection: self.world.collection(&op.collection),
            rkey: op.rkey.clone(),
        };
        self.numbered(account, (path, did, &op.collection), stamp, &numbered)
    }

    /// Decides about one operation whose names are numbers.
    pub(crate) fn numbered(
        &mut self,
        account: &Account,
        (path, did, nsid): (Path, &str, &str),
        stamp: Stamp<'_>,
        op: &Numbered,
    ) -> Result<Outcome, Halt> {
        let at = At::of(account, path, (did, nsid));
        self.apply().op(&at, stamp, op)
    }

    pub(crate) fn apply(&mut self) -> Apply<'_, 'a> {
        Apply {
            world: self.world,
            things: self.things,
        }
    }
}
