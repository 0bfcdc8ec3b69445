//! The rules of `[log]` at every door: streams obey them too, and what is
//! refused leaves nothing behind.

use super::*;
use crate::settings::SpaceSetting;
use crate::{keeper, streams};
use axum::http::StatusCode;
use blocklog::store::LogStore as _;

impl Server {
    /// One request of the stream protocol.
    pub(super) async fn stream(&self, method: &str, path: &str, headers: &str, body: &str) -> u16 {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let text = format!(
            "{method} /v1/stream/{path} HTTP/1.1\r\nhost: log\r\nconnection: close\r\ncontent-type: text/plain\r\n{headers}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        socket.write_all(text.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        socket.read_to_end(&mut bytes).await.unwrap();
        String::from_utf8_lossy(&bytes)[9..12].parse().unwrap()
    }
}

#[tokio::test]
async fn streams_are_written_only_where_everybody_may_write() {
    let server = serve(LogSettings {
        writers: WritersSetting::Keys,
        ..LogSettings::open()
    })
    .await;
    assert_eq!(server.stream("PUT", "a", "", "").await, 403);
    let server = serve(LogSettings {
        create: Who::Nobody,
        ..LogSettings::open()
    })
    .await;
    assert_eq!(server.stream("PUT", "a", "", "").await, 403);
    assert_eq!(server.stream("DELETE", "a", "", "").await, 403);
    let server = serve(LogSettings {
        space_feeds_max: 2,
        append_blocks_per_second_max: 3,
        ..LogSettings::open()
    })
    .await;
    assert_eq!(server.stream("PUT", "a", "", "").await, 201);
    assert_eq!(server.stream("PUT", "b", "", "").await, 201);
    assert_eq!(server.stream("PUT", "c", "", "").await, 403);
    assert_eq!(server.stream("DELETE", "b", "", "").await, 204);
    assert_eq!(server.stream("PUT", "c", "", "").await, 201);
    let mut last = 0;
    for _ in 0..20 {
        last = server.stream("POST", "a", "", "hi").await;
    }
    assert_eq!(last, StatusCode::TOO_MANY_REQUESTS.as_u16());
}

/// nginx holds an answer back until a buffer is full, unless it is told not to.
#[tokio::test]
async fn events_of_a_stream_ask_a_proxy_not_to_hold_them_back() {
    let server = serve(LogSettings::open()).await;
    assert_eq!(server.stream("PUT", "a", "", "hello").await, 201);
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let ask = b"GET /v1/stream/a?offset=-1&live=sse HTTP/1.1\r\nhost: log\r\n\r\n";
    socket.write_all(ask).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    assert!(
        head.contains("\r\ncontent-type: text/event-stream\r\n"),
        "{head}"
    );
    assert!(head.contains("\r\nx-accel-buffering: no\r\n"), "{head}");
}

#[tokio::test]
async fn the_streams_own_space_is_written_by_streams_alone() {
    let server = serve(LogSettings::open()).await;
    assert_eq!(server.stream("PUT", "a", "", "hi").await, 201);
    let message = json!({"requestId": 1, "blocks": [block("1", 2)]}).to_string();
    let path = format!("/log/{}/append", streams::SPACE);
    let (status, ..) = server
        .send(&path, "application/json", message.as_bytes())
        .await;
    assert_eq!(status, 403);
    // A producer that calls itself a key signs nothing, so it is not called one.
    let key = format!("ed25519:{}", "a".repeat(64));
    let headers = format!("producer-id: {key}\r\nproducer-epoch: 0\r\nproducer-seq: 0\r\n");
    assert_eq!(server.stream("POST", "a", &headers, "hi").await, 200);
    let found = blocklog::verify::verify(server.log.store().as_ref(), streams::SPACE).unwrap();
    assert!(found.damaged.is_empty(), "{found:?}");
}

#[tokio::test]
async fn a_stream_whose_time_is_over_goes_though_nobody_asks() {
    let server = serve(LogSettings::open()).await;
    let past = "stream-expires-at: 2020-01-01T00:00:00Z\r\n";
    assert_eq!(server.stream("PUT", "a", past, "secret").await, 201);
    let held = |server: &Server| {
        let feeds = server.log.store().feeds(streams::SPACE, None, None, 10);
        feeds.unwrap().len()
    };
    assert_eq!(held(&server), 1);
    assert_eq!(server.stream("GET", "a?offset=-1", "", "").await, 404);
    assert_eq!(held(&server), 1, "who reads a stream changes nothing");
    // Its blocks cannot be read by another way either.
    let ask = json!({"requestId": 1}).to_string();
    let path = format!("/log/{}/query", streams::SPACE);
    let (_, _, body) = server.send(&path, "application/json", ask.as_bytes()).await;
    let page: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&page["blocks"], held(&server)), (&json!([]), 0));
    assert_eq!(server.stream("PUT", "b", past, "secret").await, 201);
    let (sender, stop) = tokio::sync::watch::channel(false);
    let keeper = tokio::spawn(keeper::run(server.log.clone(), stop));
    until("the keeper has swept", async || held(&server) == 0).await;
    sender.send_replace(true);
    keeper.await.unwrap();
}

