//! The direct API with several collections of follows, mutes, records that
//! stand under many keys, and feeds over several collections.

use feedmill::config::Config;
use reqwest::Method;
use serde_json::{Value, json};

use crate::app::{APP, App};

const CONFIG: &str = r#"
namespace = "com.example"
[collections.follow]
collection = "com.example.follow"
validate = false
direct = true
[collections.album]
collection = "com.example.album"
validate = false
direct = true
[collections.mute]
collection = "com.example.mute"
validate = false
direct = true
[collections.photo]
collection = "com.example.photo"
validate = false
direct = true
time = "created_at"
[collections.photo.relations.like]
collection = "like"
field = "photo_id"
[collections.video]
collection = "com.example.video"
validate = false
direct = true
time = "created_at"
[collections.like]
collection = "com.example.like"
validate = false
direct = true
[feeds.home]
follow = ["follow", { collection = "album", subject = "what.album" }]
hide = ["mute"]
targets = [{ collection = "photo", keys = ["author", "album", "tags"] }, "video"]
[direct]
follow_many_min = 2
"#;

const READER: u64 = 404;

fn put(app: &App, path: &str, minute: u64, mut body: Value) {
    body["created_at"] = format!("2026-01-01T00:{minute:02}:00Z").into();
    app.act(Method::PUT, &format!("/records/{path}"), body);
}

fn follow(app: &App, body: Value) -> (u16, Value) {
    let mut body = body;
    body["user"] = READER.into();
    app.ask(Method::POST, "/follow", Some(APP), Some(body))
}

#[track_caller]
fn page(app: &App, query: &str) -> Value {
    let token = app.token(READER);
    let (status, page) = app.ask(Method::GET, &format!("/feed?{query}"), Some(&token), None);
    assert_eq!(status, 200, "{page}");
    page
}

#[track_caller]
fn ids(app: &App) -> Vec<u64> {
    let page = page(app, "limit=100");
    let posts = page["posts"].as_array().unwrap().iter();
    posts.map(|post| post["id"].as_u64().unwrap()).collect()
}

#[test]
fn a_follow_goes_to_the_collection_it_names_and_a_mute_hides() {
    let app = App::start(CONFIG);
    put(&app, "photo/1", 1, json!({"user_id": 501}));
    put(&app, "photo/2", 2, json!({"user_id": 502, "album": "sea"}));
    put(&app, "photo/3", 3, json!({"user_id": 503, "album": "sea"}));
    assert_eq!(follow(&app, json!({"follows": 501})).0, 200);
    assert_eq!(ids(&app), [1]);
    let album = json!({"key": "sea", "collection": "album"});
    assert_eq!(follow(&app, album.clone()).0, 200);
    assert_eq!(ids(&app), [3, 2, 1]);
    let mute = json!({"follows": 501, "collection": "mute"});
    assert_eq!(follow(&app, mute).0, 200);
    assert_eq!(ids(&app), [3, 2]);
    let body = json!({"user": READER, "follows": 501, "collection": "mute"});
    app.act(Method::POST, "/unfollow", body);
    assert_eq!(ids(&app), [3, 2, 1]);
    // The minimum is for a first sign-in, not for mutes.
    let body = json!({"user": READER, "follows": [501], "collection": "mute"});
    app.act(Method::POST, "/follow-many", body);
    assert_eq!(ids(&app), [3, 2]);
}

