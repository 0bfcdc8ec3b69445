//! Cursors: integers that are checked, and cursors that move between an authority and its replicas.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, unreachable_pub)]

use blocklog::authority::Authority;
use blocklog::cursor::Epoch;
use blocklog::limits::Limits;
use blocklog::memory::Memory;
use blocklog::message::{Reply, Request, RequestId};
use blocklog::replica::{Mode, Target};
use blocklog::store::{Keep, LogStore, ReplicaStore, Role};
use blocklog::sync::{Input, Sync, SyncSettings};
use blocklog::writers::Writers;
use serde_json::{Value, json};

const SPACE: &str = "space";

fn log(role: Role, epoch: u8) -> Memory {
    let log = Memory::default();
    log.open(SPACE, role, Epoch([epoch; 16])).unwrap();
    log
}

fn answer(log: &Memory, request: &Request, id: RequestId) -> Reply {
    let limits = Limits::default();
    let authority = Authority {
        store: log,
        limits: &limits,
        writers: &Writers::Anyone,
    };
    let outcome = authority.answer(SPACE, request, 500, &[9; 16]);
    Reply {
        id: Some(id),
        outcome,
    }
}

fn ask(log: &Memory, mut message: Value) -> Value {
    message["requestId"] = json!(1);
    let limits = Limits::default();
    let id = RequestId::of(&message, limits.request_id_bytes_max).unwrap();
    match Request::parse(&message, None, SPACE, &limits) {
        Ok(request) => answer(log, &request, id).to_message(),
        Err(fault) => Reply {
            id: Some(id),
            outcome: Err(fault),
        }
        .to_message(),
    }
}

fn append(log: &Memory, actor: &str, sequences: std::ops::RangeInclusive<u64>) {
    for sequence in sequences {
        let block = json!({"actorId": actor, "sequence": sequence, "data": "aGk=", "timestamp": 1});
        let answer = ask(log, json!({"blocks": [block]}));
        assert!(answer["error"].is_null(), "{answer}");
    }
}

/// Replicates until there is nothing left to do.
fn sync(authority: &Memory, replica: &Memory, run: &str) {
    let mut sync = Sync::new(SPACE, run, SyncSettings::default(), Limits::default());
    let mut now_ms = 1;
    let mut request = sync.step(replica, now_ms, Input::Changed).unwrap();
    for _ in 0..1000 {
        if sync.is_idle() {
            return;
        }
        now_ms = sync.wake_ms().max(now_ms);
        request = match request {
            Some((id, request)) => {
                let reply = answer(authority, &request, id);
                sync.step(replica, now_ms, Input::Reply(&reply)).unwrap()
            }
            None => sync.step(replica, now_ms, Input::Tick).unwrap(),
        };
    }
    panic!("it never ends: {:?}", sync.report());
}

fn positions(answer: &Value) -> Vec<u64> {
    let blocks = answer["blocks"]
        .as_array()
        .unwrap_or_else(|| panic!("{answer}"));
    let position = |block: &Value| block["position"].as_u64().unwrap();
    blocks.iter().map(position).collect()
}

#[test]
fn an_integer_cursor_above_the_highest_position_is_refused() {
    let log = log(Role::Authority, 1);
    append(&log, "a", 1..=3);
    assert_eq!(positions(&ask(&log, json!({"cursor": 3}))), [0; 0]);
    let refused = ask(&log, json!({"cursor": 4}));
    assert_eq!(
        (&refused["error"], &refused["maxPosition"]),
        (&json!("beyondEnd"), &json!(3))
    );
    append(&log, "a", 4..=4);
    assert_eq!(positions(&ask(&log, json!({"cursor": 3}))), [4]);
}

#[test]
fn an_integer_cursor_with_an_epoch_and_a_hash_notices_another_history() {
    let log = log(Role::Authority, 1);
    append(&log, "a", 1..=5);
    let page = ask(&log, json!({"cursor": 2, "limit": 1}));
    let (epoch, hash) = (&page["epoch"], &page["blocks"][0]["hash"]);
    let go_on = |log: &Memory| ask(log, json!({"cursor": 3, "epoch": epoch, "hash": hash}));
    assert_eq!(positions(&go_on(&log)), [4, 5]);
    // Evicted, it is known by the heads around it.
    log.evict(SPACE, "a", Keep::Newest(1), 9).unwrap();
    let gone = go_on(&log);
    assert_eq!(
        (&gone["error"], &gone["startsAt"]),
        (&json!("gone"), &json!(4))
    );
    let other = self::log(Role::Authority, 1);
    append(&other, "b", 1..=5);
    assert_eq!(go_on(&other)["error"], "rolledBack");
    let other = self::log(Role::Authority, 2);
    append(&other, "a", 1..=5);
    assert_eq!(go_on(&other)["error"], "replaced");
    assert_eq!(
        ask(&log, json!({"cursor": 3, "epoch": "no"}))["field"],
        "epoch"
    );
    assert_eq!(
        ask(&log, json!({"cursor": 3, "hash": "no"}))["field"],
        "hash"
    );
    let tail = ask(&log, json!({"tail": true, "hash": hash}));
    assert_eq!(tail["error"], "badRequest", "{tail}");
}

