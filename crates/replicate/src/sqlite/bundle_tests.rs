//! A page that comes from bundles is the page that comes from rows: whatever blocks are like, and
//! whatever becomes of them.

use super::SqliteLog;
use super::bundle::Bundle;
use super::space::FeedRow;
use blocklog::block::{Block, Held, Payload, Predecessor};
use blocklog::chain::Sealed;
use blocklog::cursor::Epoch;
use blocklog::limits::Limits;
use blocklog::page::{PageMax, PendingStart, Selection, Start};
use blocklog::store::{Keep, LogStore, Role};
use rusqlite::Connection;
use std::path::Path;
use tempfile::TempDir;

/// Blocks of a generation.
const TAIL_BLOCKS: usize = 40;
const FEEDS: usize = 3;
const SECRET: &[u8] = b"what nobody may read any more";

struct World {
    directory: TempDir,
    log: SqliteLog,
    /// At its position, from one.
    blocks: Vec<Held>,
}

fn open(directory: &Path) -> SqliteLog {
    let log = SqliteLog::with_tail(&directory.join("log.db"), TAIL_BLOCKS).unwrap();
    log.open("s", Role::Authority, Epoch([1; 16])).unwrap();
    log
}

fn name(feed: usize) -> String {
    format!("f{feed}")
}

fn append(log: &SqliteLog, sealed: &[Sealed]) {
    let limits = Limits::default();
    log.append("s", Some("n"), sealed, 1, &limits).unwrap();
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = open(directory.path());
        let blocks = Vec::new();
        Self {
            directory,
            log,
            blocks,
        }
    }

    /// The next block of a feed, of one actor or another, after a predecessor that is told or not.
    fn next(&self, feed: usize, data: &[u8]) -> Sealed {
        let turn = self.blocks.len();
        let tip = self.blocks.iter().rev();
        let tip = tip.clone().find(|held| held.block.feed == name(feed));
        let predecessor = tip.map(|tip| Predecessor {
            sequence: tip.block.sequence,
            actor: tip.block.actor.clone(),
            hash: (!turn.is_multiple_of(5)).then_some(tip.hash),
        });
        let block = Block {
            feed: name(feed),
            actor: format!("actor{}", turn % 7 / 6),
            sequence: tip.map_or(1, |tip| tip.block.sequence + 1),
            predecessor: predecessor.filter(|_| !turn.is_multiple_of(11)),
            timestamp_ms: turn as u64,
            payload: Payload::Bytes(data.to_vec()),
            signature: None,
        };
        Sealed::new("s", block)
    }

    fn grow(&mut self, feed: usize, data: &[u8]) {
        self.take(self.next(feed, data));
    }

    fn take(&mut self, sealed: Sealed) {
        append(&self.log, std::slice::from_ref(&sealed));
        self.blocks.push(Held {
            position: Some(self.blocks.len() as u64 + 1),
            hash: sealed.hash,
            namespace: Some("n".into()),
            block: sealed.block,
        });
    }

    /// Blocks of every size, some of them none for bundles.
    fn grow_much(&mut self, blocks: usize) {
        for _ in 0..blocks {
            let turn = self.blocks.len();
            let size = match turn % 23 {
                22 => 2000,
                some => some * 10,
            };
            self.grow(turn * turn % 5 % FEEDS, &vec![turn as u8; size]);
        }
    }

    /// Take the payload from a block, by another process or our own.
    fn purge(&mut self, other: Option<&SqliteLog>, position: usize) {
        let held = &mut self.blocks[position - 1];
        let log = other.unwrap_or(&self.log);
        assert!(log.purge("s", &held.block.key()).unwrap());
        if let Payload::Bytes(bytes) = &held.block.payload {
            held.block.payload = Payload::Purged {
                hash: blocklog::block::Hash::of(bytes),
                bytes: bytes.len() as u64,
            };
        }
    }

    /// The log shows this world above what was evicted, in pages of every size from anywhere.
    #[track_caller]
    fn check(&self, log: &SqliteLog) {
        let count = self.blocks.len() as u64;
        for feeds in [&[0][..], &[1], &[2, 0], &[0, 1, 2]] {
            let names: Vec<String> = feeds.iter().copied().map(name).collect();
            let state = |feed: &String| log.feed("s", feed).unwrap().unwrap();
            let kept = |held: &&Held| {
                let feed = &held.block.feed;
                names.contains(feed) && held.position > Some(state(feed).evicted_through)
            };
            let all: Vec<&Held> = self.blocks.iter().filter(kept).collect();
            let selection = Selection::Feeds(names.clone());
            for (after, blocks) in [(0, 1000), (0, 7), (count / 3, 5), (count / 2, 30)] {
                let expected = all.iter().filter(|held| held.position > Some(after));
                let expected: Vec<&Held> = expected.copied().collect();
                let found = walk(log, &selection, after, blocks);
                assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{feeds:?}");
            }
        }
        sound(self.directory.path());
    }
}

