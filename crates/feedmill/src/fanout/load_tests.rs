//! Timelines that are loaded while the store goes on changing.

use std::cell::Cell;

use serde_json::{Value, json};

use super::*;
use crate::check::{Checker, Claim};
use crate::store::batch::{Batch, Commit, Item, Op, Verdict};
use crate::store::{FeedQuery, SharedStore};

const CONFIG: &str = r#"
namespace = "com.example"
[collections.follow]
collection = "com.example.follow"
validate = false
[collections.post]
collection = "com.example.post"
validate = false
[feeds.timeline]
follow = "follow"
targets = ["post"]
[store]
url = "sqlite::memory:"
"#;
const READER: &str = "did:plc:reader";
const AUTHOR: &str = "did:plc:author";

struct World {
    config: config::Config,
    store: SharedStore,
    checker: Checker,
    rev: Cell<u64>,
}

impl World {
    fn new(config: &str) -> Self {
        let config = config::Config::parse(config).unwrap();
        let store = crate::store::open(&config).unwrap();
        let checker = Checker::new(&config, Arc::clone(store.plan()), &[]).unwrap();
        let world = Self {
            config,
            store,
            checker,
            rev: Cell::new(1),
        };
        let follow = json!({"subject": AUTHOR, "createdAt": "2026-01-01T00:00:00Z"});
        world.write(READER, "follow", "1", Some(follow));
        world
    }

    fn write(&self, did: &str, short: &str, rkey: &str, body: Option<Value>) {
        let collection = self.config.nsid(short).unwrap();
        let rev = self.rev.replace(self.rev.get() + 1);
        let claim = Claim {
            did,
            collection,
            rkey,
            rev,
        };
        let verdict = match body {
            Some(body) => self.checker.json(claim, None, &body.to_string()),
            None => Verdict::Delete,
        };
        let commit = Commit {
            did: did.into(),
            rev,
            seq: 0,
            chain: None,
            filtered: 0,
            ops: vec![Op {
                collection: collection.into(),
                rkey: rkey.into(),
                verdict,
            }],
            frame: Default::default(),
            was_held: false,
            live: true,
        };
        let batch = Batch {
            source: "test".into(),
            cursor: Some(1),
            now_us: 1_790_000_000_000_000,
            items: vec![Item::Commit(commit)],
        };
        self.store.commit(batch).unwrap();
    }

    /// A post of a second of the day.
    fn post(&self, rkey: u32, second: u32) {
        let time = format!(
            "2026-01-01T{:02}:{:02}:{:02}Z",
            second / 3600,
            second / 60 % 60,
            second % 60
        );
        self.write(
            AUTHOR,
            "post",
            &rkey.to_string(),
            Some(json!({"createdAt": time})),
        );
    }

    /// The page as the store has it.
    fn stored(&self) -> Vec<String> {
        let feed = &self.store.plan().feeds[0];
        let query = FeedQuery {
            reader: READER.into(),
            lanes: feed
                .targets
                .iter()
                .map(|target| (target.lane, None))
                .collect(),
            follows: feed.follows.clone(),
            hides: Vec::new(),
            include_self: feed.include_self,
            before: None,
            limit: 100,
            lens: Default::default(),
            scan_max: 10_000,
        };
        let page = self.store.feed(&query).unwrap();
        page.rows.iter().map(|row| row.uri.clone()).collect()
    }
}

fn wish() -> Wish<'static> {
    Wish {
        feed: "timeline",
        target: None,
        reader: READER,
        before: None,
        limit: 100,
        now_us: 1,
        is_incomplete: false,
    }
}

/// The page as memory has it; `None` if the store must answer.
fn remembered(fanout: &Fanout) -> Option<Vec<String>> {
    let page = fanout.page(&wish()).unwrap()?;
    Some(page.rows.iter().map(|row| row.uri().to_owned()).collect())
}

#[test]
fn until_the_timelines_are_loaded_the_store_answers_and_the_progress_is_told() {
    let world = World::new(CONFIG);
    (0..20).for_each(|n| world.post(n, n));
    let opened = Fanout::start(&world.config.timelines, 1, &world.store).unwrap();
    let (fanout, mut drawer) = opened.unwrap();
    assert_eq!(remembered(&fanout), None);
    assert!(fanout.page_at_once(&wish()).is_none());
    let seen = Cell::new(Vec::new());
    drawer
        .load(&|| {
            let mut told = seen.take();
            told.extend(
                fanout
                    .progress()
                    .map(|progress| (progress.records, progress.expected)),
            );
            seen.set(told);
            assert_eq!(remembered(&fanout), None);
            false
        })
        .unwrap();
    let told = seen.take();
    assert!(
        told.contains(&(4, 21)) && told.contains(&(19, 21)),
        "{told:?}"
    );
    assert_eq!(fanout.progress(), None);
    assert_eq!(remembered(&fanout), Some(world.stored()));
}

