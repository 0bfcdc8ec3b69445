//! Private methods: only the account itself, proved by its host's token.

use record::key::SigningKey;
use reqwest::Method;
use serde_json::{Value, json};

use crate::app::App;
use crate::bearer::{AUTHOR, Directory, READER, token};

const GET_FEED: &str = "com.example.getFeed";

fn world(directory: &Directory, extra: &str) -> App {
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
[serve]
public_url = "https://feeds.example"
notify = "open"
private = ["getFeed", "notifyOfUpdate", "post.listRecords"]
{extra}
[intake]
plc_url = "{}"
"#,
        directory.url
    );
    let records = [
        (
            AUTHOR,
            "app.bsky.feed.post",
            "1".to_owned(),
            json!({"createdAt": "2026-01-01T00:00:00Z"}),
        ),
        (
            READER,
            "app.bsky.graph.follow",
            "1".to_owned(),
            json!({"subject": AUTHOR}),
        ),
    ];
    App::start_on(&config, &records)
}

fn feed(app: &App, actor: &str, token: Option<&str>) -> (u16, Value) {
    let path = format!("/xrpc/{GET_FEED}?feed=timeline&actor={actor}");
    app.ask(Method::GET, &path, token, None)
}

#[test]
fn a_private_feed_is_its_readers_alone() {
    let key = SigningKey::k256([7; 32]).unwrap();
    let app = world(&Directory::start(key.clone()), "");
    let good = || token(&key, GET_FEED, |_| {});
    let (status, page) = feed(&app, READER, Some(&good()));
    assert_eq!(
        (status, page["records"].as_array().map(Vec::len)),
        (200, Some(1)),
        "{page}"
    );
    let fragment = token(&key, GET_FEED, |claims| {
        claims["aud"] = json!("did:web:feeds.example#contrail")
    });
    assert_eq!(feed(&app, READER, Some(&fragment)).0, 200);

    let refused = |token: Option<&str>, status: u16, name: &str| {
        let (found, answer) = feed(&app, READER, token);
        assert_eq!(
            (found, answer["error"].as_str()),
            (status, Some(name)),
            "{answer}"
        );
    };
    refused(None, 401, "AuthenticationRequired");
    refused(Some("garbage"), 401, "BadJwt");
    let with = |field: &'static str, value: Value| {
        token(&key, GET_FEED, move |claims| claims[field] = value.clone())
    };
    let now = feedmill::clock::Clock::Wall.now_us() / 1_000_000;
    refused(Some(&with("exp", json!(now - 60))), 401, "JwtExpired");
    refused(Some(&with("exp", json!(now + 9000))), 401, "BadJwt");
    refused(Some(&with("iat", json!(now + 60))), 401, "BadJwt");
    refused(
        Some(&with("aud", json!("did:web:other.example"))),
        401,
        "BadJwtAudience",
    );
    refused(
        Some(&with("lxm", json!("com.example.getProfile"))),
        401,
        "BadJwtLexiconMethod",
    );
    refused(Some(&with("iss", json!("nobody"))), 401, "BadJwtIss");
    refused(
        Some(&with("iss", json!("did:plc:unregistered"))),
        401,
        "BadJwtIss",
    );
    let other = SigningKey::k256([8; 32]).unwrap();
    refused(
        Some(&token(&other, GET_FEED, |_| {})),
        401,
        "BadJwtSignature",
    );
    let once = good();
    assert_eq!(feed(&app, READER, Some(&once)).0, 200);
    refused(Some(&once), 401, "BadJwt");
}

#[test]
fn a_private_feed_is_not_anothers_and_the_manifest_says_so() {
    let key = SigningKey::k256([7; 32]).unwrap();
    let app = world(&Directory::start(key.clone()), "");
    let good = || token(&key, GET_FEED, |_| {});
    let (status, answer) = feed(&app, AUTHOR, Some(&good()));
    assert_eq!((status, &answer["error"]), (403, &json!("Forbidden")));
    let wanted = app.wait(async {
        let url = format!(
            "{}/xrpc/{GET_FEED}?feed=timeline&actor={READER}",
            app.address()
        );
        reqwest::get(url).await.unwrap().headers()["www-authenticate"].clone()
    });
    assert_eq!(wanted, "Bearer");
    // What is not named stays open, and what is named is told in the manifest.
    assert_eq!(
        app.get("/xrpc/com.example.getProfile?actor=did:plc:reader")
            .0,
        200
    );
    let (_, manifest) = app.get("/.well-known/contrail");
    assert_eq!(
        manifest["serviceAuth"]["audience"],
        "did:web:feeds.example#contrail"
    );
    assert_eq!(
        manifest["serviceAuth"]["scope"],
        "rpc?aud=did:web:feeds.example%23contrail&lxm=com.example.getFeed&lxm=com.example.notifyOfUpdate&lxm=com.example.post.listRecords"
    );
    assert!(
        !manifest["methods"]
            .as_array()
            .unwrap()
            .contains(&json!(GET_FEED))
    );
}

