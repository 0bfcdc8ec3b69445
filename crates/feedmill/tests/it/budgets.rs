//! What strangers choose, they choose within our bytes and counts: frames for a store that stalls, readers who do
//! not read, pages of large records, connections that say nothing.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use feedmill::oracle::Oracle;
use serde_json::{Value, json};
use sim::compose::{FOLLOW, POST};
use sim::feed::Feed;
use sim::network::{Network, NetworkOptions};
use sim::utter::Utterance;

use crate::bed::{self, until, until_async};
use crate::life::{Home, Life, adds_up};
use crate::mill::Mill;
use crate::subscribe::{ANN, EVE, follow, text};

const TIME: &str = "2026-01-02T03:04:05.000Z";
/// Bytes of one large record.
const LARGE: usize = 100_000;

/// A post with a field of `bytes` letters.
pub(crate) fn large_post(number: usize, bytes: usize) -> Utterance {
    let mut writer = record::cbor::Writer::with_capacity(bytes + 200);
    writer.map(4);
    writer.text("text").text("large");
    writer.text("$type").text(POST);
    writer.text("extra").text(&"x".repeat(bytes));
    writer.text("createdAt").text(TIME);
    Utterance {
        collection: POST.into(),
        rkey: rkey(number),
        block: writer.into_bytes().into(),
        created_us: record::datetime::parse_us(TIME),
        sound: true,
    }
}

/// The key of a record: a timestamp's form.
pub(crate) fn rkey(number: usize) -> String {
    let letters = b"234567abcd";
    let digits = (0..6).map(|place| letters[number / 10_usize.pow(place) % 10] as char);
    "3aaaaaa".chars().chain(digits).collect()
}

/// The value of a line of a running process's `/metrics`.
pub(crate) async fn metric(address: &str, line: &str) -> f64 {
    let answer = reqwest::get(format!("http://{address}/metrics")).await;
    let text = answer.unwrap().text().await.unwrap();
    let found = text.lines().find_map(|it| it.strip_prefix(line));
    found.map_or(0.0, |it| it.trim().parse().unwrap())
}

/// The most memory that a process ever had, in bytes.
pub(crate) fn peak_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse().unwrap();
    kib << 10
}

