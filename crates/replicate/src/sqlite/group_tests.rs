//! Group commit: what shares a transaction, and what does not.

use super::{Remembered, SqliteLog, within};
use crate::sqlite::Moment;
use blocklog::block::{Block, Payload};
use blocklog::chain::Sealed;
use blocklog::cursor::Epoch;
use blocklog::limits::Limits;
use blocklog::message::{AppendRequest, Appended};
use blocklog::store::{AppendError, LogStore, Role};
use std::sync::Arc;
use tempfile::TempDir;

fn log() -> (TempDir, Arc<SqliteLog>) {
    let directory = tempfile::tempdir().unwrap();
    let log = SqliteLog::with_tail(&directory.path().join("log.db"), 5).unwrap();
    log.open("s", Role::Authority, Epoch([1; 16])).unwrap();
    (directory, Arc::new(log))
}

fn request(feed: &str, sequence: u64, data: &str) -> AppendRequest {
    let block = Block {
        feed: feed.into(),
        actor: "a".into(),
        sequence,
        predecessor: None,
        timestamp_ms: 1,
        payload: Payload::Bytes(data.into()),
        signature: None,
    };
    AppendRequest {
        namespace: None,
        cursor: None,
        blocks: vec![Sealed::new("s", block)],
    }
}

fn job(
    request: AppendRequest,
) -> impl FnOnce(&Moment<'_>, &mut Remembered) -> Result<Appended, AppendError> + Send {
    move |moment, known| within::append(moment, known, "s", &request, 1, &Limits::default())
}

/// Appends these while another transaction is open; their outcomes, and how many transactions it took.
fn together(log: &Arc<SqliteLog>, requests: Vec<AppendRequest>) -> (Vec<Result<u64, ()>>, u64) {
    let count = requests.len();
    let before = log.transactions();
    let held = log.writer.lock();
    let threads: Vec<_> = requests
        .into_iter()
        .map(|request| {
            let log = Arc::clone(log);
            let waiting = log.waiting();
            let same = Arc::clone(&log);
            let thread = std::thread::spawn(move || same.grouped_here(1, job(request)));
            while log.waiting() == waiting {
                std::thread::yield_now(); // the order of the jobs is the order of the requests
            }
            thread
        })
        .collect();
    assert_eq!(log.waiting(), count);
    drop(held);
    let outcomes = threads.into_iter().map(|thread| {
        let appended = thread.join().unwrap();
        appended.map(|appended| appended.positions[0]).map_err(drop)
    });
    (outcomes.collect(), log.transactions() - before)
}

#[test]
fn appends_in_flight_share_one_transaction() {
    let (_directory, log) = log();
    let requests = (1..=64)
        .map(|n| request(&format!("f{}", n % 3), n, "x"))
        .collect();
    let (outcomes, transactions) = together(&log, requests);
    let expected: Vec<_> = (1..=64).map(Ok).collect();
    assert_eq!((outcomes, transactions), (expected, 1));
    let alone = log.transactions();
    for n in 65..=67 {
        let appended = log.grouped_here(1, job(request("f", n, "x"))).unwrap();
        assert_eq!(appended.positions, [n]);
    }
    assert_eq!(
        log.transactions() - alone,
        3,
        "a single append waits for nobody"
    );
}

#[test]
fn a_refused_append_undoes_itself_and_no_neighbour() {
    let (directory, log) = log();
    let mut requests = vec![
        request("f", 1, "x"),
        request("f", 1, "other"),
        request("f", 2, "y"),
    ];
    let mut half = request("g", 1, "x");
    half.blocks.extend(request("f", 1, "third").blocks);
    requests.insert(1, half);
    let (outcomes, transactions) = together(&log, requests);
    assert_eq!(
        (outcomes, transactions),
        (vec![Ok(1), Err(()), Err(()), Ok(2)], 1)
    );
    let again = SqliteLog::open(&directory.path().join("log.db")).unwrap();
    for log in [log.as_ref(), &again] {
        let state = log.space("s").unwrap().unwrap();
        assert_eq!(state.position_max, 2);
        let feeds = log.feeds("s", None, None, 9).unwrap();
        assert_eq!(feeds.len(), 1, "the feed of a refused append is not made");
        let found = blocklog::verify::verify(log, "s").unwrap();
        assert!(found.damaged.is_empty(), "{found:?}");
    }
    let (outcomes, _) = together(&log, vec![request("g", 1, "x"), request("f", 3, "z")]);
    assert_eq!(outcomes, [Ok(3), Ok(4)]);
}

#[test]
fn a_group_that_panics_leaves_nothing_and_the_next_goes_on() {
    let (_directory, log) = log();
    let held = log.writer.lock();
    let same = Arc::clone(&log);
    let first = std::thread::spawn(move || same.grouped_here(1, job(request("f", 1, "x"))));
    while log.waiting() < 1 {
        std::thread::yield_now();
    }
    let same = Arc::clone(&log);
    let second = std::thread::spawn(move || {
        same.grouped_here(1, |_, _| -> Result<(), AppendError> {
            panic!("in a group")
        })
    });
    while log.waiting() < 2 {
        std::thread::yield_now();
    }
    drop(held);
    assert!(first.join().is_err(), "it led, and met the panic");
    assert!(second.join().unwrap().is_err());
    let appended = log.grouped_here(1, job(request("f", 1, "y"))).unwrap();
    assert_eq!(appended.positions, [1]);
}

#[test]
fn the_write_ahead_log_is_emptied_above_its_limit_as_soon_as_readers_allow_it() {
    use crate::sqlite::connection::WAL_BYTES_MAX;
    let (directory, log) = log();
    let file = directory.path().join("log.db-wal");
    let bytes = || std::fs::metadata(&file).map_or(0, |file| file.len());
    let reader = rusqlite::Connection::open(directory.path().join("log.db")).unwrap();
    let look = "BEGIN; SELECT count(*) FROM sqlite_schema";
    reader.execute_batch(look).unwrap();
    let data = "x".repeat(50_000);
    let mut sequence = 0;
    let mut append = || {
        sequence += 1;
        let one = job(request("f", sequence, &data));
        log.grouped_here(1, one).unwrap();
    };
    while bytes() < 2 * WAL_BYTES_MAX {
        append();
    }
    reader.execute_batch("ROLLBACK").unwrap();
    for _ in 0..10 {
        append();
    }
    assert!(bytes() <= WAL_BYTES_MAX, "{} bytes", bytes());
}
