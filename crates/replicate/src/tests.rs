//! The log through the same doors as its users: HTTP and WebSocket.

mod caches;
mod doors;
mod peers;
mod spaces;
mod spelling;

use super::access::Keys;
use super::log::Log;
use super::settings::{KeepSetting, LogSettings, Right, Who, WritersSetting};
use super::sqlite::SqliteLog;
use crate::time::Time;
use blocklog::chain::Draft;
use blocklog::signature::Author;
use blocklog::store::FeedName;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;

struct Server {
    log: Log,
    address: SocketAddr,
    _directory: TempDir,
}

/// A token that may do everything, and one that may read the space `space`.
fn keys() -> Keys {
    let one = Some(BTreeSet::from(["space".to_owned()]));
    Keys::default()
        .with("all", &Right::ALL, None)
        .with("reader", &[Right::Read], one)
}

async fn serve(settings: LogSettings) -> Server {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteLog::open(&directory.path().join("log.db")).unwrap();
    let log = Log::new(Arc::new(store), settings, keys(), Time::wall());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = super::router(log.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    Server {
        log,
        address,
        _directory: directory,
    }
}

impl Server {
    /// One request on a connection of its own: status, head, body.
    async fn send(&self, path: &str, media_type: &str, body: &[u8]) -> (u16, String, Vec<u8>) {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: log\r\nconnection: close\r\ncontent-type: {media_type}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        socket.write_all(body).await.unwrap();
        let mut bytes = Vec::new();
        socket.read_to_end(&mut bytes).await.unwrap();
        let end = bytes
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap();
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head[9..12].parse().unwrap();
        (status, head, bytes[end + 4..].to_vec())
    }

    async fn ask(&self, kind: &str, message: &Value) -> (u16, Value) {
        let path = format!("/log/space/{kind}");
        let (status, _, body) = self
            .send(&path, "application/json", message.to_string().as_bytes())
            .await;
        (status, serde_json::from_slice(&body).unwrap())
    }

    async fn append(&self, sequence: u64) -> (u16, Value) {
        self.ask(
            "append",
            &json!({"requestId": sequence, "blocks": [block("01H1", sequence)]}),
        )
        .await
    }
}

fn block(actor: &str, sequence: u64) -> Value {
    json!({"actorId": actor, "sequence": sequence, "data": "aGk=", "timestamp": 1234567890})
}

#[tokio::test]
async fn the_four_messages_work_over_http() {
    let server = serve(LogSettings::open()).await;
    let (status, answer) = server.append(100).await;
    assert_eq!(
        (status, &answer["requestId"], &answer["positions"]),
        (200, &json!(100), &json!([1]))
    );
    let (_, answer) = server
        .ask("subscribe", &json!({"requestId": "s", "feedIds": ["01H1"]}))
        .await;
    let query = json!({"requestId": "q", "subscriptionId": answer["subscriptionId"], "cursor": 0});
    let (_, answer) = server.ask("query", &query).await;
    assert_eq!(answer["blocks"][0]["sequence"], 100);
    let (_, answer) = server.ask("list", &json!({"requestId": "l"})).await;
    assert_eq!(answer["feeds"][0]["feedId"], "01H1");
}

#[tokio::test]
async fn every_fault_has_a_status_and_the_request_id() {
    let server = serve(LogSettings {
        create: Who::Nobody,
        ..LogSettings::open()
    })
    .await;
    let (status, answer) = server.ask("query", &json!({"requestId": "r"})).await;
    assert_eq!(
        (status, &answer["error"], &answer["requestId"]),
        (404, &json!("unknownSpace"), &json!("r"))
    );
    let (status, answer) = server.ask("explode", &json!({"requestId": "r"})).await;
    assert_eq!(
        (status, &answer["error"], &answer["requestId"]),
        (400, &json!("unknownKind"), &json!("r"))
    );
    let (status, _, body) = server
        .send("/log/space/query", "application/json", b"{")
        .await;
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, &answer["error"]), (400, &json!("badRequest")));
    let (status, answer) = server.append(1).await;
    assert_eq!(
        (status, &answer["error"]),
        (404, &json!("unknownSpace")),
        "spaces are not made unasked"
    );
}

#[tokio::test]
async fn cbor_is_answered_in_cbor() {
    let server = serve(LogSettings::open()).await;
    let message = super::cbor::from_json(&json!({"requestId": 1, "blocks": [block("a", 1)]}));
    let (status, head, body) = server
        .send("/log/space/append", "application/cbor", &message)
        .await;
    assert_eq!(status, 200, "{head}");
    assert!(head.contains("content-type: application/cbor"));
    assert_eq!(
        super::cbor::to_json(&body).unwrap()["positions"],
        json!([1])
    );
}

