//! The page at `/`, driven in a real browser.
//!
//! The script is `tests/peers/page.mjs`; here the real binary is started for
//! it, as a newcomer would, and stopped again.

use std::path::Path;
use std::time::{Duration, Instant};

use feedmill::clock::Clock;
use feedmill::config::Config;
use feedmill::lease::{Claim, Lease};
use feedmill::river::{River, Role, Start};
use record::key::SigningKey;
use reqwest::Method;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::app::{App, Kept};
use crate::bearer::{AUTHOR, Directory, READER};
use crate::bed::PATIENCE;
use crate::desk::{ALICE, Desk};
use crate::log_replicas::serve;
use crate::peers::{Demo, node};

/// Where screenshots go: FEEDMILL_SHOTS=folder keeps them for a look.
fn shots() -> (String, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let named = std::env::var("FEEDMILL_SHOTS");
    let name = named.unwrap_or_else(|_| folder.path().display().to_string());
    (name, folder)
}

#[test]
fn a_newcomer_sees_a_living_feed_in_a_browser() {
    let demo = Demo::start(
        &["demo", "--port", "0", "--accounts", "400", "--rate", "60"],
        "  open ",
    );
    let address = demo.word("  open ");
    let (folder, _kept) = shots();
    let Some(found) = node("page.mjs", &[&address, &folder]) else {
        return;
    };
    assert_eq!(found["console_errors"], 0);
    assert!(found["shown"].as_i64().unwrap() > 30, "{found}");
    demo.stop();
}

/// Feeds of every kind; a token of service-auth is asked for where `private` names `getFeed`.
const FEEDS: &str = r#"
namespace = "com.example"
[collections.follow]
collection = "com.example.follow"
validate = false
[collections.post]
collection = "com.example.post"
validate = false
[collections.card]
collection = "com.example.card"
validate = false
[collections.link]
collection = "com.example.link"
validate = false
[collections.set]
collection = "com.example.set"
validate = false
[collections.photo]
collection = "com.example.photo"
direct = true
validate = false
[collections.fan]
collection = "com.example.fan"
direct = true
validate = false
[feeds.doings]
targets = [
    { collection = "card", merge = "uri", activity = "COLLECTED" },
    { collection = "link", merge = "card.uri", union = ["set.uri"], activity = "COLLECTED" },
]
[feeds.doings.activity]
subject = "card"
union = "sets"
[feeds.photos]
follow = "fan"
targets = ["photo"]
[feeds.timeline]
targets = ["post"]
[serve]
public_url = "https://feeds.example"
private = ["getFeed"]
[identity]
allow_private = false
"#;

/// Who reads the merged feed.
const GUEST: &str = "did:web:guest.test";

/// One author's card in a collection, an older card, and a post; followed by both readers.
fn records() -> Vec<Kept> {
    let at = |second: u8| format!("2026-01-01T00:00:{second:02}Z");
    let uri = |kind: &str, rkey: &str| format!("at://{AUTHOR}/com.example.{kind}/{rkey}");
    let follow = |did| -> Kept {
        let body = json!({ "subject": AUTHOR });
        (did, "com.example.follow", "1".to_owned(), body)
    };
    let kept = |nsid, rkey: &str, mut body: Value, second| -> Kept {
        body["createdAt"] = at(second).into();
        (AUTHOR, nsid, rkey.to_owned(), body)
    };
    let link = json!({"card": {"uri": uri("card", "c1")}, "set": {"uri": uri("set", "s1")}});
    let title = json!({"content": {"metadata": {"title": "A card about birds"}}});
    vec![
        follow(READER),
        follow(GUEST),
        kept("com.example.set", "s1", json!({"name": "Reading list"}), 0),
        kept(
            "com.example.card",
            "c0",
            json!({"title": "An older card"}),
            0,
        ),
        kept("com.example.card", "c1", title, 1),
        kept("com.example.link", "l1", link, 2),
        kept(
            "com.example.post",
            "p1",
            json!({"text": "a private post"}),
            1,
        ),
    ]
}

