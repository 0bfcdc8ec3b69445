//! An app's readers at the network's methods: by their own ids, by their own
//! tokens, and nobody without one.

use std::process::Command;

use reqwest::Method;
use serde_json::{Value, json};

use crate::app::{APP, App};

fn example() -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/photos.toml");
    std::fs::read_to_string(path).unwrap()
}

/// Two posts of whom the reader follows.
fn world(config: &str) -> App {
    let app = App::start(config);
    for id in [1049, 1050] {
        let time = format!("2025-11-29T10:00:{}Z", id - 1000);
        let body = json!({"user_id": 501, "caption": "the sea", "created_at": time});
        app.act(Method::PUT, &format!("/records/post/{id}"), body);
    }
    app.act(
        Method::POST,
        "/follow",
        json!({"user": 404, "follows": 501}),
    );
    app
}

#[track_caller]
fn check(app: &App, path: &str, token: Option<&str>, expected: Result<usize, (u16, &str)>) {
    let (status, answer) = app.ask(Method::GET, path, token, None);
    let found = match answer["error"].as_str() {
        Some(name) => Err((status, name)),
        None => Ok(answer["records"].as_array().map_or(0, Vec::len)),
    };
    assert_eq!(found, expected, "{path}: {answer}");
}

const FEED: &str = "/xrpc/app.photos.getFeed?feed=home";
const NEEDED: Result<usize, (u16, &str)> = Err((401, "AuthenticationRequired"));

#[test]
fn a_reader_reads_by_its_token_and_the_app_for_whom_it_names() {
    let app = world(&example());
    let (reader, other) = (app.token(404), app.token(405));
    check(&app, FEED, Some(&reader), Ok(2));
    check(&app, &format!("{FEED}&actor=404"), Some(&reader), Ok(2));
    check(
        &app,
        &format!("{FEED}&actor=did:local:c404"),
        Some(&reader),
        Ok(2),
    );
    check(&app, FEED, Some(&other), Ok(0));
    check(
        &app,
        &format!("{FEED}&actor=404"),
        Some(&other),
        Err((403, "Forbidden")),
    );
    check(&app, &format!("{FEED}&actor=404"), Some(APP), Ok(2));
    check(&app, FEED, Some(APP), Err((400, "InvalidRequest")));
    // Again, now that the timeline is in memory.
    check(&app, FEED, Some(&reader), Ok(2));
    check(&app, &format!("{FEED}&actor=did:local:c404"), None, NEEDED);
}

#[test]
fn what_is_written_directly_is_shown_to_nobody_without_a_token() {
    let app = world(&example());
    let reader = app.token(404);
    let post = "at://did:local:repo/app.photos.post/d1050";
    for path in [
        format!("{FEED}&actor=did:local:c404"),
        format!("{FEED}&actor=404"),
        "/xrpc/app.photos.subscribeFeed?feed=home&actor=404".to_owned(),
        "/xrpc/app.photos.post.listRecords".to_owned(),
        format!("/xrpc/app.photos.post.getRecord?uri={post}"),
        "/xrpc/app.photos.follow.listRecords?actor=404".to_owned(),
        format!("/xrpc/app.photos.getReferences?uri={post}"),
        format!("/xrpc/app.photos.listReferences?uri={post}"),
        format!("/xrpc/app.photos.getGraph?uri={post}"),
    ] {
        if !path.contains("subscribe") {
            check(&app, &path, None, NEEDED);
            let (status, answer) = app.ask(Method::GET, &path, Some("garbage"), None);
            assert_eq!(status, 401, "{path}: {answer}");
            let asked = app.ask(Method::GET, &path, Some(&reader), None);
            assert_eq!(asked.0, 200, "{path}: {}", asked.1);
        }
    }
    check(
        &app,
        "/xrpc/app.photos.post.listRecords?actor=501",
        Some(APP),
        Ok(2),
    );
    let (_, page) = app.get("/page/readers");
    assert_eq!(
        page["feeds"],
        json!([{"feed": "home", "readers": [], "token": "app"}]),
        "nor are readers named to anybody: the page asks for a token"
    );
}

#[test]
fn an_open_door_is_open_for_the_network_methods_too() {
    let app = world(&format!("{}open = true\n", example()));
    check(&app, &format!("{FEED}&actor=404"), None, Ok(2));
    check(&app, "/xrpc/app.photos.post.listRecords", None, Ok(2));
    let (status, answer) = app.get("/feed");
    assert_eq!(status, 401);
    assert!(
        answer["message"].as_str().unwrap().contains("?user="),
        "{answer}"
    );
    let (status, answer) = app.ask(Method::GET, "/feed", Some(APP), None);
    assert_eq!(status, 400);
    assert!(
        answer["message"].as_str().unwrap().contains("?user="),
        "{answer}"
    );
}

