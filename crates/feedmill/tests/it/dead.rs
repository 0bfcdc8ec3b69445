//! Dead letters: listed by filter, replayed, discarded, over HTTP and the
//! command line; and the alert when there are too many.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use feedmill::clock::Clock;
use feedmill::config::Config;
use feedmill::dead::{self, job};
use feedmill::serve::admin::Admin;
use feedmill::store::{Fate, LetterQuery};
use feedmill::tend::{self, Alert, Tend};
use serde_json::Value;

use super::desk::{ALICE, BOB, Desk, listen};

fn collections(limit: u32) -> String {
    format!(
        "[collections.note]\ncollection = \"com.example.note\"\nvalidate = false\n\
         [[collections.note.rule]]\nname = \"small\"\nexpect = \"record.size <= {limit}\"\nmessage = \"too large\"\npath = \"size\"\n\
         [collections.other]\ncollection = \"com.example.other\"\nvalidate = false\n\
         [[collections.other.rule]]\nname = \"never\"\nexpect = \"false\"\nmessage = \"never\"\n"
    )
}

/// A store in a folder, under a configuration that may change.
fn desk_in(folder: &tempfile::TempDir, limit: u32) -> Desk {
    let text = format!(
        "namespace = \"com.example\"\n{}[settle]\ndead_alert = 2\n[store]\nurl = \"sqlite://{}/s.db\"\n",
        collections(limit),
        folder.path().display()
    );
    std::fs::write(folder.path().join("feedmill.toml"), &text).unwrap();
    Desk::of(Config::parse(&text).unwrap())
}

#[test]
fn letters_are_found_by_collection_stage_account_and_time() {
    let desk = Desk::new(&collections(5));
    let begun = desk.now_us();
    for number in 0..5 {
        desk.put(ALICE, "note", &number.to_string(), "{\"size\":9}");
    }
    desk.pass(10);
    desk.put(BOB, "other", "1", "{}");
    let found = |query: LetterQuery| {
        let query = LetterQuery {
            limit: 100,
            ..query
        };
        desk.store.letters(&query).unwrap().len()
    };
    assert_eq!(found(LetterQuery::default()), 6);
    assert_eq!(
        found(LetterQuery {
            collection: Some("com.example.other".into()),
            ..Default::default()
        }),
        1
    );
    assert_eq!(
        found(LetterQuery {
            stage: Some("rule".into()),
            ..Default::default()
        }),
        6
    );
    assert_eq!(
        found(LetterQuery {
            stage: Some("lexicon".into()),
            ..Default::default()
        }),
        0
    );
    assert_eq!(
        found(LetterQuery {
            did: Some(ALICE.into()),
            ..Default::default()
        }),
        5
    );
    assert_eq!(
        found(LetterQuery {
            since_us: Some(begun + 1),
            ..Default::default()
        }),
        1
    );
    assert_eq!(
        found(LetterQuery {
            until_us: Some(begun + 1),
            ..Default::default()
        }),
        5
    );
}

#[test]
fn letters_come_page_by_page_newest_first() {
    let desk = Desk::new(&collections(5));
    for number in 0..6 {
        desk.put(ALICE, "note", &number.to_string(), "{\"size\":9}");
    }
    let mut seen = Vec::new();
    let mut query = LetterQuery {
        limit: 2,
        ..Default::default()
    };
    loop {
        let page = desk.store.letters(&query).unwrap();
        let Some(last) = page.last() else { break };
        query.before = Some(last.id);
        seen.extend(page.iter().map(|letter| letter.id));
    }
    assert_eq!(seen.len(), 6);
    assert!(seen.is_sorted_by(|a, b| a > b));
}

