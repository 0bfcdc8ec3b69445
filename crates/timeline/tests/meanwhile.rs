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
/// A key that nobody follows, so that its posts concern no page.
const NOBODYS: KeyId = KeyId(8_000);
const FIRST_READER: u32 = 100;
/// A reader that is never active.
const STRANGER: u32 = 5_000;
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

/// Has two threads read pages as long as `write` runs.
///
/// `read` asks for one page and judges it; whether there was one. It is told which turn of its
/// thread this is, so that it can ask for others' pages in turn.
fn beside(write: impl FnOnce(), read: impl Fn(u32) -> bool + Sync) {
    let done = AtomicBool::new(false);
    let pages: u64 = std::thread::scope(|scope| {
        let (read, done) = (&read, &done);
        let read_all = move |first: u32| {
            let turns = (first..).take_while(|_| !done.load(Ordering::Relaxed));
            turns.map(|turn| u64::from(read(turn))).sum::<u64>()
        };
        let readers = [0, 1].map(|first| scope.spawn(move || read_all(first)));
        let end = End(done);
        write();
        drop(end);
        readers.into_iter().map(|it| it.join().unwrap()).sum()
    });
    assert!(pages > 0, "no page was read");
}

/// Says that all is written when it goes, also if the writer failed: readers that go on for ever
/// would keep that to themselves.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

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

/// Makes a reader active that follows these.
fn register(engine: &mut Timelines, reader: u32, follows: &[KeyId]) {
    let cold = Cold {
        follows: &KeyList::new(follows.iter().copied()),
        hidden: &KeyList::default(),
        as_of: 0,
    };
    engine.register(0, KeyId(FIRST_READER + reader), &cold, 1);
    while engine.step(1, 100_000) {}
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

fn request(reader: u32, limit: usize) -> Request<'static> {
    Request {
        feed: 0,
        target: Target::One(0),
        reader: KeyId(FIRST_READER + reader),
        before: None,
        limit,
        now_us: 1,
    }
}

/// The page of a reader, as the serials of its posts.
fn read(pages: &Pages, reader: u32, limit: usize) -> Read<Vec<u64>> {
    pages.read(&request(reader, limit), |_, page| {
        let entries = page.entries.iter();
        entries.map(|entry| entry.id.0).collect()
    })
}

/// The same of one who is active; `None` if the engine leaves it to the store.
fn page(pages: &Pages, reader: u32, limit: usize) -> Option<Vec<u64>> {
    match read(pages, reader, limit) {
        Read::Page(ids) => Some(ids),
        Read::Below | Read::Sparse | Read::Busy => None,
        Read::Cold => panic!("all readers are active"),
    }
}

/// The page of one who is not active and follows these: its serials, and whether nothing is left.
fn cold_page(pages: &Pages, follows: &KeyList, limit: usize) -> Option<(Vec<u64>, bool)> {
    let cold = Cold {
        follows,
        hidden: &KeyList::default(),
        as_of: 0,
    };
    let read = pages.read_cold(&request(STRANGER, limit), &cold, |_, page| {
        let ids = page.entries.iter().map(|entry| entry.id.0);
        (ids.collect(), page.next.is_none())
    });
    match read {
        Read::Page(page) => Some(page),
        Read::Cold | Read::Below | Read::Sparse | Read::Busy => None,
    }
}

/// Few readers, so that a page is often of a ring that is just pushed to; and hardly any, with
/// pages of one post, so that a fan-out often ends between two looks of a page.
#[test]
fn a_page_read_in_the_midst_of_a_fanout_is_exact() {
    for (readers, limit) in [(40, PAGE), (2, 1), (1, 1)] {
        check_fanouts(readers, limit);
    }
}

