//! What is published equals what is visible, told once, whatever happens on the way.
//!
//! The reader here is naive: it replays payloads into a map, newest revision
//! wins, and knows nothing of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use blocklog::block::{Held, Payload};
use blocklog::page::{PageMax, PendingStart, Selection, Start};
use blocklog::store::LogStore as _;
use feedmill::branch::{self, Branch as _, Step};
use feedmill::clock::Clock;
use feedmill::publish::Publisher;
use feedmill::replicate::log::Log;
use feedmill::replicate::settings::LogSettings;
use feedmill::replicate::sqlite::SqliteLog;
use feedmill::store::AccountStatus;
use feedmill::store::batch::Item;
use serde_json::Value;
use sim::rng::Rng;

use super::desk::{ALICE, BOB, Desk};

const SPACE: &str = "river";

fn desk(outbox_max: u64) -> Desk {
    let config = format!(
        "namespace = \"com.example\"\n[collections.post]\ncollection = \"com.example.post\"\nvalidate = false\n\
         [collections.note]\ncollection = \"com.example.note\"\nvalidate = false\n\
         [store]\nurl = \"sqlite::memory:\"\noutbox_max = {outbox_max}\n"
    );
    Desk::of(feedmill::config::Config::parse(&config).unwrap())
}

/// A log in a folder of its own.
struct Shelf {
    folder: tempfile::TempDir,
}

impl Shelf {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// The log as a process that starts now opens it.
    fn log(&self) -> Log {
        let store = Arc::new(SqliteLog::open(&self.folder.path().join("log.db")).unwrap());
        let settings = LogSettings {
            publish: Some(SPACE.into()),
            ..LogSettings::default()
        };
        Log::new(store, settings, Clock::Wall)
    }

    fn publisher(&self) -> Publisher {
        Publisher::new(self.log(), SPACE, Clock::Wall).unwrap()
    }

    fn blocks(&self) -> Vec<Held> {
        let start = Start {
            after: 0,
            pending: PendingStart::Excluded,
        };
        let max = PageMax {
            blocks: 1_000_000,
            bytes: usize::MAX,
        };
        let log = self.log();
        let page = log.store().page(SPACE, &Selection::Space, &start, max);
        page.unwrap().blocks
    }
}

fn draw(publisher: &mut Publisher, desk: &Desk) {
    while branch::step(publisher, &*desk.store).unwrap() == Step::More {}
}

/// What a reader of these blocks sees: visible records and their bodies.
fn replay(blocks: &[Held]) -> BTreeMap<String, Value> {
    let mut records: BTreeMap<String, (String, Option<Value>)> = BTreeMap::new();
    let mut hidden = BTreeSet::new();
    for held in blocks {
        let Payload::Bytes(payload) = &held.block.payload else {
            continue;
        };
        let event: Value = serde_json::from_slice(payload).unwrap();
        let did = event["did"].as_str().unwrap().to_owned();
        if event["kind"] == "account" {
            assert_eq!(held.block.feed, "accounts");
            if event["account"]["active"] == true {
                hidden.remove(&did);
            } else {
                if event["account"]["status"] == "deleted" {
                    records.retain(|uri, _| !uri.starts_with(&format!("at://{did}/")));
                }
                hidden.insert(did);
            }
            continue;
        }
        let commit = &event["commit"];
        let text = |name: &str| commit[name].as_str().unwrap().to_owned();
        assert_eq!(held.block.feed, text("collection"));
        let uri = format!("at://{did}/{}/{}", text("collection"), text("rkey"));
        let newest = records.get(&uri).map(|(rev, _)| rev.clone());
        if newest.is_none_or(|newest| newest <= text("rev")) {
            records.insert(uri, (text("rev"), commit.get("record").cloned()));
        }
    }
    let visible = |uri: &String| {
        !hidden
            .iter()
            .any(|did| uri.starts_with(&format!("at://{did}/")))
    };
    records
        .into_iter()
        .filter(|(uri, _)| visible(uri))
        .filter_map(|(uri, (_, body))| Some((uri, body?)))
        .collect()
}

/// Everything visible, told exactly once, and nothing left of the rest.
#[track_caller]
fn check(shelf: &Shelf, truth: &BTreeMap<String, Value>) {
    let blocks = shelf.blocks();
    assert_eq!(&replay(&blocks), truth);
    let mut told = BTreeSet::new();
    for held in &blocks {
        let Payload::Bytes(payload) = &held.block.payload else {
            continue;
        };
        let event: Value = serde_json::from_slice(payload).unwrap();
        let commit = &event["commit"];
        let uri = format!(
            "at://{}/{}/{}",
            event["did"].as_str().unwrap(),
            commit["collection"].as_str().unwrap_or("-"),
            commit["rkey"].as_str().unwrap_or("-")
        );
        let version = (
            uri.clone(),
            commit["rev"].to_string(),
            event["time_us"].to_string(),
        );
        let key = match event["kind"] == "commit" {
            true => (version.0, version.1, String::new()),
            false => (version.0, String::new(), version.2),
        };
        assert!(told.insert(key), "told twice: {event}");
        if commit.get("record").is_some() {
            assert!(
                truth.contains_key(&uri),
                "its payload should be gone: {event}"
            );
        }
    }
    let positions: Vec<u64> = blocks.iter().filter_map(|held| held.position).collect();
    assert_eq!(positions, (1..=blocks.len() as u64).collect::<Vec<_>>());
    let log = shelf.log();
    let found = blocklog::verify::verify(&**log.store(), SPACE).unwrap();
    assert_eq!(found.damaged, vec![]);
}