#[test]
fn a_replay_uses_todays_configuration_and_moves_the_unit_from_dead_to_applied() {
    let folder = tempfile::tempdir().unwrap();
    let desk = desk_in(&folder, 5);
    desk.put(ALICE, "note", "1", "{\"size\":9}");
    let letter = desk.letter();
    // With the same configuration it is refused again.
    let done = dead::replay(&*desk.store, &desk.checker, desk.now_us(), letter.id).unwrap();
    assert_eq!(done.fate, Fate::Buried);
    let again = desk.letter();
    assert_eq!(again.id, letter.id);
    assert_eq!(
        (again.raw, again.cid.clone(), again.cursor),
        (letter.raw, letter.cid, letter.cursor)
    );
    assert_eq!(desk.accounting().dead, 1);
    drop(desk);

    let desk = desk_in(&folder, 10);
    let done = dead::replay(&*desk.store, &desk.checker, desk.now_us(), again.id).unwrap();
    assert_eq!(done.fate, Fate::Applied);
    assert!(desk.letters().is_empty());
    let accounting = desk.accounting();
    assert_eq!(
        (accounting.applied, accounting.dead, accounting.received),
        (1, 0, 1)
    );
    let row = desk
        .store
        .record(&desk.uri(ALICE, "note", "1"))
        .unwrap()
        .unwrap();
    assert_eq!(row.cid, Some(again.cid));
    assert!(dead::replay(&*desk.store, &desk.checker, desk.now_us(), again.id).is_err());
}

#[test]
fn all_letters_of_a_filter_are_replayed_once() {
    let folder = tempfile::tempdir().unwrap();
    let desk = desk_in(&folder, 5);
    for number in 0..150 {
        desk.put(ALICE, "note", &number.to_string(), "{\"size\":9}");
    }
    desk.put(BOB, "other", "1", "{}");
    drop(desk);
    let desk = desk_in(&folder, 10);
    let query = LetterQuery {
        did: Some(ALICE.into()),
        ..Default::default()
    };
    let replay_all = |query: &LetterQuery| {
        let clock = Clock::at(desk.now_us());
        let job = job::Job::new(&clock);
        job.run(&*desk.store, &desk.checker, &clock, query, &mut |_| {})
    };
    let done = replay_all(&query);
    assert_eq!((done.settled, done.buried, done.skipped), (150, 0, 0));
    assert_eq!(desk.letter().did, BOB);
    let done = replay_all(&LetterQuery::default());
    assert_eq!((done.settled, done.buried), (0, 1));
}

#[test]
fn a_discarded_letter_is_gone_and_its_unit_stays_counted() {
    let desk = Desk::new(&collections(5));
    desk.put(ALICE, "note", "1", "{\"size\":9}");
    let id = desk.letter().id;
    assert_eq!(
        desk.store.discard(desk.now_us(), id).unwrap(),
        Fate::Discarded
    );
    assert_eq!(desk.store.discard(desk.now_us(), id).unwrap(), Fate::Gone);
    assert!(desk.letters().is_empty());
    assert_eq!(desk.accounting().dead, 1);
}

/// A server of a desk, and its address.
async fn served(desk: &Desk, token: Option<&str>) -> String {
    let mut server = desk.server(None);
    server.admin = Some(Admin::new(
        token.map(str::to_owned),
        Arc::clone(&desk.checker),
    ));
    listen(server).await
}