fn walk(log: &SqliteLog, selection: &Selection, mut after: u64, blocks: usize) -> Vec<Held> {
    let bytes = 1 << 20;
    let mut found = Vec::new();
    loop {
        let pending = PendingStart::Excluded;
        let start = Start { after, pending };
        let max = PageMax { blocks, bytes };
        let page = log.page("s", selection, &start, max).unwrap();
        found.extend(page.blocks);
        if !page.has_more {
            return found;
        }
        after = page.next.after;
    }
}

fn file(directory: &Path) -> Connection {
    Connection::open(directory.join("log.db")).unwrap()
}

fn bundles(directory: &Path) -> i64 {
    let sql = "SELECT count(*) FROM bundles";
    file(directory)
        .query_row(sql, [], |row| row.get(0))
        .unwrap()
}

/// The positions at which bundles end.
fn last_of_bundles(directory: &Path) -> Vec<usize> {
    let file = file(directory);
    let mut query = file.prepare("SELECT through FROM bundles").unwrap();
    let last = query.query_map([], |row| row.get::<_, i64>(0)).unwrap();
    last.map(|last| usize::try_from(last.unwrap()).unwrap())
        .collect()
}

/// Every bundle tells of just the blocks whose rows stand where it says, and no two overlap.
#[track_caller]
fn sound(directory: &Path) {
    let file = file(directory);
    let sql = "SELECT count(*) FROM bundles AS one JOIN bundles AS other USING (feedPrivateId) \
               WHERE one.bundleId != other.bundleId AND one.after < other.through AND other.after < one.through";
    let overlaps: i64 = file.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(overlaps, 0);
    let sql = "SELECT b.feedPrivateId, f.feedId, b.after, b.through FROM bundles AS b JOIN feeds AS f USING (feedPrivateId)";
    let mut query = file.prepare(sql).unwrap();
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    let all: Vec<(i64, String, i64, i64)> = query
        .query_map([], read)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for (feed, id, after, through) in all {
        let row = FeedRow::find(&file, "s", &id).unwrap().unwrap();
        let mut bundle = Bundle::first(&file, feed, after as u64).unwrap().unwrap();
        let mut told = Vec::new();
        while bundle.seek(0).unwrap().is_some() {
            told.push(bundle.take(&row).unwrap().position.unwrap() as i64);
        }
        let sql = "SELECT position FROM blocks WHERE feedPrivateId = ?1 AND position > ?2 AND position <= ?3 ORDER BY position";
        let mut query = file.prepare(sql).unwrap();
        let rows = query.query_map([feed, after, through], |row| row.get(0));
        let rows: Vec<i64> = rows.unwrap().map(Result::unwrap).collect();
        assert_eq!(told, rows, "the bundle of {id} in ({after}, {through}]");
    }
}

/// Whether any bundle holds these bytes.
fn bundled(directory: &Path, bytes: &[u8]) -> bool {
    let sql = "SELECT count(*) FROM bundles WHERE instr(blocks, ?1) > 0";
    let found: i64 = file(directory)
        .query_row(sql, [bytes], |row| row.get(0))
        .unwrap();
    found > 0
}

#[test]
fn pages_from_bundles_hold_the_blocks_that_were_appended() {
    let mut world = World::new();
    for _ in 0..12 {
        world.grow_much(25);
        world.check(&world.log);
    }
    assert!(bundles(world.directory.path()) > 10);
    let again = open(world.directory.path());
    world.check(&again);
}

#[test]
fn a_signed_block_comes_out_of_a_bundle_with_its_signature() {
    use blocklog::chain::Draft;
    use blocklog::signature::Author;
    use blocklog::store::FeedName;
    let world = World::new();
    let name = FeedName {
        feed: "f0",
        namespace: None,
    };
    let draft = Draft {
        timestamp_ms: 1,
        data: Vec::new(),
    };
    let author = Author::keyed(&[1; 32]);
    let drafts = vec![draft; 30];
    let write = || world.log.write("s", &name, &author, &drafts, 1).unwrap();
    let written: Vec<Held> = (0..6).flat_map(|_| write()).collect();
    assert!(written.iter().all(|held| held.block.signature.is_some()));
    let feeds = Selection::Feeds(vec!["f0".into()]);
    assert_eq!(walk(&world.log, &feeds, 0, 50), written);
    assert!(bundles(world.directory.path()) > 2);
}

#[test]
fn what_is_purged_or_evicted_takes_its_bundle_with_it() {
    let mut world = World::new();
    for turn in 0..120 {
        let data = if turn == 30 { SECRET } else { b"open" };
        world.grow(turn % FEEDS, data);
    }
    let directory = world.directory.path().to_owned();
    assert!(bundled(&directory, SECRET));
    let other = open(&directory);
    world.purge(Some(&other), 31);
    assert!(!bundled(&directory, SECRET));
    world.check(&world.log);
    for last in last_of_bundles(&directory) {
        world.purge(None, last);
        world.check(&other);
    }
    for keep in [25, 20, 3, 0] {
        let evicted = world.log.evict("s", "f1", Keep::Newest(keep), 7).unwrap();
        assert!(evicted > 0);
        world.check(&world.log);
        world.grow_much(10);
        world.check(&other);
    }
}

