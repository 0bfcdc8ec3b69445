//! Merging: several records of one author about one thing, shown as one entry.
//!
//! In:    the live records of one (author, merge key), ordered by (time, uri); the window; how
//!        many records of one thing are merged at most.
//! Out:   for each record whether it begins an activity, joins the one before, or is one alone.
//! Never: an answer that depends on the order of arrival, on how often a
//!        record was delivered, or on who asks.
//!
//! Peers merge on arrival, under a lock, against the clock on the wall; then
//! a replay, a backfill or two writers at once give other activities than the
//! first run did. As a function of the records alone there is nothing to race:
//! a late record or a delete simply gives another answer. The window does not
//! slide. It begins with a group's first record, and the next record after it
//! begins the next group. Only the oldest `thing_max` records are merged, because
//! one author chooses how many there are; each of the others is an activity of its own.

/// How one record takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It is the first of an activity.
    Begins,
    /// It belongs to the activity that is open.
    Joins,
    /// It is an activity of its own, because the thing has more records than are merged.
    Alone,
}

/// Gives the records of one thing their roles, oldest first.
#[derive(Debug, Clone)]
pub struct Roles {
    window_us: i64,
    /// Records that may still be merged.
    left: usize,
    open_us: Option<i64>,
}

impl Roles {
    /// For one thing.
    pub fn new(window_us: i64, thing_max: usize) -> Self {
        Self {
            window_us,
            left: thing_max,
            open_us: None,
        }
    }

    /// The role of the next record.
    pub fn next(&mut self, time_us: i64) -> Role {
        let Some(left) = self.left.checked_sub(1) else {
            return Role::Alone;
        };
        self.left = left;
        let open = self.open_us;
        if open.is_some_and(|open_us| time_us.saturating_sub(open_us) <= self.window_us) {
            return Role::Joins;
        }
        self.open_us = Some(time_us);
        Role::Begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_US: i64 = 120_000_000;

    /// Records by their seconds; activities as lists of them.
    #[track_caller]
    fn check(thing_max: usize, seconds: &[i64], expected: &[&[i64]]) {
        let mut roles = Roles::new(WINDOW_US, thing_max);
        let mut found: Vec<Vec<i64>> = Vec::new();
        for second in seconds {
            match (roles.next(second * 1_000_000), found.last_mut()) {
                (Role::Joins, Some(open)) => open.push(*second),
                _ => found.push(vec![*second]),
            }
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn nothing_gives_nothing() {
        check(9, &[], &[]);
    }

    #[test]
    fn records_within_the_window_are_one_activity() {
        check(9, &[0, 1, 120], &[&[0, 1, 120]]);
        check(9, &[5, 5], &[&[5, 5]]);
    }

    #[test]
    fn the_window_does_not_slide() {
        check(9, &[0, 100, 121, 241], &[&[0, 100], &[121, 241]]);
    }

    #[test]
    fn without_its_first_record_a_group_forms_anew() {
        check(9, &[0, 90, 130, 215], &[&[0, 90], &[130, 215]]);
        check(9, &[90, 130, 215], &[&[90, 130], &[215]]);
    }

    #[test]
    fn only_the_oldest_are_merged() {
        check(3, &[0, 1, 2, 3, 4], &[&[0, 1, 2], &[3], &[4]]);
        check(2, &[0, 500, 501], &[&[0], &[500], &[501]]);
        check(0, &[0, 1], &[&[0], &[1]]);
    }

    #[test]
    fn times_at_the_ends_of_the_range_do_not_overflow() {
        let mut roles = Roles::new(WINDOW_US, 9);
        assert_eq!(roles.next(i64::MIN), Role::Begins);
        assert_eq!(roles.next(i64::MAX), Role::Begins);
    }
}
