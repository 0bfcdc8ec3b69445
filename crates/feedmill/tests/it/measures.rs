//! Every metric of the pipeline moves when what it tells of happens.
//!
//! The recorder is the process's own and other tests write to it too, so each
//! label here is used by this file alone, and gauges are read from the text of a
//! scrape, which sets and shows them as one.

use std::sync::Arc;

use feedmill::clock::Clock;
use feedmill::decode::{Decoder, Opener};
use feedmill::intake::Intake;
use feedmill::metrics;
use feedmill::monitor::Monitor;
use feedmill::source::{Arrival, Rewind};
use feedmill::status::Status;
use feedmill::tend::Tend;
use record::event::{CommitEvent, Frame, RepoOp};
use record::tid::Tid;

use crate::desk::{ALICE, BOB, Desk};

const COLLECTIONS: &str = r#"
[queues.measured]
priority = "low"
concurrency = 1
depth_max = 2
[collections.post]
collection = "com.example.measured.post"
validate = false
queue = "measured"
[[collections.post.rule]]
name = "no-bad"
expect = "!has(record.bad)"
message = "bad"
[collections.reply]
collection = "com.example.measured.reply"
validate = false
requires = ["parent"]
[[collections.reply.rule]]
name = "parent-is-open"
expect = "!has(parent.closed)"
message = "the parent is closed"
with = { parent = "parent" }
"#;

/// The value of a line of `/metrics`; none if there is no such line.
fn value(line: &str) -> Option<f64> {
    value_in(&metrics::recorder().render(), line)
}

fn value_in(text: &str, line: &str) -> Option<f64> {
    let found = text.lines().find_map(|it| it.strip_prefix(line))?;
    found.trim().parse().ok()
}

#[track_caller]
fn check(line: &str, expected: f64) {
    assert_eq!(value(line), Some(expected), "{line}");
}

/// A desk whose collections and queue bear a name of their own.
fn desk(name: &str) -> Desk {
    metrics::recorder();
    Desk::new(&COLLECTIONS.replace("measured", name))
}

#[test]
fn validation_failures_are_counted_by_stage_and_collection_wherever_they_are_found() {
    let desk = desk("refused");
    let parent = desk.uri(ALICE, "post", "closed");
    let mut tend = Tend::new(desk.store.clone(), desk.config.settle.clone());
    let failures = |stage: &str, short: &str| {
        format!(
            "feedmill_firehose_validation_failures_total{{stage=\"{stage}\",collection=\"com.example.refused.{short}\"}}"
        )
    };
    desk.put(ALICE, "post", "1", "{\"bad\":1}");
    check(&failures("rule", "post"), 1.0);
    desk.put(ALICE, "post", "closed", "{\"closed\":true}");
    let reply = format!("{{\"parent\":{parent:?}}}");
    desk.put(BOB, "reply", "1", &reply);
    check(&failures("rule", "reply"), 1.0);
    let lost = format!("{{\"parent\":{:?}}}", desk.uri(ALICE, "post", "never"));
    desk.put(BOB, "reply", "2", &lost);
    for seconds in [1, 5, 21] {
        tend.step(desk.now_us() + seconds * 1_000_000).unwrap();
    }
    check(&failures("dependency", "reply"), 1.0);
    assert!(value("feedmill_settled_total{fate=\"buried\"}") >= Some(1.0));
}

#[test]
fn queues_show_how_deep_and_how_old_they_are_and_what_was_done() {
    let desk = desk("measured");
    let mut items = Vec::new();
    for number in 0..7 {
        let rev = desk.next_rev();
        let rkey = format!("r{number}");
        items.push(feedmill::store::Item::Commit(feedmill::store::Commit {
            did: ALICE.into(),
            rev,
            chain: None,
            filtered: 0,
            ops: vec![feedmill::store::Op {
                collection: "com.example.measured.post".into(),
                verdict: desk.check(ALICE, "post", &rkey, rev, "{}"),
                rkey,
            }],
            frame: Default::default(),
            seq: 0,
            was_held: false,
            live: true,
        }));
    }
    let batch = feedmill::store::Batch {
        source: "test".into(),
        cursor: Some(1),
        now_us: desk.now_us(),
        items,
    };
    desk.store.commit(batch).unwrap();
    check(
        "feedmill_firehose_queue_done_total{queue=\"measured\"}",
        2.0,
    );
    check(
        "feedmill_firehose_queue_spilled_total{queue=\"measured\"}",
        5.0,
    );
    let mut tend = Tend::new(desk.store.clone(), desk.config.settle.clone());
    let monitor = Monitor {
        store: desk.store.clone(),
        status: Arc::new(Status::default()),
        clock: Clock::Wall,
        folder: None,
    };
    let scrape = |now_us| {
        monitor.measure();
        monitor.status.scrape(now_us, &monitor.store.writing())
    };
    let depth = "feedmill_firehose_queue_depth{queue=\"measured\"}";
    let age = "feedmill_firehose_queue_age_seconds{queue=\"measured\"}";
    let text = scrape(desk.now_us() + 30_000_000);
    assert_eq!(value_in(&text, depth), Some(5.0));
    assert_eq!(value_in(&text, age), Some(30.0));
    tend.step(desk.now_us()).unwrap();
    assert_eq!(value_in(&scrape(desk.now_us()), depth), Some(0.0));
    check(
        "feedmill_firehose_queue_done_total{queue=\"measured\"}",
        7.0,
    );
}

