//! Two processes that ingest into one store: the second waits until the first is gone.

use feedmill::clock::Clock;
use serde_json::Value;
use sim::network::NetworkOptions;

use crate::bed;
use crate::life::{Home, Life, PATIENCE};
use crate::two_processes::equal;

async fn ready(home: &Home) -> Option<(u16, Value)> {
    let answer = reqwest::get(format!("http://{}/ready", home.address))
        .await
        .ok()?;
    Some((answer.status().as_u16(), answer.json().await.ok()?))
}

/// Waits until `/ready` names a problem.
async fn names(home: &Home, code: &str) {
    let begun = std::time::Instant::now();
    loop {
        let answer = ready(home).await;
        if let Some((status, body)) = &answer
            && body["problems"][0]["code"] == code
        {
            assert_eq!((*status, &body["ready"]), (503, &false.into()));
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{answer:?}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_ingester_is_on_standby_until_the_first_is_killed_and_then_takes_over() {
    let network = bed::network(29, NetworkOptions::default()).await;
    let since_us = Clock::Wall.now_us();
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store.db");
    let home = || Home::with_store(&network, tempfile::tempdir().unwrap(), &store, &[]);
    let (one, two) = (home(), home());
    let mut first = Life::begin("run", &one.file, None);
    network.emit(200);
    one.settled(network.last_seq(), &mut [&mut first])
        .await
        .expect("it lives");
    let mut second = Life::begin("run", &two.file, None);
    names(&two, "standby").await;
    network.emit(200);
    one.settled(network.last_seq(), &mut [&mut first])
        .await
        .expect("it lives");
    names(&two, "standby").await;
    assert!(two.status().await.is_none(), "it has not started yet");
    // Whoever looks is told so, and takes it for a process that lives.
    let told = std::process::Command::new(env!("CARGO_BIN_EXE_feedmill"))
        .arg("status")
        .arg(&two.file)
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&told.stdout);
    assert!(words.starts_with("NOT READY ("), "{words}");
    assert!(
        words.contains("problem: standby: another process ingests"),
        "{words}"
    );
    assert!(!told.status.success());
    let scraped = reqwest::get(format!("http://{}/metrics", two.address)).await;
    let scraped = scraped.unwrap().error_for_status().unwrap();
    let text = scraped.text().await.unwrap();
    assert!(text.contains("\nfeedmill_ready 0\n"), "{text}");
    assert!(text.contains("\nfeedmill_standby 1\n"), "{text}");
    for one in feedmill::condition::Condition::ALL {
        let series = format!("feedmill_condition{{condition={:?}}} ", one.code());
        assert!(
            text.contains(&series),
            "an alert would take {one:?} for lost: {text}"
        );
    }

    first.kill();
    network.emit(200);
    equal(&network, &two, since_us, &mut [&mut second]).await;
    assert_eq!(second.said("this one ingests now").len(), 1);
    let scraped = reqwest::get(format!("http://{}/metrics", two.address)).await;
    let text = scraped.unwrap().text().await.unwrap();
    assert!(text.contains("\nfeedmill_standby 0\n"), "{text}");
    assert!(second.end().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_on_standby_stops_when_it_is_asked_to() {
    let network = bed::network(31, NetworkOptions::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store.db");
    let home = || Home::with_store(&network, tempfile::tempdir().unwrap(), &store, &[]);
    let (one, two) = (home(), home());
    let mut first = Life::begin("run", &one.file, None);
    one.settled(0, &mut [&mut first]).await.expect("it lives");
    let second = Life::begin("run", &two.file, None);
    names(&two, "standby").await;
    assert!(second.end().success());
    assert!(first.end().success());
}
