//! The chain of an account's commits: the only proof that nothing was lost on
//! the way, because relays send no sign of a gap.
//!
//! In:    what is known of an account, and a commit.
//! Out:   apply it; apply it and fetch the history before it; or hold it until
//!        the repository has been fetched.

use record::cid::Cid;

use crate::account::Repair;
use crate::batch::{Chain, Commit};
use crate::ids::Rev;
use crate::rows::Account;

/// What to do with a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// It follows on what is known, or its source tells no chain.
    Apply,
    /// It is the first that was seen of a repository with a history: apply it, and fetch the rest.
    ApplyAndFetch,
    /// Something between what is known and this commit is missing: hold it.
    Hold,
}

/// What to do with a commit of an account.
pub fn link(account: &Account, commit: &Commit) -> Link {
    let Some(chain) = commit.chain else {
        return Link::Apply;
    };
    let repair = Repair::from_code(account.repair);
    let first = account.rev == Rev(0);
    let held = matches!(repair, Some(Repair::Holding | Repair::Releasing));
    let breaks = held || !follows(account, chain);
    if commit.rev > account.rev && !first && breaks {
        Link::Hold
    } else if first && chain.since.is_some() && repair.is_none() {
        Link::ApplyAndFetch
    } else {
        Link::Apply
    }
}

/// Whether a commit follows directly on what is known.
pub(crate) fn follows(account: &Account, chain: Chain) -> bool {
    let data = match (&account.data, chain.prev_data) {
        (Some(ours), Some(theirs)) => *ours == digest(&theirs),
        _ => true,
    };
    chain.since == Some(account.rev) && data
}

/// As much of a tree's hash as is kept: its row is written with every commit.
pub fn digest(cid: &Cid) -> Vec<u8> {
    cid.as_bytes().iter().skip(4).take(8).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(rev: u64, since: Option<u64>) -> Commit {
        let chain = Chain {
            since: since.map(Rev),
            prev_data: None,
            data: None,
        };
        Commit {
            did: "did:web:a.test".into(),
            rev: Rev(rev),
            chain: Some(chain),
            filtered: 0,
            ops: Vec::new(),
            frame: Vec::new(),
            live: true,
        }
    }

    #[track_caller]
    fn check(known: u64, repair: Option<Repair>, commit: &Commit, expected: Link) {
        let account = Account {
            rev: Rev(known),
            repair: repair.map(Repair::code),
            ..Account::default()
        };
        assert_eq!(link(&account, commit), expected);
    }

    #[test]
    fn a_commit_that_follows_is_applied() {
        check(5, None, &commit(6, Some(5)), Link::Apply);
    }

    #[test]
    fn a_gap_holds_the_commit_and_all_that_follow_it() {
        check(5, None, &commit(8, Some(7)), Link::Hold);
        check(5, Some(Repair::Holding), &commit(9, Some(8)), Link::Hold);
    }

    #[test]
    fn an_old_commit_needs_no_chain() {
        check(5, None, &commit(4, Some(2)), Link::Apply);
        check(5, Some(Repair::Holding), &commit(5, Some(4)), Link::Apply);
    }

    #[test]
    fn the_first_commit_of_a_long_history_asks_for_the_rest() {
        check(0, None, &commit(8, Some(7)), Link::ApplyAndFetch);
        check(0, Some(Repair::Due), &commit(8, Some(7)), Link::Apply);
        check(0, None, &commit(8, None), Link::Apply);
    }

    #[test]
    fn a_source_without_a_chain_is_believed() {
        let commit = Commit {
            chain: None,
            ..commit(9, None)
        };
        check(5, None, &commit, Link::Apply);
    }
}
