//! SQLite keeps every promise, and survives the same world memory does.

#[allow(unreachable_pub)]
#[path = "../../../../blocklog/tests/suite/mod.rs"]
mod suite;

#[allow(unreachable_pub)]
#[path = "../../../../blocklog/tests/model/mod.rs"]
mod model;

use super::SqliteLog;
use blocklog::store::LogStore;
use model::{Weather, Workshop, play};
use std::cell::RefCell;
use std::ops::Deref;
use suite::promises;
use tempfile::TempDir;

/// A store in a directory that goes with it.
#[derive(Debug)]
struct Scratch {
    log: SqliteLog,
    directory: TempDir,
}

impl Scratch {
    fn new(make: impl FnOnce(&std::path::Path)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log.db");
        make(&path);
        let log = SqliteLog::open(&path).unwrap();
        Self { log, directory }
    }
}

impl Deref for Scratch {
    type Target = SqliteLog;

    fn deref(&self) -> &SqliteLog {
        &self.log
    }
}

promises!(*Scratch::new(|_| ()));

/// Keeps the directories of the stores it made.
#[derive(Default)]
struct OnDisk(RefCell<Vec<TempDir>>);

impl OnDisk {
    fn keep(&self, scratch: Scratch) -> SqliteLog {
        self.0.borrow_mut().push(scratch.directory);
        scratch.log
    }
}

impl Workshop for OnDisk {
    type Store = SqliteLog;

    fn fresh(&self) -> SqliteLog {
        self.keep(Scratch::new(|_| ()))
    }

    fn copy(&self, store: &SqliteLog) -> SqliteLog {
        self.keep(Scratch::new(|path| store.copy_to(path).unwrap()))
    }
}

#[test]
fn replicas_on_sqlite_converge_whatever_the_world_does() {
    for (seed, evictions, partial) in [(1, false, false), (2, true, false), (3, false, true)] {
        println!("FEEDMILL_SEED={seed} evictions {evictions} partial {partial}");
        let weather = Weather {
            peers: 3,
            steps: 250,
            disasters: true,
            evictions,
            partial,
        };
        play(OnDisk::default(), seed, weather);
    }
}

#[test]
fn everything_is_there_after_opening_the_file_again() {
    use blocklog::chain::Draft;
    use blocklog::cursor::Epoch;
    use blocklog::signature::Author;
    use blocklog::store::{FeedName, Role};
    let scratch = Scratch::new(|_| ());
    let draft = Draft {
        timestamp_ms: 1,
        data: b"x".to_vec(),
    };
    let name = FeedName {
        feed: "f",
        namespace: Some("data"),
    };
    let write = |log: &SqliteLog| {
        let author = Author::keyed(&[1; 32]);
        log.write("s", &name, &author, std::slice::from_ref(&draft), 1)
            .unwrap()
            .remove(0)
    };
    scratch.open("s", Role::Authority, Epoch([1; 16])).unwrap();
    let first = write(&scratch);
    let again = SqliteLog::open(&scratch.directory.path().join("log.db")).unwrap();
    assert_eq!(again.block("s", &first.block.key()).unwrap(), Some(first));
    assert_eq!(write(&again).position, Some(2));
    assert_eq!(
        write(&scratch).position,
        Some(3),
        "two processes share one counter"
    );
}

#[test]
fn a_file_of_a_later_version_is_left_alone() {
    let scratch = Scratch::new(|_| ());
    let path = scratch.directory.path().join("log.db");
    let later = rusqlite::Connection::open(&path).unwrap();
    later.pragma_update(None, "user_version", 1000).unwrap();
    let refused = SqliteLog::open(&path).unwrap_err();
    assert!(
        matches!(refused, blocklog::store::StoreError::Damaged(_)),
        "{refused}"
    );
    let version: i64 = later
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    assert_eq!(version, 1000);
}
