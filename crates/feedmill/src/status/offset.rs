//! Our clock held against the events' own times.
//!
//! In:    the moment at which an event became durable, and its own time.
//! Out:   how far our clock is off, once that is sure.
//! Never: one event with a wrong time taken for a wrong clock of ours; old
//!        events that are being caught up with taken for one either.
//!
//! An event from the future means that our clock is slow. An old event means
//! little: a stream is read from its cursor. But what is being caught up with
//! passes faster than time does; old events that come at the pace of time mean
//! that our clock is fast.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::clock::Micros;

/// Events whose median is believed, and the fewest that are.
const EVENTS_MAX: usize = 9;
const EVENTS_MIN: usize = 3;
/// So far may an event be ahead of our clock.
pub const AHEAD_US_MAX: Micros = 60_000_000;
/// So far may it be behind, at the pace of time.
pub const BEHIND_US_MAX: Micros = 600_000_000;
/// The pace is measured over this long at least.
const PACE_US: Micros = 60_000_000;

/// What the last events say of our clock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offsets {
    /// Our clock minus the event's time.
    last: VecDeque<Micros>,
    /// Where the pace is measured from: our clock and the event's time.
    anchor: Option<(Micros, Micros)>,
    /// Since when our clock is off.
    since_us: Option<Micros>,
}

impl Offsets {
    /// One event became durable at `now_us`.
    pub fn note(&mut self, now_us: Micros, event_us: Micros) {
        self.last.push_back(now_us - event_us);
        if self.last.len() > EVENTS_MAX {
            self.last.pop_front();
        }
        let Some(median_us) = self.median_us() else {
            return;
        };
        let off = if median_us > BEHIND_US_MAX {
            self.passes_like_time(now_us, now_us - median_us)
        } else {
            self.anchor = None;
            Some(median_us < -AHEAD_US_MAX)
        };
        match off {
            Some(true) => self.since_us = self.since_us.or(Some(now_us)),
            Some(false) => self.since_us = None,
            None => {}
        }
    }

    /// Whether events come at the pace of time; `None` until that can be said.
    fn passes_like_time(&mut self, now_us: Micros, event_us: Micros) -> Option<bool> {
        let (then_us, there_us) = *self.anchor.get_or_insert((now_us, event_us));
        let (passed_us, moved_us) = (now_us - then_us, event_us - there_us);
        if passed_us < PACE_US {
            return None;
        }
        self.anchor = Some((now_us, event_us));
        Some((moved_us - passed_us).abs() * 4 <= passed_us)
    }

    /// The median of our clock minus the events' times, if there were enough.
    pub fn median_us(&self) -> Option<Micros> {
        if self.last.len() < EVENTS_MIN {
            return None;
        }
        let mut sorted: Vec<Micros> = self.last.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }

    /// Since when our clock is off, and by how much.
    pub fn disagrees(&self) -> Option<(Micros, Micros)> {
        Some((self.since_us?, self.median_us()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Micros = 1_000_000;
    const NOW: Micros = 1_790_000_000 * S;
    const YEAR: Micros = 365 * 86_400 * S;

    fn after(events: impl IntoIterator<Item = (Micros, Micros)>) -> Offsets {
        let mut offsets = Offsets::default();
        for (now_us, event_us) in events {
            offsets.note(now_us, event_us);
        }
        offsets
    }

    #[test]
    fn events_from_the_future_mean_that_our_clock_is_slow() {
        let offsets = after((0..3).map(|n| (NOW + n, NOW + YEAR + n)));
        assert_eq!(offsets.disagrees(), Some((NOW + 2, -YEAR)));
    }

    #[test]
    fn old_events_at_the_pace_of_time_mean_that_our_clock_is_fast() {
        let offsets = after((0..130).map(|n| (NOW + n * S, NOW - YEAR + n * S)));
        let (_, by_us) = offsets.disagrees().unwrap();
        assert!((by_us - YEAR).abs() < 10 * S, "{by_us}");
    }

    #[test]
    fn a_stream_that_is_caught_up_with_says_nothing_of_our_clock() {
        let offsets = after((0..130).map(|n| (NOW + n * S, NOW - YEAR + 50 * n * S)));
        assert_eq!(offsets.disagrees(), None);
    }

    #[test]
    fn one_event_with_a_wrong_time_says_nothing_of_our_clock() {
        let at = |n: i64| NOW + n * S;
        let offsets = after((0..9).map(|n| (at(n), if n == 4 { at(n) + YEAR } else { at(n) })));
        assert_eq!(offsets.disagrees(), None);
    }

    #[test]
    fn a_clock_that_was_set_right_agrees_again() {
        let mut offsets = after((0..5).map(|n| (NOW + n, NOW + YEAR + n)));
        for n in 0..9 {
            offsets.note(NOW + YEAR + n, NOW + YEAR + n);
        }
        assert_eq!(offsets.disagrees(), None);
    }
}
