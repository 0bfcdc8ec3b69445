//! Pages that are read while a fan-out is carried on by another thread.
//!
//! The model reads between two portions of work; here they are read in the midst of one.

#![allow(clippy::unwrap_used)] // a lock is poisoned only after another assertion failed

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use timeline::{
    Cold, FeedSpec, KeyId, KeyList, NewRecord, Read, RecordId, Request, Settings, Target,
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
fn page(engine: &Timelines, reader: u32) -> Option<Vec<u64>> {
    let request = Request {
        feed: 0,
        target: Target::One(0),
        reader: KeyId(FIRST_READER + reader),
        before: None,
        limit: PAGE,
        now_us: 1,
    };
    match engine.read(&request) {
        Read::Page { entries, .. } => Some(entries.iter().map(|entry| entry.id.0).collect()),
        Read::Below => None,
        Read::Cold => panic!("all readers are active"),
    }
}

/// What the writer does, as the server's does it.
fn write(engine: &RwLock<Timelines>, posted: &AtomicU64) {
    for post in 1..=POSTS {
        {
            let mut engine = engine.write().unwrap();
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
        }
        // Some fan-outs are done before the next begins, and some run beside each other.
        for _ in 0..post % 5 {
            engine.write().unwrap().tend(1, 1_000);
            let mut carried = engine.read().unwrap().carry(1_000);
            while !carried.is_empty() {
                engine.write().unwrap().land(&mut carried, 100);
            }
        }
    }
}

#[test]
fn a_page_read_in_the_midst_of_a_fanout_is_exact() {
    let engine = RwLock::new(crowd());
    let (posted, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (engine, posted, done) = (&engine, &posted, &done);
        let read = move |thread: u32| {
            let mut pages = 0u64;
            let mut reader = thread;
            while !done.load(Ordering::Relaxed) {
                reader = (reader + 7) % READERS;
                let before = posted.load(Ordering::SeqCst);
                let found = page(&engine.read().unwrap(), reader);
                let after = posted.load(Ordering::SeqCst);
                let Some(found) = found else { continue };
                let newest = found.first().copied().unwrap_or(0);
                assert!(
                    (before..=after).contains(&newest),
                    "{before} {found:?} {after}"
                );
                let all = (1..=newest).rev().take(PAGE);
                assert!(found.iter().copied().eq(all), "{found:?}");
                pages += 1;
            }
            pages
        };
        let readers = [0, 1].map(|thread| scope.spawn(move || read(thread)));
        write(engine, posted);
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            assert!(reader.join().unwrap() > 0, "no page was read");
        }
    });
    let mut engine = engine.into_inner().unwrap();
    while engine.step(1, 100_000) {}
    assert!(engine.stats().pushes >= u64::from(READERS) * POSTS / 2);
    for reader in 0..READERS {
        let newest: Vec<u64> = (1..=POSTS).rev().take(PAGE).collect();
        assert_eq!(page(&engine, reader), Some(newest));
    }
}
