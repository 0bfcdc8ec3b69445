//! What waits in memory is as good as what is in the tables: after a crash, for two
//! processes, at every border, and for readers who look while it moves.

use super::SqliteLog;
use blocklog::block::{Block, Payload, Predecessor};
use blocklog::chain::{Refusal, Sealed};
use blocklog::cursor::Epoch;
use blocklog::limits::Limits;
use blocklog::page::{PageMax, PendingStart, Selection, Start};
use blocklog::store::{AppendError, Keep, LogStore, Role, StoreError};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

/// Blocks of a generation.
const TAIL_BLOCKS: usize = 6;
const FEEDS: usize = 4;

fn open(directory: &Path) -> SqliteLog {
    open_with(directory, TAIL_BLOCKS)
}

fn open_with(directory: &Path, tail_blocks: usize) -> SqliteLog {
    let log = SqliteLog::with_tail(&directory.join("log.db"), tail_blocks).unwrap();
    log.open("s", Role::Authority, Epoch([1; 16])).unwrap();
    log
}

fn name(feed: usize) -> String {
    format!("f{feed}")
}

/// What was appended, in order: the position of a block is its place here, from one.
#[derive(Default)]
struct World {
    blocks: Vec<Sealed>,
}

impl World {
    fn of(&self, feeds: &[usize]) -> Vec<u64> {
        let names: Vec<String> = feeds.iter().copied().map(name).collect();
        let chosen = |sealed: &Sealed| names.contains(&sealed.block.feed);
        let positions = (1..).zip(&self.blocks);
        positions
            .filter(|(_, sealed)| chosen(sealed))
            .map(|(position, _)| position)
            .collect()
    }

    fn next(&self, feed: usize, data: &[u8]) -> Sealed {
        let mut of_feed = self.blocks.iter().rev();
        let tip = of_feed.find(|sealed| sealed.block.feed == name(feed));
        let block = Block {
            feed: name(feed),
            actor: format!("actor{feed}"),
            sequence: tip.map_or(1, |tip| tip.block.sequence + 1),
            predecessor: tip.map(|tip| Predecessor {
                sequence: tip.block.sequence,
                actor: tip.block.actor.clone(),
                hash: Some(tip.hash),
            }),
            timestamp_ms: 1,
            payload: Payload::Bytes(data.to_vec()),
            signature: None,
        };
        Sealed::new("s", block)
    }

    /// Append blocks of all feeds in one call, more than go into one statement.
    fn grow_much(&mut self, log: &SqliteLog) {
        let stood = self.blocks.len();
        for step in 0..40 {
            let block = self.next(step * step % FEEDS, b"x");
            self.blocks.push(block);
        }
        append(log, &self.blocks[stood..]).unwrap();
    }

    /// Append the next block of a feed.
    fn grow(&mut self, log: &SqliteLog, feed: usize) {
        let block = self.next(feed, b"x");
        let positions = append(log, std::slice::from_ref(&block)).unwrap();
        self.blocks.push(block);
        assert_eq!(positions, [Some(self.blocks.len() as u64)]);
    }

    /// Another block with the key of the one at `position`.
    fn twin(&self, position: usize) -> Sealed {
        let mut block = self.blocks[position - 1].block.clone();
        block.payload = Payload::Bytes(b"other".to_vec());
        Sealed::new("s", block)
    }

    /// The log tells this world, whatever is asked, in pages of every size.
    #[track_caller]
    fn check(&self, log: &SqliteLog) {
        for feeds in [&[0][..], &[1], &[2, 3], &[0, 1, 2, 3]] {
            for size in [1, 3, 100] {
                assert_eq!(
                    walk(log, feeds, size),
                    self.of(feeds),
                    "{feeds:?} by {size}"
                );
            }
        }
        for (feed, tip) in (0..FEEDS).map(|feed| (feed, self.of(&[feed]).last().copied())) {
            let state = log.feed("s", &name(feed)).unwrap();
            let held = state.as_ref().map(|state| state.position_max);
            assert_eq!(held, tip, "the newest of {feed}");
        }
        for (position, sealed) in (1..).zip(&self.blocks) {
            let held = log.block("s", &sealed.block.key()).unwrap();
            assert_eq!(held.and_then(|held| held.position), Some(position));
        }
    }

