//! Skew: stretches of records that were stored while the clock was wrong.
//!
//! In:    records in the order in which they came: when our clock said that was, and when each
//!        record says it was made (the time in its key).
//! Out:   stretches of them, each with how far the clock was off.
//! Never: a stretch found because a few authors lie about their time; one found where records are
//!        merely old, as in a backfill.
//!
//! A record is made before it is seen. Where many are seen before they were made, the clock was
//! behind. Where records are seen later than others that came after them, or later than now,
//! it was ahead. The newest records of a stretch tell by how much.

use crate::clock::Micros;

/// What authors' clocks and slow streams explain.
pub const TOLERANCE_US: Micros = 10 * 60 * 1_000_000;
/// Records with a time of their own that a stretch needs.
const EVIDENCE_MIN: usize = 10;
/// Records judged together at most.
const PART_MAX: usize = if cfg!(debug_assertions) { 40 } else { 10_000 };
/// One in so many may lie.
const LIARS: usize = 10;

/// A clock that was found wrong while records were stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongClock {
    /// When that was found, by that clock.
    pub at_us: Micros,
    /// It minus the events' times.
    pub off_us: Micros,
}

/// One record, as it was first seen.
#[derive(Debug, Clone, Copy)]
pub struct Sighting {
    pub record: i64,
    pub seen_us: Micros,
    pub made_us: Option<Micros>,
}

/// Records stored under a wrong clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// The numbers of the first and the last.
    pub first: i64,
    pub last: i64,
    pub records: u64,
    /// When the clock said that they came.
    pub from_us: Micros,
    pub to_us: Micros,
    /// The clock minus the true time.
    pub error_us: Micros,
}

/// Records between two jumps of the clock, or a part of them.
#[derive(Debug)]
struct Part {
    stretch: Stretch,
    /// Seen minus made, for each that says when it was made.
    ages_us: Vec<Micros>,
}

impl Part {
    fn begin(first: Sighting) -> Self {
        let mut part = Self {
            stretch: Stretch {
                first: first.record,
                last: first.record,
                records: 0,
                from_us: first.seen_us,
                to_us: first.seen_us,
                error_us: 0,
            },
            ages_us: Vec::new(),
        };
        part.push(first);
        part
    }

    fn push(&mut self, it: Sighting) {
        let stretch = &mut self.stretch;
        stretch.last = it.record;
        stretch.records += 1;
        stretch.from_us = stretch.from_us.min(it.seen_us);
        stretch.to_us = stretch.to_us.max(it.seen_us);
        self.ages_us
            .extend(it.made_us.map(|made| it.seen_us - made));
    }

    /// How old its newest records were when they were seen, but for a few whose authors lie.
    fn least_age_us(&mut self) -> Option<Micros> {
        self.ages_us.sort_unstable();
        self.ages_us.get(self.ages_us.len() / LIARS).copied()
    }

    /// Whether the clock went on without a jump from the end of this to the beginning of `next`; or
    /// nothing came for a while, and the newest records say that it was wrong by the same.
    fn goes_on(&self, next: &Self) -> bool {
        let jump_us = next.stretch.from_us - self.stretch.to_us;
        let error_us = next.stretch.error_us - self.stretch.error_us;
        jump_us.abs() <= TOLERANCE_US || error_us.abs() <= TOLERANCE_US
    }

    fn join(&mut self, next: Self) {
        let (one, two) = (&mut self.stretch, &next.stretch);
        one.last = two.last;
        one.records += two.records;
        one.from_us = one.from_us.min(two.from_us);
        one.to_us = one.to_us.max(two.to_us);
        self.ages_us.extend(next.ages_us);
    }
}

/// Takes sightings, and then tells the stretches.
#[derive(Debug, Default)]
pub struct Finder {
    parts: Vec<Part>,
    last_us: Micros,
}

impl Finder {
    /// The next record in the order in which they came.
    pub fn push(&mut self, it: Sighting) {
        let jumped = (it.seen_us - self.last_us).abs() > TOLERANCE_US;
        self.last_us = it.seen_us;
        match self.parts.last_mut() {
            Some(part) if !jumped && part.stretch.records < PART_MAX as u64 => part.push(it),
            _ => self.parts.push(Part::begin(it)),
        }
    }

