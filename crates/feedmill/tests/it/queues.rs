//! Queues: who comes first, who is never forgotten, and that nothing else changes.
//!
//! The model is the same stream applied in order by a store without queues:
//! once everything is worked off, both must hold the same records and have
//! counted the same outcomes. Revisions ascend, so an operation that overtook
//! another of its record would show as superseded.

use std::sync::Arc;

use feedmill::clock::Clock;
use feedmill::config::Config;
use feedmill::decode::{Decoder, Opener};
use feedmill::intake::Intake;
use feedmill::source::Rewind;
use feedmill::status::Status;
use feedmill::store::batch::{Batch, Commit, Item, Op, Snapshot, Verdict};
use feedmill::store::{AccountStatus, Accounting, Committed};
use feedmill::tend::Tend;
use sim::rng::Rng;

use crate::desk::{ALICE, BOB, Desk};

const COLLECTIONS: &str = r#"
[collections.urgent]
collection = "com.example.urgent"
validate = false
QUEUE_URGENT
[collections.plain]
collection = "com.example.plain"
validate = false
[collections.slow]
collection = "com.example.slow"
validate = false
QUEUE_SLOW
[[collections.slow.rule]]
name = "no-bad"
expect = "!has(record.bad)"
message = "bad"
"#;

const QUEUES: &str = r#"
[queues.fast]
priority = "high"
concurrency = 3
[queues.late]
priority = "low"
concurrency = 2
depth_max = 6
[intake]
turn_max = 12
"#;

fn text(queued: bool) -> String {
    let (urgent, slow, queues) = match queued {
        true => ("queue = \"fast\"", "queue = \"late\"", QUEUES),
        false => ("", "", ""),
    };
    let collections = COLLECTIONS.replace("QUEUE_URGENT", urgent);
    format!("{}{queues}", collections.replace("QUEUE_SLOW", slow))
}

fn desk() -> Desk {
    Desk::new(&text(true))
}

fn put(desk: &Desk, did: &str, short: &str, rkey: &str, rev: u64, body: &str) -> Op {
    Op {
        collection: desk.config.nsid(short).unwrap().into(),
        rkey: rkey.into(),
        verdict: desk.check(did, short, rkey, rev, body),
    }
}

fn commit(did: &str, rev: u64, ops: Vec<Op>) -> Item {
    Item::Commit(Commit {
        did: did.into(),
        rev,
        chain: None,
        filtered: 0,
        ops,
        frame: Default::default(),
        seq: 0,
        was_held: false,
        live: true,
    })
}

/// So many new records of one collection, in one batch.
fn flood(desk: &Desk, did: &str, short: &str, count: usize) -> Committed {
    let items = (0..count).map(|_| {
        let rev = desk.next_rev();
        let op = put(desk, did, short, &format!("r{rev}"), rev, "{}");
        commit(did, rev, vec![op])
    });
    let items = items.collect();
    apply(desk, 9, items)
}

fn apply(desk: &Desk, cursor: i64, items: Vec<Item>) -> Committed {
    let batch = Batch {
        source: "test".into(),
        cursor: Some(cursor),
        now_us: desk.now_us(),
        items,
    };
    let committed = desk.store.commit(batch).unwrap();
    let counted = desk.accounting();
    assert_eq!(counted.pending, desk.store.waiting().unwrap().pending);
    committed
}

fn done(committed: &Committed, queue: &str) -> u64 {
    let of = |worked: &&feedmill::store::queue::Worked| worked.queue == queue;
    committed.worked.iter().find(of).map_or(0, |it| it.done)
}

fn depth(desk: &Desk, queue: &str) -> i64 {
    let depths = desk.store.queues().unwrap();
    depths.iter().find(|it| it.queue == queue).unwrap().waiting
}

fn work_off(desk: &Desk) {
    for _ in 0..10_000 {
        if desk.store.waiting().unwrap().pending == 0 {
            return;
        }
        desk.store.turn(desk.now_us()).unwrap();
        desk.accounting();
    }
    panic!("queues are never empty");
}

/// One random stream: batches of items, the same for whoever asks with this seed.
fn stream(desk: &Desk, seed: u64) -> Vec<Vec<Item>> {
    let mut rng = Rng::new(seed);
    let dids = [ALICE, BOB, "did:web:carol.test"];
    let shorts = ["urgent", "plain", "slow"];
    let mut rev: u64 = 1000;
    let mut batches = Vec::new();
    for _ in 0..40 {
        let mut items = Vec::new();
        for _ in 0..rng.below(40) {
            rev += 1;
            let did = dids[rng.below(3) as usize];
            let status = match rng.below(40) {
                0 => Some(AccountStatus::Deleted),
                1 => Some(AccountStatus::Takendown),
                2 => Some(AccountStatus::Active),
                _ => None,
            };
            if let Some(status) = status {
                items.push(Item::Account {
                    did: did.into(),
                    status,
                    time_us: rev.cast_signed(),
                });
                continue;
            }
            let ops = (0..=rng.below(3)).map(|number| {
                let short = shorts[(rng.below(3) + number) as usize % 3];
                let rkey = format!("r{}-{number}", rng.below(6));
                match rng.below(10) {
                    0 | 1 => Op {
                        collection: desk.config.nsid(short).unwrap().into(),
                        rkey,
                        verdict: Verdict::Delete,
                    },
                    2 => put(desk, did, short, &rkey, rev, "{\"bad\":true}"),
                    _ => put(desk, did, short, &rkey, rev, &format!("{{\"n\":{rev}}}")),
                }
            });
            items.push(commit(did, rev, ops.collect()));
        }
        batches.push(items);
    }
    batches
}

