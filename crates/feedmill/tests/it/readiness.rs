//! What is wrong shows in `/ready`, `/metrics` and `/status`, and is gone when it is over.

use std::time::Instant;

use feedmill::clock::Clock;
use feedmill::condition::{Condition, Problem};
use feedmill::river::{River, Role, Start};
use serde_json::Value;
use sim::network::NetworkOptions;

use crate::bed::{
    PATIENCE, config, equal, firehose, network, network_of_now, start, status, until,
};

const HOUR_US: i64 = 3_600_000_000;

async fn get(river: &River, path: &str) -> (u16, String) {
    let address = river.address.expect("it serves");
    let answer = reqwest::get(format!("http://{address}{path}")).await;
    let answer = answer.expect("an answer");
    let code = answer.status().as_u16();
    (code, answer.text().await.expect("text"))
}

fn codes(answer: &Value) -> Vec<String> {
    let problems = answer["problems"].as_array().expect("problems");
    let code = |problem: &Value| problem["code"].as_str().unwrap_or_default().to_owned();
    problems.iter().map(code).collect()
}

/// Waits until `/ready` gives this reason, or is ready where none is given; returns its answer.
async fn ready(river: &River, reason: Option<&str>) -> Value {
    let begun = Instant::now();
    loop {
        let (code, text) = get(river, "/ready").await;
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        let so = match reason {
            Some(reason) => code == 503 && codes(&answer).iter().any(|code| code == reason),
            None => code == 200 && answer["ready"] == true,
        };
        if so {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "{code}: {answer}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Whether a condition holds, as `/metrics` says.
async fn holds(river: &River, code: &str) -> Option<f64> {
    let (_, text) = get(river, "/metrics").await;
    let series = format!("feedmill_condition{{condition=\"{code}\"}} ");
    let found = text.lines().find_map(|line| line.strip_prefix(&series));
    found.and_then(|value| value.parse().ok())
}

/// The condition is a reason not to be ready, in words, wherever an operator looks.
async fn shows(river: &River, code: &str) {
    let answer = ready(river, Some(code)).await;
    let problems = answer["problems"].as_array().expect("problems");
    let problem = problems.iter().find(|problem| problem["code"] == code);
    let problem = problem.expect("the problem");
    assert_eq!(problem["blocking"], true);
    assert!(!problem["detail"].as_str().expect("a detail").is_empty());
    assert!(!problem["advice"].as_str().expect("advice").is_empty());
    assert_eq!(holds(river, code).await, Some(1.0));
    let told = status(river).await;
    assert!(codes(&told).iter().any(|one| one == code), "{told}");
    assert_eq!(told["ready"], false);
    assert_eq!(get(river, "/health").await.0, 200, "the process lives");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_store_is_a_reason_not_to_be_ready_and_lag_grows_while_it_lasts() {
    let network = network(91, NetworkOptions::default()).await;
    let since_us = Clock::Wall.now_us();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let store = format!("sqlite://{}", file.display());
    let river = start(&config(&network, &store, &[])).await;
    network.emit(50);
    equal(&river, &network, since_us).await;
    ready(&river, None).await;

    let other = rusqlite::Connection::open(&file).unwrap();
    other.busy_timeout(PATIENCE).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    network.emit(50);
    shows(&river, "store_locked").await;
    let now_us = Clock::Wall.now_us();
    let grown = river.status.lag_seconds(now_us + HOUR_US) - river.status.lag_seconds(now_us);
    assert!(
        (grown - 3600.0).abs() < 1e-3,
        "lag grew by {grown} s in an hour"
    );

    other.execute_batch("ROLLBACK").unwrap();
    equal(&river, &network, since_us).await;
    ready(&river, None).await;
    assert_eq!(holds(&river, "store_locked").await, Some(0.0));
    river.stop().await;
    network.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_cannot_connect_is_a_reason_not_to_be_ready_and_lag_grows() {
    let network = network(92, NetworkOptions::default()).await;
    // Bound and released, so nobody listens there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("firehose = \"ws://{}\"", free.local_addr().unwrap());
    drop(free);
    let changes = [(firehose(&network), nobody)];
    let changes = changes
        .each_ref()
        .map(|(old, new)| (old.as_str(), new.as_str()));
    let river = start(&config(&network, "sqlite::memory:", &changes)).await;
    shows(&river, "source_disconnected").await;
    let now_us = Clock::Wall.now_us();
    let grown = river.status.lag_seconds(now_us + HOUR_US) - river.status.lag_seconds(now_us);
    assert!(
        (grown - 3600.0).abs() < 1e-3,
        "lag grew by {grown} s in an hour"
    );
    river.stop().await;
    network.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_app_is_ready_has_no_lag_and_every_condition_has_a_series() {
    let network = network_of_now(93).await;
    let since_us = Clock::Wall.now_us();
    let river = start(&config(&network, "sqlite::memory:", &[])).await;
    network.emit(50);
    equal(&river, &network, since_us).await;
    let state = river.status.clone();
    until(|| state.ingestion(Clock::Wall.now_us()).pending() == 0).await;
    ready(&river, None).await;
    for condition in Condition::ALL {
        let value = holds(&river, condition.code()).await;
        assert_eq!(value, Some(0.0), "{condition:?}");
    }
    // A day without an event.
    let later_us = Clock::Wall.now_us() + 24 * HOUR_US;
    assert_eq!(state.lag_seconds(later_us).to_bits(), 0.0f64.to_bits());
    let problems = state.problems(later_us, &river.store.writing());
    // The monitor did not measure on that day.
    let others = problems
        .iter()
        .filter(|problem| problem.condition != Condition::MeasurementsStale);
    assert_eq!(others.count(), 0, "{problems:?}");
    river.stop().await;
    network.stop().await;
}

/// A year off, and in the other direction the unit tests of `status::offset`.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_disagrees_with_the_events_is_a_reason_not_to_be_ready() {
    let network = network_of_now(97).await;
    let clock = Clock::at(Clock::Wall.now_us() - 365 * 24 * HOUR_US);
    let slow = Start {
        role: Role::All,
        clock: clock.clone(),
        lexicons: sim::lexicons::ALL,
    };
    let folder = tempfile::tempdir().unwrap();
    let file = format!("sqlite://{}", folder.path().join("store.db").display());
    let config = config(&network, &file, &[]);
    let river = River::start(&config, slow).await.expect("a river");
    let state = river.status.clone();
    until(|| {
        network.emit(5);
        let sources = state.ingestion(clock.now_us()).sources;
        sources
            .iter()
            .all(|source| source.clock_offset_us.is_some())
    })
    .await;
    shows(&river, "clock_disagrees").await;
    let (_, text) = get(&river, "/metrics").await;
    let series = "feedmill_clock_offset_seconds{source=\"sim\"} ";
    let offset = text.lines().find_map(|line| line.strip_prefix(series));
    let offset: f64 = offset.expect("a series").parse().expect("a number");
    let days = offset / 86_400.0;
    assert!((-366.0..-364.0).contains(&days), "{days} days");

    // It is noted for the time when the clock is right.
    let misdated = |now_us| {
        let problems = state.problems(now_us, &river.store.writing());
        let is_it = |one: &Problem| one.condition == Condition::RecordsMisdated;
        problems.iter().any(is_it)
    };
    until(|| misdated(clock.now_us())).await;

    // Set right, it agrees with the events that come from then on.
    clock.set(Clock::Wall.now_us());
    until(|| {
        network.emit(5);
        let problems = state.problems(clock.now_us(), &river.store.writing());
        let is_it = |one: &Problem| one.condition == Condition::RecordsMisdated;
        problems.iter().all(is_it)
    })
    .await;
    ready(&river, None).await;
    assert_eq!(holds(&river, "clock_disagrees").await, Some(0.0));
    river.stop().await;

    // What was stored meanwhile is not forgotten, also not by the next process.
    let river = start(&config).await;
    let state = river.status.clone();
    until(|| {
        let problems = state.problems(Clock::Wall.now_us(), &river.store.writing());
        problems
            .iter()
            .any(|one| one.condition == Condition::RecordsMisdated)
    })
    .await;
    let told = status(&river).await;
    let misdated = "records_misdated".to_owned();
    assert!(codes(&told).contains(&misdated), "{told}");
    assert_eq!(holds(&river, "records_misdated").await, Some(1.0));
    ready(&river, None).await;
    river.stop().await;
    network.stop().await;
}

/// A writer that failed and that nobody asks again must not be reported for ever. Only a process
/// that ingests writes by itself, so this one serves.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_is_over_is_noticed_although_nobody_writes() {
    let network = network(94, NetworkOptions::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let store = format!("sqlite://{}", file.display());
    let source = format!("[[source]]\nname = \"sim\"\n{}\n", firehose(&network));
    let config = config(&network, &store, &[(source.as_str(), "")]);
    let role = Start {
        role: Role::Serve,
        clock: Clock::Wall,
        lexicons: sim::lexicons::ALL,
    };
    let river = River::start(&config, role).await.expect("a river");
    ready(&river, None).await;
    let other = rusqlite::Connection::open(&file).unwrap();
    other.busy_timeout(PATIENCE).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let writer = river.store.clone();
    let failed = tokio::task::spawn_blocking(move || {
        let batch = feedmill::store::Batch {
            source: String::new(),
            cursor: None,
            now_us: Clock::Wall.now_us(),
            items: Vec::new(),
        };
        writer.commit(batch)
    });
    failed.await.unwrap().expect_err("the store is locked");
    shows(&river, "store_locked").await;
    other.execute_batch("ROLLBACK").unwrap();
    ready(&river, None).await;
    river.stop().await;
    network.stop().await;
}
