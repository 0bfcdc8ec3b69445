//! The log, where its operator lets everybody in: listeners that do not read, large bodies, garbage.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::SinkExt as _;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use super::{Attacks, BREATH, Field, from};

/// How long a subscriber is kept.
const HELD: Duration = Duration::from_secs(4);
/// Bytes of a block.
const BLOCK: usize = 60_000;

pub(super) fn begin(attacks: &mut Attacks<'_>) {
    attacks.add(60, subscribers);
    attacks.add(2, blocks);
    attacks.add(2, garbage);
    attacks.add(2, whole_pages);
}

/// Subscribes over a WebSocket, asks for pages and does not read.
async fn subscribers(field: Arc<Field>, number: usize) {
    let url = format!("ws://{}/log/siege", field.address);
    loop {
        let mut request = url.as_str().into_client_request().unwrap();
        let from = from(60, number);
        let header = from.parse().unwrap();
        request.headers_mut().insert("x-forwarded-for", header);
        let socket = tokio_tungstenite::connect_async(request).await;
        field.note(
            "log subscriber",
            &from,
            if socket.is_ok() { 101 } else { 0 },
        );
        if let Ok((mut socket, _)) = socket {
            let subscribe = json!({"type": "subscribe", "requestId": 1});
            let query = json!({"type": "query", "requestId": 2, "cursor": 0, "limit": 1000});
            for message in [subscribe, query.clone(), query] {
                drop(socket.send(Message::text(message.to_string())).await);
            }
            tokio::time::sleep(HELD).await;
        }
        tokio::time::sleep(BREATH * 20).await;
    }
}

/// Appends large blocks for as long as they are taken.
async fn blocks(field: Arc<Field>, number: usize) {
    let data = STANDARD.encode(vec![7; BLOCK]);
    for round in 1_u64.. {
        let actor = format!("{number}-{}", std::process::id());
        let block = json!({"actorId": actor, "sequence": round, "timestamp": 1, "data": data});
        let message = json!({"requestId": round, "blocks": [block]});
        let request = field.post("/log/siege/append", &message);
        field.send("log block", &from(61, number), request).await;
    }
}

/// Bytes that are no message, in JSON and in CBOR.
async fn garbage(field: Arc<Field>, number: usize) {
    let kinds = ["application/json", "application/cbor"];
    for round in 0.. {
        let body = match round % 3 {
            0 => vec![0x81; 100_000],
            1 => vec![b'['; 100_000],
            _ => vec![0x9b; 4_000_000],
        };
        let request = field.post_bytes("/log/siege/append", kinds[round % 2], body);
        field.send("log garbage", &from(62, number), request).await;
    }
}

/// Reads everything from the beginning, again and again.
async fn whole_pages(field: Arc<Field>, number: usize) {
    loop {
        let message = json!({"requestId": 1, "cursor": 0, "limit": 1000});
        let request = field.post("/log/siege/query", &message);
        field.send("log page", &from(63, number), request).await;
    }
}