#[test]
fn a_feed_of_the_network_beside_a_direct_one_stays_open() {
    let config = format!(
        "{}\n[collections.note]\ncollection = \"com.example.note\"\nvalidate = false\n\
         [collections.fan]\ncollection = \"com.example.fan\"\nvalidate = false\n\
         [feeds.network]\nfollow = \"fan\"\ntargets = [\"note\"]\n",
        example().replace(
            "app.photos.comment\"\n",
            "app.photos.comment\"\nlinks = [\"about\"]\n"
        )
    );
    let app = world(&config);
    let note = "at://did:plc:a/com.example.note/1";
    let body = json!({"user_id": 501, "about": note});
    app.act(Method::PUT, "/records/comment/1", body);
    for (token, expected) in [(None, 0), (Some(APP), 1)] {
        let path = format!("/xrpc/app.photos.listReferences?uri={note}");
        let (status, answer) = app.ask(Method::GET, &path, token, None);
        let found = answer["references"].as_array().map(Vec::len);
        assert_eq!((status, found), (200, Some(expected)), "{answer}");
        let path = format!("/xrpc/app.photos.getGraph?uri={note}");
        let (_, answer) = app.ask(Method::GET, &path, token, None);
        let found = answer["edges"].as_array().map(Vec::len);
        assert_eq!(found, Some(expected), "{answer}");
    }
    check(
        &app,
        "/xrpc/app.photos.getFeed?feed=network&actor=did:plc:aaaaaaaaaaaaaaaaaaaaaaaa",
        None,
        Ok(0),
    );
    check(&app, "/xrpc/app.photos.note.listRecords", None, Ok(0));
    check(&app, &format!("{FEED}&actor=404"), None, NEEDED);
}

/// The first event of a feed that is listened to.
fn first_event(app: &App, query: &str, token: Option<&str>) -> (u16, String) {
    let mut request = reqwest::Client::new()
        .get(format!(
            "{}/xrpc/app.photos.subscribeFeed?feed=home{query}",
            app.address()
        ))
        .header("accept", "text/event-stream");
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    app.wait(async {
        let mut answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let chunk = answer.chunk().await.unwrap().unwrap();
        (status, String::from_utf8(chunk.to_vec()).unwrap())
    })
}

#[test]
fn a_reader_listens_by_its_own_id_or_token() {
    let app = world(&example());
    let (reader, other) = (app.token(404), app.token(405));
    for (query, token) in [
        ("", &*reader),
        ("&actor=404", &*reader),
        ("&actor=404", APP),
    ] {
        let (status, event) = first_event(&app, query, Some(token));
        assert_eq!(status, 200, "{event}");
        assert!(event.starts_with("event: start"), "{event}");
    }
    assert_eq!(first_event(&app, "&actor=404", None).0, 401);
    assert_eq!(first_event(&app, "&actor=404", Some(&other)).0, 403);
}

#[test]
fn explain_takes_the_ids_of_an_app() {
    let app = App::start_in(&example(), &[], &[("FEEDMILL_ADMIN_TOKEN", "operator")]);
    let body = json!({"user_id": 501, "caption": "the sea"});
    app.act(Method::PUT, "/records/post/1050", body);
    app.act(
        Method::POST,
        "/follow",
        json!({"user": 404, "follows": 501}),
    );
    let path = "/admin/explain?reader=404&uri=1050";
    let (status, answer) = app.ask(Method::GET, path, Some("operator"), None);
    assert_eq!(
        (status, &answer["feeds"][0]["shown"]),
        (200, &json!(true)),
        "{answer}"
    );
    let run = |reader: &str, id: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_feedmill"))
            .arg("explain")
            .arg(app.folder().join("feedmill.toml"))
            .arg("--database-url")
            .arg(format!(
                "sqlite://{}",
                app.folder().join("store.db").display()
            ))
            .args(["--reader", reader, "--uri", id, "--json"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        (text, error)
    };
    let explain = |reader: &str, id: &str| -> Value {
        let (text, error) = run(reader, id);
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text} {error}"))
    };
    assert_eq!(explain("404", "1050")["shown"], true);
    assert_eq!(explain("405", "1050")["reason"], "notFollowed");
    assert_eq!(explain("404", "1051")["reason"], "neverSeen");
    for (reader, id, word) in [
        ("abc", "1050", "a whole number from 0"),
        ("did:plc:xyz", "1050", "a whole number from 0"),
        ("404", "abc", "names no record"),
    ] {
        let (text, error) = run(reader, id);
        assert!(text.is_empty() && error.contains(word), "{text} {error}");
    }
}
