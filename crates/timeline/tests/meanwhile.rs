//! Pages that are read in the midst of what the model seldom meets by chance.
//!
//! Readers whose rings are pushed to all the time, and readers that come and go so fast that the
//! place of one is soon another's. `FEEDMILL_STEPS=n` says how long, as for the model.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // a thread that failed has said why

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use timeline::{
    Cold, FeedSpec, KeyId, KeyList, NewRecord, Pages, Read, RecordId, Request, Settings, Target,
    TargetSpec, Timelines,
};

const GIANT: KeyId = KeyId(7);
const FIRST_READER: u32 = 100;
const PAGE: usize = 30;

/// Beyond these only the model goes on: what threads can meet here they have met long before.
const STEPS_MAX: u64 = 1_000_000;

fn steps() -> u64 {
    let usual = if cfg!(debug_assertions) {
        6_000
    } else {
        100_000
    };
    let asked = std::env::var("FEEDMILL_STEPS").ok();
    let steps = asked.map_or(usual, |text| text.parse().unwrap());
    steps.min(STEPS_MAX)
}

/// The giant's readers, all active.
fn crowd(readers: u32) -> Timelines {
    let settings = Settings {
        feeds: vec![FeedSpec {
            targets: vec![TargetSpec { items_max: 40 }],
            include_self: false,
        }],
        sync_threshold: 0,
        pull_above: readers as usize * 2,
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
    for reader in 0..readers {
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
        Read::Below | Read::Sparse | Read::Busy => None,
        Read::Cold => panic!("all readers are active"),
    }
}

/// Posts of one world: more than one block holds, but each new block copies the list of all. So
/// who has more time makes more worlds, not longer ones.
const POSTS: u64 = 20_000;

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

/// Few readers, so that a page is often of a ring that is just pushed to; and very few, so that a
/// fan-out often ends while it is made.
#[test]
fn a_page_read_in_the_midst_of_a_fanout_is_exact() {
    let worlds = (steps() / 5_000).max(1);
    for readers in [40, 2] {
        let read: u64 = (0..worlds).map(|_| check_fanouts(readers)).sum();
        assert!(read > 0, "no page was read");
    }
}

/// One world; how many pages were read.
fn check_fanouts(count: u32) -> u64 {
    let mut engine = crowd(count);
    let pages = engine.pages();
    let (posted, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let read = std::thread::scope(|scope| {
        let (pages, posted, done) = (&pages, &posted, &done);
        let read = move |thread: u32| {
            let mut read = 0u64;
            let mut reader = thread;
            while !done.load(Ordering::Relaxed) {
                reader = (reader + 7) % count;
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
        readers.into_iter().map(|it| it.join().unwrap()).sum()
    });
    while engine.step(1, 100_000) {}
    assert!(engine.stats().pushes >= u64::from(count) * POSTS / 2);
    for reader in 0..count {
        let newest: Vec<u64> = (1..=POSTS).rev().take(PAGE).collect();
        assert_eq!(page(&pages, reader), Some(newest));
    }
    read
}

/// Readers that come and go, each following one author of its own.
const GUESTS: u32 = 6;

/// Lets one guest go and another come, into the same place.
fn change_guests(engine: &mut Timelines) {
    for round in 0..steps() * 10 {
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

/// Worlds in which the first record ever leaves the window.
fn worlds() -> u64 {
    steps() / 20
}

const WINDOW: u64 = 24;

/// A world whose window is full of what the reader follows.
fn brimful() -> Timelines {
    let settings = Settings {
        feeds: vec![FeedSpec {
            targets: vec![TargetSpec { items_max: 40 }],
            include_self: false,
        }],
        window_bytes_max: timeline::RECORD_BYTES * WINDOW as usize,
        ..Settings::default()
    };
    let mut engine = Timelines::new(settings, 0);
    engine.loaded(0, 0, None);
    for post in 1..=WINDOW {
        publish(&mut engine, post, GIANT);
    }
    engine.end();
    engine
}

fn publish(engine: &mut Timelines, post: u64, author: KeyId) {
    publish_at(engine, post, post as i64, author);
}

fn publish_at(engine: &mut Timelines, post: u64, time_us: i64, author: KeyId) {
    let record = NewRecord {
        id: RecordId(post),
        time_us,
        uri: &format!("at://author/post/{post:09}"),
        author,
        keys: &[author],
    };
    engine.insert(0, 0, record);
}

/// The page of one who follows the giant and is not active: whether it says that nothing is left,
/// and how many records it has.
fn last_page(pages: &Pages) -> Option<(bool, usize)> {
    let follows = KeyList::new([GIANT]);
    let cold = Cold {
        follows: &follows,
        hidden: &KeyList::default(),
        as_of: 0,
    };
    let request = Request {
        feed: 0,
        target: Target::One(0),
        reader: KeyId(FIRST_READER),
        before: None,
        limit: 2 * WINDOW as usize,
        now_us: 1,
    };
    let read = pages.read_cold(&request, &cold, |_, page| {
        (page.next.is_none(), page.entries.len())
    });
    match read {
        Read::Page(page) => Some(page),
        Read::Cold | Read::Below | Read::Sparse | Read::Busy => None,
    }
}

#[test]
fn no_page_says_that_nothing_is_left_below_a_record_that_left_the_window() {
    let world = std::sync::Mutex::new(brimful().pages());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (world, done) = (&world, &done);
        let read = move || {
            let mut read = 0u64;
            while !done.load(Ordering::Relaxed) {
                let pages = world.lock().unwrap().clone();
                for _ in 0..20 {
                    let Some((last, records)) = last_page(&pages) else {
                        break;
                    };
                    assert!(!last || records == WINDOW as usize, "{records} are all");
                    read += 1;
                }
            }
            read
        };
        let readers = [0, 1].map(|_| scope.spawn(read));
        for _ in 0..worlds() {
            let mut engine = brimful();
            *world.lock().unwrap() = engine.pages();
            // Of somebody whom nobody follows, so no page is concerned.
            for post in 1..=WINDOW {
                publish(&mut engine, WINDOW + post, KeyId(8));
                engine.end();
            }
        }
        done.store(true, Ordering::Relaxed);
        let pages: u64 = readers.into_iter().map(|it| it.join().unwrap()).sum();
        assert!(pages > 0, "no page was read");
    });
}

/// So many keys that the window is walked instead of their outboxes.
const MANY: u32 = 2_000;
const SHOWN: u64 = 60;

#[test]
fn a_walk_of_the_window_is_exact_while_late_records_move_others() {
    let settings = Settings {
        feeds: vec![FeedSpec {
            targets: vec![TargetSpec { items_max: 40 }],
            include_self: false,
        }],
        scan_above: 100,
        ..Settings::default()
    };
    let mut engine = Timelines::new(settings, 0);
    engine.loaded(0, 0, None);
    for post in 1..=SHOWN {
        publish(&mut engine, post * 1_000, GIANT);
    }
    engine.end();
    let follows = KeyList::new((0..MANY).map(KeyId));
    let pages = engine.pages();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (pages, done, follows) = (&pages, &done, &follows);
        let read = move || {
            let mut read = 0u64;
            while !done.load(Ordering::Relaxed) {
                let request = Request {
                    feed: 0,
                    target: Target::One(0),
                    reader: KeyId(MANY + FIRST_READER),
                    before: None,
                    limit: SHOWN as usize,
                    now_us: 1,
                };
                let cold = Cold {
                    follows,
                    hidden: &KeyList::default(),
                    as_of: 0,
                };
                let Read::Page(page) = pages.read_cold(&request, &cold, |_, page| page) else {
                    continue;
                };
                let ids = page.entries.iter().map(|entry| entry.id.0 / 1_000);
                let ids: Vec<u64> = ids.collect();
                assert!(ids.iter().copied().eq((1..=SHOWN).rev()), "{ids:?}");
                read += 1;
            }
            read
        };
        let readers = [0, 1].map(|_| scope.spawn(read));
        // Of somebody whom nobody follows, between those that are shown; then they go again.
        for round in 0..worlds() {
            for post in 1..=300 {
                let serial = round * 1_000_000 + 100_000 + post;
                let time = (post * 197 % SHOWN) * 1_000 + post;
                publish_at(&mut engine, serial, time as i64, KeyId(MANY + 1));
                engine.end();
            }
            for post in 1..=300 {
                engine.remove(RecordId(round * 1_000_000 + 100_000 + post));
                engine.end();
            }
            while engine.step(round as i64 * 1_000_000_000_000, 10_000) {}
        }
        done.store(true, Ordering::Relaxed);
        let pages: u64 = readers.into_iter().map(|it| it.join().unwrap()).sum();
        assert!(pages > 0, "no page was read");
    });
}

/// Authors who let an old record go for each new one, and a reader of each.
const AUTHORS: u64 = 6;
const KEPT: u64 = 30;

#[test]
fn a_page_is_exact_while_the_sweep_moves_rings() {
    let settings = Settings {
        feeds: vec![FeedSpec {
            targets: vec![TargetSpec { items_max: 60 }],
            include_self: false,
        }],
        removed_max: 1,
        ..Settings::default()
    };
    let mut engine = Timelines::new(settings, 0);
    engine.loaded(0, 0, None);
    for author in 0..AUTHORS {
        let follows = KeyList::new([KeyId(author as u32)]);
        let cold = Cold {
            follows: &follows,
            hidden: &KeyList::default(),
            as_of: 0,
        };
        engine.register(0, KeyId(FIRST_READER + author as u32), &cold, 1);
    }
    while engine.step(1, 10_000) {}
    let serial = |author: u64, post: u64| post * 10 + author;
    for post in 1..=KEPT {
        for author in 0..AUTHORS {
            publish(&mut engine, serial(author, post), KeyId(author as u32));
        }
    }
    engine.end();
    let pages = engine.pages();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (pages, done) = (&pages, &done);
        let read = move || {
            let mut read = 0u64;
            while !done.load(Ordering::Relaxed) {
                for author in 0..AUTHORS as u32 {
                    let Some(ids) = page(pages, author) else {
                        continue;
                    };
                    let own = ids.iter().all(|id| id % 10 == u64::from(author));
                    let whole = ids.windows(2).all(|pair| pair[0] == pair[1] + 10);
                    assert!(own && whole && ids.len() == PAGE, "{author}: {ids:?}");
                    read += 1;
                }
            }
            read
        };
        let readers = [0, 1].map(|_| scope.spawn(read));
        for post in KEPT + 1..=KEPT + worlds() * 4 {
            for author in 0..AUTHORS {
                publish(&mut engine, serial(author, post), KeyId(author as u32));
                engine.remove(RecordId(serial(author, post - KEPT)));
                engine.end();
                engine.step(1, 10_000);
            }
        }
        done.store(true, Ordering::Relaxed);
        let pages: u64 = readers.into_iter().map(|it| it.join().unwrap()).sum();
        assert!(pages > 0, "no page was read");
    });
}
