//! What waits on disk is bounded in bytes: held frames, parked records, records in queues, the outbox.

use std::sync::Arc;

use feedmill::config::Config;
use feedmill::decode::{Decoder, Opener};
use feedmill::intake::Intake;
use feedmill::source::Rewind;
use feedmill::status::Status;
use feedmill::store::batch::{Batch, Chain, Commit, Item, Op, Snapshot};
use feedmill::store::{AccountStatus, Committed};

use super::desk::{ALICE, BOB, Desk};

const POST: &str = "[collections.post]\ncollection = \"com.example.post\"\nvalidate = false\n";
const FRAME: usize = 10_000;

/// A commit of one post that follows on another, in a frame of `FRAME` bytes.
fn commit(desk: &Desk, did: &str, since: u64, rev: u64) -> Commit {
    let rkey = format!("r{rev}");
    let verdict = desk.check(did, "post", &rkey, rev, "{}");
    Commit {
        did: did.into(),
        rev,
        chain: Some(Chain {
            since: (since > 0).then_some(since),
            prev_data: None,
            data: None,
        }),
        filtered: 2,
        ops: vec![Op {
            collection: "com.example.post".into(),
            rkey,
            verdict,
        }],
        frame: vec![0; FRAME].into(),
        seq: rev as i64,
        was_held: false,
        live: true,
    }
}

/// The repository of an account as it is at a revision: a post for each of these, and the frames held since.
fn fetched(desk: &Desk, did: &str, rev: u64, posts: &[u64], held: Vec<Commit>) -> Committed {
    let ops = posts.iter().map(|post| {
        let rkey = format!("r{post}");
        Op {
            collection: "com.example.post".into(),
            verdict: desk.check(did, "post", &rkey, rev, "{}"),
            rkey,
        }
    });
    let snapshot = Snapshot {
        did: did.into(),
        rev,
        data: None,
        ops: ops.collect(),
        held: held.len(),
    };
    let held = held.into_iter().map(|commit| Commit {
        was_held: true,
        live: false,
        ..commit
    });
    let committed = desk.store.commit(Batch {
        source: "test".into(),
        cursor: None,
        now_us: desk.now_us(),
        items: std::iter::once(Item::Snapshot(snapshot))
            .chain(held.map(Item::Commit))
            .collect(),
    });
    desk.accounting();
    committed.unwrap()
}

fn hold(desk: &Desk, did: &str, since: u64, rev: u64) -> Committed {
    desk.apply(Item::Commit(commit(desk, did, since, rev)))
}

#[test]
fn an_account_that_cannot_be_fetched_keeps_no_more_frames_than_it_may_and_loses_nothing() {
    let desk = Desk::new(&format!("{POST}[intake]\nheld_account_bytes_max = 35000\n"));
    hold(&desk, ALICE, 0, 10);
    // The commit 11 never came; each of the others is 10 200 bytes with its row.
    for rev in 12..112 {
        hold(&desk, ALICE, rev - 1, rev);
        let bytes = desk.store.waiting().unwrap().held_bytes;
        assert!(bytes <= 35_000, "{bytes} bytes are held");
    }
    assert_eq!(desk.store.held(ALICE).unwrap().len(), 3);
    let accounting = desk.accounting();
    assert_eq!((accounting.applied, accounting.held), (1, 300));
    // The stream is read again from before: nothing is counted twice.
    let again = hold(&desk, ALICE, 50, 51);
    assert_eq!((again.accounting.held, again.accounting.repeated), (0, 3));
    let again = hold(&desk, ALICE, 12, 13);
    assert_eq!((again.accounting.held, again.accounting.repeated), (0, 3));

    let held = || {
        (12..15)
            .map(|rev| commit(&desk, ALICE, rev - 1, rev))
            .collect()
    };
    // A repository from before the last frame that was dropped does not end the repair.
    let posts: Vec<u64> = (10..60).collect();
    let old = fetched(&desk, ALICE, 59, &posts, held());
    assert_eq!(old.broken, [ALICE]);
    assert_eq!(desk.store.broken_accounts(10).unwrap(), [ALICE]);
    assert!(!desk.has(ALICE, "post", "r111"));
    assert_eq!(desk.accounting().held, 97 * 3);
    // Nor does the next frame, which is dropped as well.
    hold(&desk, ALICE, 111, 112);
    assert_eq!(desk.accounting().held, 98 * 3);

    let posts: Vec<u64> = (10..=112).collect();
    let new = fetched(&desk, ALICE, 112, &posts, Vec::new());
    assert!(new.broken.is_empty());
    assert!(desk.store.broken_accounts(10).unwrap().is_empty());
    assert!(desk.has(ALICE, "post", "r111"));
    assert_eq!(desk.accounting().held, 0);
    assert_eq!(desk.store.waiting().unwrap().held_bytes, 0);
    // It is in step, and has room again.
    assert_eq!(hold(&desk, ALICE, 112, 113).accounting.applied, 1);
    hold(&desk, ALICE, 114, 115);
    assert_eq!(desk.store.held(ALICE).unwrap().len(), 1);
}

