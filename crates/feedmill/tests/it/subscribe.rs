//! `subscribeFeed` with real clients: a WebSocket and server-sent events.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::mill::Mill;

pub(crate) const ANN: &str = "did:web:ann.test";
pub(crate) const BEN: &str = "did:web:ben.test";
pub(crate) const EVE: &str = "did:web:eve.test";
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn text(extra: &str) -> String {
    format!(
        "namespace = \"com.example\"\n\
         [collections.follow]\ncollection = \"com.example.follow\"\nvalidate = false\n\
         [collections.mute]\ncollection = \"com.example.mute\"\nvalidate = false\n\
         [collections.post]\ncollection = \"com.example.post\"\nvalidate = false\n\
         [collections.link]\ncollection = \"com.example.link\"\nvalidate = false\n\
         [feeds.timeline]\ntargets = [\"post\"]\nhide = [\"mute\"]\n\
         [feeds.merged]\ntargets = [{{ collection = \"link\", merge = \"about\", keys = [\"author\", \"set\"], union = [\"set\"] }}]\n\
         [store]\nurl = \"sqlite::memory:\"\n{extra}"
    )
}

pub(crate) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

pub(crate) async fn listen(mill: &Mill, feed: &str, cursor: Option<&str>) -> Socket {
    let cursor = cursor
        .map(|cursor| format!("&cursor={cursor}"))
        .unwrap_or_default();
    let url = format!(
        "ws://{}/xrpc/com.example.subscribeFeed?feed={feed}&actor={EVE}{cursor}",
        mill.address()
    );
    tokio_tungstenite::connect_async(url)
        .await
        .expect("a socket")
        .0
}

/// The next message that says something.
pub(crate) async fn next(socket: &mut Socket) -> Value {
    unless_closed(socket).await.expect("an open stream")
}

/// The same; `None` if the stream is closed instead.
async fn unless_closed(socket: &mut Socket) -> Option<Value> {
    loop {
        let message = tokio::time::timeout(PATIENCE, socket.next())
            .await
            .expect("news in time");
        match message.expect("an open socket").expect("a message") {
            Message::Text(text) => return Some(serde_json::from_str(&text).unwrap()),
            Message::Close(_) => return None,
            _ => {}
        }
    }
}

pub(crate) fn cursor(message: &Value) -> String {
    message["cursor"].as_str().unwrap().to_owned()
}

#[track_caller]
pub(crate) fn is_entry(message: &Value, uri: &str) {
    assert_eq!(
        (&message["type"], &message["record"]["uri"]),
        (&json!("entry"), &json!(uri)),
        "{message}"
    );
}

#[track_caller]
pub(crate) fn is_removal(message: &Value, uri: &str) {
    assert_eq!(
        (&message["type"], &message["uri"]),
        (&json!("removal"), &json!(uri)),
        "{message}"
    );
}

pub(crate) fn follow(mill: &Mill, rkey: &str, subject: &str) {
    mill.put(EVE, "follow", rkey, &json!({"subject": subject}));
}

pub(crate) fn post(mill: &Mill, author: &str, rkey: &str) -> String {
    mill.put(author, "post", rkey, &json!({"text": rkey}))
}

