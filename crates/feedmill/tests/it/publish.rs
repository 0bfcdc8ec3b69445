//! What is published equals what is visible, told once, whatever happens on the way.
//!
//! The reader here is naive: it replays payloads into a map, newest revision
//! wins, and knows nothing of the store.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use blocklog::block::{Held, Payload};
use blocklog::page::{PageMax, PendingStart, Selection, Start};
use blocklog::store::LogStore as _;
use feedmill::branch::{self, Branch as _, Step};
use feedmill::clock::Clock;
use feedmill::decode::jetstream::JetstreamDecoder;
use feedmill::decode::log::LogDecoder;
use feedmill::decode::{Decoder, Opened};
use feedmill::publish::Publisher;
use feedmill::store::AccountStatus;
use feedmill::store::batch::Item;
use replicate::access::{Caller, Keys};
use replicate::log::Log;
use replicate::settings::LogSettings;
use replicate::sqlite::SqliteLog;
use replicate::time::Time;
use serde_json::{Value, json};
use sim::rng::Rng;

use super::desk::{ALICE, BOB, Desk};

const SPACE: &str = "river";

/// Its records have made-up CIDs, so nothing is held against them.
fn desk(outbox_max: u64) -> Desk {
    let config = format!(
        "namespace = \"com.example\"\n[collections.post]\ncollection = \"com.example.post\"\nvalidate = false\n\
         [collections.note]\ncollection = \"com.example.note\"\nvalidate = false\n\
         [intake]\nverify = \"off\"\n\
         [store]\nurl = \"sqlite::memory:\"\noutbox_max = {outbox_max}\n"
    );
    Desk::of(feedmill::config::Config::parse(&config).unwrap())
}

/// A log in a folder of its own.
struct Shelf {
    folder: tempfile::TempDir,
    open: RefCell<Option<Log>>,
}