#[test]
fn other_private_methods_need_a_token_and_notifications_are_for_ones_own_records() {
    let key = SigningKey::p256([7; 32]).unwrap();
    let app = world(&Directory::start(key.clone()), "");
    let list = "/xrpc/com.example.post.listRecords";
    assert_eq!(app.get(list).0, 401);
    let pass = token(&key, "com.example.post.listRecords", |_| {});
    assert_eq!(app.ask(Method::GET, list, Some(&pass), None).0, 200);
    let notify = |uri: &str| {
        let pass = token(&key, "com.example.notifyOfUpdate", |_| {});
        let body = json!({ "uris": [uri] });
        app.ask(
            Method::POST,
            "/xrpc/com.example.notifyOfUpdate",
            Some(&pass),
            Some(body),
        )
    };
    let (status, answer) = notify(&format!("at://{AUTHOR}/app.bsky.feed.post/1"));
    assert_eq!((status, &answer["error"]), (403, &json!("Forbidden")));
    // His own: his document names no host, so there is nobody to ask.
    let (status, answer) = notify(&format!("at://{READER}/app.bsky.feed.post/1"));
    assert_eq!((status, &answer["indexed"]), (200, &json!(0)), "{answer}");
}

#[test]
fn a_host_that_asks_for_its_account_is_told_how_far_we_have_read_it() {
    let key = SigningKey::k256([7; 32]).unwrap();
    let app = world(&Directory::start(key.clone()), "");
    let rev = |path: &str, token: Option<&str>| {
        let mut request = reqwest::Client::new().get(format!("{}{path}", app.address()));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let response = app.wait(async { request.send().await.unwrap() });
        let rev = response.headers().get("atproto-repo-rev").cloned();
        (
            response.status().as_u16(),
            rev.map(|rev| rev.to_str().unwrap().to_owned()),
        )
    };
    let told = Some(record::tid::Tid::from_bits(2).to_string());
    let feed = format!("/xrpc/{GET_FEED}?feed=timeline&actor={READER}");
    assert_eq!(
        rev(&feed, Some(&token(&key, GET_FEED, |_| {}))),
        (200, told.clone())
    );
    // Also of a method that anybody may ask, if a token says who does.
    for (name, query) in [
        ("getProfile", "?actor=did:plc:reader"),
        ("getCursor", ""),
        ("follow.listRecords", ""),
    ] {
        let nsid = format!("com.example.{name}");
        let path = format!("/xrpc/{nsid}{query}");
        assert_eq!(
            rev(&path, Some(&token(&key, &nsid, |_| {}))),
            (200, told.clone()),
            "{name}"
        );
        assert_eq!(rev(&path, None), (200, None), "{name}");
        assert_eq!(rev(&path, Some("garbage")), (401, None), "{name}");
    }
}

#[test]
fn an_account_has_a_share_whatever_its_address() {
    let key = SigningKey::k256([7; 32]).unwrap();
    let app = world(&Directory::start(key.clone()), "account_rate_max = 2");
    for expected in [200, 200, 429] {
        let (status, answer) = feed(&app, READER, Some(&token(&key, GET_FEED, |_| {})));
        assert_eq!(status, expected, "{answer}");
    }
    // A token that is no good is nobody's, and uses up nothing.
    assert_eq!(feed(&app, READER, Some("garbage")).0, 401);
}

#[test]
fn a_private_method_that_does_not_exist_or_is_for_nobody_is_a_fault_of_the_configuration() {
    let check = |serve: &str, expected: &str| {
        let text = format!("namespace = \"com.example\"\n[serve]\n{serve}\n");
        let error = feedmill::config::Config::parse(&text)
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(
        "private = [\"getFood\"]\npublic_url = \"https://a.example\"",
        "line 3: serve.private: \"getFood\"",
    );
    check("private = [\"getFeed\"]", "set serve.public_url");
}