/// A random history of two accounts.
struct History {
    desk: Desk,
    rng: Rng,
    records: BTreeMap<String, Value>,
    standing: BTreeMap<&'static str, AccountStatus>,
    turns: i64,
}

impl History {
    fn new(seed: u64, outbox_max: u64) -> Self {
        Self {
            desk: desk(outbox_max),
            rng: Rng::new(seed),
            records: BTreeMap::new(),
            standing: BTreeMap::new(),
            turns: 0,
        }
    }

    fn step(&mut self, number: u64) {
        let did = if self.rng.below(2) == 0 { ALICE } else { BOB };
        let short = if self.rng.below(3) == 0 {
            "note"
        } else {
            "post"
        };
        let rkey = self.rng.below(6).to_string();
        let uri = self.desk.uri(did, short, &rkey);
        match self.rng.below(10) {
            0 => self.turn(did),
            1..4 => {
                self.desk.delete(did, short, &rkey);
                self.records.remove(&uri);
            }
            _ => {
                let body = serde_json::json!({"step": number});
                self.desk.put(did, short, &rkey, &body.to_string());
                self.records.insert(uri, body);
            }
        }
    }

    fn turn(&mut self, did: &'static str) {
        let status = match self.rng.below(5) {
            0 => AccountStatus::Deleted,
            1 => AccountStatus::Takendown,
            2 => AccountStatus::Deactivated,
            _ => AccountStatus::Active,
        };
        self.turns += 1;
        self.desk.apply(Item::Account {
            did: did.into(),
            status,
            time_us: self.desk.now_us() + self.turns,
        });
        // An account that was never heard of is active without a word.
        self.standing.insert(did, status);
        if status == AccountStatus::Deleted {
            self.records
                .retain(|uri, _| !uri.starts_with(&format!("at://{did}/")));
        }
    }

    fn truth(&self) -> BTreeMap<String, Value> {
        let hidden: Vec<String> = self
            .standing
            .iter()
            .filter(|(_, status)| !status.visible())
            .map(|(did, _)| format!("at://{did}/"))
            .collect();
        self.records
            .iter()
            .filter(|(uri, _)| !hidden.iter().any(|did| uri.starts_with(did)))
            .map(|(uri, body)| (uri.clone(), body.clone()))
            .collect()
    }
}

#[test]
fn every_visible_record_is_told_once_through_hiding_deletes_restarts_and_gaps() {
    for (seed, outbox_max) in [(1, 1_000_000), (2, 6), (3, 1_000_000), (4, 40)] {
        println!("seed {seed}, outbox_max {outbox_max}");
        let (mut history, shelf) = (History::new(seed, outbox_max), Shelf::new());
        let mut publisher = shelf.publisher();
        for number in 0..300 {
            history.step(number);
            match history.rng.below(10) {
                0 => publisher = shelf.publisher(), // a restart
                1..4 => {
                    draw(&mut publisher, &history.desk);
                    check(&shelf, &history.truth());
                }
                _ => {}
            }
        }
        draw(&mut publisher, &history.desk);
        check(&shelf, &history.truth());
    }
}

#[test]
fn two_processes_that_publish_from_one_store_tell_everything_once() {
    let (mut history, shelf) = (History::new(5, 1_000_000), Shelf::new());
    for number in 0..600 {
        history.step(number);
    }
    let desk = &history.desk;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let mut publisher = shelf.publisher();
            scope.spawn(move || draw(&mut publisher, desk));
        }
    });
    check(&shelf, &history.truth());
    let position = shelf.publisher().position().unwrap();
    assert_eq!(position, Some(desk.store.head().unwrap()));
}

#[test]
fn nobody_else_appends_to_the_space_that_is_published() {
    let shelf = Shelf::new();
    let _publisher = shelf.publisher();
    let block =
        serde_json::json!({"actorId": "mallory", "sequence": 1, "timestamp": 1, "data": "eA=="});
    let append = serde_json::json!({"type": "append", "requestId": "r", "blocks": [block]});
    let answer = |space: &str| shelf.log().answer(space, None, &append).to_message();
    assert_eq!(answer(SPACE)["error"], "notAllowed");
    assert_eq!(answer(SPACE)["requestId"], "r");
    assert_eq!(answer("another")["positions"], serde_json::json!([1]));
    assert_eq!(shelf.blocks(), vec![]);
}