/// From memory, from the store, and where a question is asked of it.
#[test]
fn who_is_muted_is_hidden_whatever_key_leads_to_the_record() {
    for memory in ["", "[timelines]\nmemory_mib = 0\n"] {
        let mut app = App::start(&format!("{CONFIG}{memory}"));
        put(&app, "photo/2", 2, json!({"user_id": 502, "tags": ["sea"]}));
        put(&app, "photo/3", 3, json!({"user_id": 503, "tags": ["sea"]}));
        assert_eq!(follow(&app, json!({"key": "sea"})).0, 200);
        assert_eq!(ids(&app), [3, 2]);
        let mute = json!({"follows": 502, "collection": "mute"});
        assert_eq!(follow(&app, mute).0, 200);
        assert_eq!(ids(&app), [3]);
        // It came after the mute, and what is loaded at a start is judged alike.
        put(&app, "photo/4", 4, json!({"user_id": 502, "tags": ["sea"]}));
        assert_eq!(ids(&app), [3]);
        app.restart();
        assert_eq!(ids(&app), [3]);
        let token = app.token(READER);
        let path = format!("/xrpc/com.example.getFeed?feed=home&actor={READER}&likeCountMin=0");
        let (status, page) = app.ask(Method::GET, &path, Some(&token), None);
        assert_eq!(status, 200, "{page}");
        let found = page["records"].as_array().unwrap().iter();
        let found: Vec<u64> = found
            .map(|one| one["value"]["user_id"].as_u64().unwrap())
            .collect();
        assert_eq!(found, [503], "{page}");
    }
}

#[test]
fn a_collection_without_follows_is_refused_with_those_that_have_them() {
    let app = App::start(CONFIG);
    for name in ["photo", "nothing"] {
        let (status, answer) = follow(&app, json!({"follows": 1, "collection": name}));
        assert_eq!(status, 400, "{answer}");
        let message = answer["message"].as_str().unwrap();
        assert!(message.ends_with("album, follow, mute"), "{message}");
    }
    let body = Some(json!({"user_id": 1}));
    let (status, answer) = app.ask(Method::PUT, "/records/mute/1", Some(APP), body);
    assert_eq!(status, 400);
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains("\"collection\": \"mute\""), "{message}");
}

#[test]
fn follows_are_listed_in_the_apps_own_ids() {
    let app = App::start(CONFIG);
    follow(&app, json!({"follows": 501}));
    follow(&app, json!({"follows": "anna@example.com"}));
    follow(&app, json!({"key": "the sea", "collection": "album"}));
    let list = |path: &str| {
        let page = app.act(Method::GET, path, Value::Null);
        let mut records = page["records"].as_array().unwrap().clone();
        for record in &mut records {
            let since = record.as_object_mut().unwrap().remove("createdAt");
            assert!(since.unwrap().as_str().unwrap().ends_with('Z'));
        }
        records
    };
    let follows = list("/records/follow?actor=404");
    assert_eq!(follows.len(), 2);
    for expected in [json!(501), json!("anna@example.com")] {
        assert!(
            follows.contains(&json!({"user": READER, "follows": expected})),
            "{follows:?}"
        );
    }
    let albums = list("/records/album");
    assert_eq!(albums, [json!({"user": READER, "key": "the sea"})]);
    let (status, _) = app.ask(Method::GET, "/records/follow/1", Some(APP), None);
    assert_eq!(status, 400, "a follow has no id");
}

#[test]
fn each_item_of_a_list_is_a_key() {
    let mut tags: Vec<Value> = (0..150).map(|n| format!("tag {n}").into()).collect();
    tags.push("sea".into());
    // From the store, and from memory: put before the reader came, and after.
    for memory in ["", "[timelines]\nmemory_mib = 0\n"] {
        let mut app = App::start(&format!("{CONFIG}{memory}"));
        put(
            &app,
            "photo/1",
            1,
            json!({"user_id": 501, "tags": ["sea", "sun"]}),
        );
        follow(&app, json!({"key": "sea"}));
        assert_eq!(ids(&app), [1]);
        put(
            &app,
            "photo/2",
            2,
            json!({"user_id": 501, "tags": ["sun", "sea", "sea"]}),
        );
        put(
            &app,
            "photo/3",
            3,
            json!({"user_id": 501, "tags": [["sea"], {"a": "sea"}]}),
        );
        put(
            &app,
            "photo/4",
            4,
            json!({"user_id": 501, "tags": [7, "sky"]}),
        );
        // Beyond the limit on keys.
        put(&app, "photo/5", 5, json!({"user_id": 501, "tags": tags}));
        assert_eq!(ids(&app), [2, 1]);
        put(&app, "photo/1", 1, json!({"user_id": 501, "tags": ["sun"]}));
        assert_eq!(ids(&app), [2]);
        follow(&app, json!({"key": "7"}));
        follow(&app, json!({"key": "tag 90"}));
        assert_eq!(ids(&app), [5, 4, 2]);
        app.restart();
        assert_eq!(ids(&app), [5, 4, 2]);
    }
}