#[tokio::test]
async fn a_conflict_is_409_and_a_flood_is_429() {
    let server = serve(LogSettings {
        append_blocks_per_second_max: 1,
        ..LogSettings::open()
    })
    .await;
    assert_eq!(server.append(1).await.0, 200);
    let mut other = block("01H1", 1);
    other["data"] = json!("b3RoZXI=");
    let (status, answer) = server
        .ask("append", &json!({"requestId": 2, "blocks": [other]}))
        .await;
    assert_eq!((status, &answer["error"]), (409, &json!("conflict")));
    let many: Vec<Value> = (2..=99).map(|sequence| block("01H1", sequence)).collect();
    let flood = json!({"requestId": 3, "blocks": many});
    while server.ask("append", &flood).await.0 != 200 {}
    let (status, answer) = server.append(100).await;
    assert_eq!((status, &answer["error"]), (429, &json!("rateLimited")));
}

#[tokio::test]
async fn writers_are_held_to_the_rule() {
    let server = serve(LogSettings {
        writers: WritersSetting::Keys,
        ..LogSettings::open()
    })
    .await;
    let (status, answer) = server.append(1).await;
    assert_eq!((status, &answer["error"]), (403, &json!("notAllowed")));
}

#[tokio::test]
async fn retention_keeps_up_with_a_feed_however_fast_it_grows() {
    let server = serve(LogSettings {
        keep: KeepSetting::Newest(2),
        ..LogSettings::open()
    })
    .await;
    server.append(1).await;
    let log = server.log.clone();
    let work = move || {
        let name = FeedName {
            feed: "busy",
            namespace: None,
        };
        let draft = Draft {
            timestamp_ms: 1,
            data: b"x".to_vec(),
        };
        let drafts = vec![draft; 3500];
        log.write("space", &name, &Author::named("ada"), &drafts)
            .unwrap();
        log.retain().unwrap()
    };
    let retained = tokio::task::spawn_blocking(work).await.unwrap();
    assert_eq!((retained.gone, retained.is_behind), (3498, false));
}

#[tokio::test]
async fn retention_leaves_a_typed_answer() {
    let server = serve(LogSettings {
        keep: KeepSetting::Newest(2),
        ..LogSettings::open()
    })
    .await;
    for sequence in 1..=5 {
        server.append(sequence).await;
    }
    let log = server.log.clone();
    let gone = tokio::task::spawn_blocking(move || log.retain().unwrap())
        .await
        .unwrap();
    assert_eq!((gone.gone, gone.is_behind), (3, false));
    let (status, answer) = server
        .ask("query", &json!({"requestId": 1, "cursor": 1}))
        .await;
    assert_eq!(
        (status, &answer["error"], &answer["startsAt"]),
        (410, &json!("gone"), &json!(3))
    );
}

#[tokio::test]
async fn a_subscriber_is_told_when_its_feed_grows_and_not_before() {
    let server = serve(LogSettings::open()).await;
    server.append(1).await;
    let url = format!("ws://{}/log/space", server.address);
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    socket
        .send(Message::text(
            json!({"requestId": 7, "feedIds": ["01H1"]}).to_string(),
        ))
        .await
        .unwrap();
    let next = async |socket: &mut tokio_tungstenite::WebSocketStream<_>| -> Value {
        let message = socket.next().await.unwrap().unwrap();
        serde_json::from_str(message.to_text().unwrap()).unwrap()
    };
    assert_eq!(next(&mut socket).await["requestId"], 7);
    server
        .ask(
            "append",
            &json!({"requestId": 1, "blocks": [block("other", 1)]}),
        )
        .await;
    server.append(2).await;
    let hint = next(&mut socket).await;
    assert_eq!(
        (&hint["type"], &hint["maxPosition"]),
        (&json!("advanced"), &json!(3)),
        "not told of the other feed"
    );
    socket.send(Message::text("not json")).await.unwrap();
    assert_eq!(next(&mut socket).await["error"], "badRequest");
    let cbor = super::cbor::from_json(&json!({"type": "query", "requestId": 8, "cursor": 2}));
    socket.send(Message::binary(cbor)).await.unwrap();
    let answer = socket.next().await.unwrap().unwrap();
    assert_eq!(
        super::cbor::to_json(&answer.into_data()).unwrap()["blocks"][0]["position"],
        3
    );
}

