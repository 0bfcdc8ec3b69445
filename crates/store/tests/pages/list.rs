//! Lists of a collection: all of it, of one author, under one parent; filtered and sorted.

use std::cmp::Ordering;

use decide::value::Value;
use proptest::prelude::*;
use store::page::budget::Budget;
use store::page::filter::{Filter, Sort};
use store::page::list::{ListQuery, list};
use store::page::row::Row;

use crate::feed::{all_pages, list_of};
use crate::naive::{All, Shown};
use crate::world::{BY_N, BY_TAG, EVEN, LIKES, NOTES, POSTS, did, engines, person, post, step};

/// What the record with a number in its body is sorted by; as the world's `sort_key`.
pub(crate) fn value(n: u64) -> Value {
    match n {
        0 => Value::Blob(Vec::new()),
        1..=3 => Value::Int(n as i64 / 2),
        _ => Value::Text(format!("t{}", n % 2)),
    }
}

fn n(one: &Shown) -> u64 {
    let body: serde_json::Value = serde_json::from_str(&one.3).unwrap();
    body["n"].as_u64().unwrap()
}

/// Records in the order of their numbers: numbers, texts, then those without; within one value
/// newest first.
pub(crate) fn in_order(mut all: Vec<Shown>, descending: bool) -> Vec<Shown> {
    all.sort_by(|a, b| {
        let (one, other) = (value(n(a)), value(n(b)));
        let by_value = match (n(a) == 0, n(b) == 0) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) if descending => other.cmp(&one),
            (false, false) => one.cmp(&other),
        };
        by_value.then_with(|| (b.0, &b.1).cmp(&(a.0, &a.1)))
    });
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_list_is_what_all_rows_say(
        steps in prop::collection::vec(step(), 1..140),
        batch_max in 1..40usize,
        limit in 1..6usize,
        scan_max in 1..40usize,
    ) {
        let (_folder, engines) = engines(&steps, batch_max);
        let indexes = [(POSTS, "x.post"), (EVEN, "x.post"), (NOTES, "x.note"), (LIKES, "x.like")];
        let keys = [None, Some(did(0)), Some(did(1)), Some(person(1)), Some("topic1".into()), Some(post(1, 1)), Some("nobody".into())];
        for store in &engines {
            let snapshot = store.snapshot().unwrap();
            let all = All::of(&*snapshot);
            let filter = Filter::default();
            let budget = Budget { scan_max, ..Budget::of(limit) };
            for (index, collection) in indexes {
                for key in &keys {
                    let number = key.as_ref().map(|key| all.key(key));
                    let expected = all.under(index, |key| number.is_none_or(|number| number == Some(key)));
                    let rows = all_pages(&*snapshot, 5, |snapshot, before, _| {
                        let query = ListQuery { index, collection, key: key.as_deref(), before, filter: &filter, budget };
                        list(snapshot, &query).unwrap()
                    });
                    prop_assert_eq!(list_of(&rows), expected);
                }
            }
        }
    }

    #[test]
    fn a_filtered_or_sorted_list_is_what_all_rows_say(
        steps in prop::collection::vec(step(), 1..140),
        batch_max in 1..40usize,
        limit in 1..6usize,
        scan_max in 1..600usize,
        wanted in 0..6u64,
        descending in any::<bool>(),
        bytes_max in 1..2_000usize,
    ) {
        let (_folder, engines) = engines(&steps, batch_max);
        for store in &engines {
            let snapshot = store.snapshot().unwrap();
            let all = All::of(&*snapshot);
            for author in [None, Some(did(0)), Some(did(1))] {
                let number = author.as_ref().map(|author| all.key(author));
                let whole = all.under(POSTS, |key| number.is_none_or(|number| number == Some(key)));
                let budget = Budget { scan_max, bytes_max, ..Budget::of(limit) };
                let paged = |filter: &Filter<'_>| {
                    all_pages(&*snapshot, 60, |snapshot, before, value| {
                        let sort = filter.sort.map(|sort| Sort { from: value.cloned(), ..sort.clone() });
                        let filter = Filter { sort: sort.as_ref(), ..*filter };
                        let key = author.as_deref();
                        let query = ListQuery { index: POSTS, collection: "x.post", key, before, filter: &filter, budget };
                        list(snapshot, &query).unwrap()
                    })
                };
                let admits = |row: &Row| row.body.contains(&format!("\"n\":{wanted},"));
                let mut expected = whole.clone();
                expected.retain(|one| n(one) == wanted);
                let filter = Filter { admits: Some(&admits), ..Filter::default() };
                prop_assert_eq!(list_of(&paged(&filter)), expected.clone(), "by a predicate");
                let equal = [(BY_N, value(wanted))];
                let filter = Filter { equal: &equal, ..filter };
                prop_assert_eq!(list_of(&paged(&filter)), expected, "by an equality");
                let tags = ["tag0", "tag1"].map(|tag| (BY_TAG, Value::Text(tag.into())));
                let is_tagged = |row: &Row| !n(&crate::feed::shown(row)).is_multiple_of(3);
                let filter = Filter { equal: &tags, admits: Some(&is_tagged), ..Filter::default() };
                let mut expected = whole.clone();
                expected.retain(|one| !n(one).is_multiple_of(3));
                prop_assert_eq!(list_of(&paged(&filter)), expected, "by two values");
                for descending in [descending, !descending] {
                    let sort = Sort { sort: BY_N, descending, from: None };
                    let filter = Filter { sort: Some(&sort), ..Filter::default() };
                    let expected = in_order(whole.clone(), descending);
                    prop_assert_eq!(list_of(&paged(&filter)), expected, "sorted");
                }
            }
        }
    }
}
