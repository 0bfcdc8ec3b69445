//! Models for `loom` of what pages read while the writer writes.
//!
//! In:    the real journal, versions, lines, sequences, floors and counts, made of loom's atomics.
//! Out:   one writer and one page in every order, with every value that a load may return.
//! Never: a copy of the code under test.
//!
//! `./check` runs them with `--cfg loom`, in a target directory of its own. What `sdd` does is not
//! modelled: its pointers change at once for both threads. `witness.rs` says which of its rows have
//! a model here.

use crate::journal::{Change, Journal};
use crate::line::Line;
use crate::records::{Records, RecordsWriter};
use crate::reuse::Reuse;
use crate::sequence::Sequence;
use crate::sync::AtomicU32;
use crate::sync::Ordering::Relaxed;
use crate::version::Version;
use crate::window_floor::WindowFloor;
use loom::sync::Arc;
use loom::thread::{Builder, JoinHandle};
use sdd::Guard;

/// Words of stack for a thread of a model: the tables of records are built on it.
const STACK: usize = 1 << 17;

/// Runs a page beside a writer, over what they share, in every order.
///
/// The page is the thread that is spawned: loom 0.7 leaves orders out where the spawning thread
/// begins with a load and ends with a fence.
fn check<T: Send + Sync + 'static>(new: fn() -> T, write: fn(&T), page: fn(&T)) {
    loom::model(move || {
        let both = move || {
            let shared = Arc::new(new());
            let reader = Arc::clone(&shared);
            let reader = spawn(move || page(&reader));
            write(&shared);
            reader.join().unwrap();
        };
        spawn(both).join().unwrap();
    });
}

fn spawn(run: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    Builder::new().stack_size(STACK).spawn(run).unwrap()
}

/// Two words that change together.
#[derive(Default)]
struct Pair {
    one: AtomicU32,
    other: AtomicU32,
}

impl Pair {
    fn set(&self, number: u32) {
        self.one.store(number, Relaxed);
        self.other.store(number, Relaxed);
    }

    fn get(&self) -> (u32, u32) {
        (self.one.load(Relaxed), self.other.load(Relaxed))
    }
}

const KEY: Change = Change::Key(7);
const OTHER: Change = Change::Key(9);

#[test]
fn a_page_that_saw_part_of_a_change_finds_it_in_the_journal() {
    check(
        || (Journal::default(), Pair::default()),
        |(journal, data)| {
            journal.open(KEY);
            data.set(1);
            journal.close();
        },
        |(journal, data)| {
            let since = journal.stands();
            let seen = data.get();
            if journal.is_quiet(since, |change| change == KEY) {
                let all = u32::try_from(since).unwrap();
                assert_eq!(seen, (all, all));
            }
        },
    );
}

/// Two entries fit the journal of a model.
#[test]
fn a_page_whose_entry_was_written_over_is_not_quiet() {
    check(
        || (Journal::default(), AtomicU32::new(0)),
        |(journal, data)| {
            journal.open(KEY);
            data.store(1, Relaxed);
            journal.open(OTHER);
            journal.open(OTHER);
        },
        |(journal, data)| {
            let since = journal.stands();
            let seen = data.load(Relaxed);
            if journal.is_quiet(since, |change| change == KEY) {
                assert_eq!(seen, 0);
            }
        },
    );
}

#[test]
fn what_is_read_at_one_version_is_of_one_state() {
    check(
        || (Version::default(), Pair::default()),
        |(version, data)| {
            version.change(|| data.set(1));
            version.change(|| data.set(2));
        },
        |(version, data)| {
            let began = version.now();
            let (one, other) = data.get();
            if version.is_still(began) {
                assert_eq!(one, other);
            }
        },
    );
}

fn line_of(numbers: &[u32]) -> Line {
    let line = Line::default();
    line.change(|line| line.open(3));
    for (&number, time_us) in numbers.iter().zip(1..) {
        line.push(number, time_us);
    }
    line
}

#[test]
fn a_look_at_a_ring_header_finds_every_number_it_counts() {
    check(
        || line_of(&[4]),
        |line| {
            line.push(5, 5);
            line.push(6, 6);
        },
        |line| {
            let seen = line.look().expect("a push does not disturb a look");
            assert!([4, 5, 6].starts_with(seen.staged()), "{seen:?}");
            assert!(line.is_still(seen.version));
        },
    );
}

