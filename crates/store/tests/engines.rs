//! Every engine keeps the same promises: the same rows to the last cell, the same
//! changes; nothing of a transaction that was not committed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod world;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use decide::decide::{decide, wants};
use decide::ids::Position;
use decide::names::names;
use decide::rows::{Cursor, Entry, Record};
use proptest::prelude::*;
use store::error::StoreError;
use store::memory::Memory;
use store::port::{Changed, Store};
use store::sqlite::Sqlite;
use tempfile::TempDir;
use world::{Step, batches, consistent, everything, rows, rules, step};

/// One of each engine, and the folder of those that have one.
fn engines() -> (TempDir, Vec<Box<dyn Store>>) {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = Sqlite::open(&folder.path().join("store.db")).unwrap();
    (folder, vec![Box::new(Memory::new()), Box::new(sqlite)])
}

fn some_steps(n: u8) -> Vec<Step> {
    let step = |at: u8| Step {
        author: at % 3,
        kind: at % 6,
        rkey: at % 4,
        rev: at + 1,
        time: at % 60,
        target: (at / 3) % 3,
    };
    consistent((0..n).map(step).collect())
}

fn start(store: &dyn Store) -> Position {
    let head = store.snapshot().unwrap().position();
    Position { n: 0, ..head }
}

/// All changes, without the epoch, in slices of `max_bytes`.
fn changes(store: &dyn Store, max_bytes: usize) -> Vec<(i64, Changed)> {
    let mut after = start(store);
    let mut found = Vec::new();
    loop {
        let slice = store.changes(after, max_bytes).unwrap();
        let Some(last) = slice.last() else {
            return found;
        };
        after = last.position;
        found.extend(slice.into_iter().map(|mut one| {
            one.position.epoch = 0;
            (one.position.n, one)
        }));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn engines_agree_to_the_last_cell(
        steps in prop::collection::vec(step(), 1..60),
        batch_max in 1..12usize,
        max_bytes in 1..2_000usize,
    ) {
        let steps = consistent(steps);
        let (_folder, engines) = engines();
        for batch in batches(&steps, batch_max) {
            for store in &engines {
                world::run(&**store, &batch);
            }
        }
        let reference = engines[0].snapshot().unwrap();
        for store in &engines {
            let snapshot = store.snapshot().unwrap();
            prop_assert_eq!(everything(&*snapshot), everything(&*reference));
            prop_assert_eq!(changes(&**store, max_bytes), changes(&*engines[0], usize::MAX));
        }
    }
}

#[test]
fn what_is_not_committed_never_was() {
    let (_folder, engines) = engines();
    for store in &engines {
        let all = batches(&some_steps(40), 10);
        world::run(&**store, &all[0]);
        let before = everything(&*store.snapshot().unwrap());
        let (keys, collections) = names(&all[1]);
        let names = store.intern(&keys, &collections).unwrap();
        let mut unit = store.begin().unwrap();
        let mut loaded = unit.load(&wants(&all[1], &names, &rules())).unwrap();
        if let Err(decide::decide::Undecided::Load(more)) =
            decide(&all[1], &names, &rules(), &loaded)
        {
            loaded.extend(unit.load(&more).unwrap());
        }
        assert!(decide(&all[1], &names, &rules(), &loaded).is_ok());
        drop(unit);
        assert_eq!(everything(&*store.snapshot().unwrap()), before);
    }
}

#[test]
fn a_snapshot_does_not_move() {
    let (_folder, engines) = engines();
    for store in &engines {
        let all = batches(&some_steps(40), 10);
        world::run(&**store, &all[0]);
        let snapshot = store.snapshot().unwrap();
        let (rows, position) = (everything(&*snapshot), snapshot.position());
        world::run(&**store, &all[1]);
        assert_eq!(everything(&*snapshot), rows);
        assert_eq!(snapshot.position(), position);
        assert!(store.snapshot().unwrap().position() > position);
    }
}

#[test]
fn changes_that_cannot_be_continued_are_refused() {
    let (_folder, engines) = engines();
    for store in &engines {
        let all = batches(&some_steps(40), 10);
        world::run(&**store, &all[0]);
        let head = store.snapshot().unwrap().position();
        let gone = |after| matches!(store.changes(after, 1_000), Err(StoreError::Gone { .. }));
        assert!(!gone(start(&**store)));
        assert!(
            gone(Position {
                n: head.n + 1,
                ..head
            }),
            "ahead"
        );
        assert!(
            gone(Position {
                epoch: head.epoch + 1,
                ..head
            }),
            "another history"
        );
        store.trim(Position { n: 2, ..head }).unwrap();
        assert!(gone(Position { n: 1, ..head }), "trimmed");
        let rest = store
            .changes(Position { n: 2, ..head }, usize::MAX)
            .unwrap();
        assert_eq!(rest.len() as i64, head.n - 2);
        assert!(
            rest.iter().zip(3..).all(|(one, n)| one.position.n == n),
            "dense"
        );
    }
}

#[test]
fn a_waiter_is_woken_by_a_commit() {
    let (_folder, engines) = engines();
    for store in &engines {
        let head = store.snapshot().unwrap().position();
        assert!(!store.wait(head, Duration::ZERO));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| store.wait(head, Duration::from_secs(60)));
            world::run(&**store, &batches(&some_steps(10), 10)[0]);
            assert!(waiter.join().unwrap());
        });
    }
}

