//! SQLite keeps every promise, and survives the same world memory does.

#[allow(unreachable_pub)]
#[path = "../../../blocklog/tests/suite/mod.rs"]
mod suite;

#[allow(unreachable_pub)]
#[path = "../../../blocklog/tests/model/mod.rs"]
mod model;

/// Stores that die at a named place.
mod killed;

use super::SqliteLog;
use blocklog::limits::Limits;
use blocklog::message::AppendRequest;
use blocklog::store::{AppendError, LogStore};
use model::{Twins, Weather, Workshop, play};
use std::cell::RefCell;
use std::ops::Deref;
use suite::promises;
use tempfile::TempDir;

/// Generations so small that everything happens at their borders.
const TAIL_BLOCKS: usize = 5;

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
        let log = SqliteLog::with_tail(&path, TAIL_BLOCKS).unwrap();
        let log = log.watched(killed::here);
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

    fn append(
        &self,
        store: &mut SqliteLog,
        appends: Vec<AppendRequest>,
        now_ms: u64,
        limits: &Limits,
        kill: Option<&'static str>,
    ) -> Option<Vec<Result<Vec<Option<u64>>, AppendError>>> {
        let outcomes = killed::together(store, appends, now_ms, limits, kill);
        if kill.is_some() {
            // What the process knew is gone with it.
            let path = store.path.clone();
            let again = SqliteLog::with_tail(&path, TAIL_BLOCKS).unwrap();
            *store = again.watched(killed::here);
        }
        outcomes
    }
}

/// `FEEDMILL_SEEDS=<n>` plays that many of each kind besides those that are always played.
#[test]
fn replicas_on_sqlite_converge_whatever_the_world_does() {
    let more = std::env::var("FEEDMILL_SEEDS").map_or(0, |text| text.parse().unwrap());
    let kinds = [(1, false, false), (2, true, false), (3, false, true)];
    let more = (4..4 + more).flat_map(|seed| kinds.map(|(_, one, other)| (seed, one, other)));
    for (seed, evictions, partial) in kinds.into_iter().chain(more) {
        println!("FEEDMILL_SEED={seed} evictions {evictions} partial {partial}");
        let weather = Weather {
            peers: 3,
            steps: 250,
            disasters: true,
            evictions,
            partial,
            ..Weather::FAIR
        };
        play(OnDisk::default(), seed, weather);
        for twins in [Twins::Named, Twins::Signed] {
            let readers = !weather.partial;
            let (refusals, disasters) = (twins == Twins::Named && seed % 2 == 0, !readers);
            let weather = Weather {
                twins,
                refusals,
                disasters,
                readers,
                ..weather
            };
            play(OnDisk::default(), seed, weather);
        }
    }
}

