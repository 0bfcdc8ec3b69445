//! Every metric of the pipeline moves when what it tells of happens.
//!
//! The recorder is the process's own and other tests write to it too, so each
//! label here is used by this file alone, and what has no label is compared
//! until it shows what was done last.

use std::sync::Arc;

use feedmill::decode::{Decoder, Opener};
use feedmill::intake::Intake;
use feedmill::metrics;
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
    let text = metrics::recorder().render();
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
    feedmill::intake::tell(&desk.put(ALICE, "post", "1", "{\"bad\":1}"));
    check(&failures("rule", "post"), 1.0);
    desk.put(ALICE, "post", "closed", "{\"closed\":true}");
    let reply = format!("{{\"parent\":{parent:?}}}");
    feedmill::intake::tell(&desk.put(BOB, "reply", "1", &reply));
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
    feedmill::intake::tell(&desk.store.commit(batch).unwrap());
    check(
        "feedmill_firehose_queue_done_total{queue=\"measured\"}",
        2.0,
    );
    check(
        "feedmill_firehose_queue_spilled_total{queue=\"measured\"}",
        5.0,
    );
    let mut tend = Tend::new(desk.store.clone(), desk.config.settle.clone());
    tend.measure(desk.now_us() + 30_000_000).unwrap();
    check("feedmill_firehose_queue_depth{queue=\"measured\"}", 5.0);
    check(
        "feedmill_firehose_queue_age_seconds{queue=\"measured\"}",
        30.0,
    );
    tend.step(desk.now_us()).unwrap();
    check("feedmill_firehose_queue_depth{queue=\"measured\"}", 0.0);
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
fn lag_and_what_was_processed_or_filtered_are_told_with_each_transaction() {
    let desk = desk("processed");
    let decoder = Decoder::new(Arc::clone(&desk.checker), &desk.config.intake);
    let mut intake = Intake::new(
        "measured".into(),
        Opener::Firehose(decoder),
        desk.store.clone(),
        Arc::new(Rewind::default()),
        Arc::new(Status::default()),
    );
    let event_us = desk.now_us() - 4_321_000_000;
    let time = record::datetime::format_us(event_us);
    let filtered = || value("feedmill_firehose_events_filtered_total").unwrap_or(0.0);
    let before = filtered();
    // Others set the same gauge, so it is set until it is seen.
    let seen = (1..200).any(|seq| {
        let kept = frame(2 * seq, "com.example.processed.post", &time);
        let other = frame(2 * seq + 1, "com.example.unwanted", &time);
        intake.step(desk.now_us(), &[kept, other]).unwrap();
        value("feedmill_firehose_cursor_lag_seconds") == Some(4321.0)
    });
    assert!(seen, "the lag was never what it was");
    assert!(filtered() > before);
    let processed =
        "feedmill_firehose_events_processed_total{collection=\"com.example.processed.post\"}";
    assert!(value(processed) >= Some(1.0));
    assert!(value("feedmill_units_total{outcome=\"filtered\"}") >= Some(1.0));
}