/// The number of an account that somebody follows, and one who does.
pub(crate) fn followed(network: &Network) -> (usize, String) {
    network.world(|world| {
        let dids: Vec<String> = world
            .accounts()
            .iter()
            .map(|account| account.did.to_string())
            .collect();
        let visible = |number: &usize| !world.accounts()[*number].standing.hides();
        for reader in (0..dids.len()).filter(visible) {
            let feed = Feed::of(FOLLOW, Vec::new());
            let follows = feed.followed(world.model(), &dids[reader]);
            let found = (0..dids.len())
                .filter(visible)
                .find(|number| *number != reader && follows.contains(&dids[*number]));
            if let Some(number) = found {
                return (number, dids[reader].clone());
            }
        }
        panic!("nobody follows anybody")
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_for_a_store_that_stalls_are_bounded_in_bytes_and_none_is_lost() {
    const BYTES_MAX: usize = 1_000_000;
    let network = bed::network(61, NetworkOptions::default()).await;
    let since_us = feedmill::clock::Clock::Wall.now_us();
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store.db");
    let limit = format!("[intake]\npending_bytes_max = {BYTES_MAX}\n");
    let home = Home::with_store(&network, folder, &store, &[("[intake]\n", &limit)]);
    let mut life = Life::begin("run", &home.file, None);
    network.emit(100);
    let settled = home.settled(network.last_seq(), &mut [&mut life]).await;
    settled.expect("it lives");
    // Somebody holds the lock of the store, and large frames come.
    let other = rusqlite::Connection::open(&store).unwrap();
    other.busy_timeout(Duration::from_secs(60)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for number in 0..100 {
        network.utter(0, vec![large_post(number, LARGE)]);
    }
    let line = "feedmill_queue_bytes{queue=\"intake\"}";
    let is_full = async || metric(&home.address, line).await >= (BYTES_MAX - 2 * LARGE) as f64;
    until_async(is_full).await;
    for _ in 0..20 {
        let waiting = metric(&home.address, line).await;
        assert!(waiting <= BYTES_MAX as f64, "{waiting}");
        // One more is read and waits for its place.
        let pending = home.status().await.unwrap()["ingestion"]["pending"].clone();
        let pending = pending.as_u64().unwrap() as usize;
        assert!(pending <= BYTES_MAX / LARGE + 1, "{pending} frames");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    other.execute_batch("ROLLBACK").unwrap();
    network.settle();
    let settled = home.settled(network.last_seq(), &mut [&mut life]).await;
    adds_up(&settled.expect("it lives")["accounting"]);
    let oracle = Oracle::new(&network, home.address.clone(), since_us);
    let outcome = oracle.every_feed(&|_, _| {}).await.unwrap();
    assert_eq!(outcome.first, None);
    assert_eq!(metric(&home.address, line).await, 0.0);
    network.stop().await;
}

/// Begins to listen, and reads no more than the first answer.
fn deaf(address: &str, actor: &str) -> TcpStream {
    let actor = actor.replace('%', "%25");
    let path = format!("/xrpc/com.example.subscribeFeed?feed=timeline&actor={actor}");
    unread(address, &path, "accept: text/event-stream\r\n")
}

/// Asks, and reads no more than that it is answered.
pub(crate) fn unread(address: &str, path: &str, headers: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n"
    )
    .unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_events_who_do_not_read_take_no_more_bytes_than_allowed() {
    const BYTES_MAX: usize = 4_000_000;
    const DEAF: usize = 100;
    let network = bed::network(62, NetworkOptions::default()).await;
    network.emit(100);
    let (author, reader) = followed(&network);
    let limits =
        format!("listeners_bytes_max = {BYTES_MAX}\nlistener_bytes_max = 1000000\nbind = ");
    let home = Home::new(&network, &[("bind = ", &limits)]);
    let mut life = Life::begin("run", &home.file, None);
    let settled = home.settled(network.last_seq(), &mut [&mut life]).await;
    settled.expect("it lives");
    let streams: Vec<TcpStream> = (0..DEAF).map(|_| deaf(&home.address, &reader)).collect();
    let before = peak_bytes(life.process());
    for number in 0..40 {
        network.utter(author, vec![large_post(number, LARGE)]);
    }
    let settled = home.settled(network.last_seq(), &mut [&mut life]).await;
    settled.expect("it lives");
    let slow = "feedmill_feed_listeners_slow_total";
    until_async(async || metric(&home.address, slow).await > 0.0).await;
    let waiting = metric(&home.address, "feedmill_queue_bytes{queue=\"listeners\"}").await;
    // What was told to all is 400 MB. What waits for them is bounded, but for one message that is being made.
    assert!(
        waiting <= (BYTES_MAX + 2 * LARGE) as f64,
        "{waiting} bytes wait"
    );
    let grown = peak_bytes(life.process()) - before;
    assert!(grown < 150 << 20, "{grown} bytes more than before");
    // Somebody who reads is told everything.
    drop(streams);
    let url = format!(
        "http://{}/xrpc/com.example.getFeed?feed=timeline&actor={}&limit=100",
        home.address,
        reader.replace('%', "%25")
    );
    let page: Value = reqwest::get(url).await.unwrap().json().await.unwrap();
    assert!(page["records"].as_array().is_some_and(|it| !it.is_empty()));
    network.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_pages_who_do_not_read_take_no_more_bytes_than_allowed() {
    const BYTES_MAX: usize = 16_000_000;
    const DEAF: usize = 300;
    let network = bed::network(67, NetworkOptions::default()).await;
    network.emit(100);
    let (author, reader) = followed(&network);
    let limits = format!("unsent_bytes_max = {BYTES_MAX}\nstall_s = 3600\nbind = ");
    let home = Home::new(&network, &[("bind = ", &limits)]);
    let mut life = Life::begin("run", &home.file, None);
    for number in 0..20 {
        network.utter(author, vec![large_post(number, LARGE)]);
    }
    let settled = home.settled(network.last_seq(), &mut [&mut life]).await;
    settled.expect("it lives");
    let reader = reader.replace('%', "%25");
    let path = format!("/xrpc/com.example.getFeed?feed=timeline&actor={reader}&limit=100");
    let whole = async || {
        let answer = reqwest::get(format!("http://{}{path}", home.address)).await;
        let page: Value = answer.unwrap().json().await.unwrap();
        let records = page["records"].as_array().unwrap();
        let large = records.iter().filter(|it| it.to_string().len() > LARGE);
        assert!(large.count() >= 19, "a page of almost 2 MB");
    };
    whole().await;
    let before = peak_bytes(life.process());
    let mut streams = Vec::new();
    for headers in ["", "accept-encoding: gzip\r\n"] {
        for _ in 0..DEAF / 2 {
            streams.push(unread(&home.address, &path, headers));
            let waiting = metric(&home.address, "feedmill_queue_bytes{queue=\"answers\"}").await;
            assert!(waiting <= BYTES_MAX as f64, "{waiting} bytes wait");
        }
        // Who reads is answered, whoever does not.
        whole().await;
    }
    // What they asked for is 600 MB.
    let grown = peak_bytes(life.process()) - before;
    assert!(grown < 100 << 20, "{grown} bytes more than before");
    let closed = metric(&home.address, "feedmill_http_limited_total{by=\"answers\"}").await;
    let kept = BYTES_MAX / (19 * LARGE);
    assert!(
        closed >= (DEAF / 2 - kept) as f64,
        "{closed} were closed for others"
    );
    drop(streams);
    let line = "feedmill_queue_bytes{queue=\"answers\"}";
    until_async(async || metric(&home.address, line).await == 0.0).await;
    network.stop().await;
}

/// Pages of one method, each with its length, until there is no more.
async fn pages(mill: &Mill, path: &str, next: &str) -> Vec<(usize, Value)> {
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let url = format!("http://{}{path}{cursor}", mill.address());
        let answer = reqwest::get(url).await.unwrap();
        assert_eq!(answer.status(), 200);
        let body = answer.text().await.unwrap();
        let page: Value = serde_json::from_str(&body).unwrap();
        let more = page[next].as_str().map(|next| format!("&cursor={next}"));
        pages.push((body.len(), page));
        match more {
            Some(more) => cursor = more,
            None => return pages,
        }
        assert!(pages.len() < 100, "pages without end");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_large_records_ends_at_its_bytes_and_goes_on_with_a_cursor() {
    const BYTES_MAX: usize = 500_000;
    const COUNT: usize = 25;
    let limit = format!("[serve]\nresponse_bytes_max = {BYTES_MAX}\n");
    let mill = Mill::start(&text(&limit)).await;
    follow(&mill, "1", ANN);
    let long = "x".repeat(LARGE);
    for number in 0..COUNT {
        let time = format!("2026-03-05T10:00:{number:02}Z");
        let uri = mill.put(
            ANN,
            "post",
            &format!("p{number:02}"),
            &json!({"text": long, "createdAt": time}),
        );
        // Three entries of one thing, whose set is a large record.
        for part in 0..3 {
            let time = format!("2026-03-05T11:{number:02}:{part:02}Z");
            mill.put(
                ANN,
                "link",
                &format!("l{number:02}{part}"),
                &json!({"about": format!("thing-{number}"), "set": uri, "text": long, "createdAt": time}),
            );
        }
    }
    let feed = format!("/xrpc/com.example.getFeed?feed=timeline&actor={EVE}&limit=100");
    let with_profiles = format!("{feed}&profiles=true");
    let list = "/xrpc/com.example.post.listRecords?limit=100".to_owned();
    let merged = format!("/xrpc/com.example.getFollowingFeed?feed=merged&actor={EVE}&limit=100");
    for (path, next, list) in [
        (feed, "cursor", "records"),
        (with_profiles, "cursor", "records"),
        (list, "cursor", "records"),
        (merged, "nextCursor", "activities"),
    ] {
        let pages = pages(&mill, &path, next).await;
        // A page ends with the entry that fills it; the largest entry is a thing and a set of a record each.
        for (bytes, _) in &pages {
            let max = BYTES_MAX + 3 * LARGE;
            assert!(*bytes <= max, "{path}: {bytes} bytes");
        }
        let entries: Vec<String> = pages
            .iter()
            .flat_map(|(_, page)| page[list].as_array().unwrap())
            .map(|entry| {
                entry["uri"]
                    .as_str()
                    .or(entry["id"].as_str())
                    .unwrap()
                    .to_owned()
            })
            .collect();
        let distinct: BTreeSet<&String> = entries.iter().collect();
        assert_eq!((entries.len(), distinct.len()), (COUNT, COUNT), "{path}");
    }
    mill.river.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_say_nothing_give_way_to_new_ones() {
    let mill = Mill::start(&text("[serve]\nconnections_max = 8\nheader_s = 3600\n")).await;
    let silent: Vec<TcpStream> = (0..40)
        .map(|_| TcpStream::connect(mill.address()).unwrap())
        .collect();
    let client = reqwest::Client::builder().timeout(bed::PATIENCE).build();
    let url = format!("http://{}/health", mill.address());
    let answer = client.unwrap().get(url).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    // All but those that fit were closed.
    let closed = || {
        let is_closed = |stream: &TcpStream| {
            stream.set_nonblocking(true).unwrap();
            matches!((&*stream).read(&mut [0]), Ok(0))
                || matches!((&*stream).read(&mut [0]), Err(error) if error.kind() != std::io::ErrorKind::WouldBlock)
        };
        silent.iter().filter(|stream| is_closed(stream)).count() >= 32
    };
    until(closed).await;
    mill.river.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_soft_limit_of_descriptors_is_raised_and_idle_connections_do_not_use_them_up() {
    const SOFT: usize = 128;
    let folder = tempfile::tempdir().unwrap();
    let address = format!("127.0.0.1:{}", crate::life::free_port());
    let file = folder.path().join("feedmill.toml");
    let store = folder.path().join("store.db");
    let config = text(&format!("[serve]\nbind = \"{address}\"\n"))
        .replace("sqlite::memory:", &format!("sqlite://{}", store.display()));
    std::fs::write(&file, config).unwrap();
    let mut shell = Command::new("sh");
    let script = format!("ulimit -Sn {SOFT}; exec \"$0\" serve \"$1\"");
    shell
        .args(["-c", &script, env!("CARGO_BIN_EXE_feedmill")])
        .arg(&file);
    let life = Life::of(shell);
    let health = async || {
        let answer = reqwest::get(format!("http://{address}/health")).await;
        answer.is_ok_and(|answer| answer.status() == 200)
    };
    until_async(health).await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", life.process())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let numbers: Vec<&str> = line.unwrap().split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers[0], numbers[1], "{line:?}");
    let silent: Vec<TcpStream> = (0..2 * SOFT)
        .map(|_| TcpStream::connect(&address).unwrap())
        .collect();
    until_async(health).await;
    assert_eq!(
        metric(&address, "feedmill_http_limited_total{by=\"connections\"}").await,
        0.0
    );
    drop(silent);
    assert!(life.end().success());
}