fn check_fanouts(readers: u32, limit: usize) {
    let settings = Settings {
        sync_threshold: 0,
        // Not all that is ever posted: each new block of a list copies the list.
        window_records_max: 400,
        removed_max: 1,
        ..Settings::default()
    };
    let mut engine = world(40, settings);
    for reader in 0..readers {
        register(&mut engine, reader, &[GIANT]);
    }
    let pages = engine.pages();
    let posts = steps() * 2;
    let posted = AtomicU64::new(0);
    let write = || {
        for post in 1..=posts {
            engine.begin(post);
            publish(&mut engine, post, GIANT);
            posted.store(post, Ordering::SeqCst);
            engine.end();
            // Meanwhile pages begin that the post does not concern any more; its fan-out does.
            publish_at(&mut engine, posts + post, post as i64, NOBODYS);
            engine.end();
            // Some fan-outs are done before the next begins, and some run beside each other.
            for _ in 0..post % 5 {
                engine.step(1, 1_000);
            }
        }
    };
    beside(write, |turn| {
        let before = pages.position();
        let found = page(&pages, turn % readers * 7 % readers, limit);
        let after = posted.load(Ordering::SeqCst);
        let Some(found) = found else { return false };
        let newest = found.first().copied().unwrap_or(0);
        assert!(
            (before..=after).contains(&newest),
            "{before} {found:?} {after}"
        );
        let all = (1..=newest).rev().take(limit);
        assert!(found.iter().copied().eq(all), "{found:?}");
        true
    });
    while engine.step(1, 100_000) {}
    assert!(engine.stats().pushes >= u64::from(readers) * posts / 2);
    for reader in 0..readers {
        let newest: Vec<u64> = (1..=posts).rev().take(limit).collect();
        assert_eq!(page(&pages, reader, limit), Some(newest));
    }
}

/// Readers that come and go, each following one author of its own.
const GUESTS: u32 = 6;

#[test]
fn a_page_is_never_made_of_the_ring_of_another_that_has_its_place() {
    let mut engine = world(40, Settings::default());
    for post in 0..u64::from(GUESTS) * 5 {
        publish(&mut engine, post + 1, KeyId(post as u32 % GUESTS));
    }
    engine.end();
    let pages = engine.pages();
    let write = || {
        for round in 0..steps() as u32 * 10 {
            // One goes and another comes, into the same place.
            let (gone, here) = (round % GUESTS, (round + 1) % GUESTS);
            engine.hibernate(0, KeyId(FIRST_READER + gone));
            while engine.step(1, 10_000) {}
            register(&mut engine, here, &[KeyId(here)]);
        }
    };
    beside(write, |turn| {
        let guest = turn % GUESTS;
        let Read::Page(ids) = read(&pages, guest, PAGE) else {
            return false;
        };
        let own = |&id: &u64| (id - 1) % u64::from(GUESTS) == u64::from(guest);
        assert!(ids.len() == 5 && ids.iter().all(own), "{guest}: {ids:?}");
        true
    });
}

const WINDOW: u64 = 24;

/// A world whose window is full of what the reader follows.
fn brimful() -> Timelines {
    let settings = Settings {
        window_records_max: WINDOW as usize,
        ..Settings::default()
    };
    let mut engine = world(40, settings);
    for post in 1..=WINDOW {
        publish(&mut engine, post, GIANT);
    }
    engine.end();
    engine
}

/// In each world the first record leaves the window once, so there are many.
#[test]
fn no_page_says_that_nothing_is_left_below_a_record_that_left_the_window() {
    let mut engine = brimful();
    let pages = engine.pages();
    let write = || {
        for _ in 0..steps() / 20 {
            engine.replace(brimful());
            for post in 1..=WINDOW {
                publish(&mut engine, WINDOW + post, NOBODYS);
                engine.end();
            }
        }
    };
    let follows = KeyList::new([GIANT]);
    beside(write, |_| {
        let Some((ids, last)) = cold_page(&pages, &follows, 2 * WINDOW as usize) else {
            return false;
        };
        assert!(!last || ids.len() == WINDOW as usize, "{ids:?} are all");
        true
    });
}

