//! Proof: whether a commit is its account's own, and follows from the one before.
//!
//! In:    a commit's frame, and the account's key.
//! Out:   yes, or what is wrong.
//! Never: a look at the network: keys are the caller's.
//!
//! The signature says who made the commit. The inductive proof of Sync 1.1
//! says that the operations told are all there were: undone on the new tree,
//! they must give the root of the tree before.

use record::car::{Car, CarLimits};
use record::cid::Cid;
use record::commit::Commit as RepoCommit;
use record::event::{CommitEvent, Frame, FrameLimits};
use record::key::PublicKey;
use record::mst::{Op, invert};

use super::Doubt;

/// Undoes the operations of a commit and compares with the tree before.
pub(super) fn inductive(event: &CommitEvent<'_>, car: &Car<'_>, data: Cid) -> Result<(), Doubt> {
    let Some(prev_data) = event.prev_data else {
        // Only the first commit of a repository has nothing before it.
        return match event.since {
            None => Ok(()),
            Some(_) => Err(Doubt::Contradiction(
                "the commit does not name the tree before",
            )),
        };
    };
    if event.ops.is_empty() {
        return match data == prev_data {
            true => Ok(()),
            false => Err(Doubt::Contradiction(
                "the tree changed without an operation",
            )),
        };
    }
    let ops: Vec<Op<'_>> = event
        .ops
        .iter()
        .map(|op| Op {
            path: op.path,
            cid: op.cid,
            prev: op.prev,
        })
        .collect();
    if invert(car, data, &ops)? != prev_data {
        return Err(Doubt::Contradiction(
            "the operations do not lead from the tree before to this one",
        ));
    }
    Ok(())
}

/// Whether a frame's commit is signed with `key`; true for what cannot be read.
pub(super) fn is_signed_by(frame: &[u8], limits: &FrameLimits, key: &PublicKey) -> bool {
    let blocks = match Frame::parse_with(frame, limits) {
        Ok(Frame::Commit(event)) => event.blocks,
        Ok(Frame::Sync(event)) => event.blocks,
        _ => return true,
    };
    let Ok(car) = Car::read(blocks, CarLimits::COMMIT, false) else {
        return true;
    };
    let found = car.root().and_then(|root| Some((root, car.get(&root)?)));
    let Some((root, block)) = found else {
        return true;
    };
    match RepoCommit::parse(block) {
        // Bytes that were changed on the way are told apart from a wrong signature.
        Ok(commit) if root.names(block) => commit.verify(key).is_ok(),
        _ => true,
    }
}
