//! Groups: which records of one author about one thing are one entry of a
//! merged feed.
//!
//! In:    the members of a thing, before and after a transaction.
//! Out:   the groups that ended, and those that are new or have other members.
//! Never: an answer that depends on the order of arrival; more than `thing_max`
//!        members merged: the oldest are, and each further one is a group of its own.
//!
//! A group begins with its first record and takes all that follow within the
//! window. The window does not slide: the next record after it begins the next
//! group.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{KeyId, Micros, RecordId};

/// Where a member is in the order: time, then URI.
pub type Place = (Micros, String);

/// One record of a thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub record: RecordId,
    pub keys: Vec<KeyId>,
    pub adds: Vec<String>,
}

/// The members of a thing, in order. Of a thing with more than `thing_max` members, at least that
/// many of the oldest.
pub type Parts = BTreeMap<Place, Part>;

/// A group: its first member, and the keys of all of them, each once, in the order first seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub first: Place,
    pub record: RecordId,
    pub keys: Vec<KeyId>,
    pub members: Vec<RecordId>,
}

/// The groups that these members form, oldest first.
pub fn groups(parts: &Parts, window_us: Micros, thing_max: usize) -> Vec<Group> {
    cut(parts, |number, place, open| {
        number >= thing_max || place.0.saturating_sub(open.first.0) > window_us
    })
}

/// The groups that begin at these members.
pub fn beginning_at(parts: &Parts, firsts: &BTreeSet<Place>) -> Vec<Group> {
    cut(parts, |_, place, _| firsts.contains(place))
}

/// Cuts members into groups: `begins` says, by a member's number and place and the group that is
/// open, whether the member begins a new one.
fn cut(parts: &Parts, begins: impl Fn(usize, &Place, &Group) -> bool) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut seen = BTreeSet::new();
    for (number, (place, part)) in parts.iter().enumerate() {
        let open = groups.last_mut();
        match open.filter(|open| !begins(number, place, open)) {
            Some(open) => {
                open.keys
                    .extend(part.keys.iter().filter(|key| seen.insert(**key)));
                open.members.push(part.record);
            }
            None => {
                seen.clear();
                let keys = part.keys.iter().filter(|key| seen.insert(**key));
                groups.push(Group {
                    first: place.clone(),
                    record: part.record,
                    keys: keys.copied().collect(),
                    members: vec![part.record],
                });
            }
        }
    }
    groups
}

/// What a transaction did to the groups of a thing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Regrouped {
    /// Groups that ended, or whose members are others now, as they were.
    pub was: Vec<Group>,
    /// Groups that are new, or whose members are others now, as they are.
    pub now: Vec<Group>,
}

/// Compares the groups before and after. A group with a member that this transaction brought is
/// not what it was, even if its keys are the same: what it adds may be another.
pub fn regroup(before: &[Group], after: &[Group], brought: &BTreeSet<RecordId>) -> Regrouped {
    let old: BTreeMap<&Place, &Group> = before.iter().map(|group| (&group.first, group)).collect();
    let new: BTreeMap<&Place, &Group> = after.iter().map(|group| (&group.first, group)).collect();
    let stays = |one: &Group, other: Option<&&Group>| {
        other == Some(&one) && !one.members.iter().any(|member| brought.contains(member))
    };
    let was = before.iter().filter(|one| !stays(one, new.get(&one.first)));
    let now = after.iter().filter(|one| !stays(one, old.get(&one.first)));
    Regrouped {
        was: was.cloned().collect(),
        now: now.cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_US: Micros = 120;

    fn parts(members: &[(Micros, &str, &[i64])]) -> Parts {
        let part = |(record, (time_us, tail, keys)): (usize, &(Micros, &str, &[i64]))| {
            let part = Part {
                record: RecordId(record as i64),
                keys: keys.iter().copied().map(KeyId).collect(),
                adds: Vec::new(),
            };
            ((*time_us, (*tail).to_owned()), part)
        };
        members.iter().enumerate().map(part).collect()
    }

    /// Groups as (first, keys, members).
    #[track_caller]
    fn check(
        members: &[(Micros, &str, &[i64])],
        thing_max: usize,
        expected: &[(&str, &[i64], usize)],
    ) {
        let found = groups(&parts(members), WINDOW_US, thing_max);
        let found: Vec<(&str, Vec<i64>, usize)> = found
            .iter()
            .map(|group| {
                (
                    group.first.1.as_str(),
                    group.keys.iter().map(|key| key.0).collect(),
                    group.members.len(),
                )
            })
            .collect();
        let expected: Vec<(&str, Vec<i64>, usize)> = expected
            .iter()
            .map(|(first, keys, members)| (*first, keys.to_vec(), *members))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn members_within_the_window_of_the_first_are_one_group() {
        check(
            &[(0, "a", &[1]), (120, "b", &[2, 1])],
            10,
            &[("a", &[1, 2], 2)],
        );
    }

    #[test]
    fn the_window_does_not_slide() {
        check(
            &[(0, "a", &[1]), (100, "b", &[1]), (121, "c", &[1])],
            10,
            &[("a", &[1], 2), ("c", &[1], 1)],
        );
    }

    #[test]
    fn beyond_the_limit_every_member_is_a_group_of_its_own() {
        check(
            &[
                (0, "a", &[1]),
                (1, "b", &[1]),
                (2, "c", &[1]),
                (3, "d", &[1]),
            ],
            2,
            &[("a", &[1], 2), ("c", &[1], 1), ("d", &[1], 1)],
        );
    }

    #[test]
    fn an_older_member_pushes_the_newest_merged_one_out() {
        let before = groups(&parts(&[(1, "b", &[1]), (2, "c", &[1])]), WINDOW_US, 2);
        let after = groups(
            &parts(&[(0, "a", &[1]), (1, "b", &[1]), (2, "c", &[1])]),
            WINDOW_US,
            2,
        );
        let regrouped = regroup(&before, &after, &BTreeSet::new());
        assert_eq!(regrouped.was.len(), 1);
        assert_eq!(regrouped.now.len(), 2);
    }
}
