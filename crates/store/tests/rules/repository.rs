//! Repositories that were fetched whole, and the frames that were held meanwhile.

use decide::account::{Repair, Status};
use decide::accounting::Outcome;
use decide::batch::{Chain, Cid, Commit, Event, Op, Order, Released};
use decide::ids::Rev;
use decide::rows::{Account, Dead, Held, Parked};
use store::repository::{Repository, held, releasing, replace};

use crate::case::{Case, account, commit, delete, did, fault, needs, op, put};

fn repository(rev: u64, posts: &[&str]) -> Repository {
    let posts = posts.iter().map(|name| {
        let post: Op = op("x.post", name, put(name));
        ((*name).to_owned(), post)
    });
    Repository {
        source: "s".into(),
        did: did(0),
        rev: Rev(rev),
        data: None,
        records: [
            ("x.post".to_owned(), posts.collect()),
            ("x.reply".to_owned(), [].into()),
        ]
        .into(),
    }
}

/// Gives a repository to all engines; says whether it was taken.
fn give(case: &Case, rev: u64, posts: &[&str]) -> bool {
    let give = |store: &dyn store::port::Store| {
        let mut most = 0;
        let repository = repository(rev, posts);
        let taken = replace(
            store,
            &case.rules,
            case.now_us,
            repository,
            &mut |applied| {
                most = most.max(applied.loads);
            },
        );
        assert!(most <= 3);
        taken.unwrap()
    };
    let taken: Vec<bool> = case.stores.iter().map(|store| give(&**store)).collect();
    assert_eq!(taken[0], taken[1]);
    taken[0]
}

fn names(n: usize) -> Vec<String> {
    (0..n).map(|n| format!("{n:03}")).collect()
}

fn write(case: &mut Case, rev: u64, names: &[String]) {
    let ops = names.iter().map(|name| op("x.post", name, put(name)));
    case.events(vec![commit(0, rev, ops.collect())]);
}

#[test]
fn a_repository_replaces_what_is_stored_up_to_its_revision() {
    // More of either than a slice holds, and gaps of every length.
    for step in [1, 2, 7, 40] {
        let mut case = Case::new();
        let all = names(40);
        write(&mut case, 5, &all);
        case.events(vec![commit(
            0,
            20,
            vec![op("x.post", "newer", put("newer"))],
        )]);
        let kept: Vec<&str> = all.iter().step_by(step).map(String::as_str).collect();
        let more: Vec<String> = (0..9).map(|n| format!("{n:03}+")).collect();
        let mut posts: Vec<&str> = kept.clone();
        posts.extend(more.iter().map(String::as_str));
        assert!(give(&case, 10, &posts));
        case.settle();
        let mut expected: Vec<String> = posts.iter().map(|name| format!("\"{name}\"")).collect();
        expected.push("\"newer\"".into());
        expected.sort();
        assert_eq!(case.live(), expected);
        // The same once more changes nothing.
        let before = case.changes().len();
        assert!(give(&case, 10, &posts));
        assert_eq!(case.changes().len(), before);
    }
}

/// What streams repeat of before the repository is in it, or gone.
#[test]
fn events_of_before_a_repository_are_superseded_from_its_first_slice_on() {
    let mut case = Case::new();
    write(&mut case, 1, &names(12));
    assert!(give(&case, 10, &[]));
    let old = case.events(vec![commit(0, 9, vec![op("x.post", "late", put("late"))])]);
    assert_eq!(old.arrived.superseded, 1);
    assert_eq!(case.live(), [""; 0]);
}

#[test]
fn what_waits_and_what_is_dead_goes_with_its_record() {
    let mut case = Case::new();
    let mut reply = put("reply");
    reply.needs = vec![needs(1, "x.post", "0")];
    let refused = Op {
        collection: "x.post".into(),
        rkey: "bad".into(),
        verdict: decide::batch::Verdict::Refused {
            fault: fault("no"),
            raw: "{}".into(),
        },
    };
    case.events(vec![commit(0, 5, vec![op("x.reply", "0", reply), refused])]);
    assert_eq!(case.rows::<Dead>().len(), 1);
    assert!(give(&case, 10, &[]));
    case.settle();
    assert_eq!(
        (case.rows::<Dead>().len(), case.rows::<Parked>().len()),
        (0, 0)
    );
    assert_eq!(case.outcome(Outcome::Superseded), 2);
}

