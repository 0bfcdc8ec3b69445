//! Labels, over a real socket: a labeler speaks, and what it says stands beside
//! records and profiles, for those who want to hear it.

use record::key::SigningKey;
use serde_json::{Value, json};
use sim::labeler::{Labeler, Saying};

use crate::app::{App, Kept};

const LABELER: &str = "did:plc:labeler";
const AUTHOR: &str = "did:plc:author";
const POST: &str = "at://did:plc:author/app.bsky.feed.post/1";
const LATER: &str = "2026-01-02T00:00:00Z";

/// A labeler on a thread of its own.
struct Speaker {
    labeler: Labeler,
    _runtime: tokio::runtime::Runtime,
}

impl Speaker {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let key = SigningKey::k256([7; 32]).unwrap();
        let labeler = runtime.block_on(Labeler::start(LABELER, key)).unwrap();
        Self {
            labeler,
            _runtime: runtime,
        }
    }

    /// Says a word of something, and more of it by `change`.
    fn say(&self, uri: &str, word: &str, change: impl Fn(&mut Saying<'_>)) {
        let mut saying = Saying {
            uri,
            word,
            made: "2026-01-01T00:00:00Z",
            ..Saying::default()
        };
        change(&mut saying);
        self.labeler.say(&saying);
    }
}

/// Silence is borne for a second, so that one test need not wait for long.
fn world(speaker: &Speaker) -> App {
    let config = format!(
        r#"
namespace = "com.example"
profiles = ["profile"]
[collections.follow]
collection = "app.bsky.graph.follow"
validate = false
[collections.post]
collection = "app.bsky.feed.post"
validate = false
[collections.profile]
collection = "app.bsky.actor.profile"
validate = false
[feeds.timeline]
targets = ["post"]
[[labels.source]]
did = "{LABELER}"
[intake]
plc_url = "{}"
silence_s_max = 1
"#,
        speaker.labeler.directory()
    );
    let post = json!({"text": "x", "createdAt": "2026-01-01T00:00:00Z"});
    let records: [Kept; 3] = [
        (AUTHOR, "app.bsky.feed.post", "1".into(), post),
        (AUTHOR, "app.bsky.actor.profile", "self".into(), json!({})),
        (
            "did:plc:reader",
            "app.bsky.graph.follow",
            "1".into(),
            json!({"subject": AUTHOR}),
        ),
    ];
    App::start_on(&config, &records)
}

/// The words on the post, and the labelers that the answer names.
fn words(app: &App, accept: Option<&str>) -> (Vec<String>, Option<String>) {
    let url = format!(
        "{}/xrpc/com.example.post.getRecord?uri={POST}",
        app.address()
    );
    let mut request = reqwest::Client::new().get(url);
    if let Some(accept) = accept {
        request = request.header("atproto-accept-labelers", accept);
    }
    app.wait(async {
        let response = request.send().await.unwrap();
        let named = response.headers().get("atproto-content-labelers").cloned();
        let named = named.map(|named| named.to_str().unwrap().to_owned());
        (of(&response.json::<Value>().await.unwrap()), named)
    })
}

fn of(shown: &Value) -> Vec<String> {
    let labels = shown["labels"].as_array().into_iter().flatten();
    labels
        .map(|it| it["val"].as_str().unwrap().to_owned())
        .collect()
}