    /// All stretches, given a clock that is right now.
    pub fn stretches(self, now_us: Micros) -> Vec<Stretch> {
        let mut stretches = Vec::new();
        let mut before_us = Micros::MIN / 2;
        for (kind, mut part) in groups(self.parts, now_us) {
            let age_us = part.least_age_us().unwrap_or(0);
            part.stretch.error_us = match kind {
                Clock::Right => 0,
                Clock::Behind => age_us,
                // A backfill is older than the clock was wrong; what came before it is a bound.
                Clock::Ahead => age_us.min(part.stretch.from_us - before_us),
            };
            before_us = part.stretch.to_us - part.stretch.error_us;
            if kind != Clock::Right && part.ages_us.len() >= EVIDENCE_MIN {
                stretches.push(part.stretch);
            }
        }
        stretches
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clock {
    Right,
    Behind,
    Ahead,
}

/// Parts under one clock, joined where it went on without a jump.
fn groups(mut parts: Vec<Part>, now_us: Micros) -> Vec<(Clock, Part)> {
    // From the newest on, because nothing is seen later than what came after it.
    let mut next_us = now_us;
    let mut judged = Vec::with_capacity(parts.len());
    while let Some(mut part) = parts.pop() {
        let age_us = part.least_age_us().unwrap_or(0);
        let ahead_us = part.stretch.to_us - next_us;
        let (clock, error_us) = if age_us < -TOLERANCE_US {
            (Clock::Behind, age_us)
        } else if ahead_us > TOLERANCE_US && age_us > TOLERANCE_US {
            (Clock::Ahead, ahead_us) // at least
        } else {
            (Clock::Right, 0)
        };
        next_us = next_us.min(part.stretch.from_us - error_us);
        part.stretch.error_us = age_us; // as far as the records tell
        judged.push((clock, part));
    }
    let mut groups: Vec<(Clock, Part)> = Vec::new();
    for (clock, part) in judged.into_iter().rev() {
        match groups.last_mut() {
            Some((last, group)) if *last == clock && group.goes_on(&part) => group.join(part),
            _ => groups.push((clock, part)),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = 1_000_000;
    const DAY: Micros = 86_400 * SECOND;
    const YEAR: Micros = 365 * DAY;
    const BEGUN: Micros = 1_790_000_000_000_000;

    /// Records that came one a minute, under a clock that was `error_us` off for some of them; each
    /// made `age_us` before it came. Returns (first, last, error) of each stretch.
    #[track_caller]
    fn check(
        count: i64,
        error_us: impl Fn(i64) -> Micros,
        age_us: impl Fn(i64) -> Micros,
        expected: &[(i64, i64, Micros)],
    ) {
        let mut finder = Finder::default();
        for record in 0..count {
            let true_us = BEGUN + record * 60 * SECOND;
            finder.push(Sighting {
                record,
                seen_us: true_us + error_us(record),
                made_us: Some(true_us - age_us(record)),
            });
        }
        let found = finder.stretches(BEGUN + count * 60 * SECOND);
        let shown: Vec<_> = found
            .iter()
            .map(|it| (it.first, it.last, it.error_us))
            .collect();
        assert_eq!(shown, expected);
    }

    fn within(range: std::ops::Range<i64>, error_us: Micros) -> impl Fn(i64) -> Micros {
        move |record| if range.contains(&record) { error_us } else { 0 }
    }

    #[test]
    fn a_right_clock_is_found_right_whatever_is_old_and_whoever_lies() {
        check(500, |_| 0, |_| 0, &[]);
        check(500, |_| 0, |record| record % 7 * YEAR, &[]);
        check(500, |_| 0, |_| 3 * YEAR, &[]);
        check(
            500,
            |_| 0,
            |record| if record % 20 == 0 { -YEAR } else { 0 },
            &[],
        );
    }

    #[test]
    fn a_clock_that_was_behind_is_found_with_its_error() {
        let found = [(100, 299, -YEAR)];
        check(500, within(100..300, -YEAR), |_| 0, &found);
        check(
            500,
            within(100..300, -YEAR),
            |record| record % 5 * DAY,
            &found,
        );
        check(500, within(0..500, -DAY), |_| 0, &[(0, 499, -DAY)]);
    }

    #[test]
    fn a_clock_that_was_ahead_is_found_with_its_error() {
        let found = [(100, 299, YEAR)];
        check(500, within(100..300, YEAR), |_| 0, &found);
        check(
            500,
            within(100..300, YEAR),
            |record| record % 5 * DAY,
            &found,
        );
        check(500, within(300..500, YEAR), |_| 0, &[(300, 499, YEAR)]);
        check(500, within(0..500, DAY), |_| 0, &[(0, 499, DAY)]);
    }

    #[test]
    fn old_records_that_came_under_a_clock_ahead_are_moved_back_behind_those_before_them() {
        // Nothing fresh came meanwhile: only the jump tells how far the clock was off.
        let minute = 60 * SECOND;
        let age_us = |record| {
            if (100..300).contains(&record) {
                5 * YEAR
            } else {
                0
            }
        };
        check(
            500,
            within(100..300, DAY),
            age_us,
            &[(100, 299, DAY + minute)],
        );
    }

    #[test]
    fn two_wrong_times_in_a_row_are_two_stretches() {
        let error_us = |record| match record {
            100..200 => -YEAR,
            200..300 => -DAY,
            _ => 0,
        };
        check(500, error_us, |_| 0, &[(100, 199, -YEAR), (200, 299, -DAY)]);
    }

    #[test]
    fn records_that_come_once_a_day_are_evidence_too() {
        for error_us in [-YEAR, YEAR] {
            let mut finder = Finder::default();
            for record in 0..60 {
                let true_us = BEGUN + record * DAY;
                let is_wrong = (20..40).contains(&record);
                finder.push(Sighting {
                    record,
                    seen_us: true_us + if is_wrong { error_us } else { 0 },
                    made_us: Some(true_us),
                });
            }
            let found = finder.stretches(BEGUN + 60 * DAY);
            let shown: Vec<_> = found
                .iter()
                .map(|it| (it.first, it.last, it.error_us))
                .collect();
            assert_eq!(shown, [(20, 39, error_us)]);
        }
    }

    #[test]
    fn a_few_records_are_no_evidence() {
        check(500, within(100..105, -YEAR), |_| 0, &[]);
    }
}