#[test]
fn a_deleted_account_takes_no_repository_until_it_is_back() {
    let mut case = Case::new();
    write(&mut case, 5, &names(12));
    case.events(vec![account(0, Status::Deleted, 10)]);
    assert!(!give(&case, 10, &["a"]));
    case.events(vec![account(0, Status::Active, 20)]);
    assert!(!give(&case, 10, &["a"]), "what was deleted is still here");
    case.settle();
    assert!(give(&case, 10, &["a"]));
    case.settle();
    assert_eq!(case.live(), ["\"a\""]);
}

fn data(n: u64) -> Option<Cid> {
    Some(Cid::of_raw(&n.to_le_bytes()))
}

fn chained(rev: u64, since: u64) -> Commit {
    let Event::Commit(commit) = commit(
        0,
        rev,
        vec![op("x.post", &rev.to_string(), put(&rev.to_string()))],
    ) else {
        unreachable!()
    };
    Commit {
        chain: Some(Chain {
            since: Some(Rev(since)),
            prev_data: None,
            data: data(rev),
        }),
        frame: rev.to_le_bytes().to_vec(),
        ..commit
    }
}

/// Releases what is held, two frames at a time, until nothing more is to be.
fn release(case: &mut Case) {
    loop {
        let frames = {
            let snapshot = case.stores[0].snapshot().unwrap();
            let Some(key) = releasing(&*snapshot, 1).unwrap().pop() else {
                break;
            };
            let held = held(&*snapshot, key, 2).unwrap();
            held.into_iter()
                .map(|held| Released {
                    rev: held.rev,
                    commit: Ok(chained(held.rev.0, held.rev.0 - 1)),
                })
                .collect()
        };
        let did = did(0);
        case.batch(Vec::new(), vec![Order::Release { did, frames }]);
    }
    case.check();
}

#[test]
fn held_frames_follow_the_repository_in_order_and_what_comes_meanwhile_after_them() {
    let mut case = Case::new();
    write(&mut case, 1, &names(2));
    for rev in 11..16 {
        case.events(vec![Event::Commit(chained(rev, rev - 1))]);
    }
    assert_eq!(case.outcome(Outcome::Held), 5);
    assert!(give(&case, 12, &["11", "12"]));
    assert_eq!(
        case.rows::<Account>()[0].repair,
        Some(Repair::Releasing.code())
    );
    // A new one, before those that were held are released.
    case.events(vec![Event::Commit(chained(16, 15))]);
    release(&mut case);
    assert_eq!(case.rows::<Held>(), []);
    assert_eq!(case.rows::<Account>()[0].repair, None);
    assert_eq!(case.rows::<Account>()[0].rev, Rev(16));
    let names = ["11", "12", "13", "14", "15", "16"];
    assert_eq!(case.live(), names.map(|name| format!("\"{name}\"")));
    assert_eq!(case.outcome(Outcome::Held), 0);
    // And the chain goes on.
    let next = case.events(vec![Event::Commit(chained(17, 16))]);
    assert_eq!(next.arrived.applied, 1);
}

#[test]
fn a_frame_that_still_does_not_follow_is_held_with_all_after_it() {
    let mut case = Case::new();
    write(&mut case, 1, &names(2));
    for rev in [13, 14] {
        case.events(vec![Event::Commit(chained(rev, rev - 1))]);
    }
    assert!(give(&case, 11, &[]));
    release(&mut case);
    assert_eq!(case.rows::<Held>().len(), 2);
    assert_eq!(
        case.rows::<Account>()[0].repair,
        Some(Repair::Holding.code())
    );
}

#[test]
fn a_deleted_record_of_a_later_repository_stays_deleted() {
    let mut case = Case::new();
    write(&mut case, 1, &names(2));
    case.events(vec![commit(0, 20, vec![delete("x.post", "000")])]);
    assert!(give(&case, 10, &["000", "001"]));
    assert_eq!(case.live(), ["\"001\""]);
}
