//! Our feeds in a Bluesky client: the skeleton, the description, the document,
//! and the tokens by which readers are known.

use record::key::SigningKey;
use reqwest::Method;
use serde_json::{Value, json};

use crate::app::{App, Kept};
use crate::bearer::{AUTHOR, Directory, READER, US, now};

const FEED: &str = "at://did:plc:publisher/app.bsky.feed.generator/mine";
const METHOD: &str = "app.bsky.feed.getFeedSkeleton";

fn world(directory: &Directory) -> App {
    let config = format!(
        r#"
namespace = "com.example"
[collections.follow]
collection = "app.bsky.graph.follow"
validate = false
[collections.post]
collection = "app.bsky.feed.post"
validate = false
[feeds.timeline]
targets = ["post"]
publish_as = "{FEED}"
[serve]
public_url = "https://feeds.example"
[intake]
plc_url = "{}"
[identity]
allow_private = false
"#,
        directory.url
    );
    let mut records: Vec<Kept> = (1..=5)
        .map(|n| {
            let body = json!({"text": "x", "createdAt": format!("2026-01-0{n}T00:00:00Z")});
            (AUTHOR, "app.bsky.feed.post", format!("p{n}"), body)
        })
        .collect();
    records.push((
        READER,
        "app.bsky.graph.follow",
        "1".into(),
        json!({"subject": AUTHOR}),
    ));
    App::start_on(&config, &records)
}

/// A token for a skeleton, with its claims changed.
fn jwt(key: &SigningKey, change: impl Fn(&mut Value)) -> String {
    crate::bearer::token(key, METHOD, change)
}

fn ask(app: &App, query: &str, token: Option<&str>) -> (u16, Value) {
    let path = format!("/xrpc/{METHOD}?feed={FEED}{query}");
    app.ask(Method::GET, &path, token, None)
}

#[track_caller]
fn refused(app: &App, token: &str, name: &str) {
    let (status, answer) = ask(app, "", Some(token));
    assert_eq!(
        (status, answer["error"].as_str()),
        (401, Some(name)),
        "{answer}"
    );
}

fn posts(page: &Value) -> Vec<String> {
    let entries = page["feed"].as_array().unwrap();
    let key = |entry: &Value| {
        entry["post"]
            .as_str()
            .unwrap()
            .rsplit('/')
            .next()
            .unwrap()
            .to_owned()
    };
    entries.iter().map(key).collect()
}

#[test]
fn a_reader_known_by_a_token_of_either_curve_gets_his_feed_page_by_page() {
    for key in [
        SigningKey::k256([7; 32]).unwrap(),
        SigningKey::p256([7; 32]).unwrap(),
    ] {
        let directory = Directory::start(key.clone());
        let app = world(&directory);
        let (status, first) = ask(&app, "&limit=3", Some(&jwt(&key, |_| {})));
        assert_eq!(status, 200, "{first}");
        assert_eq!(posts(&first), ["p5", "p4", "p3"]);
        let more = format!("&limit=3&cursor={}", first["cursor"].as_str().unwrap());
        let (_, rest) = ask(&app, &more, Some(&jwt(&key, |_| {})));
        assert_eq!(posts(&rest), ["p2", "p1"]);
        assert!(rest.get("cursor").is_none());
    }
}

#[test]
fn who_is_logged_out_gets_an_empty_feed_and_bad_questions_are_refused() {
    let key = SigningKey::k256([7; 32]).unwrap();
    let app = world(&Directory::start(key));
    assert_eq!(ask(&app, "", None), (200, json!({"feed": []})));
    let (status, answer) = app.get(&format!(
        "/xrpc/{METHOD}?feed=at://did:plc:x/app.bsky.feed.generator/no"
    ));
    assert_eq!(
        (status, answer["error"].as_str()),
        (400, Some("UnknownFeed"))
    );
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains(FEED), "those there are: {message}");
    for query in ["&limit=0", "&limit=101", "&limit=x", "&other=1"] {
        let (status, answer) = ask(&app, query, None);
        assert_eq!(
            (status, answer["error"].as_str()),
            (400, Some("InvalidRequest")),
            "{query}"
        );
    }
}

#[test]
fn a_cursor_that_is_none_of_ours_is_refused_with_a_token_and_without() {
    let key = SigningKey::k256([7; 32]).unwrap();
    let app = world(&Directory::start(key.clone()));
    for cursor in ["garbage", "", "e30"] {
        for token in [None, Some(jwt(&key, |_| {}))] {
            let (status, answer) = ask(&app, &format!("&cursor={cursor}"), token.as_deref());
            let found = (status, answer["error"].as_str());
            assert_eq!(found, (400, Some("BadCursor")), "{cursor}: {answer}");
        }
    }
}

#[test]
fn each_bad_token_is_refused_by_the_name_that_clients_know() {
    let key = SigningKey::k256([7; 32]).unwrap();
    let app = world(&Directory::start(key.clone()));
    refused(&app, "garbage", "BadJwt");
    refused(
        &app,
        &jwt(&key, |claims| claims["exp"] = json!(now() - 60)),
        "JwtExpired",
    );
    refused(
        &app,
        &jwt(&key, |claims| {
            claims["aud"] = json!("did:web:other.example")
        }),
        "BadJwtAudience",
    );
    refused(
        &app,
        &jwt(&key, |claims| claims["lxm"] = json!("a.b.c")),
        "BadJwtLexiconMethod",
    );
    refused(
        &app,
        &jwt(&key, |claims| claims["iss"] = json!("did:key:zQ3sh")),
        "BadJwtIss",
    );
    refused(
        &app,
        &jwt(&key, |claims| claims["iss"] = json!("did:web:localhost")),
        "BadJwtIss",
    );
    let other = SigningKey::k256([8; 32]).unwrap();
    refused(&app, &jwt(&other, |_| {}), "BadJwtSignature");
    let once = jwt(&key, |_| {});
    assert_eq!(ask(&app, "", Some(&once)).0, 200);
    refused(&app, &once, "BadJwt");
}

