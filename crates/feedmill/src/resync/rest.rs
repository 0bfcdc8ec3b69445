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
/// First pause after a host sent too much or too slowly, growing fourfold up to `LONG_MAX`: each attempt holds a
/// slot, so hosts that only waste it come seldom.
const ABUSE: Duration = Duration::from_secs(60);
/// First pause after the process died in an attempt, growing fourfold from death to death.
const INTERRUPTED: Duration = Duration::from_secs(2);
const LONG_MAX: Duration = Duration::from_secs(24 * 3600);
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
    /// The host sent too much, or too slowly.
    Abuse,
    /// What it sent is no repository of the account.
    Useless,
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
            Fault::Abuse => {
                let pause = before.map_or(ABUSE, |pause| (pause * 4).clamp(ABUSE, LONG_MAX));
                (pause, pause)
            }
            Fault::Useless => {
                let pause = before.map_or(PAUSE, |pause| (pause * 2).min(LONG_MAX));
                (pause, pause)
            }
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

    /// The rest of an account in whose fetch the process died, `passed` after that began.
    pub(super) fn interrupted(attempts: u32, passed: Duration, now: Instant) -> Self {
        let times = 4u32.saturating_pow(attempts.saturating_sub(1));
        let pause = INTERRUPTED.saturating_mul(times).min(LONG_MAX);
        Self {
            since: now,
            until: now + pause.saturating_sub(passed),
            pause,
        }
    }

    /// Whether it was tried often enough for somebody who only reads.
    pub(super) fn is_enough(&self, fault: Fault) -> bool {
        match fault {
            Fault::Passing | Fault::Useless => self.pause >= GIVE_UP,
            Fault::Busy(_) => self.until - self.since >= PUT_OFF_MAX,
            Fault::Lasting | Fault::Abuse => true,
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
    fn hosts_that_waste_a_slot_and_deaths_of_the_process_are_followed_by_pauses_that_grow_to_a_day()
    {
        let now = Instant::now();
        let (mut last, mut pauses) = (None, Vec::new());
        for _ in 0..8 {
            let rest = Rest::after(last, Fault::Abuse, now);
            pauses.push(rest.pause_s());
            last = Some(rest);
        }
        assert_eq!(pauses, [60, 240, 960, 3840, 15360, 61440, 86400, 86400]);
        let waits = |attempts: u32, passed_s: u64| {
            let rest = Rest::interrupted(attempts, Duration::from_secs(passed_s), now);
            (rest.until - now).as_secs()
        };
        let first: Vec<u64> = (1..6).map(|attempts| waits(attempts, 0)).collect();
        assert_eq!(first, [2, 8, 32, 128, 512]);
        assert_eq!((waits(3, 30), waits(3, 40)), (2, 0));
        assert_eq!((waits(9, 0), waits(u32::MAX, 0)), (86400, 86400));
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
