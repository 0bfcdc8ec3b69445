//! Pages that are read in the midst of what the model seldom meets by chance.
//!
//! Readers whose rings are pushed to all the time, and readers that come and go so fast that the
//! place of one is soon another's.

#![allow(clippy::unwrap_used)] // a thread that failed has said why

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use timeline::{
    Cold, FeedSpec, KeyId, KeyList, NewRecord, Pages, Read, RecordId, Request, Settings, Target,
    TargetSpec, Timelines,
};

const GIANT: KeyId = KeyId(7);
const FIRST_READER: u32 = 100;
/// Few, so that a page is often of a ring that is just pushed to.
const READERS: u32 = 40;
const POSTS: u64 = 6_000;
const PAGE: usize = 30;

/// The giant's readers, all active.
fn crowd() -> Timelines {
    let settings = Settings {
        feeds: vec![FeedSpec {
            targets: vec![TargetSpec { items_max: 40 }],
            include_self: false,
        }],
        sync_threshold: 1,
        pull_above: READERS as usize * 2,
        ..Settings::default()
    };
    let mut engine = Timelines::new(settings, 0);
    engine.loaded(0, 0, None);
    let follows = KeyList::new([GIANT]);
    let cold = Cold {
        follows: &follows,
        hidden: &KeyList::default(),
        as_of: 0,
    };
    for reader in 0..READERS {
        engine.register(0, KeyId(FIRST_READER + reader), &cold, 1);
    }
    while engine.step(1, 100_000) {}
    engine
}

/// The page of a reader, as the serials of its posts; `None` if the engine leaves it to the store.
fn page(pages: &Pages, reader: u32) -> Option<Vec<u64>> {
    let request = Request {
        feed: 0,
        target: Target::One(0),
        reader: KeyId(FIRST_READER + reader),
        before: None,
        limit: PAGE,
        now_us: 1,
    };
    let ids = pages.read(&request, |_, page| {
        let entries = page.entries.iter();
        entries.map(|entry| entry.id.0).collect()
    });
    match ids {
        Read::Page(ids) => Some(ids),
        Read::Below | Read::Busy => None,
        Read::Cold => panic!("all readers are active"),
    }
}

/// What the writer does, as the server's does it.
fn write(engine: &mut Timelines, posted: &AtomicU64) {
    for post in 1..=POSTS {
        engine.begin(post);
        engine.insert(
            0,
            0,
            NewRecord {
                id: RecordId(post),
                time_us: post as i64 * 10,
                uri: &format!("at://giant/post/{post:09}"),
                author: GIANT,
                keys: &[GIANT],
            },
        );
        posted.store(post, Ordering::SeqCst);
        engine.end();
        // Some fan-outs are done before the next begins, and some run beside each other.
        for _ in 0..post % 5 {
            engine.step(1, 1_000);
        }
    }
}

#[test]
fn a_page_read_in_the_midst_of_a_fanout_is_exact() {
    let mut engine = crowd();
    let pages = engine.pages();
    let (posted, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (pages, posted, done) = (&pages, &posted, &done);
        let read = move |thread: u32| {
            let mut read = 0u64;
            let mut reader = thread;
            while !done.load(Ordering::Relaxed) {
                reader = (reader + 7) % READERS;
                let before = pages.position();
                let found = page(pages, reader);
                let after = posted.load(Ordering::SeqCst);
                let Some(found) = found else { continue };
                let newest = found.first().copied().unwrap_or(0);
                assert!(
                    (before..=after).contains(&newest),
                    "{before} {found:?} {after}"
                );
                let all = (1..=newest).rev().take(PAGE);
                assert!(found.iter().copied().eq(all), "{found:?}");
                read += 1;
            }
            read
        };
        let readers = [0, 1].map(|thread| scope.spawn(move || read(thread)));
        write(&mut engine, posted);
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            assert!(reader.join().unwrap() > 0, "no page was read");
        }
    });
    while engine.step(1, 100_000) {}
    assert!(engine.stats().pushes >= u64::from(READERS) * POSTS / 2);
    for reader in 0..READERS {
        let newest: Vec<u64> = (1..=POSTS).rev().take(PAGE).collect();
        assert_eq!(page(&pages, reader), Some(newest));
    }
}

/// Readers that come and go, each following one author of its own.
const GUESTS: u32 = 6;
const ROUNDS: u64 = if cfg!(debug_assertions) {
    50_000
} else {
    1_000_000
};

/// Lets one guest go and another come, into the same place.
fn change_guests(engine: &mut Timelines) {
    for round in 0..ROUNDS {
        let (gone, here) = ((round % 6) as u32, ((round + 1) % 6) as u32);
        engine.hibernate(0, KeyId(FIRST_READER + gone));
        while engine.step(1, 10_000) {}
        let follows = KeyList::new([KeyId(here)]);
        let cold = Cold {
            follows: &follows,
            hidden: &KeyList::default(),
            as_of: 0,
        };
        engine.register(0, KeyId(FIRST_READER + here), &cold, 1);
        while engine.step(1, 10_000) {}
    }
}

#[test]
fn a_page_is_never_made_of_the_ring_of_another_that_has_its_place() {
    let settings = Settings {
        feeds: vec![FeedSpec {
            targets: vec![TargetSpec { items_max: 40 }],
            include_self: false,
        }],
        ..Settings::default()
    };
    let mut engine = Timelines::new(settings, 0);
    engine.loaded(0, 0, None);
    for post in 0..u64::from(GUESTS) * 5 {
        let author = KeyId((post % u64::from(GUESTS)) as u32);
        let record = NewRecord {
            id: RecordId(post),
            time_us: post as i64 + 1,
            uri: &format!("at://guest/post/{post:09}"),
            author,
            keys: &[author],
        };
        engine.insert(0, 0, record);
    }
    engine.end();
    let pages = engine.pages();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (pages, done) = (&pages, &done);
        let read = move || {
            let mut read = 0u64;
            while !done.load(Ordering::Relaxed) {
                for guest in 0..GUESTS {
                    let request = Request {
                        feed: 0,
                        target: Target::One(0),
                        reader: KeyId(FIRST_READER + guest),
                        before: None,
                        limit: PAGE,
                        now_us: 1,
                    };
                    let Read::Page(page) = pages.read(&request, |_, page| page) else {
                        continue;
                    };
                    let own = |id: u64| id % u64::from(GUESTS) == u64::from(guest);
                    let ids: Vec<u64> = page.entries.iter().map(|entry| entry.id.0).collect();
                    assert!(
                        ids.len() == 5 && ids.iter().all(|&id| own(id)),
                        "the page of guest {guest}: {ids:?}"
                    );
                    read += 1;
                }
            }
            read
        };
        let readers = [0, 1].map(|_| scope.spawn(read));
        change_guests(&mut engine);
        done.store(true, Ordering::Relaxed);
        let pages: u64 = readers.into_iter().map(|it| it.join().unwrap()).sum();
        assert!(pages > 0, "no page was read");
    });
}
