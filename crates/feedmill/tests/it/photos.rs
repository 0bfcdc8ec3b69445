//! The photo app of `examples/photos.toml`, end to end: the ten workflows of
//! a cached feed, each named by its title.

use reqwest::Method;
use serde_json::{Value, json};

use crate::app::App;

const READER: u64 = 404;

fn example() -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/photos.toml");
    std::fs::read_to_string(path).unwrap()
}

fn photos() -> App {
    App::start(&example())
}

/// A post at a second of one day; equal seconds are ties.
fn post(app: &App, id: u64, user: u64, second: u64) {
    let time = format!("2025-11-29T10:{:02}:{:02}Z", second / 60, second % 60);
    let body =
        json!({"user_id": user, "caption": format!("post {id}"), "created_at": time, "media": []});
    app.act(Method::PUT, &format!("/records/post/{id}"), body);
}

fn follow(app: &App, follows: u64) {
    let body = json!({"user": READER, "follows": follows});
    app.act(Method::POST, "/follow", body);
}

fn unfollow(app: &App, follows: u64) {
    let body = json!({"user": READER, "follows": follows});
    app.act(Method::POST, "/unfollow", body);
}

#[track_caller]
fn page(app: &App, cursor: Option<&str>) -> Value {
    let token = app.token(READER);
    let path = match cursor {
        Some(cursor) => format!("/feed?cursor={cursor}"),
        None => "/feed".to_owned(),
    };
    let (status, page) = app.ask(Method::GET, &path, Some(&token), None);
    assert_eq!(status, 200, "{page}");
    page
}

#[track_caller]
fn ids(page: &Value) -> Vec<u64> {
    let posts = page["posts"].as_array().unwrap();
    posts
        .iter()
        .map(|post| post["id"].as_u64().unwrap())
        .collect()
}

/// Every page to the end; each must hold ten until the last.
#[track_caller]
fn whole(app: &App) -> Vec<u64> {
    let mut all = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = page(app, cursor.as_deref());
        all.extend(ids(&page));
        if page["has_more"] == false {
            return all;
        }
        assert_eq!(ids(&page).len(), 10);
        cursor = Some(page["next_cursor"].as_str().unwrap().to_owned());
    }
}

#[test]
fn workflow_1_normal_scroll() {
    let app = photos();
    follow(&app, 501);
    for id in 1020..=1050 {
        post(&app, id, 501, id - 1000);
    }
    page(&app, None);
    let scrolled = page(&app, Some("1040"));
    assert_eq!(ids(&scrolled), (1030..1040).rev().collect::<Vec<_>>());
    assert_eq!(scrolled["next_cursor"], "1030");
    assert_eq!(scrolled["has_more"], true);
    assert_eq!(whole(&app), (1020..=1050).rev().collect::<Vec<_>>());
}

#[test]
fn workflow_2_pull_to_refresh() {
    let app = photos();
    follow(&app, 501);
    for id in 1041..=1050 {
        post(&app, id, 501, id - 1000);
    }
    assert_eq!(
        ids(&page(&app, None)),
        (1041..=1050).rev().collect::<Vec<_>>()
    );
    post(&app, 1051, 501, 51);
    let refreshed = page(&app, None);
    assert_eq!(ids(&refreshed), (1042..=1051).rev().collect::<Vec<_>>());
    assert_eq!(refreshed["next_cursor"], "1042");
    assert_eq!(refreshed["has_more"], true);
    let shown = &refreshed["posts"][0];
    assert_eq!(shown["user_id"], 501);
    assert_eq!(shown["caption"], "post 1051");
    assert_eq!(shown["created_at"], "2025-11-29T10:00:51Z");
    assert_eq!(shown["like_count"], 0);
    assert_eq!(shown["comment_count"], 0);
    assert_eq!(shown["media"], json!([]));
}

#[test]
fn workflow_3_cache_exhausted() {
    let app = App::start(&example().replace("max_items = 500", "max_items = 15"));
    follow(&app, 501);
    for id in 1..=60 {
        post(&app, id, 501, id);
    }
    assert_eq!(whole(&app), (1..=60).rev().collect::<Vec<_>>());
    assert_eq!(
        ids(&page(&app, Some("46"))),
        (36..46).rev().collect::<Vec<_>>()
    );
    let end = page(&app, Some("1"));
    assert_eq!(
        end,
        json!({"posts": [], "next_cursor": null, "has_more": false})
    );
}

#[test]
fn workflow_4_cursor_not_found_in_cache() {
    let app = photos();
    follow(&app, 501);
    for id in 1020..=1050 {
        post(&app, id, 501, id - 1000);
    }
    // Deleted: it keeps its place.
    app.act(Method::DELETE, "/records/post/1040", Value::Null);
    assert_eq!(
        ids(&page(&app, Some("1040"))),
        (1030..1040).rev().collect::<Vec<_>>()
    );
    // Never known: from the top.
    let top: Vec<u64> = (1041..=1050).rev().collect();
    assert_eq!(ids(&page(&app, Some("77"))), top);
    // Malformed: an error that says what is accepted.
    let token = app.token(READER);
    for cursor in ["abc", "", "-1", "1.5", "10%2040"] {
        let path = format!("/feed?cursor={cursor}");
        let (status, answer) = app.ask(Method::GET, &path, Some(&token), None);
        assert_eq!(
            (status, &answer["error"]),
            (400, &json!("BadCursor")),
            "{cursor}: {answer}"
        );
    }
    let path = "/feed?cursor=99999999999999999999999";
    let (_, answer) = app.ask(Method::GET, path, Some(&token), None);
    let message = answer["message"].as_str().unwrap();
    assert!(
        message.contains("from 0 to 18446744073709551615"),
        "{message}"
    );
}

