//! Merged feeds: groups, their members, and what they name.

use std::collections::{BTreeMap, BTreeSet};

use decide::ids::KeyId;
use decide::rows::Record;
use proptest::prelude::*;
use store::page::budget::Budget;
use store::page::feed::{Feed, Target};
use store::page::merged::{
    Activity, ActivityFilter, ActivityPage, ActivityQuery, activities, activities_at,
};
use store::page::place::Place;
use store::page::row::Row;
use store::port::Snapshot;

use crate::feed::shown;
use crate::naive::{All, Shown};
use crate::world::{Counting, FOLLOWS, MERGED, MUTES, THING_MAX, WINDOW_US, engines, readers};

/// Members that a page of a debug build names.
const MEMBERS_MAX: usize = 2;

/// A group: its records in order, whose it is, and what it is about.
struct Group<'a> {
    records: Vec<&'a Record>,
    author: KeyId,
    thing: String,
    keys: BTreeSet<KeyId>,
    adds: Vec<Vec<String>>,
}

fn part(record: &Record) -> Option<serde_json::Value> {
    let placed: serde_json::Value = serde_json::from_str(record.placed.as_deref()?).unwrap();
    let parts = placed["parts"].as_array()?.clone();
    parts.into_iter().find(|part| part["index"] == MERGED.0)
}

/// Live records by author and thing, with their places.
type Things<'a> = BTreeMap<(i64, String), Vec<(i64, String, &'a Record)>>;

/// The groups that the live records form.
fn groups(all: &All) -> Vec<Group<'_>> {
    let mut things = Things::new();
    for record in all.records.values().filter(|record| record.state == 0) {
        let Some(part) = part(record) else { continue };
        let uri = all.uri(record);
        let thing = part["thing"]
            .as_str()
            .map_or_else(|| uri.clone(), str::to_owned);
        let author = part["author"].as_i64().unwrap();
        let members = things.entry((author, thing)).or_default();
        members.push((record.time_us, uri, record));
    }
    let mut groups: Vec<Group<'_>> = Vec::new();
    for ((author, thing), mut members) in things {
        members.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let mut began = None;
        for (number, (time_us, _, record)) in members.into_iter().enumerate() {
            let joins = began.is_some_and(|began| time_us - began <= WINDOW_US);
            if !joins || number >= THING_MAX {
                began = Some(time_us);
                groups.push(Group {
                    records: Vec::new(),
                    author: KeyId(author),
                    thing: thing.clone(),
                    keys: BTreeSet::new(),
                    adds: Vec::new(),
                });
            }
            let group = groups.last_mut().unwrap();
            let part = part(record).unwrap();
            group.records.push(record);
            let keys = part["keys"].as_array().unwrap().iter();
            group
                .keys
                .extend(keys.map(|key| KeyId(key.as_i64().unwrap())));
            group
                .adds
                .push(serde_json::from_value(part["adds"].clone()).unwrap());
        }
    }
    groups
}

/// An activity as a page shows it: the first record, members, whether there are more, author,
/// union, thing.
type Expected = (Shown, Vec<String>, bool, String, Vec<String>, String);

fn expected(all: &All, reader: &str) -> Vec<Expected> {
    let Some(reader) = all.key(reader).filter(|reader| !all.is_hidden(*reader)) else {
        return Vec::new();
    };
    let followed = all.named(FOLLOWS, reader);
    let hidden = all.named(MUTES, reader);
    let mut found = Vec::new();
    for group in groups(all) {
        let first = group.records[0];
        let reached = group
            .keys
            .iter()
            .any(|key| followed.contains(key) && !hidden.contains(key));
        if !reached || all.visible(first.id).is_none() || hidden.contains(&all.writer(first)) {
            continue;
        }
        let members: Vec<String> = group.records.iter().map(|record| all.uri(record)).collect();
        let is_cut = members.len() > MEMBERS_MAX;
        let mut union: Vec<String> = Vec::new();
        for add in group.adds.iter().take(MEMBERS_MAX).flatten() {
            if !union.contains(add) {
                union.push(add.clone());
            }
        }
        found.push((
            all.shown(first),
            members.into_iter().take(MEMBERS_MAX).collect(),
            is_cut,
            all.keys[&group.author].clone(),
            union,
            group.thing,
        ));
    }
    found.sort();
    found.reverse();
    found
}

/// Every record of the groups that a reader sees, and the first of its group.
pub(crate) fn members_shown(all: &All, reader: &str) -> Vec<(String, String)> {
    let firsts: BTreeSet<String> = expected(all, reader)
        .into_iter()
        .map(|one| one.0.1)
        .collect();
    let mut shown = Vec::new();
    for group in groups(all) {
        let first = all.uri(group.records[0]);
        if firsts.contains(&first) {
            let records = group.records.iter();
            shown.extend(records.map(|record| (all.uri(record), first.clone())));
        }
    }
    shown
}

fn plain(one: &Activity) -> Expected {
    (
        shown(&one.first),
        one.members.clone(),
        one.is_cut,
        one.author.clone(),
        one.union.clone(),
        one.thing.clone(),
    )
}

fn feed() -> Feed {
    Feed {
        targets: vec![Target {
            index: MERGED,
            collection: String::new(),
            cap: None,
        }],
        follows: vec![FOLLOWS],
        hides: vec![MUTES],
        include_self: false,
    }
}

