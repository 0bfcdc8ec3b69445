//! What names a person of an app and what does not: wherever one is named, what
//! is no name is refused, and the answer says what is one.

use reqwest::Method;
use serde_json::{Value, json};

use crate::app::{APP, App};

const OPERATOR: &str = "operator";

/// The example's app, whose ids are these.
fn app(ids: &str, more: &str) -> App {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/photos.toml");
    let example = std::fs::read_to_string(path).unwrap();
    assert!(example.contains("ids = \"number\""));
    let config = example.replace("ids = \"number\"", &format!("ids = \"{ids}\"\n{more}"));
    App::start_in(&config, &[], &[("FEEDMILL_ADMIN_TOKEN", OPERATOR)])
}

/// The answer to an app that acts for whom a header names.
fn for_actor(app: &App, path: &str, actor: &str) -> (u16, Value) {
    let request = reqwest::Client::new()
        .get(format!("{}{path}", app.address()))
        .bearer_auth(APP)
        .header("x-feedmill-actor", actor);
    app.wait(async {
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    })
}

/// The answers of everything that reads for a person.
fn reads(app: &App, name: &str) -> Vec<(u16, Value)> {
    let get = |path: String, token| app.ask(Method::GET, &path, Some(token), None);
    vec![
        get(
            format!("/xrpc/app.photos.getFeed?feed=home&actor={name}"),
            APP,
        ),
        get(
            format!("/xrpc/app.photos.post.listRecords?actor={name}"),
            APP,
        ),
        get(format!("/records/post?actor={name}"), APP),
        get(
            format!("/admin/explain?reader={name}&uri=1050&feed=home"),
            OPERATOR,
        ),
        for_actor(app, "/feed", name),
    ]
}

/// The answers of everything that writes for a person or about one.
fn writes(app: &App, name: &Value) -> Vec<(u16, Value)> {
    let ask = |method, path, body| app.ask(method, path, Some(APP), Some(body));
    vec![
        ask(Method::PUT, "/records/post/1", json!({"user_id": name})),
        ask(
            Method::POST,
            "/follow",
            json!({"user": name, "follows": 501}),
        ),
        ask(
            Method::POST,
            "/follow",
            json!({"user": 404, "follows": name}),
        ),
        ask(
            Method::POST,
            "/unfollow",
            json!({"user": 404, "follows": name}),
        ),
        ask(
            Method::POST,
            "/follow-many",
            json!({"user": 404, "follows": [1, 2, 3, name]}),
        ),
        ask(Method::POST, "/tokens", json!({ "user": name })),
    ]
}

#[track_caller]
fn refused(answers: Vec<(u16, Value)>, name: &str, words: &[&str], never: &str) {
    for (at, (status, answer)) in answers.into_iter().enumerate() {
        let error = answer["error"].as_str();
        let place = format!("{name} at {at}: {answer}");
        assert_eq!((status, error), (400, Some("InvalidRequest")), "{place}");
        let message = answer["message"].as_str().unwrap();
        assert!(words.iter().all(|word| message.contains(word)), "{place}");
        assert!(never.is_empty() || !message.contains(never), "{place}");
    }
}

const NUMBERS: &str = "a whole number from 0 to 18446744073709551615";

#[test]
fn where_ids_are_numbers_people_are_numbers_too() {
    let app = app("number", "");
    for name in ["abc", "-1", "1.5", "007", "at://x", "18446744073709551616"] {
        refused(reads(&app, name), name, &[NUMBERS], "text");
        refused(writes(&app, &name.into()), name, &[NUMBERS], "text");
    }
    for value in [json!(-1), json!(1.5), json!(null), json!(["a"])] {
        refused(
            writes(&app, &value),
            &value.to_string(),
            &[NUMBERS],
            "a text",
        );
    }
    let (_, page) = app.ask(Method::GET, "/records/follow", Some(APP), None);
    assert_eq!(page, json!({"records": []}), "nothing refused was kept");
    for (status, answer) in reads(&app, "404") {
        assert_eq!(status, 200, "{answer}");
    }
    for (status, answer) in writes(&app, &json!("404")) {
        assert_eq!(status, 200, "a number may be written as a text: {answer}");
    }
}

#[test]
fn where_ids_are_numbers_no_refusal_speaks_of_texts() {
    let app = app("number", "");
    for (path, name) in [
        ("/feed?cursor=", "BadCursor"),
        ("/feed?cursor=abc", "BadCursor"),
    ] {
        let (status, answer) = for_actor(&app, path, "404");
        assert_eq!((status, &answer["error"]), (400, &json!(name)), "{answer}");
        let message = answer["message"].as_str().unwrap();
        assert!(
            message.contains(NUMBERS) && !message.contains("text"),
            "{answer}"
        );
    }
    let path = "/admin/explain?reader=404&uri=abc";
    let asked = app.ask(Method::GET, path, Some(OPERATOR), None);
    refused(vec![asked], "abc", &["id of a record"], "");
}

#[test]
fn an_open_door_takes_no_other_names() {
    let app = app("number", "open = true");
    refused(vec![app.get("/feed?user=abc")], "abc", &[NUMBERS], "text");
    assert_eq!(app.get("/feed?user=404").0, 200);
}

#[test]
fn what_is_no_id_and_no_did_names_nobody() {
    let app = app("any", "");
    let words = [
        "whole number from 0, or a text of 1 to 128 bytes",
        "did: or at://",
    ];
    for name in [
        "did:",
        "did:foo",
        "did:foo:bar",
        "did:plc:xyz",
        "did:local:repo",
        "at://x",
    ] {
        refused(reads(&app, name), name, &words, "");
        refused(writes(&app, &name.into()), name, &words, "");
    }
    for name in ["404", "anna", "anna.example.com"] {
        for (status, answer) in reads(&app, name) {
            assert_eq!(status, 200, "{name}: {answer}");
        }
    }
}

#[test]
fn a_did_or_id_of_whom_nothing_is_known_has_an_empty_feed() {
    let plc = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa";
    for (ids, names) in [
        (
            "number",
            vec!["9", "did:local:a9", plc, "did:web:nobody.test"],
        ),
        ("any", vec!["9", "nobody", "did:local:_nobody", plc]),
    ] {
        let app = app(ids, "");
        for name in names {
            let path = format!("/xrpc/app.photos.getFeed?feed=home&actor={name}");
            let asked = app.ask(Method::GET, &path, Some(APP), None);
            assert_eq!(asked, (200, json!({"records": []})), "{ids} {name}");
        }
    }
}
