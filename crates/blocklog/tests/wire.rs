//! The messages of the log, as they stand on the wire.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, unreachable_pub)]

use blocklog::authority::Authority;
use blocklog::cursor::Epoch;
use blocklog::limits::Limits;
use blocklog::memory::Memory;
use blocklog::message::{Kind, Reply, Request, RequestId};
use blocklog::store::{Keep, LogStore, Role};
use blocklog::writers::Writers;
use serde_json::{Value, json};

const SPACE: &str = "space";

fn log() -> Memory {
    let log = Memory::default();
    log.open(SPACE, Role::Authority, Epoch([1; 16])).unwrap();
    log
}

fn limits() -> Limits {
    Limits {
        block_bytes_max: 100,
        batch_blocks_max: 3,
        batch_bytes_max: 150,
        feed_ids_max: 3,
        subscription_ms_max: 1000,
        ..Limits::default()
    }
}

fn ask_as(
    log: &Memory,
    writers: &Writers,
    kind: Option<Kind>,
    now_ms: u64,
    message: &Value,
) -> Value {
    let limits = limits();
    let authority = Authority {
        store: log,
        limits: &limits,
        writers,
    };
    let outcome = Request::parse(message, kind, SPACE, &limits)
        .and_then(|request| authority.answer(SPACE, &request, now_ms, &[9; 16]));
    let id = RequestId::of(message, limits.request_id_bytes_max);
    Reply { id, outcome }.to_message()
}

fn ask(log: &Memory, message: Value) -> Value {
    ask_as(log, &Writers::Anyone, None, 500, &message)
}

fn block(actor: &str, sequence: u64, data: &str) -> Value {
    json!({"actorId": actor, "sequence": sequence, "data": data, "timestamp": 1234567890})
}

fn append(log: &Memory, sequences: std::ops::RangeInclusive<u64>) {
    for sequence in sequences {
        let answer = ask(
            log,
            json!({"requestId": 1, "blocks": [block("01H1", sequence, "aGk=")]}),
        );
        assert!(answer["error"].is_null(), "{answer}");
    }
}

/// The error code of an answer that must be a fault under the request's id.
#[track_caller]
fn fault(log: &Memory, mut message: Value) -> String {
    message["requestId"] = json!("req-x");
    let before = log.space(SPACE).unwrap();
    let answer = ask(log, message);
    assert_eq!(answer["requestId"], "req-x", "{answer}");
    assert_eq!(
        log.space(SPACE).unwrap(),
        before,
        "nothing may be written: {answer}"
    );
    assert!(!answer["message"].as_str().unwrap().is_empty());
    answer["error"]
        .as_str()
        .unwrap_or_else(|| panic!("no fault: {answer}"))
        .to_owned()
}

#[test]
fn the_published_examples_work_as_they_stand() {
    let log = log();
    let answer = ask(
        &log,
        json!({
            "requestId": "req-1",
            "namespace": "my-app-data",
            "blocks": [{"actorId": "01H1...", "sequence": 100, "data": "aGVsbG8=", "timestamp": 1234567890}],
        }),
    );
    assert_eq!(
        (&answer["requestId"], &answer["positions"]),
        (&json!("req-1"), &json!([1]))
    );

    let answer = ask(&log, json!({"requestId": "req-2", "feedIds": ["01H1..."]}));
    assert_eq!(answer["requestId"], "req-2");
    assert_eq!(answer["expiresAt"], 1500);
    let subscription = answer["subscriptionId"].as_str().unwrap().to_owned();

    let answer = ask(
        &log,
        json!({"requestId": "req-4", "namespace": "my-app-data"}),
    );
    assert_eq!(answer["requestId"], "req-4");
    assert_eq!(answer["feeds"][0]["feedId"], "01H1...");
    assert_eq!(answer["feeds"][0]["namespace"], "my-app-data");

    let answer = ask(
        &log,
        json!({"requestId": "req-3", "subscriptionId": subscription, "cursor": 0}),
    );
    assert_eq!(answer["requestId"], "req-3");
    let block = &answer["blocks"][0];
    assert_eq!(
        (
            &block["position"],
            &block["sequence"],
            &block["actorId"],
            &block["data"]
        ),
        (
            &json!(1),
            &json!(100),
            &json!("01H1..."),
            &json!("aGVsbG8=")
        )
    );
    let answer = ask(
        &log,
        json!({"requestId": "req-5", "subscriptionId": subscription, "cursor": 1}),
    );
    assert_eq!(answer["blocks"], json!([]));
}

