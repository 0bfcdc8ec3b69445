//! A frame that ends the process is found by halving, kept as a dead letter, and
//! passed; a store that cannot be written accuses nobody. With the real binary.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use feedmill::clock::Clock;
use feedmill::oracle::Oracle;
use feedmill::store::attempt::Attempt;
use serde_json::Value;
use sim::compose::{ODD, POST};
use sim::network::NetworkOptions;
use sim::utter::Utterance;

use crate::bed;
use crate::desk::{ALICE, BOB, Desk};
use crate::life::{Home, Life, PATIENCE, adds_up};

const POISON: &str = "a text that ends the process";
/// Ends the process that meets the poison in a frame, or in a record that waited.
const IN_FRAMES: &str = "FEEDMILL_POISON";
const IN_WAITING: &str = "FEEDMILL_POISON_WAITING";

/// A life that ends wherever it meets the poison.
fn poisoned(home: &Home, variable: &str) -> Life {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedmill"));
    command.arg("run").arg(&home.file).env(variable, POISON);
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
        let mut life = poisoned(&home, IN_FRAMES);
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

/// Notes of which the one in the middle is poison; each names a post that never comes.
fn notes(count: usize) -> Vec<Utterance> {
    let time = "2026-01-02T03:04:05.000Z";
    let note = |number: usize| {
        let mut writer = record::cbor::Writer::with_capacity(200);
        let text = if number == count / 2 {
            POISON
        } else {
            "a note"
        };
        writer.map(4);
        writer.text("text").text(text);
        writer.text("$type").text(ODD);
        let parent = format!("at://did:plc:nobody/{POST}/{number}");
        writer.text("parent").text(&parent);
        writer.text("createdAt").text(time);
        Utterance {
            collection: ODD.into(),
            rkey: format!("note-{number:03}"),
            block: writer.into_bytes().into(),
            created_us: record::datetime::parse_us(time),
            sound: true,
        }
    };
    (0..count).map(note).collect()
}

/// Lives until the poison among these notes is a dead letter; how often the process ended.
async fn find_waiting(network: &sim::network::Network, home: &Home, count: usize) -> u32 {
    network.utter(0, notes(count));
    network.emit(50);
    network.settle();
    let crashed = |letter: &Value| letter["error"]["stage"] == "crash";
    let mut ends = 0;
    loop {
        let mut life = poisoned(home, IN_WAITING);
        let mut waited = Duration::ZERO;
        while !life.is_over() {
            tokio::time::sleep(Duration::from_millis(100)).await;
            waited += Duration::from_millis(100);
            assert!(waited < PATIENCE, "{:#?}", life.said(""));
            if waited.as_millis().is_multiple_of(500) && dead(home).iter().any(crashed) {
                let status = home.settled(network.last_seq(), &mut [&mut life]).await;
                adds_up(&status.expect("it lives")["accounting"]);
                let crashes: Vec<Value> = dead(home).into_iter().filter(crashed).collect();
                assert_eq!(crashes.len(), 1, "{crashes:?}");
                assert_eq!(crashes[0]["collection"], ODD);
                let rkey = format!("note-{:03}", count / 2);
                assert_eq!(crashes[0]["rkey"], rkey, "{:?}", crashes[0]);
                return ends;
            }
        }
        ends += 1;
        assert!(ends <= 1 + 8 + 3, "{:#?}", life.said(""));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_parked_record_that_ends_the_process_is_dead_lettered_and_no_frame_is_accused() {
    let network = bed::network(63, NetworkOptions::default()).await;
    let waits = (
        "validate = false\n",
        "validate = false\nrequires = [\"parent\"]\n",
    );
    let home = Home::new(&network, &[waits]);
    let ends = find_waiting(&network, &home, 9).await;
    // Once with others before it, and three times alone.
    assert!((4..=5).contains(&ends), "it ended {ends} times");
    network.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_queued_record_that_ends_the_process_is_dead_lettered_and_no_frame_is_accused() {
    let network = bed::network(64, NetworkOptions::default()).await;
    let changes = [
        ("validate = false\n", "validate = false\nqueue = \"slow\"\n"),
        (
            "[intake]\n",
            "[queues.slow]\npriority = \"low\"\nconcurrency = 2\ndepth_max = 2\n[intake]\nturn_max = 15\n",
        ),
    ];
    let home = Home::new(&network, &changes);
    let ends = find_waiting(&network, &home, 60).await;
    assert!((4..=5).contains(&ends), "it ended {ends} times");
    network.stop().await;
}

#[test]
fn with_a_suspected_batch_nothing_that_waited_is_worked_on() {
    let desk = Desk::new(
        "[collections.post]\ncollection = \"com.example.post\"\nvalidate = false\n\
         [collections.reply]\ncollection = \"com.example.reply\"\nvalidate = false\nrequires = [\"parent\"]\n",
    );
    let parent = desk.uri(ALICE, "post", "1");
    desk.put(BOB, "reply", "1", &format!("{{\"parent\":\"{parent}\"}}"));
    let folder = tempfile::tempdir().unwrap();
    let attempt = Arc::new(Attempt::open(&folder.path().join("mark")).unwrap());
    attempt.suspect(true);
    desk.store.mark("test", Arc::clone(&attempt));
    desk.put(ALICE, "post", "1", "{}");
    assert!(!desk.has(BOB, "reply", "1"));
    assert_eq!(desk.accounting().parked, 1);
    desk.pass(0);
    assert!(desk.has(BOB, "reply", "1"));
}