#[tokio::test]
async fn a_refused_append_makes_no_space() {
    let server = serve(LogSettings {
        writers: WritersSetting::Nobody,
        spaces_max: 1,
        ..LogSettings::open()
    })
    .await;
    assert_eq!(server.append(1).await.0, 403);
    let query = json!({"requestId": 1});
    assert_eq!(server.ask("query", &query).await.0, 404);
    let subscribe = json!({"requestId": 1});
    assert_eq!(server.ask("subscribe", &subscribe).await.0, 404);
    let spaces = server.log.store().spaces().unwrap();
    assert!(spaces.is_empty(), "a reader made {spaces:?}");
    let message = subscribe.to_string();
    for (space, expected) in [("one", 200), ("one", 200), ("two", 507)] {
        let path = format!("/log/{space}/create");
        let (status, _, body) = server
            .send(&path, "application/json", message.as_bytes())
            .await;
        assert_eq!(status, expected, "there is room for one space");
        let answer: Value = serde_json::from_slice(&body).unwrap();
        let limit = (status == 507).then(|| json!("spaces_max"));
        assert_eq!(answer.get("limit").cloned(), limit, "the limit is named");
    }
}

/// What a request shows, and what it is answered with.
#[track_caller]
fn is(server: (u16, Value), status: u16, error: &str) {
    let (found, answer) = server;
    assert_eq!(
        (found, answer["error"].as_str()),
        (status, Some(error)),
        "{answer}"
    );
}

impl Server {
    /// One request with further headers.
    async fn with(&self, path: &str, headers: &str, body: &Value) -> (u16, Value) {
        let media_type = format!("application/json\r\n{headers}");
        let media_type = media_type.trim_end();
        let (status, _, body) = self
            .send(path, media_type, body.to_string().as_bytes())
            .await;
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }
}