fn records(desk: &Desk) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    for did in [ALICE, BOB, "did:web:carol.test"] {
        for short in ["urgent", "plain", "slow"] {
            for rkey in (0..6).flat_map(|n| (0..4).map(move |m| format!("r{n}-{m}"))) {
                let uri = desk.uri(did, short, &rkey);
                let row = desk.store.record(&uri).unwrap();
                found.push((uri, row.map(|row| row.body)));
            }
        }
    }
    found
}

#[test]
fn with_queues_the_same_stream_gives_the_same_records_and_the_same_counts() {
    for seed in 1..=12 {
        let (queued, plain) = (desk(), Desk::new(&text(false)));
        let mut spilled = 0;
        for (cursor, items) in (1..).zip(stream(&queued, seed)) {
            spilled += apply(&queued, cursor, items)
                .worked
                .iter()
                .map(|worked| worked.spilled)
                .sum::<u64>();
        }
        for (cursor, items) in (1..).zip(stream(&plain, seed)) {
            apply(&plain, cursor, items);
        }
        assert!(spilled > 20, "seed {seed}: only {spilled} had to wait");
        work_off(&queued);
        assert_eq!(records(&queued), records(&plain), "seed {seed}");
        let outcomes = |it: Accounting| (it.applied, it.repeated, it.superseded, it.dead);
        assert_eq!(
            outcomes(queued.accounting()),
            outcomes(plain.accounting()),
            "seed {seed}: something overtook"
        );
    }
}

#[test]
fn a_higher_priority_is_not_kept_waiting_by_a_flood_of_a_lower_one() {
    let desk = desk();
    flood(&desk, BOB, "slow", 500);
    assert!(depth(&desk, "late") > 400);
    for _ in 0..20 {
        let committed = flood(&desk, ALICE, "urgent", 9);
        assert_eq!(done(&committed, "fast"), 9, "all in the turn they came");
    }
    assert_eq!(depth(&desk, "fast"), 0);
}

#[test]
fn a_lower_priority_has_its_promise_in_every_turn_of_a_flood_of_a_higher_one() {
    let desk = desk();
    flood(&desk, BOB, "slow", 41);
    let waiting = depth(&desk, "late");
    for turn in 1..=10 {
        let committed = flood(&desk, ALICE, "urgent", 50);
        assert_eq!(done(&committed, "late"), 2);
        assert_eq!(depth(&desk, "late"), waiting - 2 * turn);
    }
    assert!(depth(&desk, "fast") > 0, "the flood was more than a turn");
}

#[test]
fn a_full_queue_spills_alone_and_the_cursor_goes_on() {
    let desk = desk();
    let mut items = Vec::new();
    for number in 0..11 {
        let rev = desk.next_rev();
        let short = if number == 10 { "urgent" } else { "slow" };
        let op = put(&desk, ALICE, short, &format!("r{number}"), rev, "{}");
        items.push(commit(ALICE, rev, vec![op]));
    }
    let committed = apply(&desk, 77, items);
    assert_eq!(done(&committed, "fast"), 1);
    assert_eq!(done(&committed, "late"), 6, "as deep as it may be");
    assert_eq!(committed.accounting.pending, 4);
    assert_eq!(desk.store.cursor("test").unwrap(), Some(77));
    assert!(desk.has(ALICE, "slow", "r5") && !desk.has(ALICE, "slow", "r6"));
}

#[test]
fn an_account_event_is_a_barrier_for_its_account_and_for_nobody_else() {
    let desk = desk();
    flood(&desk, BOB, "slow", 20);
    flood(&desk, ALICE, "slow", 20);
    assert_eq!(depth(&desk, "late"), 22, "two of Bob's, all of Alice's");
    let rev = desk.next_rev();
    let op = put(&desk, ALICE, "slow", "in-this-batch", rev, "{}");
    let status = Item::Account {
        did: ALICE.into(),
        status: AccountStatus::Takendown,
        time_us: desk.now_us(),
    };
    let batch = Batch {
        source: "test".into(),
        cursor: Some(10),
        now_us: desk.now_us(),
        items: vec![commit(ALICE, rev, vec![op]), status],
    };
    let committed = desk.store.commit(batch).unwrap();
    assert_eq!(done(&committed, "late"), 21, "twenty waited, one came");
    assert_eq!(depth(&desk, "late"), 2, "Bob's wait on");
    assert_eq!(desk.accounting().superseded, 0);
}