#[test]
fn workflow_5_user_follows_someone_new() {
    let app = photos();
    follow(&app, 501);
    for id in 1..=20 {
        post(&app, id, 501 + id % 2, id);
    }
    assert_eq!(
        whole(&app),
        (1..=10).rev().map(|n| 2 * n).collect::<Vec<_>>()
    );
    follow(&app, 502);
    assert_eq!(whole(&app), (1..=20).rev().collect::<Vec<_>>());
    post(&app, 21, 502, 21);
    assert_eq!(whole(&app), (1..=21).rev().collect::<Vec<_>>());
}

#[test]
fn workflow_6_user_unfollows_someone() {
    let app = photos();
    follow(&app, 501);
    follow(&app, 502);
    for id in 1..=20 {
        post(&app, id, 501 + id % 2, id);
    }
    assert_eq!(whole(&app).len(), 20);
    unfollow(&app, 502);
    assert_eq!(
        whole(&app),
        (1..=10).rev().map(|n| 2 * n).collect::<Vec<_>>()
    );
    unfollow(&app, 502);
    follow(&app, 502);
    assert_eq!(whole(&app), (1..=20).rev().collect::<Vec<_>>());
}

#[test]
fn workflow_7_post_deleted() {
    let app = photos();
    follow(&app, 501);
    for id in 1..=12 {
        post(&app, id, 501, id);
    }
    assert_eq!(whole(&app).len(), 12);
    app.act(Method::DELETE, "/records/post/7", Value::Null);
    assert!(!whole(&app).contains(&7));
    assert_eq!(
        ids(&page(&app, None)).len(),
        10,
        "the page is filled all the same"
    );
    let (status, _) = app.ask(
        Method::DELETE,
        "/records/post/7",
        Some(crate::app::APP),
        None,
    );
    assert_eq!(status, 404);
}

#[test]
fn workflow_8_post_edited() {
    let app = photos();
    follow(&app, 501);
    post(&app, 1, 501, 1);
    post(&app, 2, 501, 2);
    page(&app, None);
    let edit = json!({"user_id": 501, "caption": "edited"});
    app.act(Method::PUT, "/records/post/1", edit);
    let page = page(&app, None);
    assert_eq!(ids(&page), [2, 1]);
    assert_eq!(page["posts"][1]["caption"], "edited");
    assert_eq!(page["posts"][1]["created_at"], "2025-11-29T10:00:01Z");
}

#[test]
fn workflow_9_graceful_degradation() {
    let mut without = App::start(&format!(
        "{}\n",
        example().replace("[timelines]", "[timelines]\nmemory_mib = 0")
    ));
    let fill = |app: &App| {
        follow(app, 501);
        for id in 1..=25 {
            post(app, id, 501, id / 3);
        }
        app.act(Method::DELETE, "/records/post/20", Value::Null);
    };
    fill(&without);
    let with = photos();
    fill(&with);
    assert_eq!(page(&without, None), page(&with, None));
    assert_eq!(whole(&without), whole(&with));
    // Losing all memory at any moment changes no answer.
    without.restart();
    assert_eq!(whole(&without), whole(&with));
}

#[test]
fn workflow_10_user_with_0_followees() {
    let app = photos();
    post(&app, 1, 501, 1);
    let empty = json!({"posts": [], "next_cursor": null, "has_more": false});
    assert_eq!(page(&app, None), empty);
    assert_eq!(page(&app, Some("1")), empty);
}

#[test]
fn posts_of_one_moment_stand_in_the_order_of_their_numbers_whoever_wrote_them() {
    let app = photos();
    follow(&app, 501);
    follow(&app, 502);
    for id in [9, 10, 11, 99, 100, 101, 1000, 8, 7, 6, 5, 4] {
        post(&app, id, 501 + id % 2, 1);
    }
    assert_eq!(whole(&app), [1000, 101, 100, 99, 11, 10, 9, 8, 7, 6, 5, 4]);
}

#[test]
fn likes_and_comments_are_counted() {
    let app = photos();
    follow(&app, 501);
    post(&app, 1050, 501, 1);
    post(&app, 1051, 501, 2);
    for like in 1..=4 {
        let body = json!({"user_id": 600 + like, "post_id": 1050});
        app.act(Method::PUT, &format!("/records/like/{like}"), body);
    }
    app.act(
        Method::PUT,
        "/records/comment/1",
        json!({"user_id": 601, "post_id": 1050, "text": "ah"}),
    );
    app.act(Method::DELETE, "/records/like/4", Value::Null);
    let page = page(&app, None);
    assert_eq!(page["posts"][1]["like_count"], 3);
    assert_eq!(page["posts"][1]["comment_count"], 1);
    assert_eq!(page["posts"][0]["like_count"], 0);
}

#[test]
fn the_first_sign_in_follows_at_least_as_many_as_the_app_asks_for() {
    let app = photos();
    for id in 1..=3 {
        post(&app, id, 500 + id, id);
    }
    let many = |follows: Value| {
        let body = json!({"user": READER, "follows": follows});
        app.ask(
            Method::POST,
            "/follow-many",
            Some(crate::app::APP),
            Some(body),
        )
    };
    let (status, answer) = many(json!([501, 502, 502, 501]));
    assert_eq!(
        (status, &answer["error"]),
        (400, &json!("FollowCount")),
        "{answer}"
    );
    assert_eq!(whole(&app), [0u64; 0]);
    let (status, answer) = many(json!([501, 502, "503"]));
    assert_eq!((status, &answer["followed"]), (200, &json!(3)), "{answer}");
    assert_eq!(whole(&app), [3, 2, 1]);
}
