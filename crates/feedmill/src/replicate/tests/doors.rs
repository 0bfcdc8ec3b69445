//! The rules of `[log]` at every door: streams obey them too, and what is
//! refused leaves nothing behind.

use super::*;
use crate::replicate::{keeper, streams};
use axum::http::StatusCode;

impl Server {
    /// One request of the stream protocol.
    async fn stream(&self, method: &str, path: &str, headers: &str, body: &str) -> u16 {
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
        ..LogSettings::default()
    })
    .await;
    assert_eq!(server.stream("PUT", "a", "", "").await, 403);
    let server = serve(LogSettings {
        make_spaces: false,
        ..LogSettings::default()
    })
    .await;
    assert_eq!(server.stream("PUT", "a", "", "").await, 403);
    let server = serve(LogSettings {
        space_feeds_max: 2,
        append_blocks_per_second_max: 3,
        ..LogSettings::default()
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

#[tokio::test]
async fn the_streams_own_space_is_written_by_streams_alone() {
    let server = serve(LogSettings::default()).await;
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
    use blocklog::store::LogStore as _;
    let server = serve(LogSettings::default()).await;
    let past = "stream-expires-at: 2020-01-01T00:00:00Z\r\n";
    assert_eq!(server.stream("PUT", "a", past, "secret").await, 201);
    let held = |server: &Server| {
        let feeds = server.log.store().feeds(streams::SPACE, None, None, 10);
        feeds.unwrap().len()
    };
    assert_eq!(held(&server), 1);
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
        ..LogSettings::default()
    })
    .await;
    assert_eq!(server.append(1).await.0, 403);
    let query = json!({"requestId": 1});
    assert_eq!(server.ask("query", &query).await.0, 404);
    let subscribe = json!({"requestId": 1}).to_string();
    for (space, expected) in [("one", 200), ("two", 404)] {
        let path = format!("/log/{space}/subscribe");
        let sent = server.send(&path, "application/json", subscribe.as_bytes());
        assert_eq!(sent.await.0, expected, "there is room for one space");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_before_it_is_one_gives_its_seat_back() {
    let server = serve(LogSettings {
        connections_max: 2,
        ..LogSettings::default()
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
        ..LogSettings::default()
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