/// So many keys that the window is walked instead of their outboxes.
const MANY: u32 = 2_000;
const SHOWN: u64 = 60;

#[test]
fn a_walk_of_the_window_is_exact_while_late_records_move_others() {
    let settings = Settings {
        scan_above: 100,
        ..Settings::default()
    };
    let mut engine = world(40, settings);
    for post in 1..=SHOWN {
        publish(&mut engine, post * 1_000, GIANT);
    }
    engine.end();
    let pages = engine.pages();
    let write = || {
        // Between those that are shown; then they go again.
        for round in 0..steps() / 20 {
            let serial = |post: u64| round * 1_000_000 + 100_000 + post;
            for post in 1..=300 {
                let time = (post * 197 % SHOWN) * 1_000 + post;
                publish_at(&mut engine, serial(post), time as i64, NOBODYS);
                engine.end();
            }
            for post in 1..=300 {
                engine.remove(RecordId(serial(post)));
                engine.end();
            }
            while engine.step(round as i64 * 1_000_000_000_000, 10_000) {}
        }
    };
    let follows = KeyList::new((0..MANY).map(KeyId));
    beside(write, |_| {
        let Some((ids, _)) = cold_page(&pages, &follows, SHOWN as usize) else {
            return false;
        };
        let all = (1..=SHOWN).rev().map(|post| post * 1_000);
        assert!(ids.iter().copied().eq(all), "{ids:?}");
        true
    });
}

/// Authors who let an old record go for each new one, and a reader of each.
const AUTHORS: u32 = 6;
const KEPT: u64 = 30;

#[test]
fn a_page_is_exact_while_the_sweep_moves_rings() {
    let settings = Settings {
        removed_max: 1,
        ..Settings::default()
    };
    let mut engine = world(60, settings);
    let serial = |author: u32, post: u64| post * 10 + u64::from(author);
    for author in 0..AUTHORS {
        register(&mut engine, author, &[KeyId(author)]);
    }
    for post in 1..=KEPT {
        for author in 0..AUTHORS {
            publish(&mut engine, serial(author, post), KeyId(author));
        }
    }
    engine.end();
    let pages = engine.pages();
    let write = || {
        for post in KEPT + 1..=KEPT + steps() / 5 {
            for author in 0..AUTHORS {
                publish(&mut engine, serial(author, post), KeyId(author));
                engine.remove(RecordId(serial(author, post - KEPT)));
                engine.end();
                engine.step(1, 10_000);
            }
        }
    };
    beside(write, |turn| {
        let author = turn % AUTHORS;
        let Some(ids) = page(&pages, author, PAGE) else {
            return false;
        };
        let own = ids.iter().all(|id| id % 10 == u64::from(author));
        let whole = ids.windows(2).all(|pair| pair[0] == pair[1] + 10);
        assert!(own && whole && ids.len() == PAGE, "{author}: {ids:?}");
        true
    });
}

/// Readers who stay, each of an author of its own who posts nothing more. They are so many that a
/// page which is held up for long is still concerned by no change.
const RESIDENTS: u32 = 1_000;

/// After an unfollow the sweep builds a ring anew, elsewhere, and moves all others down, each to
/// the place of the one before it.
#[test]
fn a_page_is_exact_while_its_place_is_given_to_others() {
    let settings = Settings {
        ttl_us: 16, // a sweep is due after a sixteenth of it; nobody is away within a second
        ..Settings::default()
    };
    let mut engine = world(60, settings);
    let serial = |author: u32, post: u64| post * 1_000 + u64::from(author);
    for post in 1..=KEPT {
        for author in 0..RESIDENTS {
            publish(&mut engine, serial(author, post), KeyId(author));
        }
    }
    for author in 0..RESIDENTS {
        register(&mut engine, author, &[KeyId(author), NOBODYS]);
    }
    engine.end();
    let pages = engine.pages();
    let write = || {
        for round in 1..=steps() / 10 {
            let reader = KeyId(FIRST_READER + round as u32 % RESIDENTS);
            engine.begin(round);
            engine.unfollow(0, reader, NOBODYS);
            engine.follow(0, reader, NOBODYS);
            engine.end();
            while engine.step(round as i64 + 1, 10_000) {}
        }
    };
    beside(write, |turn| {
        let author = turn % RESIDENTS;
        let Some(ids) = page(&pages, author, PAGE) else {
            return false;
        };
        let all = (1..=KEPT).rev().map(|post| serial(author, post));
        assert!(ids.iter().copied().eq(all), "{author}: {ids:?}");
        true
    });
}

