//! The first read of a reader of whom nothing is here: its follows are
//! fetched from its own host, once, and the answer says so meanwhile.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use feedmill::river::River;
use serde_json::{Value, json};
use sim::compose::FOLLOW;
use sim::network::{Network, NetworkOptions};

use crate::bed::{self, PATIENCE};

/// A network whose relay no longer has anything, a river on it, and a reader who follows somebody.
async fn quiet(changes: &[(&str, &str)]) -> (Network, River, String, usize) {
    let network = bed::network(31, NetworkOptions::default()).await;
    network.emit(300);
    network.settle();
    network.trim_backlog(0);
    let config = bed::config(&network, "sqlite::memory:", changes);
    let river = bed::start(&config).await;
    let (reader, follows) = network.world(|world| {
        let active = world
            .accounts()
            .iter()
            .filter(|account| !account.standing.hides());
        let sound = |did: &str| {
            let records = world.model().records();
            let follows = records
                .filter(|(_, fact)| fact.collection == FOLLOW && fact.did == did && fact.sound);
            follows.count()
        };
        let counted = active.map(|account| (account.did.to_string(), sound(&account.did)));
        counted.max_by_key(|(_, follows)| *follows).unwrap()
    });
    assert!(follows > 0, "somebody follows somebody");
    (network, river, reader, follows)
}

async fn ask(river: &River, path: &str) -> Value {
    let url = format!("http://{}/xrpc/com.example.{path}", river.address.unwrap());
    let response = reqwest::get(url).await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    response.json().await.unwrap()
}

async fn until(river: &River, path: &str, so: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let answer = ask(river, path).await;
        if so(&answer) {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "{path}: {answer}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn followed(river: &River, reader: &str) -> usize {
    let lane = river.plan.listing(FOLLOW).unwrap();
    let query = feedmill::store::ListQuery {
        lane,
        did: Some(reader.to_owned()),
        before: None,
        limit: 1000,
        lens: feedmill::store::Lens::default(),
        scan_max: 1000,
    };
    river.store.list(&query).unwrap().rows.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_page_waits_for_the_readers_follows_and_a_second_reads_nothing_again() {
    let (network, river, reader, follows) =
        quiet(&[("bind = ", "first_read_ms = 20000\nbind = ")]).await;
    assert_eq!(followed(&river, &reader), 0);
    let path = format!("getFeed?feed=timeline&actor={}", reader.replace('%', "%25"));
    let page = ask(&river, &path).await;
    assert_eq!(page.get("backfill"), None, "{page}");
    assert_eq!(followed(&river, &reader), follows);
    let fetched = || river.status.resynced.load(Ordering::Relaxed);
    // It is counted a moment after it is there to be read.
    let begun = Instant::now();
    while fetched() == 0 {
        assert!(begun.elapsed() < PATIENCE, "the fetch was not counted");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    ask(&river, &path).await;
    ask(&river, &path.replace("timeline", "garden")).await;
    assert_eq!(fetched(), 1, "one fetch serves every feed");
    river.stop().await;
    network.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_its_budget_the_page_says_that_the_follows_are_on_their_way() {
    let (network, river, reader, follows) =
        quiet(&[("bind = ", "first_read_ms = 0\nbind = ")]).await;
    let path = format!("getFeed?feed=timeline&actor={}", reader.replace('%', "%25"));
    let page = ask(&river, &path).await;
    assert_eq!(
        (&page["backfill"], &page["records"]),
        (&json!("running"), &json!([]))
    );
    let page = until(&river, &path, |page| page.get("backfill").is_none()).await;
    assert!(page["records"].is_array(), "{page}");
    assert_eq!(followed(&river, &reader), follows);
    river.stop().await;
    network.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_whose_host_is_not_found_is_given_up_and_makes_room() {
    let (network, river, reader, _) =
        quiet(&[("bind = ", "first_read_ms = 0\nfirst_reads_max = 1\nbind = ")]).await;
    let nobody = "getFeed?feed=timeline&actor=did:plc:aaaaaaaaaaaaaaaaaaaaaaaa";
    assert_eq!(ask(&river, nobody).await["backfill"], "running");
    // One waits; that is all that may.
    let path = format!("getFeed?feed=timeline&actor={}", reader.replace('%', "%25"));
    assert_eq!(ask(&river, &path).await["backfill"], "running");
    assert_eq!(river.store.broken_accounts(10).unwrap().len(), 1);
    let page = until(&river, nobody, |page| page["backfill"] == "failed").await;
    assert_eq!(page["records"], json!([]));
    until(&river, &path, |page| page.get("backfill").is_none()).await;
    assert!(river.store.broken_accounts(10).unwrap().is_empty());
    river.stop().await;
    network.stop().await;
}