async fn ask(method: reqwest::Method, url: String, token: &str) -> (u16, Value) {
    let request = reqwest::Client::new().request(method, url);
    let response = request
        .header("authorization", format!("Bearer {token}"))
        .send()
        .await
        .unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

#[tokio::test]
async fn without_the_token_nothing_is_told() {
    use reqwest::Method as M;
    let desk = Desk::new(&collections(5));
    desk.put(ALICE, "note", "1", "{\"size\":9}");
    for set in [None, Some(""), Some("secret")] {
        let address = served(&desk, set).await;
        for (method, path) in [
            (M::GET, "/admin/dlq"),
            (M::GET, "/admin/dlq/1"),
            (M::POST, "/admin/dlq/1/replay"),
            (M::POST, "/admin/dlq/replay-all"),
            (M::GET, "/admin/dlq/replay-all"),
            (M::DELETE, "/admin/dlq/replay-all"),
            (M::DELETE, "/admin/dlq/1"),
        ] {
            for guess in ["", "wrong", "secre"] {
                let (status, body) = ask(method.clone(), format!("{address}{path}"), guess).await;
                assert_eq!(
                    (status, &body["error"]),
                    (401, &Value::from("AuthRequired")),
                    "{path} {guess}"
                );
            }
            let response = reqwest::Client::new()
                .request(method, format!("{address}{path}"))
                .send()
                .await;
            assert_eq!(response.unwrap().status(), 401);
        }
    }
    assert_eq!(desk.letters().len(), 1);
}

#[tokio::test]
async fn the_operator_lists_shows_replays_and_discards_over_http() {
    use reqwest::Method as M;
    let desk = Desk::new(&collections(5));
    for number in 0..5 {
        desk.put(ALICE, "note", &number.to_string(), "{\"size\":9}");
    }
    let address = served(&desk, Some("secret")).await;
    let url = |path: &str| format!("{address}/admin/dlq{path}");
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let (status, page) = ask(
            M::GET,
            url(&format!("?limit=2&stage=rule{cursor}")),
            "secret",
        )
        .await;
        assert_eq!((status, &page["total"]), (200, &Value::from(5)));
        for entry in page["entries"].as_array().unwrap() {
            seen.push(entry["rkey"].as_str().unwrap().to_owned());
        }
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["4", "3", "2", "1", "0"]);
    let id = desk.letters()[0].id;
    let (status, entry) = ask(M::GET, url(&format!("/{id}")), "secret").await;
    assert_eq!(status, 200);
    assert_eq!(entry["id"], id.to_string());
    assert_eq!(entry["error"]["stage"], "rule");
    assert_eq!(entry["error"]["rule"], "small");
    assert_eq!(entry["error"]["path"][0], "size");
    assert_eq!(entry["rawRecord"]["size"], 9);
    assert_eq!(entry["firehoseCursor"], 7);
    assert!(entry["timestamp"].as_str().unwrap().starts_with("2026-"));

    let (status, body) = ask(M::POST, url(&format!("/{id}/replay")), "secret").await;
    assert_eq!((status, &body["result"]), (200, &Value::from("buried")));
    assert_eq!(body["error"]["message"], "too large");
    let (status, body) = ask(M::DELETE, url(&format!("/{id}")), "secret").await;
    assert_eq!((status, &body["deleted"]), (200, &Value::from(true)));
    assert_eq!(
        ask(M::DELETE, url(&format!("/{id}")), "secret").await.0,
        404
    );
    for bad in [
        "?limit=0",
        "?since=yesterday",
        "?cursor=x",
        "?colection=a",
        "/x",
    ] {
        assert_eq!(ask(M::GET, url(bad), "secret").await.0, 400, "{bad}");
    }
}