#[test]
fn a_mixed_feed_shows_and_pages_all_its_collections() {
    let app = App::start(&CONFIG.replace("hide = [\"mute\"]", "hide = [\"mute\"]\nmixed = true"));
    follow(&app, json!({"follows": 501}));
    for minute in 1..=9u64 {
        let short = if minute.is_multiple_of(2) {
            "video"
        } else {
            "photo"
        };
        // Ids are unique within a collection only.
        let path = format!("{short}/{}", minute.div_ceil(2));
        put(&app, &path, minute, json!({"user_id": 501}));
    }
    app.act(
        Method::PUT,
        "/records/like/1",
        json!({"user_id": 9, "photo_id": 5}),
    );
    let mut found: Vec<String> = Vec::new();
    let mut query = "limit=2".to_owned();
    loop {
        let page = page(&app, &query);
        for post in page["posts"].as_array().unwrap() {
            found.push(format!(
                "{}/{}",
                post["collection"].as_str().unwrap(),
                post["id"]
            ));
            let likes = post.get("like_count");
            let expected = match (post["collection"].as_str(), post["id"].as_u64()) {
                (Some("photo"), Some(5)) => Some(json!(1)),
                (Some("photo"), _) => Some(json!(0)),
                _ => None,
            };
            assert_eq!(likes, expected.as_ref(), "{post}");
        }
        if page["has_more"] == false {
            break;
        }
        assert_eq!(
            page["next_cursor"].as_str(),
            found.last().map(String::as_str)
        );
        query = format!("limit=2&cursor={}", found.last().unwrap());
    }
    let expected: Vec<String> = (1..=9)
        .rev()
        .map(|minute: u64| {
            let short = if minute.is_multiple_of(2) {
                "video"
            } else {
                "photo"
            };
            format!("{short}/{}", minute.div_ceil(2))
        })
        .collect();
    assert_eq!(found, expected);
    let token = app.token(READER);
    for cursor in ["3", "like/1", "video/", "nothing/1"] {
        let path = format!("/feed?cursor={cursor}");
        let (status, answer) = app.ask(Method::GET, &path, Some(&token), None);
        assert_eq!((status, &answer["error"]), (400, &json!("BadCursor")));
    }
}

#[test]
fn a_feed_that_cannot_be_shown_plainly_is_a_fault_of_the_configuration() {
    let check = |change: (&str, &str), expected: &str| {
        let text = CONFIG.replace(change.0, change.1);
        assert_ne!(text, CONFIG);
        let text = text.replace("[direct]\n", "[direct]\nfeed = \"home\"\n");
        let error = Config::parse(&text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(
        ("\"tags\"] }", "\"tags\"], merge = \"album\" }"),
        "direct.feed: it is merged",
    );
    let network = (
        "collection = \"com.example.photo\"\nvalidate = false\ndirect = true",
        "collection = \"com.example.photo\"\nvalidate = false",
    );
    check(
        network,
        "direct.feed: it shows a collection that is not direct",
    );
    check(
        (
            "[direct]",
            "[feeds.two]\nfollow = \"album\"\ntargets = [\"photo\"]\n[direct]",
        ),
        "collections.album.direct: feeds read its follows at",
    );
}
