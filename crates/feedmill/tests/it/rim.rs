//! The rim: rates, headers, slow and vanishing clients; and nothing left over
//! when they are gone.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;

use crate::app::App;
use crate::methods::{CONFIG, records};

fn world(serve: &str) -> App {
    let config = CONFIG.replace("notify = \"open\"", &format!("notify = \"open\"\n{serve}"));
    App::start_in(&config, &records(), &[("FEEDMILL_ADMIN_TOKEN", "operator")])
}

fn connect(app: &App) -> TcpStream {
    let address = app.address().strip_prefix("http://").unwrap();
    let stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream
}

/// Everything that the other side says until it closes.
fn rest(mut stream: TcpStream) -> String {
    let mut said = Vec::new();
    // A connection that is cut is closed too.
    drop(stream.read_to_end(&mut said));
    String::from_utf8_lossy(&said).into_owned()
}

#[test]
fn an_address_that_asks_too_much_is_told_when_to_come_back() {
    let app = world("rate_max = 3\nrate_s = 600\nproxy_header = \"x-forwarded-for\"");
    let ask = |from: Option<&str>, path: &str| {
        let mut request = reqwest::Client::new().get(format!("{}{path}", app.address()));
        if let Some(from) = from {
            request = request.header("x-forwarded-for", from);
        }
        app.wait(request.send()).unwrap()
    };
    let (anna, bob) = (Some("9.9.9.9, 1.1.1.1"), Some("1.1.1.2"));
    let profile = "/xrpc/com.example.getProfile?actor=did:plc:readerreaderreaderreader";
    for remaining in ["2", "1", "0"] {
        let answer = ask(anna, profile);
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["ratelimit-limit"], "3");
        assert_eq!(answer.headers()["ratelimit-remaining"], remaining);
        assert_eq!(answer.headers()["ratelimit-policy"], "3;w=600");
    }
    // The first address in the header is only what the client told the proxy.
    let answer = ask(Some("8.8.8.8, 1.1.1.1"), profile);
    assert_eq!(answer.status(), 429);
    let headers = answer.headers().clone();
    let wait: i64 = headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=600).contains(&wait));
    let reset: i64 = headers["ratelimit-reset"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(reset > feedmill::clock::Clock::Wall.now_us() / 1_000_000);
    assert_eq!(headers["access-control-allow-origin"], "*");
    let body: serde_json::Value = app.wait(answer.json()).unwrap();
    assert_eq!(body["error"], "RateLimitExceeded");
    assert_eq!(ask(bob, profile).status(), 200, "others are not concerned");
    assert_eq!(
        ask(None, profile).status(),
        200,
        "this machine is not limited"
    );
    assert!(
        ask(None, profile)
            .headers()
            .get("ratelimit-limit")
            .is_none()
    );
    // A notification costs as much as the records it names.
    let uris = json!({"uris": ["at://a", "at://b", "at://c", "at://d"]});
    let request = reqwest::Client::new()
        .post(format!("{}/xrpc/com.example.notifyOfUpdate", app.address()))
        .header("x-forwarded-for", "1.1.1.3")
        .json(&uris);
    assert_eq!(app.wait(request.send()).unwrap().status(), 429);
    let metrics = app.wait(async {
        let answer = reqwest::get(format!("{}/metrics", app.address())).await;
        answer.unwrap().text().await.unwrap()
    });
    assert!(
        metrics.contains("feedmill_http_limited_total{by=\"address\"} 2"),
        "{metrics}"
    );
}

