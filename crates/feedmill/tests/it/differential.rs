//! Today's store and `decide` with the new store, held against each other.
//!
//! The same random batches go through both. After each of them, once nothing is due any more,
//! both must hold the same records, entries, follows, counts, groups, sort keys, dead letters,
//! parked records, held frames and accounts, and must have published the same changes.
//!
//! `FEEDMILL_SEED=n` plays one world, `FEEDMILL_STEPS=n` makes more of them.

mod bridge;
mod dump;
mod today;
mod tomorrow;
mod world;

use std::sync::Arc;

use ::store::apply::apply;
use ::store::memory::Memory;
use ::store::port::Store;
use ::store::sqlite::Sqlite;
use ::store::work;
use decide::ids::Position;
use decide::names::names;
use decide::rules::Rules;
use feedmill::check::{Checker, Claim};
use feedmill::config::Config;
use feedmill::store::batch::{Batch, Commit, DeadLetter, Item, Op, Verdict};
use feedmill::store::plan::Plan;
use feedmill::store::{self, SharedStore};
use record::cid::Cid;
use rusqlite::Connection;

use crate::seeds::seeds;
use bridge::Bridge;
use dump::Named;
use today::Today;
use world::World;

const NOW: i64 = 1_790_000_000_000_000;
const SECOND: i64 = 1_000_000;
/// Batches in one world.
const STEPS: u64 = 60;

const COLLECTIONS: &str = r#"
namespace = "com.example"
[collections.follow]
collection = "com.example.follow"
validate = false
[collections.block]
collection = "com.example.block"
validate = false
[collections.like]
collection = "com.example.like"
validate = false
QUEUE_LATE
[collections.post]
collection = "com.example.post"
validate = false
queryable = { "n" = { type = "range", as = "number" }, "lang" = {} }
references = { reply = { collection = "post", field = "about" } }
QUEUE_FAST
[collections.post.relations.like]
collection = "like"
field = "subject"
[collections.post.relations.fan]
collection = "like"
field = "subject"
count_distinct = "did"
[collections.reply]
collection = "com.example.reply"
validate = false
requires = ["parent", "root"]
[collections.tag]
collection = "com.example.tag"
validate = false
requires = [{ path = "subject", in = "label", field = "of" }]
[collections.label]
collection = "com.example.label"
validate = false
[collections.note]
collection = "com.example.note"
validate = false
[[collections.note.rule]]
name = "longer"
expect = "about == null || record.n >= about.n"
message = "a note is no smaller than what it is about"
path = "n"
with = { about = "about" }
[collections.card]
collection = "com.example.card"
validate = false
[collections.link]
collection = "com.example.link"
validate = false
[[collections.link.rule]]
name = "no-bad"
expect = "!has(record.bad)"
message = "bad"
path = "bad"
[feeds.timeline]
targets = ["post"]
hide = ["block"]
[feeds.some]
targets = [{ collection = "post", where = "!has(record.lang) || record.lang == 'en'", keys = ["author", "topics"] }]
[[feeds.some.rule]]
when = "record.n == 3"
keys = ["topics"]
[feeds.following]
targets = [{ collection = "card", merge = "uri", where = "!has(record.lang)" },
  { collection = "link", merge = "card", keys = ["author", "topic"], union = ["topic"] }]
window = "2m"
thing_max = 3
"#;

const QUEUES: &str = r#"
[queues.fast]
priority = "high"
concurrency = 2
[queues.late]
priority = "low"
concurrency = 1
depth_max = 3
[intake]
turn_max = 8
"#;

fn text(queued: bool, file: &str) -> String {
    let (fast, late, queues) = match queued {
        true => ("queue = \"fast\"", "queue = \"late\"", QUEUES),
        false => ("", "", ""),
    };
    let collections = COLLECTIONS.replace("QUEUE_FAST", fast);
    let collections = collections.replace("QUEUE_LATE", late);
    format!("{collections}{queues}\n[store]\nurl = \"sqlite://{file}\"\nreaders = 2\n")
}