#[tokio::test]
async fn all_that_match_are_replayed_by_a_job_that_can_be_watched_over_http() {
    use reqwest::Method as M;
    let desk = Desk::new(&collections(5));
    for number in 0..4 {
        desk.put(ALICE, "note", &number.to_string(), "{\"size\":9}");
    }
    desk.put(ALICE, "other", "1", "{}");
    let address = served(&desk, Some("secret")).await;
    let url = |path: &str| format!("{address}/admin/dlq{path}");
    let job = url("/replay-all");
    assert_eq!(ask(M::GET, job.clone(), "secret").await.0, 404);
    let begin = url("/replay-all?collection=com.example.note");
    let (status, body) = ask(M::POST, begin, "secret").await;
    assert_eq!((status, &body["error"]), (200, &Value::Null), "{body}");
    // It says what the OpenAPI document promises from the first answer on.
    let begun_at = record::datetime::format_us(desk.now_us());
    assert_eq!(body["startedAt"], begun_at, "{body}");
    let is_running = body["state"] == "running";
    assert_eq!(body.get("endedAt").is_none(), is_running, "{body}");
    let ended = loop {
        let (status, body) = ask(M::GET, job.clone(), "secret").await;
        assert_eq!(status, 200);
        if body["state"] != "running" {
            break body;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(
        (&ended["state"], &ended["total"]),
        (&"done".into(), &4.into())
    );
    assert_eq!((&ended["done"], &ended["buried"]), (&4.into(), &4.into()));
    assert!(ended["endedAt"].is_string());
    assert_eq!(ask(M::DELETE, job, "secret").await.0, 200);
    let (_, page) = ask(M::GET, url("?collection=com.example.other"), "secret").await;
    assert_eq!(page["total"], 1, "totals follow the filter");
}

#[test]
fn the_command_line_does_the_same_on_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let desk = desk_in(&folder, 5);
    desk.put(ALICE, "note", "1", "{\"size\":9}");
    desk.put(BOB, "other", "1", "{}");
    drop(desk);
    drop(desk_in(&folder, 10));
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_feedmill"));
        let (verb, rest) = arguments.split_first().unwrap();
        let file = folder.path().join("feedmill.toml");
        let output = command
            .arg("dead")
            .arg(verb)
            .arg(file)
            .args(rest)
            .output()
            .unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let (good, text) = run(&["list", "--did", ALICE]);
    assert!(good && text.lines().count() == 1, "{text}");
    let entry: Value = serde_json::from_str(&text).unwrap();
    let id = entry["id"].as_str().unwrap();
    let (good, text) = run(&["show", id]);
    assert!(good && text.contains("too large"), "{text}");
    assert_eq!(run(&["replay", id]), (true, format!("{id} applied\n")));
    assert!(!run(&["replay", id]).0);
    let (good, text) = run(&["replay", "--all"]);
    assert!(
        good && text.starts_with("0 settled, 0 parked, 1 buried again"),
        "{text}"
    );
    let left: Value = serde_json::from_str(&run(&["list"]).1).unwrap();
    let left = left["id"].as_str().unwrap();
    assert_eq!(
        run(&["discard", left]),
        (true, format!("{left} discarded\n"))
    );
    assert_eq!(run(&["list"]), (true, String::new()));
}

#[test]
fn too_many_letters_raise_one_alert_until_the_pause_is_over_and_set_the_gauge() {
    let folder = tempfile::tempdir().unwrap();
    let desk = desk_in(&folder, 5);
    feedmill::metrics::recorder();
    let mut tend = Tend::new(Arc::clone(&desk.store), desk.config.settle.clone());
    desk.put(ALICE, "note", "1", "{\"size\":9}");
    desk.put(ALICE, "note", "2", "{\"size\":9}");
    assert_eq!(tend.step(desk.now_us()).unwrap(), []);
    desk.put(ALICE, "note", "3", "{\"size\":9}");
    let alert = tend.step(desk.now_us()).unwrap().remove(0);
    assert_eq!(
        (alert.alert.as_str(), alert.count, alert.threshold),
        ("dead_letters", 3, 2)
    );
    assert_eq!(tend.step(desk.now_us()).unwrap(), []);
    assert_eq!(tend.step(desk.now_us() + 3_600_000_000).unwrap().len(), 1);
    let monitor = feedmill::monitor::Monitor {
        store: Arc::clone(&desk.store),
        status: Arc::default(),
        clock: feedmill::clock::Clock::Wall,
        folder: None,
    };
    monitor.measure();
    let text = monitor.status.scrape(desk.now_us(), &desk.store.writing());
    for line in [
        "feedmill_dead_letters 3\n",
        "feedmill_parked_records 0\n",
        "feedmill_alerts_total",
    ] {
        assert!(text.contains(line), "{line}");
    }
}

#[tokio::test]
async fn an_alert_is_posted_again_until_it_is_taken_and_then_given_up() {
    feedmill::identity::provide_tls();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let router = axum::Router::new().route(
        "/",
        axum::routing::post(move |body: String| async move {
            assert!(body.contains("\"alert\":\"dead_letters\""), "{body}");
            if counted.fetch_add(1, Ordering::SeqCst) < 2 {
                axum::http::StatusCode::BAD_GATEWAY
            } else {
                axum::http::StatusCode::OK
            }
        }),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let alert = Alert {
        alert: "dead_letters".into(),
        stage: None,
        collection: None,
        count: 101,
        threshold: 100,
        time: String::new(),
    };
    let fetcher = feedmill::reach::fetch::Fetcher::of_operator(&[&url]).unwrap();
    let at_once = |_| std::future::ready(());
    assert!(tend::post(&fetcher, &url, &alert, at_once).await);
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    // Nobody listens here.
    assert!(!tend::post(&fetcher, "http://127.0.0.1:1/", &alert, at_once).await);
}