#[test]
fn merged_direct_and_private_feeds_are_read_in_a_browser() {
    let key = SigningKey::k256([7; 32]).unwrap();
    let directory = Directory::start(key.clone());
    let config = format!("{FEEDS}[intake]\nplc_url = \"{}\"\n", directory.url);
    let app = App::start_on(&config, &records());
    let photo = json!({"user_id": 7, "text": "a photo of a bird"});
    app.act(Method::PUT, "/records/photo/1", photo);
    app.act(Method::POST, "/follow", json!({"user": 8, "follows": 7}));
    let (folder, _kept) = shots();
    let facts = json!({
        "guest": GUEST,
        "own": app.token(8),
        "token": crate::bearer::token(&key, "com.example.getFeed", |_| {}),
    });
    let arguments = [app.address(), folder.as_str(), &facts.to_string()];
    if let Some(found) = node("feeds.mjs", &arguments) {
        assert_eq!(found["console_errors"], 0);
    }
}

#[test]
fn the_spaces_of_a_log_are_seen_in_a_browser() {
    let folder = tempfile::tempdir().unwrap();
    let token = [("FEEDMILL_LOG_TOKEN", "secret")];
    let open = "read = \"anyone\"\nappend = \"anyone\"\ncreate = \"anyone\"\n[log.spaces.secret]\nread = \"token\"\n";
    let (_server, url) = serve(folder.path(), "origin", open, &token);
    let (shots, _kept) = shots();
    if let Some(found) = node("log.mjs", &[&url, &shots]) {
        assert_eq!(found["console_errors"], 0);
    }
}

/// Waits until the script says that it saw something, or has ended.
async fn seen(folder: &Path, name: &str, script: &tokio::task::JoinHandle<Option<Value>>) {
    let begun = Instant::now();
    while !folder.join(name).exists() && !script.is_finished() {
        assert!(begun.elapsed() < PATIENCE, "it never saw {name}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_says_what_is_wrong_while_the_process_waits_and_while_the_store_fails() {
    feedmill::identity::provide_tls();
    let (shots, kept) = shots();
    let folder = kept.path().to_owned();
    let file = folder.join("store.db");
    let address = format!("127.0.0.1:{}", crate::life::free_port());
    let config = Config::parse(&format!(
        "namespace = \"com.example\"\n[collections.post]\ncollection = \"com.example.post\"\nvalidate = false\n\
         [store]\nurl = \"sqlite://{}\"\n[serve]\nbind = \"{address}\"\n",
        file.display()
    ))
    .unwrap();
    Desk::of(config.clone()).put(ALICE, "post", "1", "{}");
    // As another process that ingests would, for as long as the script needs.
    let Claim::Held(lease) = Lease::claim(&config.store).unwrap() else {
        panic!("nobody else has it");
    };
    let starting = tokio::spawn(async move {
        let start = Start {
            role: Role::All,
            clock: Clock::Wall,
            lexicons: &[],
        };
        River::start(&config, start).await
    });
    let begun = Instant::now();
    while tokio::net::TcpStream::connect(&address).await.is_err() {
        assert!(begun.elapsed() < PATIENCE, "nobody listens");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let script = tokio::task::spawn_blocking(move || {
        let (address, folder) = (format!("http://{address}"), shots);
        node("problems.mjs", &[&address, &folder])
    });
    let folder = std::env::var("FEEDMILL_SHOTS").map_or(folder, Into::into);
    seen(&folder, "standby", &script).await;
    drop(lease);
    let river = starting.await.unwrap().unwrap();
    seen(&folder, "live", &script).await;
    let beside = Connection::open(&file).unwrap();
    beside.busy_timeout(PATIENCE).unwrap();
    beside
        .execute_batch("ALTER TABLE source RENAME TO away")
        .unwrap();
    if let Some(found) = script.await.unwrap() {
        let problems = found["problems"].as_str().unwrap();
        assert!(problems.contains("no such table"), "{found}");
    }
    river.stop().await;
}
