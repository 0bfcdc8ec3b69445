//! Merging: several records of one author about one thing, shown as one entry.
//!
//! In:    the live records of one (author, merge key), in any order, and the
//!        window.
//! Out:   activities, oldest first, each with its members and their union.
//! Never: an answer that depends on the order of arrival, on how often a
//!        record was delivered, or on who asks.
//!
//! Peers merge on arrival, under a lock, against the clock on the wall; then
//! a replay, a backfill or two writers at once give other activities than the
//! first run did. As a function of the records alone there is nothing to race:
//! a late record or a delete simply gives another answer. The window does not
//! slide. It begins with a group's first record, and the next record after it
//! begins the next group.

/// One live record that may be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    /// The record's time.
    pub time_us: i64,
    /// The record's URI.
    pub uri: &'a str,
    /// What it adds to the activity, such as the collection a card went into.
    pub union: &'a [String],
}

/// One feed entry made of one or more records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activity<'a> {
    /// The URI of the first record, from which the activity's id derives.
    pub first: &'a str,
    /// The first record's time, which is the activity's.
    pub time_us: i64,
    /// What all members add, in the order first seen, each once.
    pub union: Vec<&'a str>,
    /// The URIs of all members in order.
    pub members: Vec<&'a str>,
}

/// Whether a record of `time_us` belongs to the group that began at `open_us`.
pub fn joins(open_us: i64, time_us: i64, window_us: i64) -> bool {
    time_us.saturating_sub(open_us) <= window_us
}

/// The activities that `parts` form.
pub fn activities<'a>(parts: &[Part<'a>], window_us: i64) -> Vec<Activity<'a>> {
    let mut parts = parts.to_vec();
    parts.sort_unstable_by_key(|part| (part.time_us, part.uri));
    parts.dedup_by_key(|part| (part.time_us, part.uri));
    let mut activities: Vec<Activity<'a>> = Vec::new();
    for part in parts {
        let fits = activities
            .last()
            .is_some_and(|open| joins(open.time_us, part.time_us, window_us));
        if !fits {
            activities.push(Activity {
                first: part.uri,
                time_us: part.time_us,
                union: Vec::new(),
                members: Vec::new(),
            });
        }
        let Some(open) = activities.last_mut() else {
            continue;
        };
        open.members.push(part.uri);
        for value in part.union {
            if !open.union.contains(&value.as_str()) {
                open.union.push(value);
            }
        }
    }
    activities
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_US: i64 = 120_000_000;

    /// Records as (second, uri, union); activities as (members, union).
    #[track_caller]
    fn check(records: &[(i64, &str, &str)], expected: &[(&str, &str)]) {
        let unions: Vec<Vec<String>> = records
            .iter()
            .map(|(_, _, union)| union.split_whitespace().map(str::to_owned).collect())
            .collect();
        let parts: Vec<Part<'_>> = records
            .iter()
            .zip(&unions)
            .map(|((second, uri, _), union)| Part {
                time_us: second * 1_000_000,
                uri,
                union,
            })
            .collect();
        // Any order of arrival and any repetition must give the same.
        for turn in 0..parts.len().max(1) {
            let mut arrived = parts.clone();
            arrived.rotate_left(turn);
            arrived.extend(parts.iter().take(turn));
            let found: Vec<(String, String)> = activities(&arrived, WINDOW_US)
                .iter()
                .map(|one| {
                    assert_eq!(one.members.first(), Some(&one.first));
                    (one.members.join(" "), one.union.join(" "))
                })
                .collect();
            let wanted: Vec<(String, String)> = expected
                .iter()
                .map(|(members, union)| ((*members).to_owned(), (*union).to_owned()))
                .collect();
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn nothing_gives_nothing() {
        check(&[], &[]);
    }

    #[test]
    fn records_within_the_window_are_one_activity_with_the_union_in_first_seen_order() {
        check(
            &[(0, "card", ""), (1, "a", "x y"), (120, "b", "z x")],
            &[("card a b", "x y z")],
        );
    }

    #[test]
    fn the_window_does_not_slide() {
        check(
            &[
                (0, "a", "x"),
                (100, "b", "y"),
                (121, "c", "x"),
                (241, "d", ""),
            ],
            &[("a b", "x y"), ("c d", "x")],
        );
    }

    #[test]
    fn equal_times_are_ordered_by_uri() {
        check(&[(5, "b", "y"), (5, "a", "x")], &[("a b", "x y")]);
    }

    #[test]
    fn without_its_first_record_a_group_forms_anew() {
        check(
            &[(0, "a", ""), (90, "b", ""), (130, "c", ""), (215, "d", "")],
            &[("a b", ""), ("c d", "")],
        );
        check(
            &[(90, "b", ""), (130, "c", ""), (215, "d", "")],
            &[("b c", ""), ("d", "")],
        );
    }

    #[test]
    fn times_at_the_ends_of_the_range_do_not_overflow() {
        let parts = [i64::MIN, i64::MAX].map(|time_us| Part {
            time_us,
            uri: "a",
            union: &[],
        });
        assert_eq!(activities(&parts, WINDOW_US).len(), 2);
    }
}
