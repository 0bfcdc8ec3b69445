//! What strangers send: nothing is read of those who may not send it, and what is read is bounded in bytes
//! and time.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::Method;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::app::{APP, App};
use crate::bed::{PATIENCE, until_async};
use crate::budgets::{metric, peak_bytes, unread};
use crate::life::Life;
use crate::mill::Mill;
use crate::subscribe::{EVE, text};

const CONFIG: &str = r#"
namespace = "com.example"
[collections.follow]
collection = "com.example.follow"
validate = false
direct = true
[collections.note]
collection = "com.example.note"
validate = false
direct = true
[feeds.home]
follow = "follow"
targets = ["note"]
[serve]
uploads_bytes_max = 2000000
"#;

const LOG: &str = "[log]\nread = \"anyone\"\nappend = \"anyone\"\ncreate = \"anyone\"\n";

/// Begins a request, and sends no more of its body than this.
fn begin(address: &str, request: &str, body_bytes: usize, sent: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "{request}\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {body_bytes}\r\n\r\n{sent}"
    )
    .unwrap();
    stream
}

/// The status of an answer.
fn status(mut stream: &TcpStream) -> u16 {
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("an answer");
    std::str::from_utf8(&answer[9..]).unwrap().parse().unwrap()
}

/// Waits until a question is answered with yes.
#[track_caller]
fn soon(so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < PATIENCE, "not so in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn who_may_not_write_is_refused_before_the_body_is_read() {
    let app = App::start(CONFIG);
    let address = app.address();
    let address = address.trim_start_matches("http://");
    let reader = app.act(Method::POST, "/tokens", json!({"user": 7}));
    let reader = reader["token"].as_str().unwrap().to_owned();
    for (request, expected) in [
        ("PUT /records/note/1", 401),
        ("POST /follow", 401),
        ("POST /unfollow", 401),
        ("POST /follow-many", 401),
        ("POST /tokens", 401),
        ("POST /xrpc/com.example.notifyOfUpdate", 501),
    ] {
        let stream = begin(address, &format!("{request} HTTP/1.1"), 900_000, "{\"us");
        assert_eq!(status(&stream), expected, "{request}");
    }
    let own = format!("PUT /records/note/1 HTTP/1.1\r\nauthorization: Bearer {reader}");
    assert_eq!(status(&begin(address, &own, 900_000, "{")), 403);
}