#[test]
fn cursors_move_between_an_authority_and_its_replica() {
    let (authority, replica) = (log(Role::Authority, 1), log(Role::Replica, 2));
    let whole = Some(Mode::From(0));
    replica.set_lane(SPACE, &Target::Space, whole).unwrap();
    append(&authority, "a", 1..=4);
    sync(&authority, &replica, "r1");
    let here = ask(&authority, json!({"cursor": 0, "limit": 2}))["nextCursor"].clone();
    let page = ask(&replica, json!({"cursor": here, "limit": 1}));
    assert_eq!(positions(&page), [3]);
    let back = ask(
        &authority,
        json!({"cursor": page["nextCursor"], "limit": 9}),
    );
    assert_eq!(positions(&back), [4]);
    // A replica that is behind answers when it gets there.
    append(&authority, "a", 5..=6);
    let ahead = ask(&authority, json!({"cursor": 4, "limit": 1}))["nextCursor"].clone();
    let page = ask(&replica, json!({"cursor": ahead}));
    assert_eq!((positions(&page), &page["covered"]), (vec![], &json!(5)));
    sync(&authority, &replica, "r2");
    assert_eq!(
        positions(&ask(&replica, json!({"cursor": page["nextCursor"]}))),
        [6]
    );
    // Another log, and another replica, are another history.
    let other = log(Role::Authority, 3);
    let of_replica = ask(&replica, json!({"cursor": 0, "limit": 2}))["nextCursor"].clone();
    assert_eq!(
        ask(&other, json!({"cursor": of_replica}))["error"],
        "replaced"
    );
    let second = log(Role::Replica, 4);
    second.set_lane(SPACE, &Target::Space, whole).unwrap();
    sync(&authority, &second, "r3");
    assert_eq!(
        ask(&second, json!({"cursor": of_replica}))["error"],
        "replaced"
    );
    // A replica's cursor beyond the end of a log that was rolled back.
    let rolled_back = log(Role::Authority, 1);
    append(&rolled_back, "a", 1..=1);
    assert_eq!(
        ask(&rolled_back, json!({"cursor": of_replica}))["error"],
        "rolledBack"
    );
}

#[test]
fn a_replica_set_to_begin_beyond_the_end_begins_at_the_end() {
    let (authority, replica) = (log(Role::Authority, 1), log(Role::Replica, 2));
    let later = Some(Mode::From(100));
    replica.set_lane(SPACE, &Target::Space, later).unwrap();
    append(&authority, "a", 1..=3);
    sync(&authority, &replica, "r1");
    append(&authority, "a", 4..=5);
    append(&replica, "b", 1..=1);
    sync(&authority, &replica, "r2");
    assert_eq!(
        positions(&ask(&replica, json!({"type": "query"}))),
        [4, 5, 6]
    );
    assert_eq!(positions(&ask(&authority, json!({"cursor": 5}))), [6]);
}

/// The actors and sequences of everything a replica holds with a position.
fn held(replica: &Memory) -> Vec<(String, u64)> {
    let page = ask(replica, json!({"type": "query", "limit": 1000}));
    let blocks = page["blocks"]
        .as_array()
        .unwrap_or_else(|| panic!("{page}"));
    let key = |block: &Value| {
        let actor = block["actorId"].as_str().unwrap().to_owned();
        (actor, block["sequence"].as_u64().unwrap())
    };
    blocks.iter().map(key).collect()
}

#[test]
fn healing_after_a_rollback_keeps_the_range_that_was_asked_for() {
    for mode in [Mode::Tail, Mode::From(31)] {
        let (mut authority, replica) = (log(Role::Authority, 1), log(Role::Replica, 2));
        append(&authority, "a", 1..=30);
        replica.set_lane(SPACE, &Target::Space, Some(mode)).unwrap();
        sync(&authority, &replica, "r1");
        append(&authority, "a", 31..=35);
        sync(&authority, &replica, "r2");
        let copy = authority.snapshot();
        append(&authority, "a", 36..=40);
        sync(&authority, &replica, "r3");
        assert_eq!(held(&replica).len(), 10, "{mode:?}");
        // Rolled back once, and then once more.
        let mut sequences = Vec::from_iter((31..=40).map(|sequence| ("a".to_owned(), sequence)));
        for (round, copy) in [(1, copy.snapshot()), (2, copy)] {
            authority = copy;
            let actor = format!("b{round}");
            append(&authority, &actor, 1..=6);
            sync(&authority, &replica, &format!("r{}", 3 + round));
            sequences.extend((1..=6).map(|sequence| (actor.clone(), sequence)));
            let mut found = held(&replica);
            found.sort();
            assert_eq!(
                found, sequences,
                "{mode:?}: what was lost is pushed again, and no more is pulled"
            );
        }
    }
}

#[test]
fn a_rollback_to_before_the_start_of_a_replica_loses_nothing() {
    let (mut authority, replica) = (log(Role::Authority, 1), log(Role::Replica, 2));
    append(&authority, "a", 1..=3);
    let copy = authority.snapshot();
    append(&authority, "a", 4..=6);
    replica
        .set_lane(SPACE, &Target::Space, Some(Mode::Tail))
        .unwrap();
    sync(&authority, &replica, "r1");
    append(&authority, "a", 7..=8);
    sync(&authority, &replica, "r2");
    assert_eq!(held(&replica).len(), 2);
    authority = copy;
    append(&authority, "b", 1..=9);
    sync(&authority, &replica, "r3");
    let found = held(&replica);
    for sequence in 1..=9 {
        assert!(
            found.contains(&("b".to_owned(), sequence)),
            "b{sequence} came after the start"
        );
    }
    for sequence in 7..=8 {
        assert!(
            held(&authority).contains(&("a".to_owned(), sequence)),
            "a{sequence} is pushed again"
        );
    }
}