impl Shelf {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            open: RefCell::default(),
        }
    }

    /// The log, as whoever reads it has it open.
    fn log(&self) -> Log {
        let mut open = self.open.borrow_mut();
        open.get_or_insert_with(|| self.opened()).clone()
    }

    /// The log as a process that starts now opens it.
    fn opened(&self) -> Log {
        let store = Arc::new(SqliteLog::open(&self.folder.path().join("log.db")).unwrap());
        let settings = LogSettings {
            publish: Some(SPACE.into()),
            ..LogSettings::open()
        };
        Log::new(store, settings, Keys::default(), Time::wall())
    }

    fn publisher(&self) -> Publisher {
        Publisher::new(self.opened(), SPACE, Clock::Wall).unwrap()
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

    /// Every block, as a peer is given it.
    fn messages(&self) -> Vec<Value> {
        let (log, mut blocks, mut cursor) = (self.log(), Vec::new(), json!(0));
        loop {
            let question =
                json!({"type": "query", "requestId": 1, "cursor": cursor, "limit": 1000});
            let answer = log
                .answer(SPACE, None, &question, &Caller::default())
                .to_message();
            blocks.extend(answer["blocks"].as_array().unwrap().iter().cloned());
            if answer["hasMore"] != true {
                return blocks;
            }
            cursor = answer["nextCursor"].clone();
        }
    }

    /// The file and what is still beside it. Nobody writes to it now.
    fn copy(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let names = ["log.db", "log.db-wal"].map(|name| self.folder.path().join(name));
        let read = |path: PathBuf| Some((path.clone(), std::fs::read(path).ok()?));
        names.into_iter().filter_map(read).collect()
    }

    /// Puts a copy in the place of the log; an empty one leaves no log at all.
    fn bring_back(&self, copy: &[(PathBuf, Vec<u8>)]) {
        self.open.take();
        for name in ["log.db", "log.db-wal", "log.db-shm"] {
            drop(std::fs::remove_file(self.folder.path().join(name)));
        }
        for (path, bytes) in copy {
            std::fs::write(path, bytes).unwrap();
        }
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
    /// Whether accounts are deleted too.
    deleted: bool,
}

impl History {
    fn new(seed: u64, outbox_max: u64) -> Self {
        Self {
            desk: desk(outbox_max),
            rng: Rng::new(seed),
            records: BTreeMap::new(),
            standing: BTreeMap::new(),
            turns: 0,
            deleted: true,
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
                let body = json!({"step": number});
                self.desk.put(did, short, &rkey, &body.to_string());
                self.records.insert(uri, body);
            }
        }
    }

    fn turn(&mut self, did: &'static str) {
        let status = match self.rng.below(5) {
            0 if self.deleted => AccountStatus::Deleted,
            0 | 1 => AccountStatus::Takendown,
            2 => AccountStatus::Deactivated,
            _ => AccountStatus::Active,
        };
        self.turns += 1;
        let (did_text, time_us) = (did.to_owned(), self.desk.now_us() + self.turns);
        self.desk.apply(match self.rng.below(3) {
            // Its host's word, which has no time of its own.
            0 => Item::Standing {
                did: did_text,
                status,
            },
            _ => Item::Account {
                did: did_text,
                status,
                time_us,
            },
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
        for number in 0..200 {
            history.step(number);
            match history.rng.below(10) {
                0 => publisher = shelf.publisher(), // a restart
                1..3 => {
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

/// A reader with a store of its own, which reads from the beginning where the log is not the one it read.
struct Replica {
    desk: Desk,
    decoder: LogDecoder,
    read: Vec<String>,
}

impl Replica {
    fn new() -> Self {
        let desk = desk(1_000_000);
        let decoder = Decoder::new(Arc::clone(&desk.checker), &desk.config.intake);
        Self {
            desk,
            decoder: LogDecoder::new(JetstreamDecoder::new(decoder), SPACE),
            read: Vec::new(),
        }
    }

    fn catch_up(&mut self, shelf: &Shelf) {
        let blocks = shelf.messages();
        let hash = |block: &Value| block["hash"].as_str().unwrap().to_owned();
        let hashes: Vec<String> = blocks.iter().map(hash).collect();
        let goes_on = hashes.starts_with(&self.read);
        let known = if goes_on { self.read.len() } else { 0 };
        for block in blocks.iter().skip(known) {
            match self.decoder.open(block.to_string().as_bytes()) {
                Opened::Item { item, .. } => drop(self.desk.apply(item)),
                other => panic!("{other:?}"),
            }
        }
        self.read = hashes;
    }

    #[track_caller]
    fn check(&self, truth: &BTreeMap<String, Value>) {
        let versions = self.desk.store.versions_after(0, 1000).unwrap();
        let seen = versions.into_iter().filter_map(|(_, version)| {
            let content = version.content.filter(|_| version.visible)?;
            Some((version.uri, serde_json::from_str(&content.body).unwrap()))
        });
        assert_eq!(&seen.collect::<BTreeMap<_, _>>(), truth);
    }
}

/// Rolls the log back and, where no account comes back from deletion, loses it altogether: of the
/// records of such an account nobody has a trace then.
#[test]
fn a_replica_holds_what_is_visible_though_the_log_was_rolled_back_or_lost() {
    for (seed, outbox_max, deleted) in [
        (11, 1_000_000, true),
        (12, 1_000_000, false),
        (13, 9, false),
    ] {
        println!("seed {seed}, outbox_max {outbox_max}");
        let (mut history, shelf) = (History::new(seed, outbox_max), Shelf::new());
        history.deleted = deleted;
        let (mut replica, mut copy) = (Replica::new(), Vec::new());
        let mut publisher = Some(shelf.publisher());
        for number in 0..200 {
            history.step(number);
            if history.rng.below(3) > 0 {
                continue;
            }
            draw(
                publisher.get_or_insert_with(|| shelf.publisher()),
                &history.desk,
            );
            match history.rng.below(6) {
                0 => copy = shelf.copy(),
                1 if !copy.is_empty() => {
                    publisher = None;
                    shelf.bring_back(&copy);
                }
                2 if !deleted => {
                    publisher = None;
                    shelf.bring_back(&[]);
                }
                _ => {}
            }
            draw(
                publisher.get_or_insert_with(|| shelf.publisher()),
                &history.desk,
            );
            if history.rng.below(2) == 0 {
                replica.catch_up(&shelf);
                replica.check(&history.truth());
            }
        }
        draw(&mut shelf.publisher(), &history.desk);
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
    let block = json!({"actorId": "mallory", "sequence": 1, "timestamp": 1, "data": "eA=="});
    let append = json!({"type": "append", "requestId": "r", "blocks": [block]});
    let answer = |space: &str| {
        shelf
            .log()
            .answer(space, None, &append, &Caller::default())
            .to_message()
    };
    assert_eq!(answer(SPACE)["error"], "notAllowed");
    assert_eq!(answer(SPACE)["requestId"], "r");
    assert_eq!(answer("another")["positions"], json!([1]));
    assert_eq!(shelf.blocks(), vec![]);
}
