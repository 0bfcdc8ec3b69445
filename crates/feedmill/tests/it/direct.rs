//! The direct API: who may do what, and what is refused.

use reqwest::Method;
use serde_json::{Value, json};

use crate::app::{APP, App};

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
time = "created_at"
[feeds.home]
follow = "follow"
targets = ["note"]
"#;

#[track_caller]
fn refused(found: (u16, Value), status: u16, name: &str) {
    assert_eq!(
        (found.0, found.1["error"].as_str()),
        (status, Some(name)),
        "{}",
        found.1
    );
}

#[test]
fn a_record_comes_back_as_it_was_put_with_what_was_left_out() {
    let app = App::start(CONFIG);
    let body = json!({"user_id": "anna", "text": "first", "tags": ["a"], "deep": {"n": 1}});
    let answer = app.act(Method::PUT, "/records/note/n-1", body);
    assert_eq!(answer["created"], true);
    let note = app.act(Method::GET, "/records/note/n-1", Value::Null);
    assert_eq!(note["id"], "n-1");
    assert_eq!(note["deep"], json!({"n": 1}));
    assert!(
        note["created_at"].as_str().unwrap().ends_with('Z'),
        "{note}"
    );
    let answer = app.act(
        Method::PUT,
        "/records/note/n-1",
        json!({"user_id": "anna", "text": "second"}),
    );
    assert_eq!(answer["created"], false);
    let edited = app.act(Method::GET, "/records/note/n-1", Value::Null);
    assert_eq!(edited["created_at"], note["created_at"]);
    app.act(Method::DELETE, "/records/note/n-1", Value::Null);
    refused(
        app.ask(Method::GET, "/records/note/n-1", Some(APP), None),
        404,
        "RecordNotFound",
    );
}

#[test]
fn records_are_listed_newest_first_by_person_and_by_page() {
    let app = App::start(CONFIG);
    for n in 1..=9 {
        let body = json!({"user_id": n % 2, "created_at": format!("2026-01-0{n}T00:00:00Z")});
        app.act(Method::PUT, &format!("/records/note/{n}"), body);
    }
    let list = |query: &str| app.act(Method::GET, &format!("/records/note?{query}"), Value::Null);
    let ids = |page: &Value| -> Vec<u64> {
        let records = page["records"].as_array().unwrap();
        records
            .iter()
            .map(|record| record["id"].as_u64().unwrap())
            .collect()
    };
    let first = list("actor=1&limit=3");
    assert_eq!(ids(&first), [9, 7, 5]);
    let rest = list(&format!(
        "actor=1&limit=3&cursor={}",
        first["cursor"].as_str().unwrap()
    ));
    assert_eq!(ids(&rest), [3, 1]);
    assert!(rest.get("cursor").is_none());
    assert_eq!(ids(&list("limit=200")).len(), 9);
    refused(
        app.ask(Method::GET, "/records/note?cursor=e30", Some(APP), None),
        400,
        "BadCursor",
    );
    refused(
        app.ask(Method::GET, "/records/note?order=asc", Some(APP), None),
        400,
        "InvalidRequest",
    );
}

#[test]
fn only_the_app_writes_and_a_reader_reads_only_for_himself() {
    let app = App::start(CONFIG);
    let body = || Some(json!({"user_id": 1, "user": 1, "follows": 2}));
    let reader = app.token(404);
    for (method, path) in [
        (Method::PUT, "/records/note/1"),
        (Method::DELETE, "/records/note/1"),
        (Method::POST, "/follow"),
        (Method::POST, "/unfollow"),
        (Method::POST, "/follow-many"),
        (Method::POST, "/tokens"),
    ] {
        refused(
            app.ask(method.clone(), path, None, body()),
            401,
            "AuthenticationRequired",
        );
        refused(
            app.ask(method.clone(), path, Some("wrong"), body()),
            401,
            "InvalidToken",
        );
        refused(
            app.ask(method, path, Some(&reader), body()),
            403,
            "Forbidden",
        );
    }
    refused(app.get("/feed"), 401, "AuthenticationRequired");
    refused(app.get("/records/note"), 401, "AuthenticationRequired");
    refused(app.get("/feed?user=404"), 400, "InvalidRequest");
    refused(
        app.ask(Method::GET, "/feed?user=405", Some(&reader), None),
        400,
        "InvalidRequest",
    );
    assert_eq!(app.ask(Method::GET, "/feed", Some(&reader), None).0, 200);
}