#[test]
fn bad_numbers_are_refused_by_name() {
    let log = log();
    append(&log, 1..=3);
    for bad in [
        json!(-1),
        json!(1.5),
        json!(1u64 << 60),
        json!(1e300),
        json!("7"),
        json!([]),
        json!(true),
    ] {
        for field in ["sequence", "timestamp", "predSequence"] {
            let mut one = block("a", 9, "");
            one["predActorId"] = json!("b");
            one["predSequence"] = json!(1);
            one[field] = bad.clone();
            assert_eq!(
                fault(&log, json!({"blocks": [one]})),
                "badRequest",
                "{field} {bad}"
            );
        }
        assert_eq!(
            fault(&log, json!({"type": "query", "limit": bad})),
            "badRequest",
            "{bad}"
        );
        let expected = if bad.is_string() {
            "badCursor"
        } else {
            "badRequest"
        };
        assert_eq!(fault(&log, json!({"cursor": bad})), expected, "{bad}");
    }
    assert_eq!(fault(&log, json!({"limit": 0})), "badRequest");
    let answer = ask(
        &log,
        json!({"requestId": 1, "limit": 1_000_000, "cursor": 0}),
    );
    assert_eq!(
        answer["blocks"].as_array().unwrap().len(),
        3,
        "a large limit is cut, not an error"
    );
}

#[test]
fn unknown_kinds_and_shapes_are_refused() {
    let log = log();
    assert_eq!(fault(&log, json!({"type": "delete"})), "unknownKind");
    assert_eq!(fault(&log, json!({"colour": "red"})), "unknownKind");
    assert_eq!(fault(&log, json!({"type": 7})), "badRequest");
    for message in [
        json!([]),
        json!(null),
        json!("hello"),
        json!({"type": "list"}),
    ] {
        let answer = ask(&log, message.clone());
        assert_eq!(
            (&answer["requestId"], &answer["error"]),
            (&Value::Null, &json!("badRequest")),
            "{message}"
        );
    }
}

#[test]
fn a_request_id_comes_back_as_it_was() {
    let log = log();
    for id in [json!("req-1"), json!(7), json!(-3), json!("")] {
        assert_eq!(ask(&log, json!({"requestId": id}))["requestId"], id);
    }
    for id in [json!("x".repeat(129)), json!(1.5), json!({}), json!(null)] {
        assert_eq!(
            ask(&log, json!({"requestId": id}))["error"],
            "badRequest",
            "{id}"
        );
    }
}

#[test]
fn everything_has_a_limit() {
    let log = log();
    let large = block("a", 1, &"AAAA".repeat(34));
    assert_eq!(fault(&log, json!({"blocks": [large]})), "tooLarge");
    let many: Vec<Value> = (1..=4).map(|sequence| block("a", sequence, "")).collect();
    assert_eq!(fault(&log, json!({"blocks": many})), "tooLarge");
    let heavy: Vec<Value> = (1..=2)
        .map(|sequence| block("a", sequence, &"AAAA".repeat(30)))
        .collect();
    assert_eq!(fault(&log, json!({"blocks": heavy})), "tooLarge");
    assert_eq!(
        fault(&log, json!({"feedIds": ["a", "b", "c", "d"]})),
        "tooLarge"
    );
    assert_eq!(fault(&log, json!({"blocks": []})), "badRequest");
    assert_eq!(fault(&log, json!({"namespace": ""})), "badRequest");
    assert_eq!(
        fault(&log, json!({"namespace": "x".repeat(513)})),
        "badRequest"
    );
    assert_eq!(fault(&log, json!({"feedIds": ["a\u{0}b"]})), "badRequest");
    assert_eq!(
        fault(&log, json!({"blocks": [block("a", 1, "not base64!")]})),
        "badRequest"
    );
}

#[test]
fn a_conflict_names_the_block_and_what_is_held() {
    let log = log();
    append(&log, 1..=1);
    let message =
        json!({"requestId": "r", "blocks": [block("01H1", 2, ""), block("01H1", 1, "b3RoZXI=")]});
    let answer = ask(&log, message);
    assert_eq!(answer["error"], "conflict");
    assert_eq!(answer["blocks"][0]["index"], 1);
    assert_eq!(answer["blocks"][0]["sequence"], 1);
    assert_eq!(log.space(SPACE).unwrap().unwrap().position_max, 1);
}

#[test]
fn subscriptions_end_and_can_be_renewed() {
    let log = log();
    append(&log, 1..=1);
    let at = |now_ms, message: Value| ask_as(&log, &Writers::Anyone, None, now_ms, &message);
    let id = at(0, json!({"requestId": 1, "feedIds": ["01H1"]}))["subscriptionId"].clone();
    let query = json!({"requestId": 2, "subscriptionId": id, "cursor": 0});
    assert_eq!(at(999, query.clone())["blocks"][0]["position"], 1);
    let renewed = at(
        999,
        json!({"type": "subscribe", "requestId": 3, "subscriptionId": id}),
    );
    assert_eq!(
        (&renewed["subscriptionId"], &renewed["expiresAt"]),
        (&id, &json!(1999))
    );
    assert_eq!(at(1998, query.clone())["blocks"][0]["position"], 1);
    assert_eq!(at(1999, query)["error"], "expiredSubscription");
    assert_eq!(
        at(
            5,
            json!({"requestId": 4, "subscriptionId": "no", "cursor": 0})
        )["error"],
        "unknownSubscription"
    );
}

