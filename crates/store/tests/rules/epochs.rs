//! Positions when a file is opened again, by one process or by two.

use std::path::Path;
use std::time::Duration;

use decide::ids::Position;
use store::error::StoreError;
use store::port::Store;
use store::sqlite::{Settings, Sqlite};

use crate::case::put;
use crate::world;

fn write(store: &dyn Store, rev: u64) {
    let op = crate::case::op("x.post", &rev.to_string(), put("post"));
    let batch = decide::batch::Batch {
        events: vec![(1, crate::case::commit(0, rev, vec![op]))],
        ..Default::default()
    };
    world::run(store, &batch);
}

fn head(store: &dyn Store) -> Position {
    store.snapshot().unwrap().position()
}

fn is_gone(store: &dyn Store, after: Position) -> bool {
    matches!(store.changes(after, 1), Err(StoreError::Gone { .. }))
}

fn file(folder: &tempfile::TempDir) -> std::path::PathBuf {
    folder.path().join("store.db")
}

fn open(path: &Path) -> Sqlite {
    Sqlite::open(path).unwrap()
}

#[test]
fn a_store_that_was_closed_continues_its_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&file(&folder));
    write(&store, 1);
    let before = head(&store);
    store.close().unwrap();
    assert_eq!(head(&open(&file(&folder))), before);
}

#[test]
fn a_store_that_was_not_closed_begins_an_epoch_and_keeps_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&file(&folder));
    write(&store, 1);
    let before = head(&store);
    drop(store);
    let store = open(&file(&folder));
    assert_ne!(head(&store).epoch, before.epoch);
    write(&store, 2);
    let n = before.n + 1;
    assert!(is_gone(&store, Position { n, ..before }), "it was lost");
    let changes = store.changes(before, usize::MAX).unwrap();
    assert_eq!(changes[0].position, head(&store));
    assert!(store.wait(before, Duration::ZERO));
    assert!(!store.wait(head(&store), Duration::ZERO));
    let unknown = Position { epoch: 1, n: 0 };
    assert!(is_gone(&store, unknown) && store.wait(unknown, Duration::ZERO));
}

/// A backup was in order when it was made; what came after it is another history all the same.
#[test]
fn a_backup_in_place_of_the_store_begins_an_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&file(&folder));
    write(&store, 1);
    store.close().unwrap();
    let backup = folder.path().join("backup.db");
    std::fs::copy(file(&folder), &backup).unwrap();
    let store = open(&file(&folder));
    write(&store, 2);
    let lost = head(&store);
    store.close().unwrap();
    std::fs::copy(&backup, file(&folder)).unwrap();
    let store = open(&file(&folder));
    write(&store, 3);
    assert_eq!(head(&store).n, lost.n);
    assert!(is_gone(&store, lost));
}

#[test]
fn a_second_process_leaves_the_epoch_alone_and_sees_what_the_first_commits() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(&file(&folder));
    write(&first, 1);
    let before = head(&first);
    let second = open(&file(&folder));
    assert_eq!(head(&first), before);
    assert_eq!(head(&second), before);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| second.wait(before, Duration::from_secs(60)));
        write(&first, 2);
        assert!(waiter.join().unwrap());
    });
    // Whoever is left closes the file.
    first.close().unwrap();
    write(&second, 3);
    second.close().unwrap();
    assert_eq!(head(&open(&file(&folder))).epoch, before.epoch);
}

#[test]
fn a_trim_leaves_no_gap_in_what_is_read_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&file(&folder));
    write(&store, 1);
    let start = head(&store);
    let done = std::sync::atomic::AtomicBool::new(false);
    let other = open(&file(&folder));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for rev in 2..400 {
                write(&other, rev);
                other.trim(head(&other)).unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let mut after = start;
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            match store.changes(after, usize::MAX) {
                Ok(changes) => {
                    for (n, one) in (after.n + 1..).zip(&changes) {
                        assert_eq!(one.position.n, n, "a gap");
                    }
                    after = changes.last().map_or(after, |one| one.position);
                }
                Err(StoreError::Gone { .. }) => after = head(&store),
                Err(error) => panic!("{error}"),
            }
        }
    });
}

#[test]
fn readers_beyond_the_limit_are_told_to_try_again() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        readers_max: 1,
        reader_wait_max: Duration::ZERO,
        ..Settings::default()
    };
    let store = Sqlite::open_with(&file(&folder), settings).unwrap();
    let first = store.snapshot().unwrap();
    assert!(matches!(store.snapshot(), Err(StoreError::Busy)));
    // Those who consume changes wait for nobody who reads.
    assert_eq!(store.changes(first.position(), 1).unwrap(), []);
    drop(first);
    store.snapshot().unwrap();
}