#[test]
fn an_open_door_lets_a_reader_name_himself_but_no_other_reader() {
    let app = App::start(&format!("{CONFIG}[direct]\nopen = true\n"));
    app.act(
        Method::PUT,
        "/records/note/1",
        json!({"user_id": 2, "text": "x"}),
    );
    app.act(Method::POST, "/follow", json!({"user": 404, "follows": 2}));
    let (status, page) = app.get("/feed?user=404");
    assert_eq!(
        (status, &page["posts"][0]["id"]),
        (200, &json!(1)),
        "{page}"
    );
    let reader = app.token(404);
    refused(
        app.ask(Method::GET, "/feed?user=405", Some(&reader), None),
        403,
        "Forbidden",
    );
    let put = app.ask(
        Method::PUT,
        "/records/note/2",
        None,
        Some(json!({"user_id": 2})),
    );
    refused(put, 401, "AuthenticationRequired");
}

#[test]
fn a_record_never_changes_hands() {
    let app = App::start(CONFIG);
    app.act(Method::PUT, "/records/note/1", json!({"user_id": 501}));
    let other = app.ask(
        Method::PUT,
        "/records/note/1",
        Some(APP),
        Some(json!({"user_id": 502})),
    );
    refused(other, 403, "Forbidden");
    assert_eq!(
        app.act(Method::GET, "/records/note/1", Value::Null)["user_id"],
        501
    );
}

#[test]
fn a_record_never_changes_hands_but_the_id_of_a_deleted_one_is_free() {
    let app = App::start(CONFIG);
    app.act(Method::PUT, "/records/note/1", json!({"user_id": 501}));
    app.act(Method::DELETE, "/records/note/1", Value::Null);
    app.act(Method::PUT, "/records/note/1", json!({"user_id": 502}));
    let note = app.act(Method::GET, "/records/note/1", Value::Null);
    assert_eq!(note["user_id"], 502);
}

#[test]
fn bad_input_is_refused_and_says_why() {
    let app = App::start(CONFIG);
    let put = |path: &str, body: Value| app.ask(Method::PUT, path, Some(APP), Some(body));
    refused(
        put("/records/nothing/1", json!({"user_id": 1})),
        404,
        "RecordNotFound",
    );
    refused(
        put("/records/follow/1", json!({"user_id": 1})),
        400,
        "InvalidRequest",
    );
    refused(put("/records/note/1", json!([1])), 400, "InvalidRequest");
    refused(
        put("/records/note/1", json!({"text": "whose?"})),
        400,
        "InvalidRequest",
    );
    refused(
        put("/records/note/1", json!({"user_id": -1})),
        400,
        "InvalidRequest",
    );
    refused(
        put("/records/note/1", json!({"user_id": 1, "id": 2})),
        400,
        "InvalidRequest",
    );
    refused(
        put("/records/note/1", json!({"user_id": 1, "x": 1.5})),
        400,
        "InvalidRecord",
    );
    let long = "x".repeat(129);
    refused(
        put(&format!("/records/note/{long}"), json!({"user_id": 1})),
        400,
        "InvalidRequest",
    );
    let post = |body: Value| app.ask(Method::POST, "/follow", Some(APP), Some(body));
    refused(post(json!({"user": 1})), 400, "InvalidRequest");
    refused(
        post(json!({"user": 1, "follows": 2, "key": "a"})),
        400,
        "InvalidRequest",
    );
    refused(post(json!({"user": 1, "follow": 2})), 400, "InvalidRequest");
    let (_, page) = app.ask(Method::GET, "/records/note", Some(APP), None);
    assert_eq!(page, json!({"records": []}), "nothing refused was kept");
}

#[test]
fn records_follows_and_tokens_outlive_a_kill() {
    let mut app = App::start(CONFIG);
    app.act(
        Method::PUT,
        "/records/note/1",
        json!({"user_id": 2, "text": "one"}),
    );
    app.act(Method::POST, "/follow", json!({"user": 404, "follows": 2}));
    let reader = app.token(404);
    app.restart();
    app.act(
        Method::PUT,
        "/records/note/2",
        json!({"user_id": 2, "text": "two"}),
    );
    app.act(
        Method::PUT,
        "/records/note/1",
        json!({"user_id": 2, "text": "edited"}),
    );
    let (status, page) = app.ask(Method::GET, "/feed", Some(&reader), None);
    assert_eq!(status, 200);
    assert_eq!(page["posts"][1]["text"], "edited");
    assert_eq!(page["posts"].as_array().unwrap().len(), 2);
}

#[test]
fn every_write_of_an_app_is_counted_once() {
    let app = App::start(CONFIG);
    for text in ["first", "second"] {
        let body = json!({"user_id": "anna", "text": text});
        app.act(Method::PUT, "/records/note/n-1", body);
    }
    let (_, _, metrics) = app.tagged("/metrics", None);
    let series = metrics.lines().filter(|line| {
        let outcome = line.strip_prefix("feedmill_units_total{outcome=\"");
        outcome.is_some_and(|_| !line.ends_with(" 0"))
    });
    let series: Vec<&str> = series.collect();
    assert_eq!(series, ["feedmill_units_total{outcome=\"applied\"} 2"]);
}