/// Indexes beside that of the posts.
const NOTES: [&str; 7] = ["n1", "n2", "n3", "n4", "n5", "n6", "n7"];
/// Notes are of this moment, and posts of the seconds after it.
const FIRST_US: i64 = 1_767_225_600_000_000;

/// Posts of one second after another, a note in each of seven small indexes, and little memory.
fn many_indexes(posts: u32) -> World {
    let collection = |note: &str| {
        format!("[collections.{note}]\ncollection = \"com.example.{note}\"\nvalidate = false\n")
    };
    let notes: String = NOTES.into_iter().map(collection).collect();
    let targets = format!("[\"post\", \"{}\"]", NOTES.join("\", \""));
    let config = CONFIG
        .replace("[feeds.timeline]", &format!("{notes}[feeds.timeline]"))
        .replace("[\"post\"]", &targets)
        .replace("[store]", "[timelines]\nmemory_mib = 1\n[store]");
    let world = World::new(&config);
    (0..posts).for_each(|n| world.post(n, n + 1));
    for note in NOTES {
        let body = json!({"createdAt": record::datetime::format_us(FIRST_US)});
        world.write(AUTHOR, note, "1", Some(body));
    }
    world
}

/// The floors of posts and of one kind of note after loading, and how many records the window holds.
fn floors(world: &World) -> ([Option<i64>; 2], usize) {
    let opened = Fanout::open(&world.config.timelines, 1, &world.store).unwrap();
    let (_fanout, drawer) = opened.unwrap();
    let floors = [0, 1].map(|target| drawer.timelines.floor_us(0, target));
    (floors, drawer.timelines.stats().records)
}

#[test]
fn small_indexes_leave_their_share_of_the_window_to_a_large_one() {
    let share = (1 << 18) / timeline::RECORD_BYTES / (NOTES.len() + 1);
    assert!(share < 1000, "the posts must not fit into their share");
    let world = many_indexes(1000);
    assert_eq!(floors(&world), ([Some(i64::MIN); 2], 1007));
}

#[test]
fn where_the_window_is_full_its_records_are_the_newest_of_all_indexes() {
    let world = many_indexes(4000);
    let (floors, records) = floors(&world);
    assert!((1000..4000).contains(&records), "{records}");
    let oldest_us = FIRST_US + (4001 - records as i64) * 1_000_000;
    let [posts_us, notes_us] = floors.map(|floor| floor.unwrap());
    assert!(
        (posts_us - oldest_us).abs() <= 1_000_000,
        "{posts_us} {oldest_us}"
    );
    assert_eq!(notes_us, FIRST_US, "all of it is older than the window");
}

#[test]
fn what_changes_between_two_slices_of_loading_is_as_the_store_has_it_afterwards() {
    let world = World::new(CONFIG);
    (0..30).for_each(|n| world.post(n, n * 60));
    let opened = Fanout::start(&world.config.timelines, 1, &world.store).unwrap();
    let (fanout, mut drawer) = opened.unwrap();
    let step = Cell::new(0);
    drawer
        .load(&|| {
            let n = step.replace(step.get() + 1);
            if n < 12 {
                // One is deleted, one moves to the front, one to the back, one is new.
                world.write(AUTHOR, "post", &(29 - n).to_string(), None);
                world.post(n, 40_000 + n);
                world.post(12 + n % 6, n);
                world.post(100 + n, 20_000 - n * 1000);
            }
            false
        })
        .unwrap();
    assert!(
        step.get() > 12,
        "loading has too few slices to be disturbed"
    );
    let stored = world.stored();
    assert!(stored.len() > 20);
    assert_eq!(remembered(&fanout), Some(stored));
}

#[test]
fn timelines_that_fell_behind_the_outbox_are_loaded_again() {
    let world = World::new(&CONFIG.replace("[store]", "[store]\noutbox_max = 10"));
    let opened = Fanout::open(&world.config.timelines, 1, &world.store).unwrap();
    let (fanout, mut drawer) = opened.unwrap();
    assert_eq!(remembered(&fanout), Some(Vec::new()));
    (0..40).for_each(|n| world.post(n, n));
    while drawer.step(1).unwrap() {}
    let stored = world.stored();
    assert_eq!(stored.len(), 40);
    assert_eq!(remembered(&fanout), Some(stored));
}