#[test]
fn bodies_that_arrive_take_no_more_bytes_than_allowed() {
    let app = App::start(CONFIG);
    let address = app.address();
    let address = address.trim_start_matches("http://");
    let put = format!("PUT /records/note/1 HTTP/1.1\r\nauthorization: Bearer {APP}");
    let long = "x".repeat(900_000);
    let begun: Vec<TcpStream> = (0..2)
        .map(|_| begin(address, &put, 999_999, &long))
        .collect();
    // Those two wait for the rest; a third one has no room.
    let body = json!({"user_id": "anna", "text": long});
    let ask = || {
        let (status, _) = app.ask(
            Method::PUT,
            "/records/note/2",
            Some(APP),
            Some(body.clone()),
        );
        status
    };
    soon(|| ask() == 503);
    drop(begun);
    soon(|| ask() == 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_for_the_log_that_never_ends_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log.db");
    let log = LOG.replace("[log]", &format!("[log]\nfile = {:?}", file.display()));
    let mill = Mill::start(&text(&format!("{log}[serve]\ntimeout_s = 1\n"))).await;
    let address = mill.address();
    let given_up = tokio::task::spawn_blocking(move || {
        let kinds = ["append", "query"];
        kinds.map(|kind| {
            let request = format!("POST /log/s/{kind} HTTP/1.1");
            status(&begin(&address, &request, 1000, "{\"requestId\""))
        })
    });
    assert_eq!(given_up.await.unwrap(), [504, 504]);
    // Who waits for news of a stream waits for longer than that.
    let url = format!("http://{}/v1/stream/a", mill.address());
    let client = reqwest::Client::new();
    let made = client.put(&url).send().await.unwrap();
    assert_eq!(made.status(), 201);
    let tail = made.headers()["stream-next-offset"].to_str().unwrap();
    let wait = client.get(format!("{url}?offset={tail}&live=long-poll"));
    let waiting = tokio::spawn(wait.send());
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let sent = client.post(&url).body("news");
    let sent = sent.header("content-type", "application/octet-stream");
    assert_eq!(sent.send().await.unwrap().status(), 204);
    assert_eq!(
        waiting.await.unwrap().unwrap().text().await.unwrap(),
        "news"
    );
    mill.river.stop().await;
}

/// Serves an open log in a process of its own.
fn serve_log(folder: &std::path::Path, limits: &str) -> (Life, String) {
    feedmill::identity::provide_tls();
    let address = format!("127.0.0.1:{}", crate::life::free_port());
    let file = folder.join("feedmill.toml");
    let log = LOG.replace("[log]", "[log]\nfile = \"log.db\"");
    let serve = format!("{log}[serve]\nbind = \"{address}\"\nstall_s = 3600\n{limits}\n");
    std::fs::write(&file, text(&serve)).unwrap();
    (Life::begin("serve", &file, None), address)
}

/// Waits until it serves what is configured.
async fn is_served(address: &str) {
    let url = format!("http://{address}/log.js");
    let is_there = |answer: reqwest::Response| answer.status() == 200;
    until_async(async || reqwest::get(&url).await.is_ok_and(is_there)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_the_log_who_do_not_read_take_no_more_bytes_than_allowed() {
    const BYTES_MAX: usize = 12_000_000;
    const DEAF: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let (life, address) = serve_log(folder.path(), &format!("unsent_bytes_max = {BYTES_MAX}"));
    is_served(&address).await;
    let client = reqwest::Client::new();
    // A page of the log is 1 MiB, a piece of the stream too.
    let data = "QUFB".repeat(340_000);
    for number in 0..4 {
        let block = json!({"actorId": "a", "sequence": number + 1, "data": data, "timestamp": 1});
        let append = json!({"requestId": 1, "blocks": [block]});
        let sent = client.post(format!("http://{address}/log/s/append"));
        assert_eq!(sent.json(&append).send().await.unwrap().status(), 200);
    }
    let stream = format!("http://{address}/v1/stream/a");
    let made = client.put(&stream).header("content-type", "text/plain");
    assert_eq!(made.send().await.unwrap().status(), 201);
    for _ in 0..4 {
        let sent = client.post(&stream).header("content-type", "text/plain");
        let sent = sent.body("x".repeat(1_000_000)).send().await.unwrap();
        assert_eq!(sent.status(), 204);
    }
    let query = json!({"type": "query", "requestId": 1, "cursor": 0, "limit": 10}).to_string();
    let line = "feedmill_queue_bytes{queue=\"answers\"}";
    let whole = async || {
        let asked = client.post(format!("http://{address}/log/s/query"));
        let asked = asked.header("content-type", "application/json");
        let page: Value = asked
            .body(query.clone())
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        assert_eq!(page["blocks"].as_array().unwrap().len(), 1);
        let waiting = metric(&address, line).await;
        assert!(waiting <= BYTES_MAX as f64, "{waiting} bytes wait");
    };
    whole().await;
    let before = peak_bytes(life.process());
    let (mut sockets, mut streams) = (Vec::new(), Vec::new());
    for number in 0..DEAF {
        let url = format!("ws://{address}/log/s");
        let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
        socket.send(Message::text(query.clone())).await.unwrap();
        sockets.push(socket);
        let at = address.clone();
        let deaf = move || unread(&at, "/v1/stream/a?offset=-1&live=sse", "");
        streams.push(tokio::task::spawn_blocking(deaf).await.unwrap());
        if number % 10 == 0 {
            whole().await;
        }
    }
    // What they asked for is 100 MB, and a socket has a message twice.
    let grown = peak_bytes(life.process()) - before;
    assert!(grown < 80 << 20, "{grown} bytes more than before");
    let closed = metric(&address, "feedmill_http_limited_total{by=\"answers\"}").await;
    assert!(closed >= DEAF as f64, "{closed} were closed for others");
    drop((sockets, streams));
    until_async(async || metric(&address, line).await == 0.0).await;
    assert!(life.end().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_says_nothing_takes_little() {
    const SOCKETS: usize = 400;
    let folder = tempfile::tempdir().unwrap();
    let (life, address) = serve_log(folder.path(), "");
    is_served(&address).await;
    let made = reqwest::Client::new().post(format!("http://{address}/log/s/create"));
    let made = made.json(&json!({"requestId": 1})).send().await.unwrap();
    assert_eq!(made.status(), 200);
    let open = async |path: &str| {
        let url = format!("ws://{address}{path}");
        tokio_tungstenite::connect_async(url).await.unwrap().0
    };
    let feed = format!("/xrpc/com.example.subscribeFeed?feed=timeline&actor={EVE}");
    for path in ["/log/s", &feed] {
        let mut sockets = vec![open(path).await];
        let before = peak_bytes(life.process());
        for _ in 0..SOCKETS {
            sockets.push(open(path).await);
        }
        // What a socket reads into is there once it was asked something.
        for socket in &mut sockets {
            socket
                .send(Message::Ping(Default::default()))
                .await
                .unwrap();
            while !matches!(socket.next().await.unwrap().unwrap(), Message::Pong(_)) {}
        }
        let each = (peak_bytes(life.process()) - before) as usize / SOCKETS;
        assert!(each < 80 << 10, "{path}: {each} bytes for each");
    }
    assert!(life.end().success());
}