    /// What is held is known again, and nothing else is taken in its place.
    #[track_caller]
    fn check_keys(&self, log: &SqliteLog) {
        let positions = append(log, &self.blocks).unwrap();
        let known: Vec<_> = (1..=self.blocks.len() as u64).map(Some).collect();
        assert_eq!(positions, known);
        for position in 1..=self.blocks.len() {
            let refused = append(log, &[self.twin(position)]).unwrap_err();
            let AppendError::Refused(refused) = refused else {
                panic!("{refused}");
            };
            let conflict = matches!(refused[0].refusal, Refusal::Conflict { .. });
            assert!(conflict, "{position}: {refused:?}");
        }
    }
}

fn append(log: &SqliteLog, blocks: &[Sealed]) -> Result<Vec<Option<u64>>, AppendError> {
    log.append("s", None, blocks, 1, &Limits::default())
}

/// The positions of some feeds, page by page.
fn walk(log: &SqliteLog, feeds: &[usize], size: usize) -> Vec<u64> {
    let selection = Selection::Feeds(feeds.iter().copied().map(name).collect());
    let max = PageMax {
        blocks: size,
        bytes: 1 << 20,
    };
    let (mut found, mut after) = (Vec::new(), 0);
    loop {
        let pending = PendingStart::Excluded;
        let page = log
            .page("s", &selection, &Start { after, pending }, max)
            .unwrap();
        found.extend(page.blocks.iter().filter_map(|held| held.position));
        if !page.has_more {
            return found;
        }
        after = page.next.after;
    }
}

/// What a power cut at this instant would leave.
fn killed(directory: &Path) -> TempDir {
    let left = tempfile::tempdir().unwrap();
    for file in ["log.db", "log.db-wal"] {
        std::fs::copy(directory.join(file), left.path().join(file)).unwrap();
    }
    left
}

/// Blocks of which the tables do not tell all, and the rows they have above that.
fn stand(directory: &Path) -> (i64, i64) {
    let file = rusqlite::Connection::open(directory.join("log.db")).unwrap();
    let sql = "SELECT (SELECT max(blockId) FROM blocks) - indexedThrough, \
               (SELECT count(*) FROM blockPlaces WHERE blockId > indexedThrough) FROM tail";
    file.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
}

#[test]
fn pages_across_the_border_of_tables_and_tail_are_complete_and_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    let mut world = World::default();
    for turn in 0..40 {
        world.grow(&log, (turn * 7 + turn / 5) % FEEDS);
        world.check(&log);
        let (waiting, _) = stand(directory.path());
        assert!(waiting <= 2 * TAIL_BLOCKS as i64 + 1, "{waiting} wait");
    }
    world.check_keys(&log);
}

#[test]
fn slices_of_many_rows_leave_out_what_is_gone_and_pass_over_what_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let log = open_with(directory.path(), 90);
    let mut world = World::default();
    for _ in 0..8 {
        world.grow_much(&log);
        world.check(&log);
        let left = killed(directory.path());
        let again = open_with(left.path(), 90);
        let mut ahead = World {
            blocks: world.blocks.clone(),
        };
        for _ in 0..4 {
            ahead.grow_much(&again);
        }
        ahead.check(&again);
        again.evict("s", "f1", Keep::Newest(1), 999).unwrap();
        for _ in 0..6 {
            ahead.grow_much(&again);
        }
        let evicted = again.feed("s", "f1").unwrap().unwrap().evicted_through;
        let mut kept = ahead.of(&[1]);
        kept.retain(|position| *position > evicted);
        assert_eq!(walk(&again, &[1], 7), kept);
        assert_eq!(walk(&again, &[0, 2, 3], 7), ahead.of(&[0, 2, 3]));
    }
    world.check_keys(&log);
}

#[test]
fn a_log_killed_in_the_middle_of_a_slice_answers_the_same_and_refuses_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    let (mut world, mut in_the_middle) = (World::default(), 0);
    for turn in 0..30 {
        world.grow(&log, (turn * 3) % FEEDS);
        let left = killed(directory.path());
        let again = open(left.path());
        let (_, written) = stand(left.path());
        in_the_middle += usize::from(written > 0);
        world.check(&again);
        world.check_keys(&again);
        let mut ahead = World {
            blocks: world.blocks.clone(),
        };
        for turn in 0..2 * TAIL_BLOCKS {
            ahead.grow(&again, turn % FEEDS);
        }
        ahead.check(&again);
    }
    assert!(
        in_the_middle > 5,
        "{in_the_middle} were killed within a slice"
    );
}

