//! `ingest` and `serve` on one store: each answers its operator, and `serve`
//! shows how the process beside it really is.

use std::process::Command;
use std::time::Instant;

use serde_json::Value;
use sim::network::Network;

use crate::bed;
use crate::life::{Home, Life, PATIENCE, free_port};

/// A home in which `ingest` answers at an address of its own.
fn home(network: &Network) -> (Home, String) {
    let address = format!("127.0.0.1:{}", free_port());
    let bind = format!("bind = \"{address}\"");
    let home = Home::new(network, &[("bind = \"127.0.0.1:0\"", &bind)]);
    (home, address)
}

async fn get(address: &str, path: &str) -> Option<(u16, String)> {
    let answer = reqwest::get(format!("http://{address}{path}")).await.ok()?;
    let code = answer.status().as_u16();
    Some((code, answer.text().await.ok()?))
}

/// The details of all problems in an answer of `/ready`, by code.
fn problems(text: &str) -> Vec<(String, String)> {
    let answer: Value = serde_json::from_str(text).expect("JSON");
    let word = |problem: &Value, name: &str| problem[name].as_str().unwrap_or("?").to_owned();
    let problems = answer["problems"].as_array().expect("problems").iter();
    problems
        .map(|problem| (word(problem, "code"), word(problem, "detail")))
        .collect()
}

/// Waits until `/ready` gives this reason in these words, or is ready where none is given.
async fn ready(address: &str, reason: Option<(&str, &str)>) {
    let begun = Instant::now();
    loop {
        let answer = get(address, "/ready").await;
        let so = answer.as_ref().is_some_and(|(code, text)| {
            let found = problems(text);
            match reason {
                Some((reason, words)) => {
                    let named = |(code, detail): &(String, String)| {
                        code == reason && detail.contains(words)
                    };
                    *code == 503 && found.iter().any(named)
                }
                None => *code == 200 && found.is_empty(),
            }
        });
        if so {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{reason:?}: {answer:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// `feedmill status`: its exit code and what it says.
fn say_status(home: &Home, more: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_feedmill"))
        .arg("status")
        .arg(&home.file)
        .args(more)
        .output()
        .expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    (output.status.code(), text)
}

/// What `/status` says of sources; null while nobody answers.
async fn ingestion(address: &str) -> Value {
    let Some((_, text)) = get(address, "/status").await else {
        return Value::Null;
    };
    let status: Value = serde_json::from_str(&text).expect("JSON");
    status["ingestion"].clone()
}

/// Waits until every source is connected and all it sent up to `seq` is durable.
async fn connected(address: &str, seq: u64) {
    let begun = Instant::now();
    loop {
        let ingestion = ingestion(address).await;
        let reached = ingestion["cursors"]["sim"].as_u64() >= Some(seq);
        if reached && ingestion["connected"] == true && ingestion["frames"] != 0 {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{ingestion}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn serve_shows_the_real_state_of_the_ingester_beside_it() {
    let network = bed::network_of_now(95).await;
    network.emit(20);
    let (home, operator) = home(&network);
    let server = Life::begin("serve", &home.file, None);
    let silent = "ingester_silent";
    ready(&home.address, Some((silent, "start `feedmill ingest`"))).await;
    assert_eq!(ingestion(&home.address).await["connected"], false);

    let ingest = Life::begin("ingest", &home.file, None);
    for address in [&operator, &home.address] {
        // The last events are of now, so that nobody is behind.
        connected(address, network.last_seq()).await;
        ready(address, None).await;
    }
    for address in [&operator, &home.address] {
        let ingestion = ingestion(address).await;
        assert_eq!(ingestion["streams"][0]["name"], "sim");
        assert_eq!(ingestion["streams"][0]["connected"], true);
        let (_, text) = get(address, "/metrics").await.expect("an answer");
        let connected = "feedmill_source_connected{source=\"sim\"} 1\n";
        assert!(text.contains(connected), "{text}");
        assert_eq!(get(address, "/health").await.expect("an answer").0, 200);
    }
    assert_eq!(get(&operator, "/xrpc/x").await.expect("an answer").0, 404);
    for address in [&operator, &home.address] {
        let client = reqwest::Client::new().get(format!("http://{address}/metrics"));
        let answer = client.header("host", "evil.example").send().await;
        assert_eq!(
            answer.expect("an answer").status(),
            421,
            "a stranger's name"
        );
    }
    let (code, text) = say_status(&home, &[]);
    assert!(text.starts_with("ready ("), "{text}");
    assert!(text.contains("source sim (firehose): connected"), "{text}");
    assert_eq!(code, Some(0), "{text}");

    ingest.kill();
    ready(&home.address, Some((silent, "reported last"))).await;
    assert_eq!(ingestion(&home.address).await["connected"], false);
    let ingest = Life::begin("ingest", &home.file, None);
    ready(&home.address, None).await;

    network.stop().await;
    for address in [&operator, &home.address] {
        ready(address, Some(("source_disconnected", "sim"))).await;
    }
    assert!(ingest.end().success());
    ready(&home.address, Some((silent, "was stopped"))).await;
    let (code, text) = say_status(&home, &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("problem: ingester_silent: "), "{text}");

    assert!(server.end().success());
    let (code, text) = say_status(&home, &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.starts_with("NO PROCESS ANSWERS"), "{text}");
    assert!(text.contains("was stopped"), "{text}");
    let (code, text) = say_status(&home, &["--json"]);
    assert_eq!(code, Some(1), "{text}");
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(answer["ready"], false);
    assert_eq!(answer["problems"][0]["code"], silent);
}

/// A thread of the store that does not come back, at one of the named places.
#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_store_and_a_long_transaction_are_reasons_not_to_be_ready() {
    for (point, code) in [
        ("commit.before:3", "long_transaction"),
        ("commit.after:3", "store_stalled"),
    ] {
        let network = bed::network_of_now(96).await;
        let (home, _) = home(&network);
        let mut command = Command::new(env!("CARGO_BIN_EXE_feedmill"));
        command
            .arg("run")
            .arg(&home.file)
            .env("FEEDMILL_STALL", point);
        let life = Life::of(command);
        ready(&home.address, Some((code, " s"))).await;
        let (_, text) = get(&home.address, "/metrics").await.expect("an answer");
        let series = format!("feedmill_condition{{condition=\"{code}\"}} 1\n");
        assert!(text.contains(&series), "{text}");
        let age = text
            .lines()
            .find_map(|line| line.strip_prefix("feedmill_store_commit_age_seconds "));
        let age: f64 = age.expect("a series").parse().expect("a number");
        assert!(age > 0.0);
        assert_eq!(get(&home.address, "/health").await.expect("alive").0, 200);
        let (exit, text) = say_status(&home, &[]);
        assert_eq!(exit, Some(1), "{text}");
        assert!(text.contains(&format!("problem: {code}: ")), "{text}");
        life.kill();
        network.stop().await;
    }
}
