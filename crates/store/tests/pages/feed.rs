//! Feeds: mutes, `where`, mixed targets, ends, filters, cursors that survive deletes.

use std::collections::BTreeSet;

use decide::value::Value;
use proptest::prelude::*;
use store::page::budget::Budget;
use store::page::feed::{Feed, FeedQuery, Target, feed};
use store::page::filter::{CountMin, CountOf, Filter, Sort};
use store::page::place::Place;
use store::page::record::place;
use store::page::row::{Page, Row};
use store::port::Snapshot;

use crate::naive::{All, Shown};
use crate::world::{
    BY_N, Counting, EVEN, FANS, FOLLOWS, Kind, LIKES, MUTES, NOTES, POSTS, Step, engines, fill,
    readers, step,
};

pub(crate) fn shown(row: &Row) -> Shown {
    (row.time_us, row.uri.clone(), row.id, row.body.clone())
}

/// All pages of something, until the last, each within `trips_max` round trips.
pub(crate) fn all_pages(
    snapshot: &dyn Snapshot,
    trips_max: usize,
    mut page: impl FnMut(&dyn Snapshot, Option<&Place>, Option<&Value>) -> Page,
) -> Vec<Row> {
    let counting = Counting::new(snapshot);
    let mut rows = Vec::new();
    let (mut next, mut value) = (None, None);
    loop {
        let page = page(&counting, next.as_ref(), value.as_ref());
        let trips = counting.trips();
        assert!(trips <= trips_max, "{trips} round trips");
        rows.extend(page.rows);
        let is_further =
            page.next_value.is_some() || next.is_none() || page.next.is_none() || page.next < next;
        assert!(is_further, "the next page is no further");
        (next, value) = (page.next, page.next_value);
        if next.is_none() {
            return rows;
        }
    }
}

pub(crate) fn list_of(rows: &[Row]) -> Vec<Shown> {
    rows.iter().map(shown).collect()
}

fn target(index: decide::ids::IndexId, cap: Option<usize>) -> Target {
    let collection = match index {
        NOTES => "x.note",
        _ => "x.post",
    };
    Target {
        index,
        collection: collection.into(),
        cap,
    }
}

fn feed_of(targets: &[(decide::ids::IndexId, Option<usize>)], include_self: bool) -> Feed {
    let targets = targets.iter();
    Feed {
        targets: targets.map(|(index, cap)| target(*index, *cap)).collect(),
        follows: vec![FOLLOWS],
        hides: vec![MUTES],
        include_self,
    }
}

/// The number in a record's body.
fn n(body: &str) -> u64 {
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    body["n"].as_u64().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_feed_is_what_all_rows_say(
        steps in prop::collection::vec(step(), 1..140),
        batch_max in 1..40usize,
        limit in 1..6usize,
        scan_max in 1..40usize,
        cap in prop::option::of(0..5usize),
        include_self in any::<bool>(),
    ) {
        let (_folder, engines) = engines(&steps, batch_max);
        let kinds = [
            vec![(POSTS, cap)],
            vec![(EVEN, cap)],
            vec![(POSTS, cap), (NOTES, cap)],
            vec![(POSTS, cap), (EVEN, Some(2)), (NOTES, None)],
        ];
        for targets in &kinds {
            let mixed = feed_of(targets, include_self);
            for reader in readers() {
                let mut of_engines = BTreeSet::new();
                for store in &engines {
                    let snapshot = store.snapshot().unwrap();
                    let expected = All::of(&*snapshot).feed(targets, &reader, (FOLLOWS, MUTES), include_self);
                    let filter = Filter::default();
                    let budget = Budget { scan_max, ..Budget::of(limit) };
                    let rows = all_pages(&*snapshot, 10, |snapshot, before, _| {
                        let query = FeedQuery { feed: &mixed, reader: &reader, before, filter: &filter, budget };
                        feed(snapshot, &query).unwrap()
                    });
                    prop_assert_eq!(&list_of(&rows), &expected);
                    of_engines.insert(format!("{rows:?}"));
                }
                prop_assert_eq!(of_engines.len(), 1, "engines differ");
            }
        }
    }

    #[test]
    fn a_filtered_or_sorted_feed_is_what_all_rows_say(
        steps in prop::collection::vec(step(), 1..140),
        batch_max in 1..40usize,
        limit in 1..6usize,
        scan_max in 1..600usize,
        cap in prop::option::of(1..5usize),
        wanted in 0..6u64,
        descending in any::<bool>(),
        min in 1..3i64,
    ) {
        let (_folder, engines) = engines(&steps, batch_max);
        let targets = [(POSTS, cap)];
        let one = feed_of(&targets, true);
        let admits = |row: &Row| n(&row.body) == wanted;
        let equal = [(BY_N, crate::list::value(wanted))];
        let counts = [
            CountMin { index: LIKES, of: CountOf::Record, min },
            CountMin { index: FANS, of: CountOf::Account, min: 1 },
        ];
        for reader in readers() {
            for store in &engines {
                let snapshot = store.snapshot().unwrap();
                let all = All::of(&*snapshot);
                let whole = all.feed(&targets, &reader, (FOLLOWS, MUTES), true);
                let budget = Budget { scan_max, ..Budget::of(limit) };
                let paged = |filter: &Filter<'_>| {
                    all_pages(&*snapshot, 60, |snapshot, before, value| {
                        let sort = filter.sort.map(|sort| Sort { from: value.cloned(), ..sort.clone() });
                        let filter = Filter { sort: sort.as_ref(), ..*filter };
                        let query = FeedQuery { feed: &one, reader: &reader, before, filter: &filter, budget };
                        feed(snapshot, &query).unwrap()
                    })
                };
                let mut expected = whole.clone();
                expected.retain(|one| n(&one.3) == wanted);
                let filter = Filter { admits: Some(&admits), ..Filter::default() };
                prop_assert_eq!(list_of(&paged(&filter)), expected.clone(), "by a predicate");
                let filter = Filter { equal: &equal, ..filter };
                prop_assert_eq!(list_of(&paged(&filter)), expected, "by an equality");
                let mut expected = whole.clone();
                expected.retain(|one| {
                    let did = one.1.split('/').nth(2).unwrap();
                    all.counted(LIKES, &one.1) >= min && all.counted(FANS, did) >= 1
                });
                let filter = Filter { counts: &counts, ..Filter::default() };
                prop_assert_eq!(list_of(&paged(&filter)), expected, "by counts");
                let sort = Sort { sort: BY_N, descending, from: None };
                let filter = Filter { sort: Some(&sort), ..Filter::default() };
                let expected = crate::list::in_order(whole.clone(), descending);
                prop_assert_eq!(list_of(&paged(&filter)), expected, "sorted");
            }
        }
    }
}