/// What a page names is what is visible of it, and no more.
fn check_named(all: &All, page: &ActivityPage) {
    let at = |uri: &str| {
        let mut records = all.records.keys().filter_map(|id| all.visible(*id));
        let found = records.find(|record| all.uri(record) == uri);
        found.map(|record| all.shown(record))
    };
    let mut records = BTreeMap::new();
    let mut handles = BTreeMap::new();
    for one in &page.activities {
        let about = (one.thing != one.first.uri).then_some(&one.thing);
        for uri in one.union.iter().chain(about) {
            records.extend(at(uri).map(|shown| (uri.clone(), shown)));
        }
        let account = all.key(&one.author).and_then(|key| all.accounts.get(&key));
        let handle = account.and_then(|account| account.handle.clone());
        handles.extend(handle.map(|handle| (one.author.clone(), handle)));
    }
    let named = page.named.records.iter();
    let named: BTreeMap<_, _> = named.map(|(uri, row)| (uri.clone(), shown(row))).collect();
    assert_eq!(named, records);
    assert_eq!(page.named.handles, handles);
    assert!(page.named.omitted.is_empty());
}

/// The number of all activities is told, and each can be read again by its first record.
fn check_total(
    snapshot: &dyn Snapshot,
    (feed, reader): (&Feed, &str),
    filter: ActivityFilter<'_>,
    limit: usize,
    total: usize,
) -> Result<(), TestCaseError> {
    let query = ActivityQuery {
        feed,
        reader,
        before: None,
        filter,
        skip: 0,
        count: true,
        budget: Budget {
            scan_max: 10_000,
            ..Budget::of(limit)
        },
    };
    let page = activities(snapshot, &query).unwrap();
    prop_assert_eq!(page.total, Some(total));
    let firsts = page.activities.iter();
    let firsts: Vec<_> = firsts
        .map(|one| (one.first.id, one.first.time_us))
        .collect();
    let counting = Counting::new(snapshot);
    let at = activities_at(&counting, MERGED, &firsts, usize::MAX);
    let at = at.unwrap().unwrap();
    prop_assert!(counting.trips() <= 5);
    prop_assert_eq!(at.activities, page.activities);
    prop_assert_eq!(at.named, page.named);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_merged_feed_is_what_all_rows_say(
        steps in prop::collection::vec(crate::world::linking(), 1..140),
        batch_max in 1..40usize,
        limit in 1..5usize,
        scan_max in 1..60usize,
        skip in 0..4usize,
        of_post in any::<bool>(),
    ) {
        let (_folder, engines) = engines(&steps, batch_max);
        let merged = feed();
        for reader in readers() {
            let mut of_engines = BTreeSet::new();
            for store in &engines {
                let snapshot = store.snapshot().unwrap();
                let all = All::of(&*snapshot);
                let counting = Counting::new(&*snapshot);
                let about_post = |row: Option<&Row>| row.is_some_and(|row| row.collection() == "x.post");
                for is_filtered in [false, true] {
                    let filter = ActivityFilter {
                        first: is_filtered.then_some(&["x.link", "x.other"]),
                        subject: match is_filtered && of_post {
                            true => Some(&about_post),
                            false => None,
                        },
                    };
                    let mut whole = expected(&all, &reader);
                    if is_filtered && of_post {
                        whole.retain(|one| all.records.keys().filter_map(|id| all.visible(*id)).any(|record| {
                            all.uri(record) == one.5 && one.5.contains("/x.post/")
                        }));
                    }
                    let total = whole.len();
                    let mut found = Vec::new();
                    let mut before: Option<Place> = None;
                    let mut passed = skip;
                    loop {
                        let budget = Budget { scan_max: scan_max.max(skip + 1), ..Budget::of(limit) };
                        let query = ActivityQuery { feed: &merged, reader: &reader, before: before.as_ref(), filter, skip: passed, count: false, budget };
                        let page = activities(&counting, &query).unwrap();
                        let trips = counting.trips();
                        prop_assert!(trips <= if is_filtered { 60 } else { 12 }, "{} round trips", trips);
                        prop_assert!(page.activities.len() <= limit);
                        check_named(&all, &page);
                        of_engines.insert((before.clone(), is_filtered, format!("{page:?}")));
                        found.extend(page.activities.iter().map(plain));
                        // What was passed over on a page that was cut short is passed over once.
                        let cut = page.activities.is_empty() && page.next.is_some() && passed > 0;
                        if cut {
                            break;
                        }
                        passed = 0;
                        before = page.next;
                        if before.is_none() {
                            break;
                        }
                    }
                    if !found.is_empty() || total <= skip {
                        let rest: Vec<Expected> = whole.into_iter().skip(skip).collect();
                        prop_assert_eq!(&found, &rest);
                    }
                    check_total(&*snapshot, (&merged, &reader), filter, limit, total)?;
                }
            }
            let questions: BTreeSet<_> = of_engines.iter().map(|(before, is_filtered, _)| (before.clone(), *is_filtered)).collect();
            prop_assert_eq!(of_engines.len(), questions.len(), "engines differ");
        }
    }
}

#[test]
fn a_record_that_begins_no_group_is_no_activity() {
    let link = |rkey, time| crate::world::Step {
        kind: crate::world::Kind::Link,
        author: 1,
        rkey,
        time,
        target: 2,
        n: 1,
        deletes: false,
    };
    let (_folder, engines) = engines(&[link(0, 10), link(1, 12)], 10);
    for store in &engines {
        let snapshot = store.snapshot().unwrap();
        let all = All::of(&*snapshot);
        let mut ids: Vec<_> = all
            .records
            .values()
            .map(|one| (one.id, one.time_us))
            .collect();
        ids.sort_by_key(|(_, time_us)| *time_us);
        let at = |firsts: &[_]| activities_at(&*snapshot, MERGED, firsts, usize::MAX).unwrap();
        assert!(at(&ids[..1]).is_some());
        assert!(at(&ids[1..]).is_none(), "it is the second of its group");
        assert!(at(&[(ids[0].0, 9)]).is_none(), "it is at another time");
    }
}
