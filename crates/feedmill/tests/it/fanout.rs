//! Timelines as they are drawn from a real store: what happens when a change cannot be made.

use std::time::{Duration, Instant};

use feedmill::config::Config;
use feedmill::fanout::{Fanout, Wish};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::bed::PATIENCE;
use crate::desk::{ALICE, BOB, Desk};
use crate::mill::Mill;

const NEW: &str = "did:web:new.test";

/// A desk over a file, which the test may open beside it.
fn desk(file: &std::path::Path) -> Desk {
    let text = format!(
        "namespace = \"com.example\"\n\
         [collections.follow]\ncollection = \"com.example.follow\"\nvalidate = false\n\
         [collections.post]\ncollection = \"com.example.post\"\nvalidate = false\n\
         [feeds.timeline]\ntargets = [\"post\"]\n\
         [store]\nurl = \"sqlite://{}\"\n",
        file.display()
    );
    Desk::of(Config::parse(&text).unwrap())
}

fn follow(desk: &Desk, rkey: &str, of: &str) {
    desk.put(BOB, "follow", rkey, &format!("{{\"subject\":\"{of}\"}}"));
}

/// Timelines hold keys of 32 bits. A record under a later one cannot be taken in; then none of its
/// batch is, so that pages stay those of the position before.
#[test]
fn a_batch_with_a_change_that_cannot_be_made_is_not_made_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("feedmill.db");
    let desk = desk(&file);
    follow(&desk, "1", ALICE);
    desk.put(ALICE, "post", "1", "{}");
    let (fanout, mut drawer) = Fanout::open(&desk.config.timelines, 1, &desk.store)
        .unwrap()
        .unwrap();
    let wish = Wish {
        feed: "timeline",
        target: Some(0),
        reader: BOB,
        before: None,
        limit: 10,
        now_us: desk.now_us(),
        is_incomplete: false,
    };
    // Bob is active from his first page on.
    assert_eq!(fanout.page(&wish).unwrap().unwrap().rows.len(), 1);
    while drawer.step(desk.now_us()).unwrap() {}
    let before = fanout.position();
    let page = fanout.page(&wish).unwrap().unwrap();

    // One good change, and one of a key with a number that is too large.
    let beside = Connection::open(&file).unwrap();
    let large = "INSERT INTO key (id, hash, text) VALUES (4294967295, 0, 'did:web:last.test')";
    beside.execute(large, []).unwrap();
    follow(&desk, "2", ALICE);
    desk.delete(BOB, "follow", "1");
    desk.put(NEW, "post", "1", "{}");
    assert!(desk.store.key(NEW).unwrap().unwrap() > i64::from(u32::MAX));

    for _ in 0..3 {
        let refused = drawer.step(desk.now_us()).unwrap_err();
        assert!(refused.to_string().contains("4294967296"), "{refused}");
        assert_eq!(fanout.position(), before);
        // A batch that was made in part would leave Bob's page to the store.
        assert_eq!(fanout.page(&wish).unwrap().unwrap(), page);
    }
}

/// Waits until `/ready` names this condition, or does not any more; returns the answer.
async fn ready(mill: &Mill, code: &str, holds: bool) -> (u16, Value) {
    let begun = Instant::now();
    loop {
        let (status, answer) = mill.get("/ready").await;
        let mut problems = answer["problems"].as_array().unwrap().iter();
        if problems.any(|problem| problem["code"] == code) == holds {
            return (status, answer);
        }
        assert!(begun.elapsed() < PATIENCE, "{code} {holds}: {answer}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A served store in a file, with timelines and search; only its newest changes are kept.
async fn mill(file: &std::path::Path) -> Mill {
    let text = format!(
        "namespace = \"com.example\"\n\
         [collections.follow]\ncollection = \"com.example.follow\"\nvalidate = false\n\
         [collections.post]\ncollection = \"com.example.post\"\nvalidate = false\nsearchable = [\"text\"]\n\
         [feeds.timeline]\ntargets = [\"post\"]\n\
         [store]\nurl = \"sqlite://{}\"\noutbox_max = 5\n",
        file.display()
    );
    Mill::start(&text).await
}

#[tokio::test(flavor = "multi_thread")]
async fn timelines_that_are_stuck_are_a_reason_not_to_be_ready_until_they_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("feedmill.db");
    let mill = mill(&file).await;
    mill.put(BOB, "follow", "1", &json!({ "subject": ALICE }));
    let loaded = Instant::now();
    while !mill.get("/ready").await.1["loading"].is_null() {
        assert!(loaded.elapsed() < PATIENCE, "timelines are not loaded");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(mill.get("/ready").await.0, 200);

    let beside = Connection::open(&file).unwrap();
    let large = "INSERT INTO key (id, hash, text) VALUES (4294967295, 0, 'did:web:last.test')";
    beside.execute(large, []).unwrap();
    mill.put(NEW, "post", "1", &json!({}));
    let (status, answer) = ready(&mill, "timelines_stuck", true).await;
    assert_eq!((status, &answer["ready"]), (503, &false.into()), "{answer}");
    let detail = answer["problems"][0]["detail"].as_str().unwrap();
    assert!(detail.contains("4294967296"), "{answer}");
    let series = "feedmill_condition{condition=\"timelines_stuck\"} 1";
    let metrics = reqwest::get(format!("http://{}/metrics", mill.address())).await;
    assert!(metrics.unwrap().text().await.unwrap().contains(series));

    // Past what the outbox keeps they are loaded anew, from records that fit.
    mill.delete(NEW, "post", "1");
    for number in 0..20 {
        mill.put(ALICE, "post", &number.to_string(), &json!({}));
    }
    let (status, answer) = ready(&mill, "timelines_stuck", false).await;
    assert_eq!(status, 200, "{answer}");
    mill.river.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_index_that_cannot_be_written_is_named_and_the_process_stays_ready() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("feedmill.db");
    let mill = mill(&file).await;
    mill.put(ALICE, "post", "1", &json!({"text": "one"}));
    let other = Connection::open(folder.path().join("feedmill.search.db")).unwrap();
    other.busy_timeout(PATIENCE).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    mill.put(ALICE, "post", "2", &json!({"text": "two"}));
    let (status, answer) = ready(&mill, "consumer_failing", true).await;
    assert_eq!((status, &answer["ready"]), (200, &true.into()), "{answer}");
    let problem = &answer["problems"][0];
    assert_eq!(problem["blocking"], false, "{answer}");
    assert!(problem["detail"].as_str().unwrap().starts_with("search: "));
    other.execute_batch("ROLLBACK").unwrap();
    ready(&mill, "consumer_failing", false).await;
    mill.river.stop().await;
}
