//! Which version of a record wins.
//!
//! In:    what is stored at a path, and an operation on it.
//! Out:   nothing to do (and how that is counted), or that it must be applied.
//! Never: an older version over a newer one, in any order of arrival.

use crate::accounting::Outcome;
use crate::ids::Rev;

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Live,
    Deleted,
    /// Refused by the checks; what was there before is gone.
    Refused,
}

impl State {
    /// The number under which it is stored.
    pub fn code(self) -> i64 {
        match self {
            Self::Live => 0,
            Self::Deleted => 1,
            Self::Refused => 2,
        }
    }

    /// The state behind a stored number.
    pub fn from_code(code: i64) -> Self {
        match code {
            0 => Self::Live,
            2 => Self::Refused,
            _ => Self::Deleted,
        }
    }
}

/// The version that is stored.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a> {
    pub rev: Rev,
    pub state: State,
    pub cid: Option<&'a [u8]>,
}

/// The version that an operation brings.
#[derive(Debug, Clone, Copy)]
pub struct Incoming<'a> {
    pub rev: Rev,
    /// What would be at the path.
    pub state: State,
    pub cid: Option<&'a [u8]>,
    /// Read from the repository as a whole: the same content under another revision is no news.
    pub fetched: bool,
}

/// The outcome of an operation that changes nothing; `None` if it must be applied.
///
/// `snapshot` is the revision of the account's last snapshot: what a stream says at or below it
/// was replaced by the snapshot.
pub fn settled(
    stored: Option<Stored<'_>>,
    snapshot: Rev,
    incoming: Incoming<'_>,
) -> Option<Outcome> {
    let late = !incoming.fetched && incoming.rev <= snapshot;
    let Some(old) = stored else {
        return late.then_some(Outcome::Superseded);
    };
    if incoming.fetched && is_same(old, incoming) {
        return Some(Outcome::Repeated);
    }
    if incoming.rev == old.rev {
        // Deletes win ties; a refused record may be let in by a later check.
        return match (old.state, incoming.state) {
            (State::Refused, State::Refused)
            | (State::Deleted, State::Deleted)
            | (State::Live, State::Live | State::Refused) => Some(Outcome::Repeated),
            (State::Deleted, _) => Some(Outcome::Superseded),
            _ => None,
        };
    }
    (incoming.rev < old.rev || late).then_some(Outcome::Superseded)
}

fn is_same(old: Stored<'_>, incoming: Incoming<'_>) -> bool {
    match incoming.state {
        State::Live => {
            old.state == State::Live && incoming.cid.is_some() && incoming.cid == old.cid
        }
        State::Deleted => old.state != State::Live,
        // The same bytes are one dead letter; a newer refusal replaces it.
        State::Refused => old.state == State::Refused && incoming.rev <= old.rev,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(stored: (u64, State), incoming: (u64, State), expected: Option<Outcome>) {
        let stored = Stored {
            rev: Rev(stored.0),
            state: stored.1,
            cid: None,
        };
        let incoming = Incoming {
            rev: Rev(incoming.0),
            state: incoming.1,
            cid: None,
            fetched: false,
        };
        assert_eq!(settled(Some(stored), Rev(0), incoming), expected);
    }

    #[test]
    fn a_fetched_record_that_is_refused_replaces_an_older_refusal_only() {
        let stored = Stored {
            rev: Rev(5),
            state: State::Refused,
            cid: None,
        };
        let fetched = |rev: u64| Incoming {
            rev: Rev(rev),
            state: State::Refused,
            cid: None,
            fetched: true,
        };
        assert_eq!(settled(Some(stored), Rev(0), fetched(6)), None);
        for rev in [4, 5] {
            let repeated = Some(Outcome::Repeated);
            assert_eq!(settled(Some(stored), Rev(0), fetched(rev)), repeated);
        }
    }

    #[test]
    fn a_newer_version_is_applied_and_an_older_one_is_not() {
        for old in [State::Live, State::Deleted, State::Refused] {
            for new in [State::Live, State::Deleted, State::Refused] {
                check((5, old), (6, new), None);
                check((5, old), (4, new), Some(Outcome::Superseded));
            }
        }
    }

    #[test]
    fn deletes_win_ties() {
        check((5, State::Live), (5, State::Deleted), None);
        check(
            (5, State::Deleted),
            (5, State::Live),
            Some(Outcome::Superseded),
        );
    }

    #[test]
    fn the_same_version_again_is_repeated() {
        check((5, State::Live), (5, State::Live), Some(Outcome::Repeated));
        check(
            (5, State::Deleted),
            (5, State::Deleted),
            Some(Outcome::Repeated),
        );
        check(
            (5, State::Refused),
            (5, State::Refused),
            Some(Outcome::Repeated),
        );
        check(
            (5, State::Live),
            (5, State::Refused),
            Some(Outcome::Repeated),
        );
    }

    #[test]
    fn a_refused_version_may_be_accepted_by_a_later_check() {
        check((5, State::Refused), (5, State::Live), None);
    }

    #[test]
    fn what_a_snapshot_replaced_cannot_come_back() {
        let incoming = Incoming {
            rev: Rev(5),
            state: State::Live,
            cid: None,
            fetched: false,
        };
        assert_eq!(settled(None, Rev(5), incoming), Some(Outcome::Superseded));
        assert_eq!(settled(None, Rev(4), incoming), None);
    }

    #[test]
    fn a_fetched_record_with_the_same_content_is_repeated() {
        let stored = Stored {
            rev: Rev(3),
            state: State::Live,
            cid: Some(b"c"),
        };
        let same = Incoming {
            rev: Rev(9),
            state: State::Live,
            cid: Some(b"c"),
            fetched: true,
        };
        let other = Incoming {
            cid: Some(b"d"),
            ..same
        };
        assert_eq!(settled(Some(stored), Rev(0), same), Some(Outcome::Repeated));
        assert_eq!(settled(Some(stored), Rev(0), other), None);
    }
}
