//! Edges that random histories seldom meet: equal times at a floor, numbers that are given again
//! while a fan-out waits, and readers of more keys than one slice.

#![allow(clippy::unwrap_used)]

use timeline::{
    Cold, FeedSpec, KeyId, KeyList, NewRecord, Read, RecordId, Request, Settings, Target,
    TargetSpec, Timelines,
};

const READER: u32 = 100_000;
/// Enough work for everything that waits.
const ALL: usize = 100_000;

/// An empty world of one feed with rings of `items_max`.
fn world(items_max: usize, settings: Settings) -> Timelines {
    let settings = Settings {
        feeds: vec![FeedSpec {
            targets: vec![TargetSpec { items_max }],
            include_self: false,
        }],
        ..settings
    };
    let mut engine = Timelines::new(settings, 0);
    engine.loaded(0, 0, None);
    engine
}

fn post(engine: &mut Timelines, id: u64, time_us: i64, name: &str, key: u32) {
    let record = NewRecord {
        id: RecordId(id),
        time_us,
        uri: &format!("at://author/post/{name}"),
        author: KeyId(key),
        keys: &[KeyId(key)],
    };
    engine.insert(0, 0, record);
    engine.end();
}

/// Makes a reader active; its ring is built by later steps.
fn register(engine: &mut Timelines, reader: u32, keys: impl IntoIterator<Item = u32>) {
    let cold = Cold {
        follows: &KeyList::new(keys.into_iter().map(KeyId)),
        hidden: &KeyList::default(),
        as_of: 0,
    };
    engine.register(0, KeyId(reader), &cold, 1);
}

fn request(reader: u32, limit: usize) -> Request<'static> {
    Request {
        feed: 0,
        target: Target::One(0),
        reader: KeyId(reader),
        before: None,
        limit,
        now_us: 1,
    }
}

/// The first page of a reader is exactly this.
#[track_caller]
fn check(engine: &Timelines, reader: u32, limit: usize, expected: &[u64]) {
    match engine.read(&request(reader, limit)) {
        Read::Page(page) => {
            let found: Vec<u64> = page.entries.iter().map(|entry| entry.id.0).collect();
            assert_eq!(found, expected);
        }
        other => panic!("no page: {other:?}"),
    }
}

#[test]
fn a_late_record_at_the_very_time_of_a_written_floor_is_on_the_page() {
    let settings = Settings {
        pull_above: 1,
        removed_max: 1,
        ..Settings::default()
    };
    let mut engine = world(2, settings);
    register(&mut engine, READER, [7, 8]);
    register(&mut engine, READER + 1, [8]);
    while engine.step(1, ALL) {}
    for (id, name, key) in [(1, "a", 7), (2, "b", 7), (3, "c", 7), (4, "aa", 8)] {
        post(&mut engine, id, 100, name, key);
    }
    engine.remove(RecordId(2));
    engine.end();
    while engine.step(2, ALL) {}
    post(&mut engine, 5, 100, "bb", 7);
    check(&engine, READER, 2, &[3, 5]);
}

#[test]
fn a_waiting_fanout_of_a_removed_record_does_not_push_the_next_one_of_its_number() {
    let settings = Settings {
        sync_threshold: 0,
        ttl_us: 16,
        removed_max: 1,
        ..Settings::default()
    };
    let mut engine = world(10, settings);
    register(&mut engine, READER, [7]);
    register(&mut engine, READER + 1, [7]);
    while engine.step(1, ALL) {}
    for id in 1..=400 {
        post(&mut engine, id, id.cast_signed(), &format!("{id:03}"), 7);
    }
    post(&mut engine, 500, 500, "500", 7);
    engine.remove(RecordId(500));
    engine.end();
    for now_us in 2..42 {
        engine.step(now_us, 4);
    }
    // Of a key that the reader does not follow.
    post(&mut engine, 600, 600, "600", 9);
    while engine.step(100, ALL) {}
    check(&engine, READER, 2, &[400, 399]);
}

/// More keys than a reader joins or leaves at once.
const MANY: u32 = 1_500;

#[test]
fn a_reader_of_many_keys_is_pushed_to_by_the_last_of_them() {
    let mut engine = world(64, Settings::default());
    register(&mut engine, READER, 1..=MANY);
    while engine.step(1, ALL) {}
    post(&mut engine, 1, 1, "1", MANY);
    check(&engine, READER, 20, &[1]);
}

#[test]
fn a_slot_is_not_given_on_while_a_key_still_lists_it() {
    let mut engine = world(64, Settings::default());
    register(&mut engine, READER, 1..=MANY);
    while engine.step(1, ALL) {}
    engine.hibernate(0, KeyId(READER));
    engine.step(1, 4);
    register(&mut engine, READER + 1, [5_000]);
    engine.step(1, 4);
    post(&mut engine, 1, 1, "1", MANY);
    post(&mut engine, 2, 2, "2", 5_000);
    check(&engine, READER + 1, 20, &[2]);
}

#[test]
fn a_reader_stays_active_as_long_as_it_reads_within_the_ttl() {
    const SECOND: i64 = 1_000_000;
    let settings = Settings {
        ttl_us: 100 * SECOND,
        ..Settings::default()
    };
    let mut engine = world(64, settings);
    register(&mut engine, READER, [7]);
    register(&mut engine, READER + 1, [7]);
    for second in 1..=10 {
        let now_us = second * 40 * SECOND;
        let request = Request {
            now_us,
            ..request(READER, 1)
        };
        let read = engine.read(&request);
        assert!(matches!(read, Read::Page(_)), "{second}: {read:?}");
        while engine.step(now_us, ALL) {}
        let others = engine.inspect(0, 0, KeyId(READER + 1));
        assert_eq!(others.is_some(), second * 40 < 100, "after {second} reads");
    }
    // It has read for the last time.
    while engine.step(499 * SECOND, ALL) {}
    assert!(engine.inspect(0, 0, KeyId(READER)).is_some());
    while engine.step(510 * SECOND, ALL) {}
    assert_eq!(engine.inspect(0, 0, KeyId(READER)), None);
    assert_eq!(engine.stats().hibernated, 2);
}

#[test]
fn a_record_that_two_indexes_of_a_feed_hold_is_on_a_mixed_page_once() {
    let target = || TargetSpec { items_max: 8 };
    let settings = Settings {
        feeds: vec![FeedSpec {
            targets: vec![target(), target()],
            include_self: false,
        }],
        ..Settings::default()
    };
    let mut engine = Timelines::new(settings, 0);
    for index in 0..2 {
        engine.loaded(0, index, None);
        for id in 1..=3 {
            let record = NewRecord {
                id: RecordId(id),
                time_us: 100,
                uri: &format!("at://author/post/{id}"),
                author: KeyId(7),
                keys: &[KeyId(7)],
            };
            engine.insert(0, index, record);
        }
    }
    engine.end();
    register(&mut engine, READER, [7]);
    while engine.step(1, ALL) {}
    for limit in [1, 2, 10] {
        assert_eq!(mixed(&engine, limit), [3, 2, 1], "{limit} on a page");
    }
}

/// All that a reader sees of a mixed feed, page by page.
fn mixed(engine: &Timelines, limit: usize) -> Vec<u64> {
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let request = Request {
            target: Target::Mixed,
            before: before.as_ref(),
            ..request(READER, limit)
        };
        let Read::Page(page) = engine.read(&request) else {
            panic!("all of it is in memory");
        };
        seen.extend(page.entries.iter().map(|entry| entry.id.0));
        before = page.next;
        if before.is_none() {
            return seen;
        }
    }
}
