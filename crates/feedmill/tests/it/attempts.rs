//! A frame that ends the process is found by halving, kept as a dead letter, and
//! passed; a store that cannot be written accuses nobody. With the real binary.

use std::process::Command;
use std::time::Duration;

use feedmill::clock::Clock;
use feedmill::oracle::Oracle;
use feedmill::store::attempt::Attempt;
use serde_json::Value;
use sim::compose::POST;
use sim::network::NetworkOptions;
use sim::utter::Utterance;

use crate::bed;
use crate::life::{Home, Life, PATIENCE, adds_up};

const POISON: &str = "a text that ends the process";

/// A life that ends wherever it meets the poison.
fn poisoned(home: &Home) -> Life {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedmill"));
    command
        .arg("run")
        .arg(&home.file)
        .env("FEEDMILL_POISON", POISON);
    Life::of(command)
}

fn post(text: &str) -> Utterance {
    let time = "2026-01-02T03:04:05.000Z";
    let mut writer = record::cbor::Writer::with_capacity(200);
    writer.map(3);
    writer.text("text").text(text);
    writer.text("$type").text(POST);
    writer.text("createdAt").text(time);
    Utterance {
        collection: POST.into(),
        rkey: "3aaaaaaaaaa22".into(),
        block: writer.into_bytes().into(),
        created_us: record::datetime::parse_us(time),
        sound: true,
    }
}

/// Dead letters of a store that nobody else has open, or somebody has.
fn dead(home: &Home) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_feedmill"))
        .args(["dead", "list"])
        .arg(&home.file)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_frame_that_ends_the_process_is_found_by_halving_and_dead_lettered() {
    let network = bed::network(61, NetworkOptions::default()).await;
    let since_us = Clock::Wall.now_us();
    let home = Home::new(&network, &[]);
    network.emit(100);
    network.utter(0, vec![post(POISON)]);
    let at_fault = network.last_seq();
    network.emit(100);
    network.settle();
    let mut ends = 0;
    let status = loop {
        let mut life = poisoned(&home);
        if let Some(status) = home.settled(network.last_seq(), &mut [&mut life]).await {
            let address = home.address.clone();
            // The record comes with its account's repository, which is fetched because of it.
            let oracle = Oracle::new(&network, address, since_us);
            let outcome = oracle.every_feed(&|_, _| {}).await.unwrap();
            assert_eq!(outcome.first, None);
            break status;
        }
        ends += 1;
        // A batch of at most some hundred frames, halved, and three times alone.
        assert!(ends <= 1 + 10 + 3, "{:#?}", life.said(""));
    };
    assert!(ends >= 4, "it ended {ends} times");
    adds_up(&status["accounting"]);
    let crashes: Vec<Value> = dead(&home)
        .into_iter()
        .filter(|letter| letter["error"]["stage"] == "crash")
        .collect();
    assert_eq!(crashes.len(), 1, "{crashes:?}");
    assert_eq!(crashes[0]["firehoseCursor"], at_fault);
    network.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_while_the_store_is_locked_accuses_no_frame() {
    let network = bed::network(62, NetworkOptions::default()).await;
    let home = Home::new(&network, &[]);
    let mut life = Life::begin("run", &home.file, None);
    home.settled(network.last_seq(), &mut [&mut life])
        .await
        .expect("it lives");
    let folder = home.file.parent().unwrap().to_owned();
    let store = rusqlite::Connection::open(folder.join("store.db")).unwrap();
    store.execute_batch("BEGIN IMMEDIATE").unwrap();
    let marker = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_string_lossy().contains(".attempt-"))
        .expect("a marker");
    let before = std::fs::metadata(&marker).unwrap().modified().unwrap();
    network.emit(50);
    // Frames were opened, so the marker was written; the store cannot be.
    let mut waited = Duration::ZERO;
    while std::fs::metadata(&marker).unwrap().modified().unwrap() == before {
        tokio::time::sleep(Duration::from_millis(20)).await;
        waited += Duration::from_millis(20);
        assert!(waited < PATIENCE, "nothing was tried");
    }
    let status = home.status().await;
    assert!(status.is_some(), "it answers meanwhile");
    life.kill();
    assert_eq!(Attempt::open(&marker).unwrap().found(), None);
    drop(store);
    network.settle();
    let mut life = Life::begin("run", &home.file, None);
    home.settled(network.last_seq(), &mut [&mut life])
        .await
        .expect("it lives");
    assert!(life.said("the process ended while these frames").is_empty());
    network.stop().await;
}
