//! A changed `time` setting gives every stored record its new place, in every
//! order that there is.

use serde_json::{Value, json};

use crate::app::{App, Kept};

pub(crate) const READER: &str = "did:plc:readerreaderreaderreader";
pub(crate) const AUTHOR: &str = "did:web:author.test";
const POSTS: usize = 40;

pub(crate) fn config(time: &str) -> String {
    format!(
        r#"
namespace = "com.example"
[collections.follow]
collection = "com.example.follow"
validate = false
[collections.post]
collection = "com.example.post"
validate = false
time = {time}
searchable = ["text"]
queryable = {{ topic = {{}} }}
[feeds.timeline]
targets = ["post"]
[feeds.topics]
targets = [{{ collection = "post", keys = ["topic"] }}]
[feeds.merged]
targets = [{{ collection = "post", merge = "uri" }}]
"#
    )
}

/// Posts that were made in the order of their numbers, and edited the other way round.
fn records() -> Vec<Kept> {
    let mut records: Vec<Kept> = (0..POSTS)
        .map(|n| {
            let body = json!({
                "text": "some words", "topic": "birds",
                "createdAt": format!("2026-01-01T00:{n:02}:00Z"),
                "editedAt": format!("2026-02-01T00:{:02}:00Z", POSTS - n),
            });
            (AUTHOR, "com.example.post", format!("p{n:02}"), body)
        })
        .collect();
    for (rkey, subject) in [("1", AUTHOR), ("2", "birds")] {
        let body = json!({ "subject": subject });
        records.push((READER, "com.example.follow", rkey.to_owned(), body));
    }
    records
}

/// Every way to read the posts, with the pages joined.
#[track_caller]
pub(crate) fn orders(app: &App, expected: &[String]) {
    let reader = format!("actor={READER}");
    for path in [
        format!("getFeed?feed=timeline&{reader}"),
        format!("getFeed?feed=topics&{reader}"),
        format!("getFollowingFeed?feed=merged&{reader}"),
        "post.listRecords?".to_owned(),
        format!("post.listRecords?actor={AUTHOR}"),
        "post.listRecords?sort=topic".to_owned(),
        "post.listRecords?search=words".to_owned(),
    ] {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let (status, page) = app.get(&format!("/xrpc/com.example.{path}&limit=7{cursor}"));
            assert_eq!(status, 200, "{path}: {page}");
            let records = page["records"].as_array().or(page["activities"].as_array());
            let uri = |entry: &Value| {
                let uri = entry["uri"].as_str().or(entry["records"][0].as_str());
                uri.unwrap().rsplit('/').next().unwrap().to_owned()
            };
            found.extend(records.unwrap().iter().map(uri));
            let next = page["cursor"].as_str().or(page["nextCursor"].as_str());
            let Some(next) = next else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(found, expected, "{path}");
    }
}

#[test]
fn another_time_field_puts_old_records_into_its_order() {
    let names: Vec<String> = (0..POSTS).map(|n| format!("p{n:02}")).collect();
    let newest_first: Vec<String> = names.iter().rev().cloned().collect();
    let mut app = App::start_on(&config("\"createdAt\""), &records());
    orders(&app, &newest_first);
    app.restart_with(&config("\"editedAt\""));
    orders(&app, &names);
    let (_, page) = app.get("/xrpc/com.example.post.listRecords?limit=1");
    assert_eq!(
        page["records"][0]["time_us"], 1_769_906_400_000_000_i64,
        "{page}"
    );
    // Of first sight there is one moment for all; then the URI decides.
    app.restart_with(&config("false"));
    orders(&app, &newest_first);
    app.restart_with(&config("\"editedAt\""));
    orders(&app, &names);
    app.restart_with(&config("\"createdAt\""));
    orders(&app, &newest_first);
}