#[test]
fn a_cursor_goes_on_exactly_and_only_in_its_own_history() {
    let log = log();
    append(&log, 1..=5);
    let query = |log: &Memory, cursor: &Value| {
        ask(log, json!({"requestId": 1, "cursor": cursor, "limit": 2}))
    };
    let first = query(&log, &json!(0));
    assert_eq!(
        (&first["hasMore"], &first["maxPosition"]),
        (&json!(true), &json!(5))
    );
    let second = query(&log, &first["nextCursor"]);
    assert_eq!(second["blocks"][0]["position"], 3);
    let third = query(&log, &second["nextCursor"]);
    assert_eq!(
        (&third["hasMore"], &third["blocks"][0]["position"]),
        (&json!(false), &json!(5))
    );

    let copy = log.snapshot();
    append(&log, 6..=9);
    let ahead = query(&log, &json!(7))["nextCursor"].clone();
    assert_eq!(
        query(&copy, &ahead)["error"],
        "rolledBack",
        "its positions end below the cursor"
    );
    for sequence in [16, 17, 18, 19, 20] {
        ask(
            &copy,
            json!({"requestId": 1, "blocks": [block("other", sequence, "")]}),
        );
    }
    assert_eq!(
        query(&copy, &ahead)["error"],
        "rolledBack",
        "same positions, another history"
    );
    assert_eq!(
        query(&copy, &third["nextCursor"])["blocks"][0]["position"],
        6,
        "the shared part is fine"
    );

    let other = Memory::default();
    other.open(SPACE, Role::Authority, Epoch([2; 16])).unwrap();
    let answer = query(&other, &ahead);
    assert_eq!(
        (&answer["error"], &answer["maxPosition"]),
        (&json!("replaced"), &json!(0))
    );
}

#[test]
fn what_is_gone_says_where_the_log_starts() {
    let log = log();
    append(&log, 1..=5);
    log.evict(SPACE, "01H1", Keep::Newest(2), 99).unwrap();
    let answer = ask(&log, json!({"requestId": 1, "cursor": 1}));
    assert_eq!(
        (&answer["error"], &answer["startsAt"]),
        (&json!("gone"), &json!(3))
    );
    let answer = ask(&log, json!({"requestId": 1, "cursor": answer["startsAt"]}));
    assert_eq!(answer["blocks"][0]["position"], 4);
    let answer = ask(&log, json!({"requestId": 1, "type": "query"}));
    assert_eq!(
        answer["blocks"][0]["position"], 4,
        "without a cursor it begins with what there is"
    );
    let answer = ask(&log, json!({"requestId": 1, "cursor": 1, "skipGone": true}));
    assert_eq!(answer["evicted"], json!([{"feedId": "01H1", "through": 3}]));
}

#[test]
fn the_kind_comes_from_the_path_before_the_shape() {
    let log = log();
    append(&log, 1..=1);
    let message = json!({"requestId": 1, "feedIds": ["01H1"]});
    let answer = ask_as(&log, &Writers::Anyone, Some(Kind::Query), 1, &message);
    assert_eq!(answer["blocks"][0]["position"], 1);
}

#[test]
fn a_writer_who_may_not_is_told_so() {
    let log = log();
    let message = json!({"requestId": 1, "blocks": [block("a", 1, "")]});
    for writers in [Writers::Keys, Writers::Nobody] {
        let answer = ask_as(&log, &writers, None, 1, &message);
        assert_eq!(answer["error"], "notAllowed");
    }
    assert_eq!(log.space(SPACE).unwrap().unwrap().position_max, 0);
}

#[test]
fn an_unknown_space_is_named_as_such() {
    let empty = Memory::default();
    assert_eq!(
        ask(&empty, json!({"requestId": 1}))["error"],
        "unknownSpace"
    );
}

#[test]
fn a_tail_starts_behind_everything_and_time_finds_its_place() {
    let log = log();
    append(&log, 1..=3);
    let tail = ask(&log, json!({"requestId": 1, "tail": true}));
    assert_eq!((&tail["blocks"], &tail["covered"]), (&json!([]), &json!(3)));
    append(&log, 4..=4);
    let next = ask(&log, json!({"requestId": 1, "cursor": tail["nextCursor"]}));
    assert_eq!(next["blocks"][0]["position"], 4);
    let since = ask(&log, json!({"requestId": 1, "since": 501}));
    assert_eq!((&since["blocks"], &since["after"]), (&json!([]), &json!(4)));
}
