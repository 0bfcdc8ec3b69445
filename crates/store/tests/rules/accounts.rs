//! Hosting status: what it hides, deletes and brings back.

use decide::account::Status;
use decide::accounting::Outcome;
use decide::change::Change;
use decide::derived::Derived;
use decide::rows::{Account, Counter, Dead, Entry, Parked, Reference};

use crate::case::{Case, account, commit, delete, did, needs, op, put};
use crate::world::{LIKES, POSTS};

/// Records of one account, more than a job does at once.
fn posts(case: &mut Case) {
    for n in 0..12u64 {
        let mut post = put(&format!("post{n}"));
        post.derived = Derived {
            entries: vec![(POSTS, vec![did(0)]), (LIKES, vec![format!("key{n}")])],
            ..Derived::default()
        };
        post.links = vec![("subject".into(), "at://x/y/z".into())];
        let post = op("x.post", &n.to_string(), post);
        case.events(vec![commit(0, n + 1, vec![post])]);
    }
}

#[test]
fn what_was_deleted_with_its_account_is_gone_when_the_account_is_back() {
    let mut case = Case::new();
    posts(&mut case);
    // Both before any job ran.
    case.events(vec![account(0, Status::Deleted, 10)]);
    case.events(vec![account(0, Status::Active, 20)]);
    let new = op("x.post", "new", put("new"));
    case.events(vec![commit(0, 50, vec![new])]);
    case.settle();
    assert_eq!(case.live(), ["\"new\""]);
    assert_eq!(case.rows::<Entry>().len(), 0);
    assert_eq!(case.rows::<Reference>().len(), 0);
    assert_eq!(case.rows::<Account>()[0].status, 0);
    assert_eq!(case.rows::<Account>()[0].job, None);
}

/// Until everything of before is removed, nobody may see it.
#[test]
fn an_account_is_back_when_its_purge_is_done() {
    let mut case = Case::new();
    posts(&mut case);
    case.events(vec![
        account(0, Status::Deleted, 10),
        account(0, Status::Active, 20),
    ]);
    let mut slices = 0;
    while let Some(orders) = case.due() {
        if case.rows::<Account>()[0].status == 0 {
            assert_eq!(case.live(), [""; 0]);
        }
        case.batch(Vec::new(), orders);
        slices += 1;
    }
    assert!(slices > 3, "{slices}");
    let shown = |change: &Change| match change {
        Change::Account { visible, .. } => Some(*visible),
        _ => None,
    };
    let shown: Vec<bool> = case.changes().iter().filter_map(shown).collect();
    assert_eq!(shown, [false, true]);
    // The last thing said is what counts, and it was said before.
    let again = case.events(vec![account(0, Status::Active, 20)]);
    assert_eq!(again.counts["s"].repeated, 1);
}

#[test]
fn what_waits_of_a_deleted_account_does_not_come_back() {
    let mut case = Case::new();
    let mut reply = put("reply");
    reply.needs = vec![needs(1, "x.post", "0")];
    case.events(vec![commit(0, 5, vec![op("x.reply", "0", reply)])]);
    case.events(vec![account(0, Status::Deleted, 10)]);
    // What it waited for arrives before the job ran.
    let mut parent = put("parent");
    parent.satisfies = vec![format!("at://{}/x.post/0", did(1))];
    case.events(vec![commit(1, 1, vec![op("x.post", "0", parent)])]);
    case.settle();
    assert_eq!(case.live(), ["\"parent\""]);
    assert_eq!(case.rows::<Parked>(), []);
    assert_eq!(case.outcome(Outcome::Superseded), 1);
}

/// A dead letter of a deleted account closes, and so does the record that waits behind it.
#[test]
fn a_purge_closes_dead_letters_once() {
    let mut case = Case::new();
    let mut reply = put("reply");
    reply.needs = vec![needs(1, "x.post", "0")];
    case.events(vec![commit(0, 5, vec![op("x.reply", "0", reply)])]);
    for _ in 0..5 {
        case.now_us += 60_000_000;
        case.settle();
    }
    assert_eq!(case.rows::<Dead>().len(), 1);
    assert_eq!(case.outcome(Outcome::Dead), 1);
    case.events(vec![account(0, Status::Deleted, 10)]);
    case.settle();
    assert_eq!(case.rows::<Dead>(), []);
    assert_eq!(case.rows::<Parked>(), []);
    assert_eq!(case.outcome(Outcome::Dead), 0);
    // A dead letter, and the status event itself.
    assert_eq!(case.outcome(Outcome::Superseded), 1);
}

#[test]
fn counters_follow_an_account_that_is_hidden_and_shown_while_it_writes() {
    let mut case = Case::new();
    posts(&mut case);
    let counted = |case: &Case| {
        let rows = case.rows::<Counter>().into_iter();
        rows.map(|row| row.n).sum::<i64>()
    };
    assert_eq!(counted(&case), 12);
    case.events(vec![account(0, Status::Deactivated, 10)]);
    // One slice of the job, then it is back before the job is done; a record changes meanwhile.
    let orders = case.due().unwrap();
    case.batch(Vec::new(), orders);
    assert_eq!(counted(&case), 7);
    case.events(vec![commit(0, 50, vec![delete("x.post", "11")])]);
    case.events(vec![account(0, Status::Active, 20)]);
    case.settle();
    assert_eq!(counted(&case), 11);
    case.events(vec![account(0, Status::Takendown, 30)]);
    case.settle();
    assert_eq!(counted(&case), 0);
}