#[test]
fn a_changed_key_is_looked_up_once_more() {
    let old = SigningKey::k256([7; 32]).unwrap();
    let directory = Directory::start(old.clone());
    let app = world(&directory);
    assert_eq!(ask(&app, "", Some(&jwt(&old, |_| {}))).0, 200);
    let new = SigningKey::p256([9; 32]).unwrap();
    directory.now_signs_with(new.clone());
    assert_eq!(ask(&app, "", Some(&jwt(&new, |_| {}))).0, 200);
    refused(&app, &jwt(&old, |_| {}), "BadJwtSignature");
}

#[test]
fn we_say_who_we_are_and_which_feeds_we_have() {
    let key = SigningKey::k256([7; 32]).unwrap();
    let app = world(&Directory::start(key));
    let (_, description) = app.get("/xrpc/app.bsky.feed.describeFeedGenerator");
    assert_eq!(description, json!({"did": US, "feeds": [{"uri": FEED}]}));
    let (_, document) = app.get("/.well-known/did.json");
    assert_eq!(document["id"], US);
    assert_eq!(
        document["service"],
        json!([
            {"id": "#bsky_fg", "type": "BskyFeedGenerator", "serviceEndpoint": "https://feeds.example"},
            {"id": format!("{US}#contrail"), "type": "ContrailService", "serviceEndpoint": "https://feeds.example"},
        ])
    );
}

#[test]
fn a_token_is_taken_once_however_many_show_it_at_the_same_time() {
    let key = SigningKey::k256([7; 32]).unwrap();
    let app = world(&Directory::start(key.clone()));
    let url = format!("{}/xrpc/{METHOD}?feed={FEED}", app.address());
    for _ in 0..25 {
        let once = jwt(&key, |_| {});
        let client = reqwest::Client::new();
        let answers = app.wait(futures_util::future::join_all((0..12).map(|_| {
            let request = client.get(&url).bearer_auth(&once);
            async { request.send().await.unwrap().status().as_u16() }
        })));
        let taken = answers.iter().filter(|status| **status == 200).count();
        assert_eq!(taken, 1, "{answers:?}");
    }
}

/// A feed of posts and reposts.
fn reposting(memory_mib: u32, plc_url: &str) -> String {
    format!(
        r#"
namespace = "com.example"
[collections.follow]
collection = "app.bsky.graph.follow"
validate = false
[collections.post]
collection = "app.bsky.feed.post"
validate = false
[collections.repost]
collection = "app.bsky.feed.repost"
validate = false
[feeds.timeline]
targets = ["post", "repost"]
mixed = true
publish_as = "{FEED}"
[timelines]
memory_mib = {memory_mib}
[serve]
public_url = "https://feeds.example"
[intake]
plc_url = "{plc_url}"
[identity]
allow_private = false
"#
    )
}

/// A post that somebody else wrote.
const OTHER: &str = "at://did:plc:other/app.bsky.feed.post/elsewhere";

/// A post and, later, reposts of a post, of something else and of nothing; all by one whom the reader follows.
fn reposts() -> Vec<Kept> {
    let thing = "at://did:plc:other/com.example.thing/1";
    let kept = |kind, rkey: &str, mut body: Value, day: u8| -> Kept {
        body["createdAt"] = format!("2026-01-0{day}T00:00:00Z").into();
        (AUTHOR, kind, rkey.to_owned(), body)
    };
    let repost = |rkey: &str, body, day| kept("app.bsky.feed.repost", rkey, body, day);
    let follow = json!({ "subject": AUTHOR });
    vec![
        kept("app.bsky.feed.post", "p1", json!({"text": "x"}), 1),
        repost("r2", json!({"subject": {"uri": OTHER, "cid": "bafy"}}), 2),
        // A client can show nothing of these two.
        repost("r3", json!({"subject": {"uri": thing, "cid": "bafy"}}), 3),
        repost("r4", json!({}), 4),
        (READER, "app.bsky.graph.follow", "1".into(), follow),
    ]
}

#[test]
fn a_repost_is_its_subjects_post_with_the_repost_as_reason() {
    let key = SigningKey::k256([7; 32]).unwrap();
    let directory = Directory::start(key.clone());
    for memory_mib in [0, 64] {
        let app = App::start_on(&reposting(memory_mib, &directory.url), &reposts());
        // The second time, where there is memory, the reader's timeline is there.
        for _ in 0..2 {
            let (status, page) = ask(&app, "", Some(&jwt(&key, |_| {})));
            assert_eq!(status, 200, "{page}");
            let expected = json!({"feed": [
                {"post": OTHER, "reason": {
                    "$type": "app.bsky.feed.defs#skeletonReasonRepost",
                    "repost": format!("at://{AUTHOR}/app.bsky.feed.repost/r2"),
                }},
                {"post": format!("at://{AUTHOR}/app.bsky.feed.post/p1")},
            ]});
            assert_eq!(page, expected);
        }
        // A page counts what the feed holds, so one may be shorter than asked for, and goes on.
        let (_, page) = ask(&app, "&limit=2", Some(&jwt(&key, |_| {})));
        assert_eq!(page["feed"], json!([]));
        let more = format!("&limit=2&cursor={}", page["cursor"].as_str().unwrap());
        let (_, page) = ask(&app, &more, Some(&jwt(&key, |_| {})));
        assert_eq!(page["feed"].as_array().unwrap().len(), 2, "{page}");
    }
}