#[test]
fn a_lease_has_one_holder() {
    let (_folder, engines) = engines();
    let ttl = Duration::from_micros(100);
    for store in &engines {
        assert!(store.lease("ingest", "one", 0, ttl).unwrap());
        assert!(!store.lease("ingest", "two", 99, ttl).unwrap());
        assert!(store.lease("other", "two", 99, ttl).unwrap());
        assert!(store.lease("ingest", "one", 99, ttl).unwrap(), "renewed");
        assert!(!store.lease("ingest", "two", 198, ttl).unwrap());
        assert!(store.lease("ingest", "two", 199, ttl).unwrap(), "expired");
        assert!(!store.lease("ingest", "one", 199, ttl).unwrap());
    }
}

/// A process that writes until it is killed. Not a test of its own: [`a_killed_writer_loses_nothing`]
/// starts it with a file; without one there is nothing to do.
#[test]
fn writer_to_be_killed() {
    let Some(file) = std::env::var_os("STORE_KILLED_FILE") else {
        return;
    };
    let store = Sqlite::open(Path::new(&file)).unwrap();
    let done = read_cursor(&store);
    for batch in batches(&some_steps(250), 3).into_iter().skip(done) {
        println!("\nbegins {}", batch.cursor.unwrap());
        world::run(&store, &batch);
    }
    println!("\nend");
}

/// How many batches are committed.
fn read_cursor(store: &dyn Store) -> usize {
    let cursors = rows::<Cursor>(&*store.snapshot().unwrap());
    cursors.first().map_or(0, |row| row.cursor as usize + 1)
}

#[test]
fn a_killed_writer_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    for (kill, lines) in (1..).map(|kill| (kill, kill * 7 % 19 + 1)) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writer_to_be_killed", "--nocapture"])
            .env("STORE_KILLED_FILE", &file)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let said: Vec<String> = output
            .filter(|line| line.starts_with("begins") || line == "end")
            .take(lines)
            .collect();
        child.kill().unwrap();
        child.wait().unwrap();
        if said.last().is_some_and(|line| line == "end") {
            assert!(kill > 5, "it was killed too seldom to say anything");
            break;
        }
        assert!(kill < 500, "it never ends");
    }
    let memory = Memory::new();
    for batch in batches(&some_steps(250), 3) {
        world::run(&memory, &batch);
    }
    let store = Sqlite::open(&file).unwrap();
    // What waits is tried again by whoever opens the store.
    world::settle(&store, 1_000_000);
    world::settle(&memory, 1_000_000);
    assert_eq!(live(&store), live(&memory));
}

/// Live records and their entries; numbers given to batches that were rolled back differ.
fn live(store: &dyn Store) -> BTreeSet<(i64, String, String)> {
    let snapshot = store.snapshot().unwrap();
    let records = rows::<Record>(&*snapshot);
    let entry = |entry: Entry| {
        let record = records
            .iter()
            .find(|record| record.id == entry.record)
            .unwrap();
        (
            entry.time_us,
            entry.tail,
            record.body.clone().unwrap_or_default(),
        )
    };
    rows::<Entry>(&*snapshot).into_iter().map(entry).collect()
}
