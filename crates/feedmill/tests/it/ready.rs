//! A start: the address answers at once, whatever has still to be opened or loaded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use feedmill::clock::Clock;
use feedmill::condition::Condition;
use feedmill::config::Config;
use feedmill::fanout::Fanout;
use feedmill::river::{River, Role, Start};
use feedmill::status::Status;
use feedmill::status::health::Health;
use rusqlite::Connection;
use serde_json::Value;
use sim::network::NetworkOptions;

use crate::bed::{PATIENCE, network};
use crate::desk::{ALICE, BOB, Desk, listen};
use crate::life::{Home, Life};

/// An address that nobody listens at.
fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

async fn ask(address: &str, path: &str) -> Option<(u16, Value)> {
    let answer = reqwest::get(format!("http://{address}{path}")).await.ok()?;
    let status = answer.status().as_u16();
    Some((status, answer.json().await.unwrap()))
}

/// Asks until somebody answers at all.
async fn answered(address: &str, path: &str) -> (u16, Value) {
    let begun = std::time::Instant::now();
    loop {
        if let Some(answer) = ask(address, path).await {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "nobody answers");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_address_answers_while_the_store_is_being_opened() {
    feedmill::identity::provide_tls();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let address = free_address();
    let config = Config::parse(&format!(
        "namespace = \"com.example\"\n[collections.post]\ncollection = \"com.example.post\"\nvalidate = false\n\
         [collections.follow]\ncollection = \"com.example.follow\"\nvalidate = false\n[feeds.timeline]\ntargets = [\"post\"]\n[store]\nurl = \"sqlite://{}\"\n[serve]\nbind = \"{address}\"\n",
        file.display()
    ))
    .unwrap();
    // Whoever holds this lock keeps the store from being opened.
    let lock = Connection::open(&file).unwrap();
    lock.pragma_update(None, "journal_mode", "WAL").unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let starting = tokio::spawn(async move {
        let start = Start {
            role: Role::Serve,
            clock: Clock::Wall,
            lexicons: &[],
        };
        River::start(&config, start).await
    });
    let (status, health) = answered(&address, "/health").await;
    assert_eq!((status, &health["status"]), (200, &"starting".into()));
    let (status, ready) = answered(&address, "/ready").await;
    assert_eq!((status, &ready["ready"]), (503, &false.into()));
    assert_eq!(ready["problems"][0]["code"], "starting");
    let (status, page) = answered(&address, "/xrpc/com.example.getFeed").await;
    assert_eq!((status, &page["error"]), (503, &"Starting".into()));
    assert!(!starting.is_finished());
    lock.execute_batch("ROLLBACK").unwrap();
    let river = starting.await.unwrap().unwrap();
    let (status, health) = answered(&address, "/health").await;
    assert_eq!((status, &health["status"]), (200, &"ok".into()));
    river.stop().await;
}

/// A memory of timelines that nobody loads, as in the first moments after a start.
#[tokio::test(flavor = "multi_thread")]
async fn while_timelines_are_loaded_the_process_is_ready_and_the_store_answers() {
    let desk = Desk::new(
        "[collections.follow]\ncollection = \"com.example.follow\"\nvalidate = false\n\
         [collections.post]\ncollection = \"com.example.post\"\nvalidate = false\n\
         [feeds.timeline]\ntargets = [\"post\"]\n",
    );
    desk.put(BOB, "follow", "1", &format!("{{\"subject\":\"{ALICE}\"}}"));
    for number in 0..5 {
        desk.put(ALICE, "post", &number.to_string(), "{}");
    }
    let (fanout, drawer) = Fanout::start(&desk.config.timelines, 1, &desk.store)
        .unwrap()
        .unwrap();
    let from_store = listen(desk.server(None)).await;
    let loading = listen(desk.server(Some(Arc::clone(&fanout)))).await;
    let asked = async |address: &str, path: &str| {
        let address = address.strip_prefix("http://").unwrap();
        ask(address, path).await.unwrap()
    };
    let (status, ready) = asked(&loading, "/ready").await;
    assert_eq!((status, &ready["ready"]), (200, &true.into()), "{ready}");
    assert_eq!(ready["loading"]["percent"], 0, "{ready}");
    let (_, body) = asked(&loading, "/status").await;
    assert_eq!(body["timelines"]["loading"]["percent"], 0, "{body}");
    let feed = format!("/xrpc/com.example.getFeed?feed=timeline&actor={BOB}");
    let exact = asked(&from_store, &feed).await;
    assert_eq!(exact.1["records"].as_array().unwrap().len(), 5);
    assert_eq!(asked(&loading, &feed).await, exact);

    let stop = Arc::new(AtomicBool::new(false));
    let status = Arc::new(Status::default());
    let health = Health::new(&status, Condition::TimelinesStuck, "timelines");
    let asked_to_stop = Arc::clone(&stop);
    let thread = std::thread::spawn(move || drawer.run(&Clock::Wall, health, &asked_to_stop));
    let begun = std::time::Instant::now();
    while !asked(&loading, "/ready").await.1["loading"].is_null() {
        assert!(begun.elapsed() < PATIENCE, "it is never loaded");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (_, body) = asked(&loading, "/status").await;
    assert!(body["timelines"]["loading"].is_null(), "{body}");
    assert_eq!(asked(&loading, &feed).await, exact);
    stop.store(true, Ordering::Relaxed);
    desk.store.wake();
    thread.join().unwrap();
}

/// How often each thread of a process gave up the processor by itself, by the thread's name.
fn sleeps(process: u32) -> BTreeMap<String, u64> {
    let mut sleeps = BTreeMap::new();
    for task in std::fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        let task = task.unwrap().path();
        let Ok(text) = std::fs::read_to_string(task.join("status")) else {
            continue; // it has ended meanwhile
        };
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().to_owned()
        };
        let count: u64 = field("voluntary_ctxt_switches:").parse().unwrap();
        *sleeps.entry(field("Name:")).or_default() += count;
    }
    sleeps
}

/// The thread that looks for other processes' commits is the clock of this test: it is the one
/// thread that may wake by itself, and it looks twice a second.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn threads_of_an_idle_process_sleep_until_they_are_woken() {
    let network = network(11, NetworkOptions::default()).await;
    let home = Home::new(&network, &[]);
    let mut life = Life::begin("run", &home.file, None);
    home.settled(0, &mut [&mut life]).await.expect("it lives");
    const WATCH: &str = "store-watch";
    const LOOKS: u64 = 6;
    // Until it has come to rest: whatever is woken by a start is woken once.
    let (mut before, begun) = (sleeps(life.process()), std::time::Instant::now());
    loop {
        let now = sleeps(life.process());
        if now[WATCH] < before[WATCH] + LOOKS {
            assert!(begun.elapsed() < PATIENCE, "no thread looks for commits");
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        }
        let threads = ["fanout", "live", "intake", "store-writer"];
        let slept = threads.map(|name| now[name] - before[name]);
        if slept.iter().all(|count| *count <= 1) {
            break;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{threads:?} woke {slept:?} times"
        );
        before = now;
    }
    assert!(life.end().success());
}