/// Keys that are pulled one after another, and the one reader of all of them.
const TURNING: u32 = 40;
const READER_OF_ALL: u32 = 0;
/// Followed, and unfollowed, so that the next sweep builds the ring of the reader anew.
const SPARE: KeyId = KeyId(999);
/// The latest second there is: no reader is ever away.
const LATEST_US: i64 = i64::MAX / 4;

/// A world in which every key of the reader is pushed, with many quiet keys beside them: looking
/// for the pulled ones among so many takes a page long enough for the writer to come in between.
fn all_pushed() -> Timelines {
    let settings = Settings {
        pull_above: 2,
        ttl_us: 16, // a sweep is due at every later microsecond
        ..Settings::default()
    };
    let mut engine = world(64, settings);
    for key in 0..TURNING {
        publish(&mut engine, u64::from(key) + 1, KeyId(key));
    }
    engine.end();
    let quiet = || (10_000..13_000).map(KeyId);
    let of_all: Vec<KeyId> = quiet()
        .chain((0..TURNING).map(KeyId))
        .chain([SPARE])
        .collect();
    register_at(&mut engine, READER_OF_ALL, &of_all, 0);
    for other in [1, 2] {
        register_at(&mut engine, other, &quiet().collect::<Vec<_>>(), 0);
    }
    while engine.step(1, 1_000_000) {}
    engine
}

fn register_at(engine: &mut Timelines, reader: u32, follows: &[KeyId], as_of: u64) {
    let cold = Cold {
        follows: &KeyList::new(follows.iter().copied()),
        hidden: &KeyList::default(),
        as_of,
    };
    engine.register(0, KeyId(FIRST_READER + reader), &cold, LATEST_US);
}

/// Two more readers make a key pulled, and the sweep builds the ring of the first without it.
/// Neither is a change of what anybody sees, so the journal has no word of it.
#[test]
fn a_page_has_the_records_of_a_key_that_is_pulled_from_now_on() {
    let mut engine = all_pushed();
    let pages = engine.pages();
    let write = || {
        for _ in 0..steps() / 300 {
            engine.replace(all_pushed());
            for key in 0..TURNING {
                let position = u64::from(key) + 1;
                let reader = KeyId(FIRST_READER + READER_OF_ALL);
                engine.begin(position);
                engine.follow(0, reader, SPARE);
                engine.unfollow(0, reader, SPARE);
                engine.unfollow(0, reader, SPARE);
                engine.end();
                for other in [10 + 2 * key, 11 + 2 * key] {
                    register_at(&mut engine, other, &[KeyId(key)], position);
                }
                while engine.step(i64::from(key) * 2 + 4, 1_000_000) {}
            }
        }
    };
    let all: Vec<u64> = (1..=u64::from(TURNING)).rev().collect();
    beside(write, |_| {
        let request = Request {
            now_us: LATEST_US,
            ..request(READER_OF_ALL, 50)
        };
        let read = pages.read(&request, |_, page| {
            let entries = page.entries.iter();
            entries.map(|entry| entry.id.0).collect::<Vec<u64>>()
        });
        let Read::Page(found) = read else {
            return false;
        };
        assert_eq!(found, all);
        true
    });
}