/// `FEEDMILL_SEEDS=<n>` plays that many besides those that are always played.
#[test]
fn appends_that_share_a_commit_lose_nothing_though_the_store_dies_in_it() {
    let more = std::env::var("FEEDMILL_SEEDS").map_or(0, |text| text.parse().unwrap());
    for seed in 1..=4 + more {
        println!("FEEDMILL_SEED={seed}");
        let weather = Weather {
            peers: 4,
            steps: 250,
            groups: true,
            refusals: seed % 2 == 0,
            evictions: seed % 3 == 0,
            twins: if seed % 4 == 1 {
                Twins::Named
            } else {
                Twins::None
            },
            ..Weather::FAIR
        };
        play(OnDisk::default(), seed, weather);
    }
    let died = killed::count();
    assert!(died > 0, "no store died in the midst of a group");
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

#[test]
fn what_was_evicted_longest_ago_is_forgotten_and_a_page_says_so() {
    use blocklog::block::Head;
    use blocklog::page::{PageMax, PendingStart, Selection, Start};
    use blocklog::store::{EVICTED_REMEMBERED_MAX, Keep, Role};
    let scratch = opened(Role::Authority);
    fill(&scratch, 5);
    let file = rusqlite::Connection::open(scratch.directory.path().join("log.db")).unwrap();
    let many = "WITH RECURSIVE n(i) AS (SELECT 7 UNION ALL SELECT i + 1 FROM n WHERE i < ?1 + 4) \
                INSERT INTO evicted SELECT 1, i, x'00', x'00', 1, i, 'x' FROM n";
    file.execute(many, [super::row::signed(EVICTED_REMEMBERED_MAX)])
        .unwrap();
    let start = Start {
        after: 0,
        pending: PendingStart::Excluded,
    };
    let max = PageMax {
        blocks: 1,
        bytes: 1,
    };
    let page = || {
        scratch
            .page("s", &Selection::Space, &start, max)
            .unwrap()
            .forgotten
    };
    scratch.evict("s", "f0", Keep::Newest(3), 9).unwrap();
    assert_eq!(page(), 0, "exactly as many as are remembered");
    assert!(scratch.head("s", 1).unwrap().is_some());
    scratch.evict("s", "f0", Keep::Newest(1), 9).unwrap();
    assert_eq!(page(), 2);
    assert_eq!(scratch.head("s", 2).unwrap(), None::<Head>);
    assert!(scratch.head("s", 3).unwrap().is_some());
}

/// A file of the second version knew the heads of what it evicted, not the hashes.
#[test]
fn a_file_that_remembers_only_heads_has_forgotten_its_evicted_blocks() {
    use blocklog::store::{Keep, Role};
    let scratch = opened(Role::Authority);
    fill(&scratch, 5);
    scratch.evict("s", "f0", Keep::Newest(2), 9).unwrap();
    let path = scratch.directory.path().join("log.db");
    let old = rusqlite::Connection::open(&path).unwrap();
    old.execute_batch(UNDO_V7).unwrap();
    old.execute_batch(UNDO_V6).unwrap();
    old.execute_batch(UNDO_V5).unwrap();
    old.execute_batch(
        "DROP INDEX evictedByKey; ALTER TABLE evicted DROP COLUMN feedPrivateId; \
         ALTER TABLE evicted DROP COLUMN sequence; ALTER TABLE evicted DROP COLUMN actorId; \
         ALTER TABLE evicted DROP COLUMN hash; \
         ALTER TABLE evicted RENAME TO evictedHeads; ALTER TABLE spaces DROP COLUMN forgottenThrough; \
         PRAGMA user_version = 2",
    )
    .unwrap();
    let log = SqliteLog::open(&path).unwrap();
    let forgotten = "SELECT forgottenThrough FROM spaces";
    let forgotten: i64 = old.query_row(forgotten, [], |row| row.get(0)).unwrap();
    assert_eq!(forgotten, 3);
    assert!(log.head("s", 2).unwrap().is_some());
}

/// Makes of a file one of the sixth version, whose spaces did not count their bytes.
const UNDO_V7: &str = "DROP TRIGGER bytesDeleted; DROP TRIGGER bytesPurged; \
    DROP INDEX blocksAside; ALTER TABLE blocks DROP COLUMN pulled; \
    ALTER TABLE lanes DROP COLUMN startAfter; ALTER TABLE lanes DROP COLUMN startCursor; \
    ALTER TABLE lanes DROP COLUMN sentBack; \
    DROP INDEX streamsByExpiry; DROP INDEX streamsByIdle; \
    ALTER TABLE spaces DROP COLUMN bytes; ALTER TABLE spaces DROP COLUMN deleting; PRAGMA user_version = 6";

/// Makes of a file one of the fifth version, which had no bundles.
const UNDO_V6: &str = "DROP TRIGGER bundledDeleted; DROP TRIGGER bundledChanged; DROP TABLE bundles; \
    ALTER TABLE tail DROP COLUMN emptiedThrough; PRAGMA user_version = 5";

/// Makes of a file one of the fourth version, whose indexes were kept with every block.
const UNDO_V5: &str = "DROP TRIGGER blockDeleted; DROP TRIGGER blockMoved; \
    DROP TABLE blockKeys; DROP TABLE blockPlaces; DROP TABLE tail; \
    CREATE UNIQUE INDEX blocksByKey ON blocks (feedPrivateId, sequence, actorId); \
    CREATE UNIQUE INDEX blocksByFeed ON blocks (feedPrivateId, position) WHERE position IS NOT NULL; \
    PRAGMA user_version = 4";

#[test]
fn a_file_whose_feeds_were_indexes_answers_the_same_pages() {
    check_migration(&[UNDO_V7, UNDO_V6, UNDO_V5]);
}

#[test]
fn a_file_without_bundles_answers_the_same_pages_and_then_has_some() {
    let bundles = check_migration(&[UNDO_V7, UNDO_V6]);
    assert!(bundles > 0);
}

/// Undo some versions, open the file again and go on; how many bundles it has in the end.
fn check_migration(undone: &[&str]) -> i64 {
    use blocklog::page::Selection;
    use blocklog::store::Role;
    let scratch = opened(Role::Authority);
    fill(&scratch, 60);
    scratch
        .evict("s", "f1", blocklog::store::Keep::Newest(7), 99)
        .unwrap();
    let path = scratch.directory.path().join("log.db");
    let all = blocklog::page::PageMax {
        blocks: 100,
        bytes: 1 << 20,
    };
    let start = blocklog::page::Start {
        after: 0,
        pending: blocklog::page::PendingStart::Excluded,
    };
    let pages = |log: &SqliteLog| {
        let feeds =
            |names: &[&str]| Selection::Feeds(names.iter().map(|&one| one.into()).collect());
        [feeds(&["f1"]), feeds(&["f0", "f1", "f3"]), Selection::Space]
            .map(|selection| log.page("s", &selection, &start, all).unwrap())
    };
    let before = pages(&scratch);
    let old = rusqlite::Connection::open(&path).unwrap();
    for version in undone {
        old.execute_batch(version).unwrap();
    }
    let log = SqliteLog::open(&path).unwrap();
    assert_eq!(pages(&log), before);
    fill(&log, 40);
    assert_eq!(log.space("s").unwrap().unwrap().position_max, 100);
    let log = SqliteLog::with_tail(&path, TAIL_BLOCKS).unwrap();
    fill(&log, 40);
    let sql = "SELECT count(*) FROM bundles";
    old.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn opened(role: blocklog::store::Role) -> Scratch {
    let scratch = Scratch::new(|_| ());
    let epoch = blocklog::cursor::Epoch([1; 16]);
    scratch.open("s", role, epoch).unwrap();
    scratch
}

/// Writes blocks of four feeds in turn, each with as many.
fn fill(log: &SqliteLog, blocks: u64) {
    use blocklog::chain::Draft;
    use blocklog::signature::Author;
    use blocklog::store::FeedName;
    let draft = Draft {
        timestamp_ms: 1,
        data: b"x".to_vec(),
    };
    let drafts = vec![draft; 5];
    for turn in 0..blocks / 5 {
        let feed = format!("f{}", turn % 4);
        let name = FeedName {
            feed: &feed,
            namespace: Some("data"),
        };
        let author = Author::keyed(&[1; 32]);
        log.write("s", &name, &author, &drafts, 1).unwrap();
    }
}

/// Each index is there because one of these would walk the table without it.
#[test]
fn no_page_and_no_append_costs_more_as_the_log_grows() {
    use crate::effort;
    use blocklog::page::{PageMax, PendingStart, Selection, Start};
    use blocklog::store::Role::Authority;
    let (small, large) = (opened(Authority), opened(Authority));
    fill(&small, 400);
    fill(&large, 4_000);
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

/// A replica with blocks that its authority placed, and others that wait for that.
fn replica(placed: u64, waiting: u64) -> Scratch {
    use blocklog::page::PageMax;
    use blocklog::store::{ReplicaStore as _, Role};
    let log = opened(Role::Replica);
    fill(&log, placed);
    let all = PageMax {
        blocks: 10_000,
        bytes: 1 << 30,
    };
    let written = log.pending("s", None, &[], all).unwrap();
    let keys = written.iter().map(|held| held.block.key());
    let positions: Vec<_> = keys.zip(1..).collect();
    log.acknowledge("s", &positions, 1).unwrap();
    fill(&log, waiting);
    log
}

/// The same of blocks that wait for an authority: what is pushed next, and what is read meanwhile.
#[test]
fn no_page_of_waiting_blocks_costs_more_as_more_of_them_wait_or_are_placed() {
    use crate::effort;
    use blocklog::page::{PageMax, PendingStart, Selection, Start};
    use blocklog::store::ReplicaStore as _;
    let max = PageMax {
        blocks: 20,
        bytes: 1 << 20,
    };
    let one = ["f1".to_owned()];
    let selections = [Selection::Space, Selection::Feeds(one.to_vec())];
    for (small, large) in [((0, 400), (0, 4_000)), ((400, 200), (4_000, 200))] {
        let logs = [small, large].map(|(placed, waiting)| (placed, replica(placed, waiting)));
        for only in [None, Some(one.as_slice())] {
            let [few, many] = logs.each_ref().map(|(_, log)| {
                let (steps, waiting) = effort::of(|| log.pending("s", only, &[], max).unwrap());
                assert_eq!(waiting.len(), 20);
                steps
            });
            effort::is_flat(&format!("to push {only:?} of {large:?}"), few, many);
        }
        for selection in &selections {
            let [few, many] = logs.each_ref().map(|(placed, log)| {
                let start = Start {
                    after: *placed,
                    pending: PendingStart::All,
                };
                let (steps, page) = effort::of(|| log.page("s", selection, &start, max).unwrap());
                assert_eq!(page.blocks.len(), 20);
                steps
            });
            effort::is_flat(&format!("{selection:?} of {large:?}"), few, many);
        }
    }
}

/// SQLite maps two GiB unless it is compiled to map more; the build's settings say so.
#[test]
fn a_log_of_many_gigabytes_is_read_without_copying() {
    let scratch = opened(blocklog::store::Role::Authority);
    let mapped = scratch.reading(|connection| {
        connection.pragma_query_value(None, "mmap_size", |row| row.get::<_, i64>(0))
    });
    assert_eq!(mapped.unwrap(), super::connection::MMAP_BYTES_MAX);
}

/// The tail that is read from a file names the position a block had; its authority may move it.
#[test]
fn a_block_that_moved_after_the_file_was_opened_stands_in_one_place() {
    use blocklog::page::{PageMax, PendingStart, Selection, Start};
    use blocklog::store::{Keep, ReplicaStore as _, Role};
    let scratch = opened(Role::Replica);
    fill(&scratch, 5);
    let max = PageMax {
        blocks: 10,
        bytes: 1 << 20,
    };
    let key = |log: &SqliteLog| log.pending("s", None, &[], max).unwrap()[0].block.key();
    let first = key(&scratch);
    scratch.acknowledge("s", &[(first.clone(), 1)], 1).unwrap();
    let again = SqliteLog::open(&scratch.directory.path().join("log.db")).unwrap();
    again.acknowledge("s", &[(first, 2)], 1).unwrap();
    let start = Start {
        after: 0,
        pending: PendingStart::All,
    };
    let feed = Selection::Feeds(vec!["f0".into()]);
    let page = again.page("s", &feed, &start, max).unwrap();
    let placed: Vec<u64> = page
        .blocks
        .iter()
        .filter_map(|held| held.position)
        .collect();
    assert_eq!((placed, page.blocks.len()), (vec![2], 5));
    assert_eq!(again.evict("s", "f0", Keep::Newest(0), 9).unwrap(), 1);
}