#[test]
fn many_accounts_that_cannot_be_fetched_keep_no_more_together_than_all_may() {
    let desk = Desk::new(&format!("{POST}[intake]\nheld_bytes_max = 50000\n"));
    let did = |number: u64| format!("did:web:a{number}.test");
    for number in 0..20 {
        hold(&desk, &did(number), 0, 10);
        hold(&desk, &did(number), 11, 12);
        assert!(desk.store.waiting().unwrap().held_bytes <= 50_000);
    }
    assert_eq!(desk.accounting().held, 60);
    let kept = (0..20).map(|number| desk.store.held(&did(number)).unwrap().len());
    assert_eq!(kept.sum::<usize>(), 4);
    // An account that is gone takes what was held and dropped of it along.
    for number in 0..20 {
        desk.apply(Item::Account {
            did: did(number),
            status: AccountStatus::Deleted,
            time_us: desk.now_us(),
        });
    }
    assert_eq!(desk.accounting().held, 0);
    assert_eq!(desk.store.waiting().unwrap().held_bytes, 0);
}

#[test]
fn parked_records_take_no_more_bytes_than_they_may_and_the_oldest_become_dead_letters() {
    let desk = Desk::new(&format!(
        "{POST}[collections.reply]\ncollection = \"com.example.reply\"\nvalidate = false\nrequires = [\"parent\"]\n\
         [settle]\nparked_bytes_max = 100000\n"
    ));
    for number in 1..=30 {
        let parent = desk.uri(ALICE, "post", &number.to_string());
        let text = "x".repeat(FRAME);
        let body = format!("{{\"parent\":\"{parent}\",\"text\":\"{text}\"}}");
        desk.put(BOB, "reply", &number.to_string(), &body);
        let bytes = desk.store.waiting().unwrap().parked_bytes;
        assert!(bytes <= 100_000, "{bytes} bytes are parked");
    }
    let accounting = desk.accounting();
    assert_eq!((accounting.parked, accounting.dead), (4, 26));
    for number in 1..=30 {
        desk.put(ALICE, "post", &number.to_string(), "{}");
        assert!(desk.has(BOB, "reply", &number.to_string()));
    }
    assert_eq!(desk.store.waiting().unwrap().parked_bytes, 0);
}

#[test]
fn above_spill_bytes_max_the_queues_are_worked_off_before_more_is_taken() {
    let desk = Desk::new(
        "[intake]\nturn_max = 20\n\
         [collections.post]\ncollection = \"com.example.post\"\nvalidate = false\nqueue = \"slow\"\n\
         [queues.slow]\npriority = \"low\"\nconcurrency = 2\n[queues.default]\nconcurrency = 2\n",
    );
    let items = (0..50).map(|_| {
        let rev = desk.next_rev();
        let body = format!("{{\"text\":\"{}\"}}", "x".repeat(FRAME));
        let rkey = format!("r{rev}");
        let verdict = desk.check(ALICE, "post", &rkey, rev, &body);
        let op = Op {
            collection: "com.example.post".into(),
            rkey,
            verdict,
        };
        Item::Commit(Commit {
            chain: None,
            filtered: 0,
            ops: vec![op],
            ..commit(&desk, ALICE, 0, rev)
        })
    });
    let batch = Batch {
        source: "test".into(),
        cursor: Some(9),
        now_us: desk.now_us(),
        items: items.collect(),
    };
    desk.store.commit(batch).unwrap();
    assert!(desk.store.waiting().unwrap().pending_bytes > 300_000);
    let decoder = Decoder::new(Arc::clone(&desk.checker), &desk.config.intake);
    let mut intake = Intake::new(
        "test".into(),
        Opener::Firehose(decoder),
        desk.store.clone(),
        Arc::new(Rewind::default()),
        Arc::new(Status::default()),
    )
    .spill_max(usize::MAX, 150_000);
    intake.make_room(desk.now_us()).unwrap();
    let waiting = desk.store.waiting().unwrap();
    assert!(
        waiting.pending > 0 && waiting.pending_bytes <= 150_000,
        "{waiting:?}"
    );
    while desk.store.waiting().unwrap().pending > 0 {
        desk.store.turn(desk.now_us()).unwrap();
    }
    assert_eq!(desk.store.waiting().unwrap().pending_bytes, 0);
}

#[test]
fn the_outbox_takes_no_more_bytes_than_it_may_and_says_what_is_gone() {
    let text = format!(
        "namespace = \"com.example\"\n{POST}[store]\nurl = \"sqlite::memory:\"\noutbox_bytes_max = 3000\n"
    );
    let desk = Desk::of(Config::parse(&text).unwrap());
    for _ in 0..200 {
        let rkey = format!("r{}", desk.next_rev());
        desk.put(ALICE, "post", &rkey, "{}");
        let bytes = desk.store.waiting().unwrap().outbox_bytes;
        assert!(
            (1..=3000).contains(&bytes),
            "{bytes} bytes are in the outbox"
        );
    }
    let head = desk.store.head().unwrap();
    assert!(desk.store.draw(0, 1).unwrap().gone);
    let last = desk.store.draw(head - 5, 10).unwrap();
    assert!(!last.gone && last.changes.len() == 5);
}