/// Both stores, and how far their changes were compared.
struct Pair {
    config: Config,
    plan: Arc<Plan>,
    checker: Checker,
    old: SharedStore,
    file: Connection,
    old_position: i64,
    new: Box<dyn Store>,
    new_position: Position,
    named: Named,
    bridge: Bridge,
    rules: Rules,
    now_us: i64,
    cursor: i64,
    _folder: tempfile::TempDir,
}

impl Pair {
    fn new(queued: bool, on_disk: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.db");
        let config = Config::parse(&text(queued, &path.display().to_string())).unwrap();
        let old = store::open(&config).unwrap();
        let plan = Arc::clone(old.plan());
        let checker = Checker::new(&config, Arc::clone(&plan), &[]).unwrap();
        let bridge = Bridge::new(Arc::clone(&plan), Arc::new(checker));
        let new: Box<dyn Store> = match on_disk {
            true => Box::new(Sqlite::open(&folder.path().join("new.db")).unwrap()),
            false => Box::new(Memory::new()),
        };
        let start = new.snapshot().unwrap().position();
        Self {
            checker: Checker::new(&config, Arc::clone(&plan), &[]).unwrap(),
            file: Connection::open(&path).unwrap(),
            old_position: old.head().unwrap(),
            new_position: start,
            new,
            named: Named::default(),
            rules: bridge.rules(&config, 1),
            bridge,
            now_us: NOW,
            cursor: 0,
            old,
            plan,
            config,
            _folder: folder,
        }
    }

    fn nsid(&self, short: &str) -> String {
        self.config.nsid(short).unwrap().to_owned()
    }

    fn check(&self, (did, nsid, rkey): (&str, &str, &str), rev: u64, body: &str) -> Verdict {
        let claim = Claim {
            did,
            collection: nsid,
            rkey,
            rev,
        };
        let cid = Cid::of_raw(body.as_bytes());
        self.checker.json(claim, Some(cid), body)
    }

    /// Gives a batch to both, and lets both do what is due.
    fn commit(&mut self, items: Vec<Item>) {
        self.cursor += 1;
        let mut batch = decide::batch::Batch {
            source: "test".into(),
            cursor: Some(self.cursor),
            now_us: self.now_us,
            ..Default::default()
        };
        for item in &items {
            self.bridge.item(item, &mut batch);
        }
        let committed = self.old.commit(Batch {
            source: "test".into(),
            cursor: Some(self.cursor),
            now_us: self.now_us,
            items,
        });
        assert!(committed.unwrap().accounting.adds_up());
        self.apply(&batch);
        self.settle();
    }

    fn apply(&mut self, batch: &decide::batch::Batch) {
        let applied = apply(&*self.new, &self.rules, batch).unwrap();
        assert!(applied.loads <= 3, "{} loads", applied.loads);
        let all = applied.counts.values();
        assert!(all.into_iter().all(|one| one.adds_up()), "{applied:?}");
        let (keys, collections) = names(batch);
        self.named
            .learn(self.new.intern(&keys, &collections).unwrap());
    }

    /// Does what is due in both, until nothing is.
    fn settle(&mut self) {
        loop {
            let before = self.old.waiting().unwrap();
            self.old.settle(self.now_us, 1000).unwrap();
            self.old.turn(self.now_us).unwrap();
            if self.old.waiting().unwrap() == before {
                break;
            }
        }
        loop {
            let snapshot = self.new.snapshot().unwrap();
            let orders = work::next(&*snapshot, &self.rules, self.now_us).unwrap();
            drop(snapshot);
            if orders.is_empty() {
                break;
            }
            self.apply(&decide::batch::Batch {
                now_us: self.now_us,
                orders,
                ..Default::default()
            });
        }
    }

    /// What both published since the last time.
    fn changes(&mut self) -> (Vec<String>, Vec<String>) {
        let named = Named::of_old(&self.file, &self.old, &self.plan);
        let drawn = self.old.draw(self.old_position, usize::MAX).unwrap();
        assert!(!drawn.gone);
        self.old_position = drawn.position;
        let old = drawn
            .changes
            .iter()
            .flat_map(|(_, it)| named.of_today(it))
            .collect();
        let changed = self.new.changes(self.new_position, usize::MAX).unwrap();
        if let Some(last) = changed.last() {
            self.new_position = last.position;
        }
        let all = changed
            .iter()
            .flat_map(|it| self.named.of_tomorrow(&it.change));
        (canonical(old), canonical(all.collect()))
    }