#[test]
fn two_processes_on_one_file_append_by_turns_and_both_see_everything() {
    let directory = tempfile::tempdir().unwrap();
    let logs = [open(directory.path()), open(directory.path())];
    let mut world = World::default();
    for turn in 0..60 {
        // Uneven turns: now one is far ahead, now the other.
        let one = usize::from(turn % 13 < 6 || turn % 5 == 0);
        world.grow(&logs[one], (turn * 3) % FEEDS);
        if turn % 4 == 0 {
            world.check(&logs[0]);
            world.check(&logs[1]);
        }
    }
    for log in &logs {
        world.check(log);
        world.check_keys(log);
    }
    let (waiting, _) = stand(directory.path());
    assert!(waiting <= 4 * TAIL_BLOCKS as i64, "{waiting} wait");
}

#[test]
fn an_append_that_is_refused_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    let mut world = World::default();
    for turn in 0..30 {
        let feed = turn % FEEDS;
        if turn > 0 {
            // Enough for more than a generation, and then one that cannot be.
            let mut ahead = World {
                blocks: world.blocks.clone(),
            };
            for step in 0..=TAIL_BLOCKS {
                let block = ahead.next((feed + step) % FEEDS, b"refused");
                ahead.blocks.push(block);
            }
            let mut blocks = ahead.blocks.split_off(world.blocks.len());
            blocks.push(world.twin(1));
            append(&log, &blocks).unwrap_err();
        }
        world.check(&log);
        world.grow(&log, feed);
        world.check(&log);
    }
    world.check_keys(&log);
}

#[test]
fn what_is_evicted_before_the_tables_tell_of_it_stays_gone_for_both_processes() {
    let directory = tempfile::tempdir().unwrap();
    let logs = [open(directory.path()), open(directory.path())];
    let mut world = World::default();
    for turn in 0..48 {
        world.grow(&logs[turn / 3 % 2], turn % FEEDS);
        // All of a feed, with the newest block of the log among it.
        let evicts = turn % 5 == 4;
        if evicts {
            let log = &logs[turn % 2];
            log.evict("s", &name(turn % FEEDS), Keep::Newest(0), 99)
                .unwrap();
        }
        for log in &logs {
            let feed = turn % FEEDS;
            let evicted = log.feed("s", &name(feed)).unwrap().unwrap().evicted_through;
            let kept = world.of(&[feed]);
            let kept: Vec<u64> = kept.into_iter().filter(|at| *at > evicted).collect();
            assert_eq!(walk(log, &[feed], 2), kept);
            assert_eq!(kept.is_empty(), evicts);
        }
    }
    let file = rusqlite::Connection::open(directory.path().join("log.db")).unwrap();
    let sql = "SELECT count(*) FROM blockPlaces WHERE blockId NOT IN (SELECT blockId FROM blocks)";
    let dangling: i64 = file.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(dangling, 0);
}

#[test]
fn readers_miss_nothing_while_the_tail_moves_into_the_tables() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for feeds in [&[0][..], &[1, 2]] {
            let (log, done) = (&log, &done);
            scope.spawn(move || {
                let mut seen = 0;
                while !done.load(Ordering::Relaxed) {
                    let found = walk(log, feeds, 1000);
                    let whole: Vec<u64> = (1..=200u64)
                        .filter(|at| feeds.contains(&((*at as usize - 1) % FEEDS)))
                        .take(found.len())
                        .collect();
                    assert_eq!(found, whole);
                    assert!(found.len() >= seen, "blocks were seen and are gone");
                    seen = found.len();
                }
            });
        }
        let mut world = World::default();
        for turn in 0..200 {
            world.grow(&log, turn % FEEDS);
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn two_blocks_under_one_key_stop_the_log_before_the_tables_tell_of_one() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    let mut world = World::default();
    for turn in 0..TAIL_BLOCKS {
        world.grow(&log, turn % FEEDS);
    }
    let file = rusqlite::Connection::open(directory.path().join("log.db")).unwrap();
    let sql = "INSERT INTO blockKeys SELECT feedPrivateId, sequence, actorId, 1000 FROM blocks WHERE blockId = 1";
    file.execute(sql, []).unwrap();
    let next = world.next(0, b"x");
    let stopped = append(&log, &[next]).unwrap_err();
    let damaged = matches!(stopped, AppendError::Store(StoreError::Damaged(_)));
    assert!(damaged, "{stopped}");
}