/// A commit of one delete, in a collection that is kept or in one that is not.
fn frame(seq: i64, collection: &str, time: &str) -> Arrival {
    let path = format!("{collection}/r{seq}");
    let rev = Tid::new(seq.cast_unsigned(), 1);
    let key = record::key::SigningKey::k256([7; 32]).unwrap();
    let data = record::mst::Tree::new().root();
    let commit = record::commit::Commit::sign(ALICE, rev, data, &key).to_block();
    let root = record::cid::Cid::of_cbor(&commit);
    let blocks = record::car::write(&[root], [(root, commit.as_slice())]);
    let event = CommitEvent {
        seq,
        repo: ALICE,
        commit: root,
        rev,
        since: None,
        blocks: &blocks,
        ops: vec![RepoOp {
            action: record::event::Action::Delete,
            path: &path,
            cid: None,
            prev: Some(data),
        }],
        prev_data: None,
        time,
        too_big: false,
        rebase: false,
    };
    Arrival {
        frame: Frame::Commit(event).to_bytes().into(),
        row: "measured".into(),
        ..Arrival::default()
    }
}

#[test]
fn lag_grows_between_transactions_and_what_was_processed_or_filtered_is_counted() {
    let desk = desk("processed");
    let decoder = Decoder::new(Arc::clone(&desk.checker), &desk.config.intake);
    let status = Arc::new(Status::default());
    let mut intake = Intake::new(
        "measured".into(),
        Opener::Firehose(decoder),
        desk.store.clone(),
        Arc::new(Rewind::default()),
        Arc::clone(&status),
    );
    let now_us = desk.now_us();
    let time = record::datetime::format_us(now_us - 4_321_000_000);
    let filtered = || value("feedmill_firehose_events_filtered_total").unwrap_or(0.0);
    let before = filtered();
    let kept = frame(2, "com.example.processed.post", &time);
    let other = frame(3, "com.example.unwanted", &time);
    intake.step(now_us, &[kept, other]).unwrap();
    // Nothing happens for a minute: the source is not connected, so lag grows.
    for (passed_s, lag) in [(0, 4321.0), (60, 4381.0)] {
        let text = status.scrape(now_us + passed_s * 1_000_000, &desk.store.writing());
        let told = value_in(&text, "feedmill_firehose_cursor_lag_seconds");
        assert_eq!(told, Some(lag));
    }
    assert!(filtered() > before);
    let processed =
        "feedmill_firehose_events_processed_total{collection=\"com.example.processed.post\"}";
    assert!(value(processed) >= Some(1.0));
    assert!(value("feedmill_units_total{outcome=\"filtered\"}") >= Some(1.0));
}

#[test]
fn what_is_woken_by_an_arrival_is_counted() {
    let desk = desk("woken");
    let value = |fate: &str| {
        let text = feedmill::metrics::recorder().render();
        let series = format!("feedmill_woken_total{{fate=\"{fate}\"}} ");
        let found = text.lines().find_map(|line| line.strip_prefix(&series));
        found.map_or(0.0, |value| value.parse::<f64>().unwrap())
    };
    let before = value("applied");
    let reply = format!("{{\"parent\":{:?}}}", desk.uri(ALICE, "post", "late"));
    for rkey in ["1", "2"] {
        assert_eq!(desk.put(BOB, "reply", rkey, &reply).accounting.parked, 1);
    }
    let committed = desk.put(ALICE, "post", "late", "{}");
    assert_eq!(committed.woken, [feedmill::store::Fate::Applied; 2]);
    // Other tests wake records too.
    assert!(value("applied") >= before + 2.0);
}

/// What waits in a queue moves to another counter later; it does not arrive a second time.
#[test]
fn a_unit_that_waited_is_counted_once_when_it_arrives() {
    let desk = desk("once");
    let mut arrived = feedmill::store::Accounting::default();
    let mut total = arrived;
    let mut moved = false;
    for number in 0..12 {
        let committed = desk.put(ALICE, "post", &format!("r{number}"), "{}");
        arrived.add(&committed.arrived);
        total.add(&committed.accounting);
        moved |= committed.arrived != committed.accounting;
    }
    let lost = desk.uri(ALICE, "post", "late");
    let reply = format!("{{\"parent\":{lost:?}}}");
    for (did, short, rkey, body) in [
        (BOB, "reply", "1", reply.as_str()),
        (ALICE, "post", "late", "{}"),
    ] {
        let committed = desk.put(did, short, rkey, body);
        arrived.add(&committed.arrived);
        total.add(&committed.accounting);
        moved |= committed.arrived != committed.accounting;
        let parts = committed.arrived;
        let least = parts
            .applied
            .min(parts.pending)
            .min(parts.parked)
            .min(parts.dead);
        assert!(least >= 0, "{parts:?}");
        assert_eq!(parts.received, 1);
        assert!(parts.adds_up(), "{parts:?}");
    }
    assert!(moved, "nothing that waited moved; the test shows nothing");
    assert_eq!(arrived.received, 14);
    assert_eq!(total.received, 14);
    assert!(arrived.adds_up() && total.adds_up());
}