#[test]
fn a_look_at_a_ring_header_is_of_one_state() {
    check(
        || line_of(&[4, 6]),
        |line| line.change(|line| line.insert(1, 5)),
        |line| {
            if let Some(seen) = line.look() {
                let staged = seen.staged();
                assert!([&[4, 6][..], &[4, 5, 6]].contains(&staged), "{staged:?}");
            }
        },
    );
}

/// A cell of a body is written over by another ring after this one moved.
#[test]
fn a_page_notices_that_the_body_of_its_ring_is_given_to_another() {
    check(
        || (line_of(&[4]), AtomicU32::new(1)),
        |(line, cell)| {
            line.change(|line| line.set_place(1, 1));
            cell.store(2, Relaxed);
        },
        |(line, cell)| {
            if let Some(seen) = line.look() {
                let number = cell.load(Relaxed);
                if seen.place().is_none() && line.is_still(seen.version) {
                    assert_eq!(number, 1);
                }
            }
        },
    );
}

struct Window {
    sequence: Sequence,
    records: Records,
}

/// A window of the records 0 and 1; number 2 lies between them in time, and 3 after them.
fn window() -> Window {
    let (records, mut writer) = (Records::default(), RecordsWriter::default());
    for (id, time_us) in [10, 30, 20, 40].into_iter().enumerate() {
        let uri = format!("at://a/c/{id}");
        writer.add(&records, id as u64, time_us, &uri, 1, &[1], None);
    }
    let sequence = Sequence::default();
    let guard = Guard::new();
    sequence.insert(0, &records, &guard);
    sequence.insert(1, &records, &guard);
    Window { sequence, records }
}

/// What a walk finds, if it is to be believed.
fn walked(window: &Window) -> Option<Vec<u32>> {
    let guard = Guard::new();
    let version = window.sequence.version();
    let walk = window.sequence.walk(None, &window.records, &guard);
    let found = walk.collect();
    window.sequence.is_still(version).then_some(found)
}

#[test]
fn a_walk_of_a_sequence_is_of_one_state_while_late_records_move_others() {
    check(
        window,
        |Window { sequence, records }| {
            let guard = Guard::new();
            sequence.insert(2, records, &guard);
            sequence.remove(2, records, &guard);
        },
        |window| {
            if let Some(found) = walked(window) {
                let states = [vec![1, 0], vec![1, 2, 0]];
                assert!(states.contains(&found), "{found:?}");
            }
        },
    );
}

#[test]
fn new_records_do_not_disturb_a_walk_of_a_sequence() {
    check(
        window,
        |Window { sequence, records }| {
            sequence.insert(3, records, &Guard::new());
        },
        |window| {
            let found = walked(window).expect("the new end may grow");
            let states = [vec![1, 0], vec![3, 1, 0]];
            assert!(states.contains(&found), "{found:?}");
        },
    );
}

#[test]
fn a_page_that_misses_a_record_sees_the_floor_above_it() {
    check(
        || (WindowFloor::default(), AtomicU32::new(0)),
        |(floor, removed)| {
            floor.raise(50);
            removed.store(1, Relaxed);
        },
        |(floor, removed)| {
            if removed.load(Relaxed) == 1 {
                assert_eq!(floor.at_end_us(), 50);
            }
        },
    );
}

#[derive(Default)]
struct Numbered {
    reuse: Reuse,
    /// 1 after the number is in no list.
    left: AtomicU32,
    /// The record of the number.
    row: AtomicU32,
}

#[test]
fn a_page_notices_that_a_number_it_met_is_of_another_record() {
    check(
        Numbered::default,
        |Numbered { reuse, left, row }| {
            left.store(1, Relaxed);
            reuse.freed();
            reuse.gives_again();
            row.store(2, Relaxed);
        },
        |Numbered { reuse, left, row }| {
            let began = reuse.begin();
            if left.load(Relaxed) == 0 {
                let record = row.load(Relaxed);
                if reuse.is_still(began) {
                    assert_eq!(record, 0);
                }
            }
        },
    );
}