    #[track_caller]
    fn compare(&mut self) {
        let named = Named::of_old(&self.file, &self.old, &self.plan);
        let today = Today {
            file: &self.file,
            named: &named,
            plan: &self.plan,
            store: &self.old,
        };
        let old = today.lines();
        let new = tomorrow::new(&*self.new.snapshot().unwrap(), &self.named);
        same("rows", &old, &new);
        let (old, new) = self.changes();
        same("changes", &old, &new);
    }
}

/// Changes in an order of their own. Of a record that begins another group than before, today's
/// store says by the names of both things whether that happened just now; so that is left out.
fn canonical(changes: Vec<String>) -> Vec<String> {
    let uri = |line: &str, at: usize| line.split(' ').nth(at).map(str::to_owned);
    let was = changes.iter().filter(|line| line.starts_with("was "));
    let was: Vec<Option<String>> = was.map(|line| uri(line, 2)).collect();
    let mut lines = changes;
    for line in &mut lines {
        if line.starts_with("now live ") && was.contains(&uri(line, 4)) {
            *line = line
                .replacen("live true", "", 1)
                .replacen("live false", "", 1);
        }
    }
    lines.sort();
    lines
}

/// Two lists are equal; the lines that are not are printed.
#[track_caller]
fn same(what: &str, old: &[String], new: &[String]) {
    if old == new {
        return;
    }
    let only = |these: &[String], those: &[String]| {
        let mut those = those.to_vec();
        let mut only = Vec::new();
        for line in these {
            match those.iter().position(|other| other == line) {
                Some(at) => drop(those.remove(at)),
                None => only.push(line.clone()),
            }
        }
        only.join("\n  ")
    };
    panic!(
        "{what} differ\nonly today's store:\n  {}\nonly the new store:\n  {}",
        only(old, new),
        only(new, old)
    );
}

#[test]
fn both_stores_hold_the_same_and_publish_the_same() {
    for seed in seeds("differential", STEPS, 12 * STEPS) {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        // Until whatever still waits is a dead letter.
        for _ in 0..10 {
            world.pair.now_us += 10 * SECOND;
            world.pair.settle();
        }
        world.pair.compare();
    }
}

/// The commit of one record by one author.
fn record(pair: &Pair, short: &str, rev: u64, body: &str) -> Item {
    let (did, nsid) = ("did:web:a.test", pair.nsid(short));
    let op = Op {
        verdict: pair.check((did, &nsid, "1"), rev, body),
        collection: nsid,
        rkey: "1".into(),
    };
    Item::Commit(Commit {
        did: did.into(),
        rev,
        seq: 0,
        chain: None,
        filtered: 0,
        ops: vec![op],
        frame: Default::default(),
        was_held: false,
        live: true,
    })
}

#[test]
fn a_record_that_waited_keeps_the_moment_of_its_first_sight() {
    let mut pair = Pair::new(false, false);
    let tag = record(&pair, "tag", 1, r#"{"subject":"at://x/y/1"}"#);
    pair.commit(vec![tag]);
    pair.now_us += 5 * SECOND;
    let label = record(&pair, "label", 2, r#"{"of":"at://x/y/1"}"#);
    pair.commit(vec![label]);
    pair.compare();
    let lines = tomorrow::new(&*pair.new.snapshot().unwrap(), &pair.named);
    let tag = format!("record at://did:web:a.test/com.example.tag/1 1 {NOW} ");
    assert!(lines.iter().any(|line| line.starts_with(&tag)), "{lines:?}");
}

#[test]
fn a_frame_that_comes_again_says_nothing_new_about_its_account() {
    let mut pair = Pair::new(false, false);
    let letter = DeadLetter {
        did: "did:web:a.test".into(),
        stage: "decode".into(),
        message: "no".into(),
        raw: "bytes".into(),
        ..DeadLetter::default()
    };
    for _ in 0..2 {
        pair.commit(vec![Item::Unopened(letter.clone())]);
        pair.compare();
    }
}