#[tokio::test]
async fn a_log_is_closed_unless_its_settings_open_it() {
    let server = serve(LogSettings::default()).await;
    let append = json!({"requestId": 1, "blocks": [block("a", 1)]});
    let ask = json!({"requestId": 1});
    for kind in ["query", "subscribe", "list", "create", "delete", "purge"] {
        is(server.ask(kind, &ask).await, 401, "unauthorized");
    }
    is(server.ask("append", &append).await, 401, "unauthorized");
    for method in ["GET", "PUT", "POST", "DELETE"] {
        assert_eq!(server.stream(method, "a", "", "").await, 401, "{method}");
    }
    let url = format!("ws://{}/log/space", server.address);
    let refused = tokio_tungstenite::connect_async(&url).await.unwrap_err();
    assert!(refused.to_string().contains("401"), "{refused}");
    // The token that may do everything, however its scheme is written.
    let all = "authorization: bearer all\r\n";
    assert_eq!(server.with("/log/space/append", all, &append).await.0, 200);
    assert_eq!(server.stream("PUT", "a", all, "").await, 201);
    // The token that may only read one space.
    let reader = "authorization: Bearer reader\r\n";
    assert_eq!(server.with("/log/space/query", reader, &ask).await.0, 200);
    let other = server.with("/log/other/query", reader, &ask).await;
    is(other, 403, "notAllowed");
    let append = server.with("/log/space/append", reader, &append).await;
    is(append, 403, "notAllowed");
    let request = crate::peer::request(&url, Some("reader")).unwrap();
    let (mut socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
    let message = json!({"requestId": 1, "blocks": [block("a", 2)]}).to_string();
    socket.send(Message::text(message)).await.unwrap();
    let answer = socket.next().await.unwrap().unwrap();
    assert!(answer.to_text().unwrap().contains("notAllowed"), "{answer}");
}

#[tokio::test]
async fn one_space_may_be_open_while_the_others_are_closed() {
    let mut settings = LogSettings::default();
    let open = SpaceSetting {
        read: Some(Who::Anyone),
        append: Some(Who::Nobody),
        bytes_max: None,
    };
    settings.spaces.insert("space".into(), open);
    let server = serve(settings).await;
    let all = "authorization: Bearer all\r\n";
    let ask = json!({"requestId": 1});
    assert_eq!(server.with("/log/space/create", all, &ask).await.0, 200);
    assert_eq!(server.ask("query", &ask).await.0, 200);
    let append = json!({"requestId": 1, "blocks": [block("a", 1)]});
    let append = server.with("/log/space/append", all, &append).await;
    is(append, 403, "notAllowed");
    is(
        server.with("/log/other/query", "", &ask).await,
        401,
        "unauthorized",
    );
}

#[tokio::test]
async fn pages_of_other_origins_neither_read_nor_write() {
    let ask = json!({"requestId": 1, "blocks": [block("a", 1)]});
    let evil = "origin: https://evil.example\r\n";
    let server = serve(LogSettings::open()).await;
    let append = server.with("/log/space/append", evil, &ask).await;
    is(append, 403, "foreignOrigin");
    let cross = "sec-fetch-site: cross-site\r\n";
    let append = server.with("/log/space/append", cross, &ask).await;
    is(append, 403, "foreignOrigin");
    assert_eq!(server.stream("PUT", "a", evil, "").await, 403);
    assert_eq!(server.log.store().spaces().unwrap(), Vec::<String>::new());
    let url = format!("ws://{}/log/space", server.address);
    let mut request = crate::peer::request(&url, None).unwrap();
    let origin = "https://evil.example".parse().unwrap();
    request.headers_mut().insert("origin", origin);
    let refused = tokio_tungstenite::connect_async(request).await.unwrap_err();
    assert!(refused.to_string().contains("403"), "{refused}");
    let own = "origin: http://log\r\n"; // the tests' own Host
    assert_eq!(server.with("/log/space/append", own, &ask).await.0, 200);
    let server = serve(LogSettings {
        origins: vec!["https://evil.example".into()],
        ..LogSettings::open()
    })
    .await;
    let body = ask.to_string();
    let kind = "application/json\r\norigin: https://evil.example";
    let (status, head, _) = server
        .send("/log/space/append", kind, body.as_bytes())
        .await;
    assert_eq!(status, 200);
    assert!(
        head.contains("access-control-allow-origin: https://evil.example"),
        "{head}"
    );
}

#[tokio::test]
async fn a_body_must_say_that_it_is_json_or_cbor() {
    let server = serve(LogSettings::open()).await;
    let body = json!({"requestId": 1, "blocks": [block("a", 1)]}).to_string();
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
    ] {
        let (status, ..) = server
            .send("/log/space/append", kind, body.as_bytes())
            .await;
        assert_eq!(status, 415, "{kind}");
    }
    let kind = "application/json; charset=utf-8";
    let (status, ..) = server
        .send("/log/space/append", kind, body.as_bytes())
        .await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_space_holds_as_many_bytes_as_its_quota_and_deleting_makes_room() {
    let mut settings = LogSettings {
        space_bytes_max: 3 * (128 + 2), // three blocks of "hi"
        ..LogSettings::open()
    };
    let small = SpaceSetting {
        bytes_max: Some(128 + 2),
        ..SpaceSetting::default()
    };
    settings.spaces.insert("small".into(), small);
    let server = serve(settings).await;
    let blocks: Vec<Value> = (1..=3).map(|sequence| block("a", sequence)).collect();
    let three = json!({"requestId": 1, "blocks": blocks});
    assert_eq!(server.ask("append", &three).await.0, 200);
    let fourth = json!({"requestId": 1, "blocks": [block("a", 3), block("a", 4)]});
    let (status, answer) = server.ask("append", &fourth).await;
    assert_eq!((status, &answer["error"]), (507, &json!("spaceBytes")));
    let at_fault = answer["blocks"].as_array().unwrap();
    assert_eq!(
        (at_fault.len(), &at_fault[0]["index"]),
        (1, &json!(1)),
        "the repeat is none"
    );
    assert_eq!(
        server.ask("append", &three).await.0,
        200,
        "repeats need no room"
    );
    let two = json!({"requestId": 1, "blocks": [block("a", 1), block("a", 2)]});
    is(
        server.with("/log/small/append", "", &two).await,
        507,
        "spaceBytes",
    );
    let purge = json!({"requestId": 1, "feedId": "a"});
    let (_, answer) = server.ask("purge", &purge).await;
    assert_eq!(answer["changed"], 3);
    let (_, answer) = server.ask("query", &json!({"requestId": 1})).await;
    assert!(answer["blocks"][0].get("data").is_none(), "{answer}");
    let (_, answer) = server.ask("delete", &json!({"requestId": 1})).await;
    assert_eq!(answer["changed"], 3);
    is(
        server.ask("query", &json!({"requestId": 1})).await,
        410,
        "spaceDeleted",
    );
    server.ask("create", &json!({"requestId": 1})).await;
    assert_eq!(
        server.ask("append", &three).await.0,
        200,
        "there is room again"
    );
}

#[tokio::test]
async fn a_deletion_that_was_cut_short_is_ended_by_the_keeper() {
    let server = serve(LogSettings::open()).await;
    server.append(1).await;
    server.log.store().begin_deletion("space").unwrap();
    is(
        server.ask("query", &json!({"requestId": 1})).await,
        410,
        "spaceDeleted",
    );
    let (sender, stop) = tokio::sync::watch::channel(false);
    let keeper = tokio::spawn(keeper::run(server.log.clone(), stop));
    until("the space is gone", async || {
        server.log.store().deletions().unwrap().is_empty()
    })
    .await;
    sender.send_replace(true);
    keeper.await.unwrap();
    server.ask("create", &json!({"requestId": 1})).await;
    assert_eq!(
        server.append(1).await.1["positions"],
        json!([1]),
        "a new space"
    );
}

#[tokio::test]
async fn a_file_that_is_full_takes_no_more() {
    let server = serve(LogSettings {
        bytes_max: 1,
        ..LogSettings::open()
    })
    .await;
    let (status, answer) = server.append(1).await;
    assert_eq!((status, &answer["limit"]), (507, &json!("bytes_max")));
    assert_eq!(server.stream("PUT", "a", "", "hi").await, 507);
    let server = serve(LogSettings {
        space_bytes_max: 128,
        ..LogSettings::open()
    })
    .await;
    assert_eq!(server.stream("PUT", "a", "", "hi").await, 507);
}

#[tokio::test]
async fn every_block_at_fault_is_named_by_its_index() {
    let server = serve(LogSettings {
        block_bytes_max: 4,
        ..LogSettings::open()
    })
    .await;
    let mut wrong = block("a", 3);
    wrong["sequence"] = json!("three");
    let blocks = json!([block("a", 1), wrong, block("a", 2), {"actorId": "a"}]);
    let append = json!({"requestId": 1, "blocks": blocks});
    let (status, answer) = server.ask("append", &append).await;
    assert_eq!((status, &answer["error"]), (400, &json!("badRequest")));
    let named = |answer: &Value| -> Vec<u64> {
        let blocks = answer["blocks"].as_array().unwrap().iter();
        blocks.map(|one| one["index"].as_u64().unwrap()).collect()
    };
    assert_eq!(named(&answer), [1, 3]);
    let mut large = block("a", 2);
    large["data"] = json!("aGVsbG8=");
    let append = json!({"requestId": 1, "blocks": [block("a", 1), large]});
    let (status, answer) = server.ask("append", &append).await;
    assert_eq!((status, named(&answer)), (413, vec![1]));
}

#[tokio::test]
async fn a_connection_that_breaks_before_it_is_one_gives_its_seat_back() {
    let server = serve(LogSettings {
        connections_max: 2,
        ..LogSettings::open()
    })
    .await;
    let ask = "GET /log/space HTTP/1.1\r\nhost: log\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
               sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
    for _ in 0..50 {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        socket.write_all(ask.as_bytes()).await.unwrap();
        socket.set_zero_linger().unwrap(); // reset, not closed
    }
    let url = format!("ws://{}/log/space", server.address);
    until("there is room", async || {
        tokio_tungstenite::connect_async(&url).await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_walk_from_the_beginning_is_not_told_of_what_went_before_it() {
    let mut settings = LogSettings {
        append_blocks_per_second_max: 1_000_000,
        ..LogSettings::open()
    };
    settings
        .keep_feeds
        .insert("busy".into(), KeepSetting::Newest(3));
    let server = serve(settings).await;
    for (actor, count) in [("quiet", 20), ("busy", 30)] {
        let blocks: Vec<Value> = (1..=count).map(|sequence| block(actor, sequence)).collect();
        let message = json!({"requestId": 1, "blocks": blocks});
        assert_eq!(server.ask("append", &message).await.0, 200);
    }
    server.log.retain().unwrap();
    let mut seen = 0;
    let mut page = json!({"requestId": 1, "limit": 8});
    loop {
        let (status, answer) = server.ask("query", &page).await;
        assert_eq!(status, 200, "{answer}");
        seen += answer["blocks"].as_array().unwrap().len();
        page["cursor"] = answer["nextCursor"].clone();
        if answer["hasMore"] != json!(true) {
            break;
        }
    }
    assert_eq!(seen, 23, "all that is kept");
    // Who has come to the end and is away while blocks go must be told.
    let blocks: Vec<Value> = (31..=60).map(|sequence| block("busy", sequence)).collect();
    let message = json!({"requestId": 1, "blocks": blocks});
    assert_eq!(server.ask("append", &message).await.0, 200);
    server.log.retain().unwrap();
    let (status, answer) = server.ask("query", &page).await;
    assert_eq!((status, &answer["error"]), (410, &json!("gone")));
    page["skipGone"] = json!(true);
    let (_, answer) = server.ask("query", &page).await;
    assert_eq!(answer["blocks"].as_array().unwrap().len(), 3);
}

/// Holds the writer while `waiting` jobs gather; how many transactions they took once it was free.
async fn gathered(
    server: &Arc<Server>,
    waiting: usize,
    requests: impl FnOnce() -> Vec<tokio::task::JoinHandle<u16>>,
) -> (Vec<u16>, u64) {
    let store = server.log.store().clone();
    let (entered, is_held) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let before = store.transactions();
    let same = Arc::clone(&store);
    let holder = tokio::task::spawn_blocking(move || {
        same.writing(|_| {
            entered.send(()).unwrap();
            released.recv().unwrap();
            Ok::<_, blocklog::store::StoreError>(())
        })
    });
    tokio::task::spawn_blocking(move || is_held.recv().unwrap())
        .await
        .unwrap();
    let requests = requests();
    until("all wait", async || store.waiting() == waiting).await;
    release.send(()).unwrap();
    holder.await.unwrap().unwrap();
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(request.await.unwrap());
    }
    (statuses, store.transactions() - before - 1)
}

#[tokio::test]
async fn appends_and_posts_to_streams_in_flight_share_one_transaction() {
    let server = Arc::new(serve(LogSettings::open()).await);
    assert_eq!(server.append(1).await.0, 200);
    assert_eq!(server.stream("PUT", "a", "", "").await, 201);
    let requests = || {
        let appends = (1..=20).map(|writer| {
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                let message = json!({"requestId": 1, "blocks": [block(&format!("w{writer}"), 1)]});
                server.ask("append", &message).await.0
            })
        });
        let posts = (1..=20).map(|_| {
            let server = Arc::clone(&server);
            tokio::spawn(async move { server.stream("POST", "a", "", "hi").await })
        });
        appends.chain(posts).collect()
    };
    let (statuses, transactions) = gathered(&server, 40, requests).await;
    let expected: Vec<u16> = [200; 20].into_iter().chain([204; 20]).collect();
    assert_eq!((statuses, transactions), (expected, 1));
    for space in ["space", streams::SPACE] {
        let found = blocklog::verify::verify(server.log.store().as_ref(), space).unwrap();
        assert!(found.damaged.is_empty(), "{space}: {found:?}");
    }
    // A single one does not wait for others.
    let before = server.log.store().transactions();
    assert_eq!(server.append(2).await.0, 200);
    assert_eq!(server.stream("POST", "a", "", "hi").await, 204);
    assert_eq!(server.log.store().transactions() - before, 2);
}

#[tokio::test]
async fn who_may_only_read_sends_no_more_than_a_question() {
    let server = serve(LogSettings {
        append: Who::Token,
        ..LogSettings::open()
    })
    .await;
    let bytes_max = server.log.limits().request_bytes_max;
    let long = json!({"requestId": 1, "more": "x".repeat(bytes_max)});
    for kind in ["query", "subscribe", "list", "unknown"] {
        let (status, answer) = server.ask(kind, &long).await;
        assert_eq!(status, 413, "{kind}: {answer}");
    }
    let url = format!("ws://{}/log/space", server.address);
    let (mut socket, _) = tokio_tungstenite::connect_async(url.as_str())
        .await
        .unwrap();
    socket.send(Message::text(long.to_string())).await.unwrap();
    let close = socket.next().await.unwrap().unwrap();
    let Message::Close(Some(frame)) = close else {
        panic!("{close:?}");
    };
    assert_eq!(u16::from(frame.code), 1009);
    // Whoever may append sends as much on a socket of its own.
    let request = crate::peer::request(&url, Some("all")).unwrap();
    let (mut socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
    let mut append = long;
    append["type"] = "append".into();
    append["blocks"] = json!([block("01H1", 1)]);
    socket
        .send(Message::text(append.to_string()))
        .await
        .unwrap();
    let answer = socket.next().await.unwrap().unwrap();
    let answer: Value = serde_json::from_str(answer.to_text().unwrap()).unwrap();
    assert_eq!(answer["positions"], json!([1]), "{answer}");
}

#[tokio::test]
async fn feeds_named_together_have_few_bytes() {
    let server = serve(LogSettings::open()).await;
    server.append(1).await;
    let limits = server.log.limits();
    let of_bytes = |bytes: usize| -> Vec<String> {
        let ids = 0..bytes / limits.id_bytes_max;
        ids.map(|id| format!("{id:0width$}", width = limits.id_bytes_max))
            .collect()
    };
    for (bytes, expected) in [
        (limits.feed_ids_bytes_max, 200),
        (limits.feed_ids_bytes_max + limits.id_bytes_max, 413),
    ] {
        let message = json!({"requestId": 1, "feedIds": of_bytes(bytes)});
        let (status, answer) = server.ask("subscribe", &message).await;
        assert_eq!(status, expected, "{answer}");
    }
}