/// What waited when the account was deleted goes with it; what came after stays.
#[test]
fn a_deleted_account_that_comes_back_keeps_what_it_wrote_afterwards() {
    let desk = desk();
    flood(&desk, ALICE, "slow", 20);
    let rev = desk.next_rev();
    let back = |status, time_us| Item::Account {
        did: ALICE.into(),
        status,
        time_us,
    };
    let op = put(&desk, ALICE, "urgent", "after", rev, "{}");
    let now = desk.now_us();
    let items = vec![
        back(AccountStatus::Deleted, now),
        back(AccountStatus::Active, now + 1),
        commit(ALICE, rev, vec![op]),
    ];
    apply(&desk, 11, items);
    work_off(&desk);
    assert!(desk.has(ALICE, "urgent", "after"));
    let listed = desk.store.counts().unwrap().records;
    assert_eq!(listed.iter().map(|(_, live)| live).sum::<i64>(), 1);
}

#[test]
fn a_snapshot_and_a_sync_event_are_barriers_too() {
    let desk = desk();
    flood(&desk, ALICE, "slow", 20);
    let sync = Item::Sync {
        did: ALICE.into(),
        rev: desk.next_rev() + 1000,
        data: None,
    };
    apply(&desk, 12, vec![sync]);
    assert_eq!(depth(&desk, "late"), 0);
    flood(&desk, BOB, "slow", 20);
    let rev = desk.next_rev();
    let snapshot = Item::Snapshot(Snapshot {
        did: BOB.into(),
        rev,
        data: None,
        ops: vec![put(&desk, BOB, "slow", "kept", rev, "{}")],
        held: 0,
    });
    apply(&desk, 13, vec![snapshot]);
    assert_eq!(depth(&desk, "late"), 0);
    assert!(desk.has(BOB, "slow", "kept"));
    assert!(
        !desk.has(BOB, "slow", "r21"),
        "the snapshot did not hold it"
    );
}

#[test]
fn what_waits_survives_a_restart_and_a_configuration_without_queues() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/s.db", folder.path().display());
    let config = |queued: bool| {
        let text = text(queued);
        let text = format!("namespace = \"com.example\"\n{text}\n[store]\nurl = {url:?}\n");
        Config::parse(&text).unwrap()
    };
    let first = Desk::of(config(true));
    flood(&first, ALICE, "slow", 60);
    let waiting = first.accounting().pending;
    assert!(waiting > 40);
    drop(first);
    let second = Desk::of(config(true));
    assert_eq!(second.accounting().pending, waiting);
    second.store.turn(second.now_us()).unwrap();
    let waiting = second.accounting().pending;
    drop(second);
    let third = Desk::of(config(false));
    assert_eq!(depth(&third, "default"), waiting);
    let rev = 500;
    let op = put(&third, ALICE, "slow", "r3", rev, "{\"newer\":1}");
    apply(&third, 20, vec![commit(ALICE, rev, vec![op])]);
    work_off(&third);
    let row = third.store.record(&third.uri(ALICE, "slow", "r3")).unwrap();
    assert!(row.unwrap().body.contains("newer"));
    let counted = third.accounting();
    assert_eq!(
        (counted.applied, counted.superseded),
        (61, 0),
        "{counted:?}"
    );
}

#[test]
fn what_waited_keeps_the_moment_at_which_it_was_first_seen_and_its_letter_its_cursor() {
    let desk = desk();
    let mut items = Vec::new();
    for number in 0..14 {
        let rev = desk.next_rev();
        let body = if number == 13 { "{\"bad\":1}" } else { "{}" };
        let op = put(&desk, ALICE, "slow", &format!("r{number}"), rev, body);
        items.push(commit(ALICE, rev, vec![op]).numbered(29 + number));
    }
    apply(&desk, 99, items);
    let first = desk.store.position(&desk.uri(ALICE, "slow", "r0")).unwrap();
    desk.pass(100);
    work_off(&desk);
    let last = desk
        .store
        .position(&desk.uri(ALICE, "slow", "r12"))
        .unwrap();
    assert_eq!(last.unwrap().time_us, first.unwrap().time_us);
    assert_eq!(desk.letter().cursor, 42);
}

#[test]
fn the_tender_works_off_what_waits_and_parked_records_block_nobody() {
    let desk = desk();
    flood(&desk, ALICE, "slow", 30);
    let mut tend = Tend::new(desk.store.clone(), desk.config.settle.clone());
    tend.step(desk.now_us()).unwrap();
    assert_eq!(desk.accounting().pending, 0);
    assert_eq!(desk.accounting().applied, 30);
}

/// Bounded: with the store full of what waits, no frame is taken.
#[test]
fn above_spill_max_the_queues_are_worked_off_before_more_is_taken() {
    let desk = desk();
    flood(&desk, ALICE, "slow", 200);
    let decoder = Decoder::new(Arc::clone(&desk.checker), &desk.config.intake);
    let mut intake = Intake::new(
        "test".into(),
        Opener::Firehose(decoder),
        desk.store.clone(),
        Arc::new(Rewind::default()),
        Arc::new(Status::default()),
    )
    .spill_max(50, u64::MAX);
    assert!(desk.accounting().pending > 50);
    intake.make_room(Clock::Wall.now_us()).unwrap();
    assert!((39..=50).contains(&desk.accounting().pending));
}
