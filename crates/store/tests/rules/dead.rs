//! Dead letters: tried again, discarded, forgotten, counted.

use decide::accounting::Outcome;
use decide::batch::{Op, Order, Verdict};
use decide::dead::DEAD_BYTES;
use decide::fate::{Closed, Fate};
use decide::ids::DeadId;
use decide::rows::{Dead, DeadKind, Parked, Total};

use crate::case::{Case, commit, delete, did, fault, needs, op, put};

fn refused(rkey: &str) -> Op {
    Op {
        collection: "x.post".into(),
        rkey: rkey.into(),
        verdict: verdict("no", rkey),
    }
}

fn verdict(message: &str, raw: &str) -> Verdict {
    Verdict::Refused {
        fault: fault(message),
        raw: raw.into(),
    }
}

fn case(letters: u64) -> (Case, Vec<DeadId>) {
    let mut case = Case::new();
    for n in 0..letters {
        case.now_us += 1;
        case.events(vec![commit(0, n + 1, vec![refused(&n.to_string())])]);
    }
    let ids = case.rows::<Dead>().iter().map(|dead| dead.id).collect();
    (case, ids)
}

/// The counters are those of the rows.
#[track_caller]
fn check(case: &Case) {
    case.check();
    let dead = case.rows::<Dead>();
    let kinds: i64 = case.rows::<DeadKind>().iter().map(|kind| kind.n).sum();
    assert_eq!(kinds, dead.len() as i64);
    let bytes: i64 = dead.iter().map(|dead| dead.bytes).sum();
    let totals = case.rows::<Total>();
    let total = totals.iter().find(|total| total.name == DEAD_BYTES);
    assert_eq!(total.map_or(0, |total| total.n), bytes);
}

fn replay(case: &mut Case, id: DeadId, verdict: Verdict) -> Fate {
    let applied = case.batch(Vec::new(), vec![Order::Replay { id, verdict }]);
    check(case);
    applied.fates[0]
}

#[test]
fn a_dead_letter_that_passes_today_is_applied_and_gone() {
    let (mut case, ids) = case(2);
    let good = Verdict::Put(Box::new(put("good")));
    assert_eq!(replay(&mut case, ids[0], good.clone()), Fate::Applied);
    assert_eq!(case.live(), ["\"good\""]);
    assert_eq!(replay(&mut case, ids[0], good), Fate::Gone);
    assert_eq!(case.rows::<Dead>().len(), 1);
    assert_eq!(
        (case.outcome(Outcome::Dead), case.outcome(Outcome::Applied)),
        (1, 1)
    );
}

#[test]
fn a_dead_letter_that_is_refused_again_keeps_its_number_and_says_why_today() {
    let (mut case, ids) = case(1);
    case.now_us += 5;
    assert_eq!(
        replay(&mut case, ids[0], verdict("still not", "0")),
        Fate::Dead
    );
    let dead = &case.rows::<Dead>()[0];
    assert_eq!((dead.id, dead.replayed_us), (ids[0], Some(case.now_us)));
    assert!(dead.fault.contains("still not"));
    assert_eq!(case.outcome(Outcome::Dead), 1);
}

#[test]
fn a_dead_letter_whose_record_lacks_something_waits_for_it() {
    let (mut case, ids) = case(1);
    let mut waits = put("waits");
    waits.needs = vec![needs(1, "x.post", "0")];
    let waits = Verdict::Put(Box::new(waits));
    assert_eq!(replay(&mut case, ids[0], waits), Fate::Parked);
    assert_eq!(case.rows::<Parked>()[0].was, Some(ids[0]));
    // It waits too long, and has its number again; then what it lacked comes.
    for _ in 0..5 {
        case.now_us += 60_000_000;
        case.settle();
    }
    check(&case);
    assert_eq!(case.rows::<Dead>()[0].id, ids[0]);
    let mut parent = put("parent");
    parent.satisfies = vec![format!("at://{}/x.post/0", did(1))];
    case.events(vec![commit(1, 1, vec![op("x.post", "0", parent)])]);
    case.settle();
    check(&case);
    assert_eq!(case.live(), ["\"parent\"", "\"waits\""]);
    assert_eq!(case.rows::<Dead>(), []);
}

#[test]
fn a_newer_version_closes_a_dead_letter_and_a_deletion_does() {
    let (mut case, _) = case(2);
    let newer = case.events(vec![commit(0, 50, vec![op("x.post", "0", put("new"))])]);
    let deleted = case.events(vec![commit(0, 51, vec![delete("x.post", "1")])]);
    check(&case);
    assert_eq!(newer.closed, [(Closed::Newer, 1)].into());
    assert_eq!(deleted.closed, [(Closed::Deleted, 1)].into());
}

#[test]
fn discarded_dead_letters_stay_counted_as_dead() {
    let (mut case, ids) = case(3);
    let orders = vec![Order::Discard(vec![ids[0], DeadId(999), ids[2]])];
    let applied = case.batch(Vec::new(), orders);
    assert_eq!(
        applied.fates,
        [Fate::Discarded, Fate::Gone, Fate::Discarded]
    );
    check(&case);
    assert_eq!(
        (case.rows::<Dead>().len(), case.outcome(Outcome::Dead)),
        (1, 3)
    );
    // The same bytes once more say nothing new: it was discarded.
    let again = case.events(vec![commit(0, 1, vec![refused("0")])]);
    assert_eq!(again.arrived.repeated, 1);
}

#[test]
fn old_dead_letters_are_forgotten_and_so_are_the_oldest_beyond_the_bytes() {
    let (mut case, ids) = case(6);
    let before_us = case.rows::<Dead>()[2].time_us;
    let applied = case.batch(Vec::new(), vec![Order::Expire { before_us }]);
    assert_eq!(applied.closed, [(Closed::Age, 2)].into());
    case.rules.dead_bytes_max = case.rows::<Dead>()[0].bytes * 2 + 1;
    case.settle();
    check(&case);
    let left: Vec<DeadId> = case.rows::<Dead>().iter().map(|dead| dead.id).collect();
    assert_eq!(left, ids[4..]);
}
