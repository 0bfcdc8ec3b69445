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

/// Blocks of `feeds` feeds in turn, each with as many.
fn filled(feeds: u64, blocks: u64) -> Scratch {
    use blocklog::chain::Draft;
    use blocklog::cursor::Epoch;
    use blocklog::signature::Author;
    use blocklog::store::{FeedName, Role};
    let scratch = Scratch::new(|_| ());
    scratch.open("s", Role::Authority, Epoch([1; 16])).unwrap();
    let draft = Draft {
        timestamp_ms: 1,
        data: b"x".to_vec(),
    };
    let drafts = vec![draft; 5];
    for turn in 0..blocks / 5 {
        let feed = format!("f{}", turn % feeds);
        let name = FeedName {
            feed: &feed,
            namespace: Some("data"),
        };
        let author = Author::keyed(&[1; 32]);
        scratch.write("s", &name, &author, &drafts, 1).unwrap();
    }
    scratch
}

/// Each index is there because one of these would walk the table without it.
#[test]
fn no_page_and_no_append_costs_more_as_the_log_grows() {
    use crate::effort;
    use blocklog::page::{PageMax, PendingStart, Selection, Start};
    let (small, large) = (filled(4, 400), filled(4, 4_000));
    let max = PageMax {
        blocks: 20,
        bytes: 1 << 20,
    };
    let feeds = |names: &[&str]| Selection::Feeds(names.iter().map(|&name| name.into()).collect());
    let selections = [
        Selection::Space,
        Selection::Namespace("data".into()),
        feeds(&["f1"]),
        feeds(&["f0", "f2", "f3"]),
    ];
    for selection in &selections {
        for pending in [PendingStart::Excluded, PendingStart::All] {
            for from_end in [false, true] {
                let page = |log: &SqliteLog, blocks: u64| {
                    let after = if from_end { blocks - 100 } else { blocks / 4 };
                    let pending = pending.clone();
                    let start = Start { after, pending };
                    let read = || log.page("s", selection, &start, max).unwrap();
                    let (steps, page) = effort::of(read);
                    assert_eq!(page.blocks.len(), 20);
                    steps
                };
                let what = format!("{selection:?} {pending:?} near the end {from_end}");
                effort::is_flat(&what, page(&small, 400), page(&large, 4_000));
            }
        }
    }
    let append = |log: &Scratch| {
        let author = blocklog::signature::Author::keyed(&[1; 32]);
        let name = blocklog::store::FeedName {
            feed: "f1",
            namespace: Some("data"),
        };
        let draft = blocklog::chain::Draft {
            timestamp_ms: 1,
            data: b"y".to_vec(),
        };
        effort::of(|| log.write("s", &name, &author, &[draft], 1).unwrap()).0
    };
    effort::is_flat("an append", append(&small), append(&large));
}
