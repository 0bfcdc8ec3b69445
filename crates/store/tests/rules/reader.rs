//! Readers that wait for their first read, fetches, and what is due.

use decide::account::{DUE_EPOCH, Status};
use decide::batch::{Commit, Event, Order};
use decide::reader::{State, WAITING, state};
use decide::rows::{Account, Fetching, FirstRead, Heartbeat, Total, WrongClock};

use crate::case::{Case, account, commit, did, op, put};

const NEEDED: i64 = 1;

fn ask(case: &mut Case, reader: u8, waiting_max: usize) {
    let order = Order::FirstRead {
        did: did(reader),
        needed: NEEDED,
        waiting_max,
    };
    case.batch(Vec::new(), vec![order]);
    case.check();
}

fn is(case: &Case, reader: u8) -> State {
    let text = did(reader);
    let names = case.stores[0]
        .intern(&[text.as_str()].into(), &[].into())
        .unwrap();
    let key = names.keys[&text];
    let account = case
        .rows::<Account>()
        .into_iter()
        .find(|row| row.key == key);
    let asked = case
        .rows::<FirstRead>()
        .into_iter()
        .find(|row| row.reader == key);
    state(account.as_ref(), asked.as_ref(), NEEDED, case.now_us)
}

fn total(case: &Case, name: &str) -> i64 {
    let totals = case.rows::<Total>();
    let total = totals.iter().find(|total| total.name == name);
    total.map_or(0, |total| total.n)
}

#[test]
fn a_reader_waits_until_its_repository_is_here() {
    let mut case = Case::new();
    assert_eq!(is(&case, 0), State::Unknown);
    ask(&mut case, 0, 1);
    ask(&mut case, 1, 1);
    assert_eq!(
        (is(&case, 0), is(&case, 1)),
        (State::Waiting, State::Unknown)
    );
    let done = Order::RepositoryDone {
        did: did(0),
        rev: decide::ids::Rev(5),
        data: None,
    };
    case.batch(Vec::new(), vec![done]);
    assert_eq!(is(&case, 0), State::Known);
    assert_eq!(total(&case, WAITING), 0);
    ask(&mut case, 1, 1);
    assert_eq!(is(&case, 1), State::Waiting);
}

#[test]
fn a_reader_whose_host_does_not_answer_is_left_alone_for_a_while() {
    let mut case = Case::new();
    ask(&mut case, 0, 9);
    case.batch(
        Vec::new(),
        vec![Order::GaveUp(did(0)), Order::GaveUp(did(0))],
    );
    assert_eq!((is(&case, 0), total(&case, WAITING)), (State::Failed, 0));
    ask(&mut case, 0, 9);
    assert_eq!(is(&case, 0), State::Failed);
    case.now_us += 600_000_000;
    ask(&mut case, 1, 9);
    assert_eq!(case.rows::<FirstRead>().len(), 1, "forgotten");
    ask(&mut case, 0, 9);
    assert_eq!(is(&case, 0), State::Waiting);
}

#[test]
fn a_hidden_reader_waits_for_nothing() {
    let mut case = Case::new();
    ask(&mut case, 0, 9);
    case.events(vec![account(0, Status::Takendown, 5)]);
    assert_eq!((is(&case, 0), total(&case, WAITING)), (State::Hidden, 0));
}

#[test]
fn an_account_of_an_older_epoch_is_due_and_a_new_one_is_not() {
    let mut case = Case::new();
    case.events(vec![commit(0, 1, vec![op("x.post", "0", put("a"))])]);
    case.batch(Vec::new(), vec![Order::AllDue]);
    case.events(vec![commit(1, 1, vec![op("x.post", "0", put("b"))])]);
    let due = |case: &Case| {
        let epoch = total(case, DUE_EPOCH);
        let rows = case.rows::<Account>().into_iter();
        rows.map(|row| row.epoch < epoch).collect::<Vec<_>>()
    };
    assert_eq!(due(&case), [true, false]);
    let done = Order::RepositoryDone {
        did: did(0),
        rev: decide::ids::Rev(5),
        data: None,
    };
    case.batch(Vec::new(), vec![done]);
    assert_eq!(due(&case), [false, false]);
    case.check();
}

#[test]
fn a_fetch_is_marked_until_it_ends() {
    let mut case = Case::new();
    for _ in 0..2 {
        case.batch(Vec::new(), vec![Order::FetchBegun(did(0))]);
    }
    assert_eq!(case.rows::<Fetching>()[0].attempts, 2);
    case.batch(Vec::new(), vec![Order::FetchEnded(vec![did(0), did(1)])]);
    assert_eq!(case.rows::<Fetching>(), []);
    case.check();
}

#[test]
fn the_last_report_and_the_first_wrong_clock_are_kept() {
    let mut case = Case::new();
    for (report, off_us) in [("one", 5), ("two", 6)] {
        case.now_us += 1;
        let orders = vec![Order::Heartbeat(report.into()), Order::WrongClock(off_us)];
        case.batch(Vec::new(), orders);
    }
    assert_eq!(case.rows::<Heartbeat>()[0].report, "two");
    assert_eq!(case.rows::<WrongClock>()[0].off_us, 5);
    case.check();
}

/// A commit that is held says nothing that a later one may not say again.
#[test]
fn what_arrived_and_what_moved_are_told_apart() {
    let mut case = Case::new();
    let Event::Commit(one) = commit(0, 1, vec![op("x.post", "0", put("a"))]) else {
        unreachable!()
    };
    let filtered = Commit { filtered: 3, ..one };
    let applied = case.events(vec![Event::Commit(filtered)]);
    assert_eq!((applied.arrived.received, applied.arrived.filtered), (4, 3));
}