/// Waits until the last word said was heard: a word of a subject of its own.
fn heard(app: &App, speaker: &Speaker) {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    let word = format!("mark-{number}");
    speaker.say(AUTHOR, &word, |_| {});
    let path = format!("/xrpc/com.example.getProfile?actor={AUTHOR}");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let (status, answer) = app.get(&path);
        assert_eq!(status, 200, "{answer}");
        if of(&answer["profiles"][0]).contains(&word) {
            return;
        }
        assert!(
            std::time::Instant::now() < until,
            "{word} never came: {}",
            app.logged()
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn what_a_labeler_says_stands_beside_records_until_it_is_taken_back_or_ends() {
    let speaker = Speaker::start();
    let app = world(&speaker);
    speaker.say(POST, "spam", |_| {});
    speaker.say(POST, "old", |it| it.ends = Some("2026-01-01T00:00:01Z"));
    speaker.say(POST, "lasting", |it| it.ends = Some("2999-01-01T00:00:00Z"));
    speaker.say(POST, "another-version", |it| {
        it.cid = Some("bafyreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy")
    });
    speaker.say(POST, "forged", |it| it.forged = true);
    speaker.say(POST, "anothers", |it| it.src = Some("did:plc:somebody"));
    heard(&app, &speaker);
    let all = Some(LABELER.to_owned());
    assert_eq!(
        words(&app, None),
        (vec!["lasting".to_owned(), "spam".to_owned()], all.clone())
    );
    // An older word does not take back a newer one; a newer does.
    speaker.say(POST, "spam", |it| {
        (it.negated, it.made) = (true, "2025-01-01T00:00:00Z")
    });
    speaker.say(POST, "lasting", |it| (it.negated, it.made) = (true, LATER));
    heard(&app, &speaker);
    assert_eq!(words(&app, None), (vec!["spam".to_owned()], all.clone()));
    let pages = [
        "/xrpc/com.example.getFeed?feed=timeline&actor=did:plc:reader",
        "/xrpc/com.example.post.listRecords?profiles=true",
    ];
    for path in pages {
        let (_, page) = app.get(path);
        assert_eq!(of(&page["records"][0]), ["spam"], "{page}");
        let label = &page["records"][0]["labels"][0];
        assert_eq!(
            (&label["src"], &label["uri"]),
            (&json!(LABELER), &json!(POST))
        );
        assert_eq!(label["cts"], "2026-01-01T00:00:00Z");
    }
}

#[test]
fn a_request_names_whose_labels_it_wants() {
    let speaker = Speaker::start();
    let app = world(&speaker);
    speaker.say(POST, "spam", |_| {});
    heard(&app, &speaker);
    let named = Some(LABELER.to_owned());
    let both = format!("did:plc:unheard, {LABELER};redact");
    assert_eq!(words(&app, Some(&both)), (vec!["spam".to_owned()], named));
    assert_eq!(words(&app, Some("did:plc:unheard")), (Vec::new(), None));
    assert_eq!(words(&app, Some("")), (Vec::new(), None));
    let path = format!("/xrpc/com.example.post.getRecord?uri={POST}");
    let (_, record) = app.get(&format!("{path}&labelers={LABELER}"));
    assert_eq!(of(&record), ["spam"]);
    let (status, answer) = app.get(&format!("{path}&labelers=nobody"));
    assert_eq!((status, &answer["error"]), (400, &json!("InvalidRequest")));
}

#[test]
fn listening_goes_on_after_the_last_label_that_was_kept() {
    let speaker = Speaker::start();
    let mut app = world(&speaker);
    speaker.say(POST, "spam", |_| {});
    heard(&app, &speaker);
    assert_eq!(speaker.labeler.cursors(), [0]);
    app.restart();
    speaker.say(POST, "rude", |_| {});
    heard(&app, &speaker);
    assert_eq!(words(&app, None).0, ["rude", "spam"]);
    assert_eq!(speaker.labeler.cursors(), [0, 2]);
}

#[test]
fn a_labeler_with_nothing_to_say_is_listened_to_all_the_same() {
    let speaker = Speaker::start();
    let app = world(&speaker);
    heard(&app, &speaker);
    std::thread::sleep(std::time::Duration::from_millis(3500));
    heard(&app, &speaker);
    assert_eq!(speaker.labeler.cursors(), [0], "over one connection");
    assert!(!app.logged().contains("labels ended"), "{}", app.logged());
}

/// Waits until `/ready` names labels that fail, or does not any more; the process stays ready.
fn labels_fail(app: &App, fail: bool) {
    let begun = std::time::Instant::now();
    loop {
        let (status, answer) = app.get("/ready");
        assert_eq!(status, 200, "{answer}");
        let mut problems = answer["problems"].as_array().unwrap().iter();
        if problems.any(|problem| problem["code"] == "labels_failing") == fail {
            return;
        }
        assert!(begun.elapsed() < crate::bed::PATIENCE, "{fail}: {answer}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn labels_that_cannot_be_kept_are_named_until_they_are() {
    let speaker = Speaker::start();
    let app = world(&speaker);
    heard(&app, &speaker);
    labels_fail(&app, false);
    let file = app.folder().join("store.labels.db");
    let other = rusqlite::Connection::open(&file).unwrap();
    other.busy_timeout(crate::bed::PATIENCE).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    speaker.say(POST, "spam", |_| {});
    labels_fail(&app, true);
    other.execute_batch("ROLLBACK").unwrap();
    labels_fail(&app, false);
    heard(&app, &speaker);
    assert_eq!(words(&app, None).0, ["spam"]);
}