#[tokio::test]
async fn concurrent_appenders_lose_nothing() {
    let server = Arc::new(serve(LogSettings::open()).await);
    let tasks: Vec<_> = (0..8)
        .map(|writer| {
            let server = server.clone();
            tokio::spawn(async move {
                for sequence in 1..=20 {
                    let message = json!({"requestId": 1, "blocks": [block(&format!("writer {writer}"), sequence)]});
                    assert_eq!(server.ask("append", &message).await.0, 200);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let (_, answer) = server
        .ask("query", &json!({"requestId": 1, "limit": 1000}))
        .await;
    let positions: Vec<u64> = answer["blocks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["position"].as_u64().unwrap())
        .collect();
    assert_eq!(positions, (1..=160).collect::<Vec<u64>>());
}

async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    for _ in 0..600 {
        if done().await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("never: {what}");
}

#[tokio::test]
async fn a_log_is_the_live_replica_of_another_both_ways() {
    use super::peer::{Peer, PeerSettings};
    use blocklog::replica::{Mode, Target};
    let (authority, replica) = (
        serve(LogSettings::open()).await,
        serve(LogSettings::open()).await,
    );
    for sequence in 1..=3 {
        authority.append(sequence).await;
    }
    let settings = PeerSettings {
        url: format!("ws://{}", authority.address),
        space: "space".into(),
        lanes: vec![(Target::Space, Mode::From(0))],
        token: None,
    };
    let peer = Peer::new(replica.log.clone(), settings).unwrap();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let running = tokio::spawn(peer.run(stopped));
    let count = async |server: &Server| {
        let (_, answer) = server.ask("query", &json!({"requestId": 1})).await;
        answer["blocks"].as_array().map_or(0, Vec::len)
    };
    until("the history is here", async || count(&replica).await == 3).await;
    authority.append(4).await;
    until("what comes is here", async || count(&replica).await == 4).await;
    let log = replica.log.clone();
    let write = move || {
        let draft = Draft {
            timestamp_ms: 1,
            data: b"from the replica".to_vec(),
        };
        let feed = FeedName {
            feed: "mine",
            namespace: None,
        };
        log.write("space", &feed, &Author::keyed(&[5; 32]), &[draft])
            .unwrap()
    };
    tokio::task::spawn_blocking(write).await.unwrap();
    until("what is written here is there", async || {
        count(&authority).await == 5
    })
    .await;
    until("and has its position here", async || {
        count(&replica).await == 5
    })
    .await;
    stop.send_replace(true);
    running.await.unwrap();
}

/// The socket stays open and nobody answers, as after a cable was pulled.
#[tokio::test]
async fn a_line_that_is_dead_is_left() {
    use super::peer::{Peer, PeerSettings};
    use blocklog::replica::{Mode, Target};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = PeerSettings {
        url: format!("ws://{}", listener.local_addr().unwrap()),
        space: "space".into(),
        lanes: vec![(Target::Space, Mode::From(0))],
        token: None,
    };
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteLog::open(&directory.path().join("log.db")).unwrap();
    let now_ms = Arc::new(AtomicU64::new(1_000));
    let shown = now_ms.clone();
    let time = Time::from_fn(move || shown.load(Ordering::SeqCst));
    let log = Log::new(Arc::new(store), LogSettings::open(), keys(), time);
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let running = tokio::spawn(Peer::new(log, settings).unwrap().run(stopped));
    let (line, _) = listener.accept().await.unwrap();
    let mut dead = tokio_tungstenite::accept_async(line).await.unwrap();
    for _ in ["hints", "pull"] {
        dead.next().await.unwrap().unwrap();
    }
    now_ms.fetch_add(60_000, Ordering::SeqCst);
    let another = tokio::time::timeout(std::time::Duration::from_secs(60), listener.accept());
    another.await.expect("a new line").unwrap();
    drop(dead);
    stop.send_replace(true);
    running.await.unwrap();
}

#[tokio::test]
async fn a_space_of_our_own_is_never_made_a_replica() {
    use super::peer::{Peer, PeerError, PeerSettings};
    let server = serve(LogSettings::open()).await;
    server.append(1).await;
    let settings = PeerSettings {
        url: "ws://nowhere".into(),
        space: "space".into(),
        lanes: Vec::new(),
        token: None,
    };
    let refused = Peer::new(server.log.clone(), settings).unwrap_err();
    assert!(matches!(refused, PeerError::Authority(space) if space == "space"));
}
