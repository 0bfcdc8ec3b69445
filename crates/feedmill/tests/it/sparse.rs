//! Feeds most of whose records are gone, moved or of others: every page is full but the last, and
//! nothing is passed by.

use reqwest::Method;
use serde_json::{Value, json};

use crate::app::{APP, App};

/// A page looks at few, so that few make a feed sparse.
const CONFIG: &str = r#"
namespace = "com.example"
[collections.follow]
collection = "com.example.follow"
validate = false
direct = true
[collections.photo]
collection = "com.example.photo"
validate = false
direct = true
time = "created_at"
[feeds.home]
follow = ["follow"]
targets = ["photo"]
[direct]
ids = "number"
[timelines]
page_scan_max = 200
"#;

const READER: u64 = 404;
const AUTHOR: u64 = 501;
/// More than a page looks at.
const MANY: u64 = 210;

fn put(app: &App, id: u64, user: u64, second: u64) {
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let body = json!({
        "user_id": user,
        "created_at": format!("2026-01-01T{hour:02}:{minute:02}:{second:02}Z"),
    });
    app.act(Method::PUT, &format!("/records/photo/{id}"), body);
}

fn follow(app: &App, body: Value) {
    let mut body = body;
    body["user"] = READER.into();
    let (status, answer) = app.ask(Method::POST, "/follow", Some(APP), Some(body));
    assert_eq!(status, 200, "{answer}");
}

/// All posts of the reader's feed, page by page; every page but the last has ten.
#[track_caller]
fn all(app: &App) -> Vec<u64> {
    let token = app.token(READER);
    let mut seen = Vec::new();
    let mut path = "/feed".to_owned();
    loop {
        let (status, page) = app.ask(Method::GET, &path, Some(&token), None);
        assert_eq!(status, 200, "{page}");
        let posts = page["posts"].as_array().unwrap();
        seen.extend(posts.iter().map(|post| post["id"].as_u64().unwrap()));
        if page["has_more"] == false {
            return seen;
        }
        assert_eq!(posts.len(), 10, "{page}");
        let last = posts.last().unwrap()["id"].to_string();
        assert_eq!(page["next_cursor"], json!(last));
        path = format!("/feed?cursor={last}");
    }
}

#[test]
fn posts_below_many_deleted_ones_are_reached() {
    let app = App::start(CONFIG);
    follow(&app, json!({"follows": AUTHOR}));
    assert!(all(&app).is_empty());
    for id in 1..=20 {
        put(&app, id, AUTHOR, id);
    }
    for second in 0..MANY {
        put(&app, 99_999, AUTHOR, 100 + second);
        app.act(Method::DELETE, "/records/photo/99999", Value::Null);
    }
    let expected: Vec<u64> = (1..=20).rev().collect();
    assert_eq!(all(&app), expected);
}

#[test]
fn posts_among_many_that_moved_are_seen_once_each() {
    let app = App::start(CONFIG);
    follow(&app, json!({"follows": AUTHOR}));
    assert!(all(&app).is_empty());
    for id in 1..=MANY {
        put(&app, id, AUTHOR, 10_000 + id);
    }
    for id in 1001..=1040 {
        put(&app, id, AUTHOR, 4_000 + id);
    }
    for id in 1..=MANY {
        put(&app, id, AUTHOR, id);
    }
    let expected: Vec<u64> = (1001..=1040).rev().chain((1..=MANY).rev()).collect();
    assert_eq!(all(&app), expected);
}

/// The store walks all posts for a reader who follows more than it seeks one by one.
#[test]
fn posts_below_many_of_others_are_reached_by_who_follows_thousands() {
    let config = CONFIG
        .replace("[direct]", "[direct]\nfollow_many_max = 6000")
        .replace("[timelines]", "[timelines]\nmemory_mib = 0");
    let app = App::start(&config);
    let follows: Vec<u64> = (AUTHOR..AUTHOR + 5_100).collect();
    let body = json!({"user": READER, "follows": follows});
    app.act(Method::POST, "/follow-many", body);
    for id in 1..=20 {
        put(&app, id, AUTHOR, id);
    }
    for id in 1001..=1001 + 2 * MANY {
        put(&app, id, 7, id);
    }
    let expected: Vec<u64> = (1..=20).rev().collect();
    assert_eq!(all(&app), expected);
}

#[test]
fn a_numbered_page_that_is_not_found_at_once_is_refused_and_the_cursor_leads_there() {
    let config = r#"
namespace = "com.example"
[collections.follow]
collection = "com.example.follow"
validate = false
direct = true
[collections.photo]
collection = "com.example.photo"
validate = false
direct = true
[collections.link]
collection = "com.example.link"
validate = false
direct = true
[feeds.home]
targets = ["photo"]
[feeds.merged]
include_self = true
targets = [
    { collection = "photo", merge = "about", activity = "PHOTO" },
    { collection = "link", merge = "about", activity = "LINK" },
]
[direct]
feed = "home"
open = true
[timelines]
page_scan_max = 200
"#;
    let app = App::start(config);
    let act = |short: &str, id: u64, minute: u64| {
        let time = format!("2026-01-01T{:02}:{:02}:00Z", minute / 60, minute % 60);
        let body = json!({"user_id": AUTHOR, "about": format!("{short} {id}"), "createdAt": time});
        app.act(Method::PUT, &format!("/records/{short}/{id}"), body);
    };
    for id in 1..=2 {
        act("link", id, id);
    }
    for id in 1..=MANY {
        act("photo", id, 10 + id);
    }
    let path =
        format!("/xrpc/com.example.getFollowingFeed?actor={AUTHOR}&activityTypes=LINK&limit=1");
    let (status, answer) = app.get(&format!("{path}&page=2"));
    assert_eq!(status, 400, "{answer}");
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains("nextCursor"), "{message}");
    let mut found = 0;
    let mut cursor = String::new();
    loop {
        let (status, page) = app.get(&format!("{path}{cursor}"));
        assert_eq!(status, 200, "{page}");
        found += page["activities"].as_array().unwrap().len();
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(found, 2);
}