#[test]
fn what_is_purged_while_it_waits_is_never_bundled() {
    for by_another in [false, true] {
        let mut world = World::new();
        let directory = world.directory.path().to_owned();
        let other = open(&directory);
        for turn in 0..100 {
            let data = if turn % 10 == 3 { SECRET } else { b"open" };
            world.grow(turn % FEEDS, data);
            if turn % 10 == 3 {
                world.purge(by_another.then_some(&other), turn + 1);
            }
            assert!(!bundled(&directory, SECRET));
        }
        world.check(&world.log);
        assert!(bundles(&directory) > 0);
    }
}

#[test]
fn an_append_that_was_refused_is_in_no_bundle() {
    let mut world = World::new();
    for turn in 0..90 {
        let feed = turn % FEEDS;
        let refused = world.next(feed, SECRET);
        let mut twin = refused.block.clone();
        twin.payload = Payload::Bytes(b"another".to_vec());
        let blocks = [refused, Sealed::new("s", twin)];
        let limits = Limits::default();
        world
            .log
            .append("s", Some("n"), &blocks, 1, &limits)
            .unwrap_err();
        world.grow(feed, b"open");
    }
    let directory = world.directory.path();
    assert!(bundles(directory) > 3 && !bundled(directory, SECRET));
    world.check(&world.log);
}

#[test]
fn a_log_killed_between_bundles_goes_on_without_a_gap_or_an_overlap() {
    let mut world = World::new();
    for _ in 0..30 {
        world.grow_much(9);
        let left = tempfile::tempdir().unwrap();
        for file in ["log.db", "log.db-wal"] {
            std::fs::copy(world.directory.path().join(file), left.path().join(file)).unwrap();
        }
        let mut again = World {
            log: open(left.path()),
            directory: left,
            blocks: world.blocks.clone(),
        };
        again.check(&again.log);
        again.grow_much(90);
        again.check(&again.log);
    }
}

#[test]
fn two_processes_bundle_by_turns_and_both_read_the_same() {
    let mut world = World::new();
    let mut other = open(world.directory.path());
    for turn in 0..20 {
        world.grow_much(if turn % 3 == 0 { 31 } else { 7 });
        std::mem::swap(&mut world.log, &mut other);
        world.check(&world.log);
        world.check(&other);
    }
    assert!(bundles(world.directory.path()) > 5);
}

/// Keys are written in the order of sequences: there the last positions come first.
#[test]
fn bundles_leave_no_block_out_where_sequences_run_against_positions() {
    let mut world = World::new();
    for turn in 0..FEEDS {
        world.grow(turn, b"first");
    }
    for turn in 0..200 {
        let size = if turn % 4 == 3 { 2000 } else { 20 };
        let mut block = world.next(0, &vec![7; size]).block;
        (block.sequence, block.predecessor) = (1000 - turn, None);
        world.take(Sealed::new("s", block));
        if turn % 10 == 9 {
            world.check(&world.log);
        }
    }
    assert!(bundles(world.directory.path()) > 10);
}

#[test]
fn a_replica_whose_positions_come_in_any_order_has_no_bundles() {
    use blocklog::store::ReplicaStore;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log.db");
    let open = || SqliteLog::with_tail(&path, TAIL_BLOCKS).unwrap();
    let mut log = open();
    log.open("r", Role::Replica, Epoch([1; 16])).unwrap();
    let world = World::new();
    for turn in 0..300u64 {
        let mut block = world.next(0, b"x").block;
        block.sequence = turn + 1;
        let sealed = Sealed::new("r", block);
        let limits = Limits::default();
        let blocks = std::slice::from_ref(&sealed);
        log.append("r", None, blocks, 1, &limits).unwrap();
        let position = match turn {
            0..50 => 2 * turn + 1,
            50..100 => 2 * (turn - 50) + 2,
            _ => turn + 1,
        };
        log.acknowledge("r", &[(sealed.block.key(), position)], 1)
            .unwrap();
        if turn % 20 == 0 {
            // What waits is read again, now with its positions.
            log = open();
        }
    }
    let sql = "SELECT count(*) FROM blockPlaces";
    let places: i64 = file(directory.path())
        .query_row(sql, [], |row| row.get(0))
        .unwrap();
    assert_eq!((places, bundles(directory.path())), (300, 0));
}

#[test]
fn a_bundle_cut_short_is_an_error_and_not_a_block() {
    let mut world = World::new();
    for turn in 0..120 {
        world.grow(turn % FEEDS, b"open");
    }
    let sql = "UPDATE bundles SET blocks = substr(blocks, 1, length(blocks) - 3)";
    file(world.directory.path()).execute(sql, []).unwrap();
    let feeds = Selection::Feeds(vec![name(0)]);
    let start = Start {
        after: 0,
        pending: PendingStart::Excluded,
    };
    let max = PageMax {
        blocks: 1000,
        bytes: 1 << 20,
    };
    let damaged = world.log.page("s", &feeds, &start, max).unwrap_err();
    let is_damaged = matches!(damaged, blocklog::store::StoreError::Damaged(_));
    assert!(is_damaged, "{damaged}");
}
