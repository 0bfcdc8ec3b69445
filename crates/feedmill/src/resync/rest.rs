//! Rests: when an account that could not be fetched is tried again, and how long a reader is worth trying for.
//!
//! In:    what came of an attempt, and the time.
//! Out:   a rest that doubles from failure to failure; whether that was enough for somebody who only reads.
//! Never: more rests than `RESTS_MAX`; a rest that outlives the account's next success, or its being given up.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Pause after a failed attempt, doubling up to `PAUSE_MAX`.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A reader's account that failed up to this pause is given up, if nothing but the reading asked for it.
const GIVE_UP: Duration = Duration::from_secs(8);
/// So is one whose host puts us off for this long in all.
const PUT_OFF_MAX: Duration = Duration::from_secs(60);
/// Accounts that rest at once; of more, the one that is due next is tried again too early.
const RESTS_MAX: usize = 100_000;

/// Why an account could not be fetched, by what is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Try again.
    Passing,
    /// The host wants to be left alone for so long; that is no failure.
    Busy(Duration),
    /// Trying again soon cannot end differently.
    Lasting,
}

/// One account's rest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rest {
    /// When the attempt before the first of these rests ended.
    since: Instant,
    until: Instant,
    pause: Duration,
}

impl Rest {
    /// The rest after an attempt; `last`: the one before it.
    pub(super) fn after(last: Option<Self>, fault: Fault, now: Instant) -> Self {
        let (since, before) = match last {
            Some(last) => (last.since, Some(last.pause)),
            None => (now, None),
        };
        let (rest, pause) = match fault {
            Fault::Busy(rest) => (rest, before.unwrap_or(PAUSE / 2)),
            Fault::Passing | Fault::Lasting => {
                let pause = before.map_or(PAUSE, |pause| (pause * 2).min(PAUSE_MAX));
                (pause, pause)
            }
        };
        Self {
            since,
            until: now + rest,
            pause,
        }
    }

    /// Whether it was tried often enough for somebody who only reads.
    pub(super) fn is_enough(&self, fault: Fault) -> bool {
        match fault {
            Fault::Passing => self.pause >= GIVE_UP,
            Fault::Busy(_) => self.until - self.since >= PUT_OFF_MAX,
            Fault::Lasting => true,
        }
    }

    pub(super) fn pause_s(&self) -> u64 {
        self.pause.as_secs()
    }
}

/// The rests of all accounts.
#[derive(Debug, Default)]
pub(super) struct Rests {
    accounts: HashMap<String, Rest>,
}

impl Rests {
    pub(super) fn len(&self) -> usize {
        self.accounts.len()
    }

    /// The last rest of an account that has not been fetched since.
    pub(super) fn last(&self, did: &str) -> Option<Rest> {
        self.accounts.get(did).copied()
    }

    pub(super) fn is_resting(&self, did: &str, now: Instant) -> bool {
        self.last(did).is_some_and(|rest| rest.until > now)
    }

    pub(super) fn begin(&mut self, did: String, rest: Rest, now: Instant) {
        if self.accounts.len() >= RESTS_MAX {
            // Who was due long ago and was not tried is not marked any more.
            self.accounts.retain(|_, rest| rest.until + PAUSE_MAX > now);
        }
        if self.accounts.len() >= RESTS_MAX {
            let next = self.accounts.iter().min_by_key(|(_, rest)| rest.until);
            if let Some(next) = next.map(|(did, _)| did.clone()) {
                self.accounts.remove(&next);
            }
        }
        self.accounts.insert(did, rest);
    }

    /// An account was fetched, or is given up: the next failure is its first.
    pub(super) fn end(&mut self, did: &str) {
        self.accounts.remove(did);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails until that is enough; the pauses in between, in seconds.
    fn round(rests: &mut Rests, did: &str, now: &mut Instant) -> Vec<u64> {
        let mut pauses = Vec::new();
        for _ in 0..100 {
            let rest = Rest::after(rests.last(did), Fault::Passing, *now);
            if rest.is_enough(Fault::Passing) {
                rests.end(did);
                return pauses;
            }
            pauses.push(rest.pause_s());
            rests.begin(did.to_owned(), rest, *now);
            assert!(rests.is_resting(did, *now));
            *now += Duration::from_secs(rest.pause_s());
            assert!(!rests.is_resting(did, *now));
        }
        panic!("never given up: {pauses:?}");
    }

    #[test]
    fn who_is_asked_for_again_after_being_given_up_is_given_up_again_after_four_failures() {
        let (mut rests, mut now) = (Rests::default(), Instant::now());
        for _ in 0..3 {
            assert_eq!(round(&mut rests, "did:plc:nobody", &mut now), [1, 2, 4]);
            assert_eq!(rests.len(), 0, "nothing is kept of those who are given up");
            now += Duration::from_secs(600);
        }
    }

    #[test]
    fn who_does_not_exist_is_given_up_at_once_and_a_busy_host_after_a_minute() {
        let now = Instant::now();
        let check = |fault: Fault, last: Option<Rest>, later_s: u64| {
            let now = now + Duration::from_secs(later_s);
            Rest::after(last, fault, now).is_enough(fault)
        };
        assert!(check(Fault::Lasting, None, 0));
        assert!(!check(Fault::Passing, None, 0));
        let busy = Fault::Busy(Duration::from_secs(20));
        let first = Rest::after(None, busy, now);
        assert!(!check(busy, None, 0));
        assert!(!check(busy, Some(first), 20));
        assert!(check(busy, Some(first), 40));
        // Being put off is no failure.
        let failed = Rest::after(Some(first), Fault::Passing, now);
        assert_eq!(failed.pause_s(), 1);
    }

    #[test]
    fn accounts_that_stay_marked_are_tried_every_minute_and_no_more_rest_than_may() {
        let (mut rests, now) = (Rests::default(), Instant::now());
        let mut last = None;
        for _ in 0..10 {
            last = Some(Rest::after(last, Fault::Passing, now));
        }
        assert_eq!(last.unwrap().pause_s(), 60);
        for number in 0..RESTS_MAX + 10 {
            let pause = Duration::from_millis(9000 + number as u64);
            let rest = Rest::after(None, Fault::Busy(pause), now);
            rests.begin(format!("did:plc:{number}"), rest, now);
        }
        assert_eq!(rests.len(), RESTS_MAX);
        assert!(!rests.is_resting("did:plc:9", now), "it was due first");
        assert!(rests.is_resting("did:plc:10", now));
        // Those that were due long ago make room for all others.
        let now = now + Duration::from_secs(3600);
        rests.begin("did:plc:new".to_owned(), last.unwrap(), now);
        assert_eq!(rests.len(), 1);
    }
}