fn plain(kind: Kind, author: u8, rkey: u8, time: u8, target: u8) -> Step {
    Step {
        kind,
        author,
        rkey,
        time,
        target,
        n: 0,
        deletes: false,
    }
}

#[test]
fn a_cursor_survives_the_deletion_of_its_record() {
    let mut steps = vec![plain(Kind::Follow, 0, 0, 1, 1)];
    steps.extend((0..5).map(|rkey| plain(Kind::Post, 1, rkey, 10 + rkey, 0)));
    let (_folder, engines) = engines(&steps, 100);
    let timeline = feed_of(&[(POSTS, None)], false);
    for store in &engines {
        let filter = Filter::default();
        let page = |before: Option<&Place>| {
            let query = FeedQuery {
                feed: &timeline,
                reader: "did:web:0.test",
                before,
                filter: &filter,
                budget: Budget::of(2),
            };
            feed(&*store.snapshot().unwrap(), &query).unwrap()
        };
        let first = page(None);
        assert_eq!(first.rows.len(), 2);
        let last = first.rows[1].clone();
        let mut gone = plain(Kind::Post, 1, 3, 13, 0);
        gone.deletes = true;
        let mut again = steps.clone();
        again.push(gone);
        fill(&**store, &again, 100);
        let snapshot = store.snapshot().unwrap();
        assert_eq!(
            place(&*snapshot, &last.uri).unwrap(),
            first.next,
            "its place is kept"
        );
        let second = page(first.next.as_ref());
        let times: Vec<i64> = second.rows.iter().map(|row| row.time_us).collect();
        assert_eq!(times, [12, 11]);
    }
}

#[test]
fn many_hidden_entries_cost_no_more_than_six_round_trips() {
    let mut steps = vec![
        plain(Kind::Follow, 0, 0, 1, 1),
        plain(Kind::Follow, 0, 1, 1, 2),
        plain(Kind::Post, 2, 0, 3, 0),
    ];
    steps.push(Step {
        n: 2,
        ..plain(Kind::Account, 1, 0, 0, 0)
    });
    let (_folder, engines) = engines(&steps, 100);
    for store in &engines {
        crate::world::many_posts(&**store, 1, 6_000, 100);
        let snapshot = store.snapshot().unwrap();
        let timeline = feed_of(&[(POSTS, None)], false);
        let filter = Filter::default();
        for (limit, pages_max) in [(1, 4), (50, 4), (100, 4)] {
            let mut pages = 0;
            let rows = all_pages(&*snapshot, 6, |snapshot, before, _| {
                pages += 1;
                let query = FeedQuery {
                    feed: &timeline,
                    reader: "did:web:0.test",
                    before,
                    filter: &filter,
                    budget: Budget {
                        scan_max: usize::MAX,
                        ..Budget::of(limit)
                    },
                };
                feed(snapshot, &query).unwrap()
            });
            assert_eq!(rows.len(), 1, "the one visible record is found at last");
            assert!(pages <= pages_max, "{pages} pages");
        }
    }
}

#[test]
fn a_read_ends_when_nobody_waits_for_it() {
    let (_folder, engines) = engines(&[plain(Kind::Follow, 0, 0, 1, 1)], 100);
    for store in &engines {
        let timeline = feed_of(&[(POSTS, None)], false);
        let filter = Filter::default();
        let query = FeedQuery {
            feed: &timeline,
            reader: "did:web:0.test",
            before: None,
            filter: &filter,
            budget: Budget {
                is_over: &|| true,
                ..Budget::of(1)
            },
        };
        let ended = feed(&*store.snapshot().unwrap(), &query);
        assert!(matches!(ended, Err(store::error::StoreError::Ended)));
    }
}
