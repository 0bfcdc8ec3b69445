//! Our feeds in a Bluesky client: the skeleton, the description, the document,
//! and the tokens by which readers are known.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use record::key::SigningKey;
use reqwest::Method;
use serde_json::{Value, json};

use crate::app::{App, Kept};

pub(crate) const READER: &str = "did:plc:reader";
pub(crate) const AUTHOR: &str = "did:web:author.test";
const FEED: &str = "at://did:plc:publisher/app.bsky.feed.generator/mine";
const US: &str = "did:web:feeds.example";
const METHOD: &str = "app.bsky.feed.getFeedSkeleton";

/// A plc directory that knows the reader's present key.
pub(crate) struct Directory {
    pub(crate) url: String,
    key: Arc<Mutex<SigningKey>>,
}

impl Directory {
    pub(crate) fn start(key: SigningKey) -> Self {
        let key = Arc::new(Mutex::new(key));
        let shown = Arc::clone(&key);
        let document = move || {
            let key = shown.lock().unwrap().public().to_multikey();
            let method = json!({"id": format!("{READER}#atproto"), "type": "Multikey", "publicKeyMultibase": key});
            async move {
                json!({"id": READER, "alsoKnownAs": ["at://reader.test"], "verificationMethod": [method]}).to_string()
            }
        };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let router =
                    axum::Router::new().route(&format!("/{READER}"), axum::routing::get(document));
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                axum::serve(listener, router).await.unwrap();
            });
        });
        Self { url, key }
    }
}

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

fn now() -> i64 {
    feedmill::clock::Clock::Wall.now_us() / 1_000_000
}

pub(crate) fn token(key: &SigningKey, change: impl Fn(&mut Value)) -> String {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let jti = NEXT
        .fetch_add(1, std::sync::atomic::Ordering::SeqCst)
        .to_string();
    let mut claims = json!({"iss": READER, "aud": US, "exp": now() + 60, "iat": now(), "lxm": METHOD, "jti": jti});
    change(&mut claims);
    let alg = match key {
        SigningKey::K256(_) => "ES256K",
        SigningKey::P256(_) => "ES256",
    };
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!(
        "{}.{}",
        part(json!({"alg": alg, "typ": "JWT"})),
        part(claims)
    );
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()));
    format!("{signed}.{signature}")
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
        let (status, first) = ask(&app, "&limit=3", Some(&token(&key, |_| {})));
        assert_eq!(status, 200, "{first}");
        assert_eq!(posts(&first), ["p5", "p4", "p3"]);
        let more = format!("&limit=3&cursor={}", first["cursor"].as_str().unwrap());
        let (_, rest) = ask(&app, &more, Some(&token(&key, |_| {})));
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
fn each_bad_token_is_refused_by_the_name_that_clients_know() {
    let key = SigningKey::k256([7; 32]).unwrap();
    let app = world(&Directory::start(key.clone()));
    refused(&app, "garbage", "BadJwt");
    refused(
        &app,
        &token(&key, |claims| claims["exp"] = json!(now() - 60)),
        "JwtExpired",
    );
    refused(
        &app,
        &token(&key, |claims| {
            claims["aud"] = json!("did:web:other.example")
        }),
        "BadJwtAudience",
    );
    refused(
        &app,
        &token(&key, |claims| claims["lxm"] = json!("a.b.c")),
        "BadJwtLexiconMethod",
    );
    refused(
        &app,
        &token(&key, |claims| claims["iss"] = json!("did:key:zQ3sh")),
        "BadJwtIss",
    );
    refused(
        &app,
        &token(&key, |claims| claims["iss"] = json!("did:web:localhost")),
        "BadJwtIss",
    );
    let other = SigningKey::k256([8; 32]).unwrap();
    refused(&app, &token(&other, |_| {}), "BadJwtSignature");
    let once = token(&key, |_| {});
    assert_eq!(ask(&app, "", Some(&once)).0, 200);
    refused(&app, &once, "BadJwt");
}

#[test]
fn a_changed_key_is_looked_up_once_more() {
    let old = SigningKey::k256([7; 32]).unwrap();
    let directory = Directory::start(old.clone());
    let app = world(&directory);
    assert_eq!(ask(&app, "", Some(&token(&old, |_| {}))).0, 200);
    let new = SigningKey::p256([9; 32]).unwrap();
    *directory.key.lock().unwrap() = new.clone();
    assert_eq!(ask(&app, "", Some(&token(&new, |_| {}))).0, 200);
    refused(&app, &token(&old, |_| {}), "BadJwtSignature");
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