#[tokio::test(flavor = "multi_thread")]
async fn new_entries_and_removals_come_as_they_happen_and_only_the_readers_own() {
    let mill = Mill::start(&text("")).await;
    follow(&mill, "1", ANN);
    post(&mill, ANN, "before");
    let mut socket = listen(&mill, "timeline", None).await;
    assert_eq!(next(&mut socket).await["type"], "start");
    post(&mill, BEN, "unseen");
    let one = post(&mill, ANN, "one");
    mill.backfill(ANN, "post", "old", &json!({"text": "from the past"}));
    let two = post(&mill, ANN, "two");
    is_entry(&next(&mut socket).await, &one);
    let message = next(&mut socket).await;
    is_entry(&message, &two);
    assert_eq!(message["record"]["value"]["text"], "two");
    mill.delete(ANN, "post", "one");
    is_removal(&next(&mut socket).await, &one);
    // A new follow is told, and what it brings from then on.
    follow(&mill, "2", BEN);
    assert_eq!(next(&mut socket).await["type"], "changed");
    let three = post(&mill, BEN, "three");
    is_entry(&next(&mut socket).await, &three);
    // Two follow records for one key: without one of them it is still followed.
    follow(&mill, "3", BEN);
    assert_eq!(next(&mut socket).await["type"], "changed");
    mill.delete(EVE, "follow", "2");
    assert_eq!(next(&mut socket).await["type"], "changed");
    let four = post(&mill, BEN, "four");
    is_entry(&next(&mut socket).await, &four);
    // A muted author says nothing more.
    mill.put(EVE, "mute", "1", &json!({"subject": BEN}));
    assert_eq!(next(&mut socket).await["type"], "changed");
    post(&mill, BEN, "unheard");
    let five = post(&mill, ANN, "five");
    is_entry(&next(&mut socket).await, &five);
    socket.close(None).await.unwrap();
    mill.river.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_who_comes_back_with_a_cursor_is_told_what_it_missed() {
    let mill = Mill::start(&text("")).await;
    follow(&mill, "1", ANN);
    let mut socket = listen(&mill, "timeline", None).await;
    let start = cursor(&next(&mut socket).await);
    let one = post(&mill, ANN, "one");
    let message = next(&mut socket).await;
    is_entry(&message, &one);
    let cursor = cursor(&message);
    drop(socket);
    let two = post(&mill, ANN, "two");
    post(&mill, BEN, "unseen");
    mill.delete(ANN, "post", "one");
    let mut again = listen(&mill, "timeline", Some(&cursor)).await;
    is_entry(&next(&mut again).await, &two);
    is_removal(&next(&mut again).await, &one);
    let three = post(&mill, ANN, "three");
    is_entry(&next(&mut again).await, &three);
    // From the very start: what is gone by now has no body and is told as its removal only.
    let mut whole = listen(&mill, "timeline", Some(&start)).await;
    is_entry(&next(&mut whole).await, &two);
    is_removal(&next(&mut whole).await, &one);
    is_entry(&next(&mut whole).await, &three);
    mill.river.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merged_feed_tells_the_removal_and_the_entry_of_a_group_formed_anew() {
    let mill = Mill::start(&text("")).await;
    follow(&mill, "1", "set:a");
    let mut socket = listen(&mill, "merged", None).await;
    assert_eq!(next(&mut socket).await["type"], "start");
    let link = |rkey: &str, second: u32, set: &str| {
        let time = format!("2026-03-05T10:00:{second:02}Z");
        mill.put(
            ANN,
            "link",
            rkey,
            &json!({"about": "thing", "set": set, "createdAt": time}),
        )
    };
    let one = link("one", 30, "set:a");
    let message = next(&mut socket).await;
    assert_eq!(message["activity"]["records"], json!([one]), "{message}");
    let id = message["activity"]["id"].clone();
    // A later member: the same entry, with more in it.
    let two = link("two", 40, "set:b");
    let message = next(&mut socket).await;
    assert_eq!(
        (&message["activity"]["id"], &message["activity"]["records"]),
        (&id, &json!([one, two]))
    );
    // An earlier one: the group begins elsewhere, so it is another entry.
    let zero = link("zero", 10, "set:b");
    let message = next(&mut socket).await;
    assert_eq!((&message["type"], &message["id"]), (&json!("removal"), &id));
    let message = next(&mut socket).await;
    assert_eq!(
        message["activity"]["records"],
        json!([zero, one, two]),
        "{message}"
    );
    let id = message["activity"]["id"].clone();
    // Without the member that reached the reader it is in the feed no more.
    mill.delete(ANN, "link", "one");
    let message = next(&mut socket).await;
    assert_eq!((&message["type"], &message["id"]), (&json!("removal"), &id));
    mill.river.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_who_does_not_read_is_closed_with_a_reason_and_nobody_else() {
    let mill = Mill::start(&text("[serve]\nlistener_events_max = 20\n")).await;
    follow(&mill, "1", ANN);
    let slow = listen(&mill, "timeline", None).await;
    let mut socket = listen(&mill, "timeline", None).await;
    assert_eq!(next(&mut socket).await["type"], "start");
    let long = "x".repeat(100_000);
    let mut number = 0;
    // As many as fill the buffers between us; the other reader takes each at once.
    while mill.river.listeners() > 1 {
        assert!(number < 2000, "the slow reader is still there");
        let uri = mill.put(ANN, "post", &number.to_string(), &json!({"text": long}));
        is_entry(&next(&mut socket).await, &uri);
        number += 1;
    }
    let mut slow = slow;
    let reason = loop {
        let message = tokio::time::timeout(PATIENCE, slow.next())
            .await
            .expect("an end in time");
        match message {
            Some(Ok(Message::Close(Some(frame)))) => break frame.reason.to_string(),
            Some(Ok(_)) => {}
            other => panic!("no reason was given: {other:?}"),
        }
    };
    assert!(reason.starts_with("ConsumerTooSlow"), "{reason}");
    let last = post(&mill, ANN, "last");
    is_entry(&next(&mut socket).await, &last);
    mill.river.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_comes_as_server_sent_events_and_resumes_by_the_last_id() {
    let mill = Mill::start(&text("")).await;
    follow(&mill, "1", ANN);
    let url = format!(
        "http://{}/xrpc/com.example.subscribeFeed?feed=timeline&actor={EVE}",
        mill.address()
    );
    let client = reqwest::Client::new();
    let open = |last: Option<String>| {
        let request = client.get(&url).header("accept", "text/event-stream");
        let request = match last {
            Some(last) => request.header("last-event-id", last),
            None => request,
        };
        async move { request.send().await.unwrap() }
    };
    let mut response = open(None).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    // A proxy such as nginx passes each event on at once.
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    let mut heard = String::new();
    let event = event(&mut response, &mut heard).await;
    assert_eq!(event.0, "start");
    let one = post(&mill, ANN, "one");
    let (kind, id, data) = self::event(&mut response, &mut heard).await;
    assert_eq!(kind, "entry");
    is_entry(&data, &one);
    drop(response);
    let two = post(&mill, ANN, "two");
    let mut response = open(Some(id)).await;
    heard.clear();
    let (_, last, data) = self::event(&mut response, &mut heard).await;
    is_entry(&data, &two);
    // A server that stops says so and ends the stream.
    mill.river.stop().await;
    let (kind, _, data) = self::event(&mut response, &mut heard).await;
    assert_eq!(
        (kind.as_str(), &data["type"], &data["name"]),
        ("end", &json!("end"), &json!("GoingAway"))
    );
    assert_eq!(cursor(&data), last);
}

/// The next event: its name, id and data.
pub(crate) async fn event(
    response: &mut reqwest::Response,
    heard: &mut String,
) -> (String, String, Value) {
    loop {
        if let Some((first, rest)) = heard.split_once("\n\n") {
            let (first, rest) = (first.to_owned(), rest.to_owned());
            *heard = rest;
            let field = |name: &str| {
                let line = first.lines().find_map(|line| line.strip_prefix(name));
                line.unwrap_or_default().to_owned()
            };
            if first.starts_with(':') {
                continue;
            }
            return (
                field("event: "),
                field("id: "),
                serde_json::from_str(&field("data: ")).unwrap(),
            );
        }
        let chunk = tokio::time::timeout(PATIENCE, response.chunk())
            .await
            .expect("in time");
        heard.push_str(std::str::from_utf8(&chunk.unwrap().expect("more")).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_wrongly_is_refused_before_anything_is_opened() {
    let mill = Mill::start(&text("[serve]\nlisteners_max = 1\n")).await;
    follow(&mill, "1", ANN);
    let base = "/xrpc/com.example.subscribeFeed";
    let ask = async |query: &str| {
        let url = format!("http://{}{base}{query}", mill.address());
        let request = reqwest::Client::new()
            .get(url)
            .header("accept", "text/event-stream");
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let answer: Value = response.json().await.unwrap();
        (status, answer["error"].as_str().unwrap().to_owned())
    };
    let (status, answer) = mill.get(&format!("{base}?feed=timeline&actor={EVE}")).await;
    assert!(
        status == 400 && answer["message"].as_str().unwrap().contains("WebSocket"),
        "{answer}"
    );
    assert_eq!(ask("?feed=timeline").await, (400, "InvalidRequest".into()));
    assert_eq!(
        ask(&format!("?feed=nope&actor={EVE}")).await,
        (400, "UnknownFeed".into())
    );
    assert_eq!(
        ask(&format!("?feed=timeline&actor={EVE}&cursor=abc")).await,
        (400, "BadCursor".into())
    );
    assert_eq!(
        ask(&format!("?feed=timeline&actor={EVE}&limit=5")).await,
        (400, "InvalidRequest".into())
    );
    let mut socket = listen(&mill, "timeline", None).await;
    let start = cursor(&next(&mut socket).await);
    assert_eq!(
        ask(&format!("?feed=merged&actor={EVE}&cursor={start}")).await,
        (400, "BadCursor".into())
    );
    assert_eq!(
        ask(&format!("?feed=timeline&actor={EVE}")).await,
        (503, "NotEnoughResources".into())
    );
    socket.send(Message::Close(None)).await.unwrap();
    mill.river.stop().await;
}

/// Changes are drawn in order: once somebody is told of a record, all before it have been drawn.
async fn everything_is_drawn(mill: &Mill) {
    for number in 0.. {
        let mut socket = listen(mill, "timeline", None).await;
        let last = post(mill, ANN, &format!("last{number}"));
        while let Some(message) = unless_closed(&mut socket).await {
            if message["record"]["uri"] == json!(last) {
                return;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_older_than_the_outbox_is_told_so_and_the_stream_begins_anew() {
    let mill = Mill::start(&text("outbox_max = 3\n")).await;
    follow(&mill, "1", ANN);
    let mut socket = listen(&mill, "timeline", None).await;
    let start = cursor(&next(&mut socket).await);
    drop(socket);
    for number in 0..20 {
        post(&mill, ANN, &format!("lost{number}"));
    }
    // Who comes while they are being drawn may be told some of them, or all at once, and is closed as too slow.
    let drawn = tokio::time::timeout(PATIENCE, everything_is_drawn(&mill)).await;
    drawn.expect("a stream that tells what was just written");
    let mut again = listen(&mill, "timeline", Some(&start)).await;
    let message = next(&mut again).await;
    assert_eq!(
        (&message["type"], &message["name"]),
        (&json!("info"), &json!("OutdatedCursor")),
        "{message}"
    );
    assert_eq!(next(&mut again).await["type"], "start");
    let new = post(&mill, ANN, "new");
    is_entry(&next(&mut again).await, &new);
    mill.river.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_ahead_of_everything_that_happened_is_refused() {
    let mill = Mill::start(&text("")).await;
    follow(&mill, "1", ANN);
    let mut socket = listen(&mill, "timeline", None).await;
    next(&mut socket).await;
    for number in 0..4 {
        post(&mill, ANN, &number.to_string());
    }
    let last = post(&mill, ANN, "last");
    let ahead = loop {
        let message = next(&mut socket).await;
        if message["record"]["uri"] == json!(last) {
            break cursor(&message);
        }
    };
    mill.river.stop().await;
    // The same feed of a store that has seen less.
    let mill = Mill::start(&text("")).await;
    follow(&mill, "1", ANN);
    let url = format!(
        "http://{}/xrpc/com.example.subscribeFeed?feed=timeline&actor={EVE}&cursor={ahead}",
        mill.address()
    );
    let request = reqwest::Client::new()
        .get(url)
        .header("accept", "text/event-stream");
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 400);
    let answer: Value = response.json().await.unwrap();
    assert_eq!(answer["error"], "FutureCursor", "{answer}");
    mill.river.stop().await;
}