#[test]
fn headers_that_are_too_long_or_too_slow_end_the_connection() {
    let app = world("header_bytes_max = 8192\nheader_s = 1");
    let mut stream = connect(&app);
    let long = "x".repeat(20_000);
    // It may close before all is sent.
    drop(write!(
        stream,
        "GET /health HTTP/1.1\r\nhost: localhost\r\nx-long: {long}\r\n\r\n"
    ));
    let said = rest(stream);
    assert!(
        said.is_empty() || said.starts_with("HTTP/1.1 431"),
        "{said}"
    );
    let mut stream = connect(&app);
    write!(stream, "GET /health HTTP/1.1\r\nhost: ").unwrap();
    let said = rest(stream);
    assert!(!said.contains("200 OK"), "{said}");
    // An idle one is closed too, so that it does not keep a place.
    let mut stream = connect(&app);
    write!(stream, "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    assert!(rest(stream).starts_with("HTTP/1.1 200 OK"));
    assert_eq!(app.get("/health").0, 200);
}

#[test]
fn beyond_the_most_connections_one_waits_for_a_place() {
    let app = world("connections_max = 2\nheader_s = 2");
    let held = [connect(&app), connect(&app)];
    // Both places are taken by clients that say nothing; they lose them, and this one is served.
    let mut third = connect(&app);
    write!(
        third,
        "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    assert!(rest(third).starts_with("HTTP/1.1 200 OK"));
    drop(held);
}

/// What a process holds.
#[derive(Debug)]
struct Holds {
    descriptors: usize,
    sockets: usize,
    resident_kib: u64,
}

fn holds(app: &App) -> Holds {
    let place = format!("/proc/{}", app.pid());
    let links = std::fs::read_dir(format!("{place}/fd")).unwrap();
    let links: Vec<String> = links
        .filter_map(|entry| {
            Some(
                std::fs::read_link(entry.ok()?.path())
                    .ok()?
                    .display()
                    .to_string(),
            )
        })
        .collect();
    let status = std::fs::read_to_string(format!("{place}/status")).unwrap();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    Holds {
        descriptors: links.len(),
        sockets: links
            .iter()
            .filter(|link| link.starts_with("socket:"))
            .count(),
        resident_kib: resident.trim().trim_end_matches(" kB").parse().unwrap(),
    }
}

fn open_connections(app: &App) -> String {
    let metrics = app.wait(async {
        let request = reqwest::Client::new().get(format!("{}/metrics", app.address()));
        request.send().await.unwrap().text().await.unwrap()
    });
    let line = metrics
        .lines()
        .find(|line| line.starts_with("feedmill_http_connections "));
    line.unwrap_or("none").to_owned()
}

/// Clients that come and go, that cut their requests short, and that never read.
fn churn(app: &App, rounds: usize) {
    let feed = "GET /xrpc/com.example.getFeed?feed=timeline&actor=did:plc:readerreaderreaderreader&profiles=true HTTP/1.1\r\nhost: localhost\r\n";
    let page = "GET / HTTP/1.1\r\nhost: localhost\r\n";
    for round in 0..rounds {
        let mut whole = connect(app);
        write!(whole, "{feed}connection: close\r\n\r\n").unwrap();
        assert!(rest(whole).starts_with("HTTP/1.1 200 OK"));
        let mut cut = connect(app);
        write!(cut, "{feed}\r\n").unwrap();
        drop(cut); // before the answer
        let mut half = connect(app);
        write!(half, "POST /xrpc/com.example.notifyOfUpdate HTTP/1.1\r\nhost: localhost\r\ncontent-length: 500\r\n\r\n{{\"ur").unwrap();
        drop(half); // in the middle of the body
        drop(connect(app)); // without a word
        if round % 10 == 0 {
            // Asks for much and reads nothing: must be let go after `stall_s`.
            let mut slow = connect(app);
            for _ in 0..2000 {
                if write!(slow, "{page}\r\n").is_err() {
                    break;
                }
            }
        }
    }
}

#[test]
fn clients_that_come_go_stall_and_vanish_leave_nothing_behind() {
    let app = world("stall_s = 1\nheader_s = 2");
    let rounds = std::env::var("FEEDMILL_CHURN").map_or(60, |rounds| rounds.parse().unwrap());
    churn(&app, 20); // what is made once is made
    let mut stalled = connect(&app);
    stalled
        .set_write_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let page = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(100);
    while stalled.write_all(page.as_bytes()).is_ok() {} // until it is let go, or both sides are full
    settle(&app);
    let before = holds(&app);
    churn(&app, rounds);
    settle(&app);
    let after = holds(&app);
    println!("{rounds} rounds: before {before:?}, after {after:?}");
    assert!(
        after.descriptors <= before.descriptors + 2,
        "{before:?} {after:?}"
    );
    assert!(after.sockets <= before.sockets + 2, "{before:?} {after:?}");
    let grown = after.resident_kib.saturating_sub(before.resident_kib);
    assert!(grown < 30_000, "{before:?} {after:?}");
    let metrics = app.wait(async {
        let answer = reqwest::get(format!("{}/metrics", app.address())).await;
        answer.unwrap().text().await.unwrap()
    });
    assert!(
        metrics.contains("feedmill_http_limited_total{by=\"stall\"}"),
        "nobody stalled"
    );
}

/// Waits until only our own question is connected.
fn settle(app: &App) {
    let begun = Instant::now();
    while open_connections(app) != "feedmill_http_connections 1" {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{}",
            open_connections(app)
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn no_secret_is_in_a_log() {
    let secrets = [
        ("FEEDMILL_APP_TOKEN", "app-secret-1"),
        ("FEEDMILL_SECRET", "key-secret-2"),
        ("FEEDMILL_ADMIN_TOKEN", "admin-secret-3"),
        ("FEEDMILL_NOTIFY_TOKEN", "notify-secret-4"),
    ];
    let config = CONFIG.replace(
        "notify = \"open\"",
        "notify = \"token\"\nprivate = [\"getFeed\"]",
    ) + "[intake]\nplc_url = \"http://127.0.0.1:9\"\n";
    let mut environment = secrets.to_vec();
    environment.push(("RUST_LOG", "trace"));
    let app = App::start_in(&config, &records(), &environment);
    let token = app.ask(
        Method::POST,
        "/tokens",
        Some("app-secret-1"),
        Some(json!({"user": 404})),
    );
    let reader = token.1["token"].as_str().unwrap().to_owned();
    let key = record::key::SigningKey::k256([7; 32]).unwrap();
    let jwt = crate::bearer::token(&key, "com.example.getFeed", |_| {});
    let feed = "/xrpc/com.example.getFeed?feed=timeline&actor=did:plc:readerreaderreaderreader";
    let body = json!({"uri": "at://did:plc:a/app.bsky.feed.post/1"});
    let tokens = [
        "app-secret-1",
        "admin-secret-3",
        "notify-secret-4",
        "wrong-secret-5",
        &reader,
        &jwt,
    ];
    for token in tokens {
        for path in [
            "/admin/dlq",
            "/feed",
            feed,
            "/xrpc/app.bsky.feed.getFeedSkeleton?feed=x",
        ] {
            app.ask(Method::GET, path, Some(token), None);
        }
        let path = "/xrpc/com.example.notifyOfUpdate";
        app.ask(Method::POST, path, Some(token), Some(body.clone()));
    }
    let log = app.logged();
    assert!(log.len() > 1000, "nothing was logged: {log}");
    for secret in secrets.iter().map(|(_, secret)| *secret).chain(tokens) {
        assert!(!log.contains(secret), "{secret:?} is in the log");
    }
}
