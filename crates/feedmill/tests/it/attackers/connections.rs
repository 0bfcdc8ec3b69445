//! Connections that are kept as long as they are let: idle ones, and those that send or take a byte now and then.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use super::{Attacks, BREATH, Field, from, scaled};

/// Connections that say nothing.
const IDLE: usize = scaled(1_100);
/// How long a connection is kept that is not read.
const HELD: Duration = Duration::from_secs(4);
/// Between two bytes of those that trickle.
const TRICKLE: Duration = Duration::from_millis(300);
/// Bytes that are sent or taken by one that trickles before it begins anew.
const TRICKLED: usize = 40;

pub(super) fn begin(attacks: &mut Attacks<'_>) {
    attacks.add(100, deaf);
    attacks.add(40, deaf_sockets);
    attacks.add(20, trickling_readers);
    attacks.add(20, slow_bodies);
    attacks.add(1, idle);
}

fn head(path: &str, accept: &str, from: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\nx-forwarded-for: {from}\r\n\r\n"
    )
}

fn large_page(field: &Field) -> String {
    let reader = &field.reader;
    format!("/xrpc/com.example.getFeed?feed=garden&actor={reader}&limit=200")
}

/// Asks for events or a large page, and does not read.
async fn deaf(field: Arc<Field>, number: usize) {
    let reader = &field.reader;
    let events = format!("/xrpc/com.example.subscribeFeed?feed=garden&actor={reader}");
    let from = from(50, number);
    let head = match number % 3 {
        0 => head(&large_page(&field), "*/*", &from),
        _ => head(&events, "text/event-stream", &from),
    };
    loop {
        let stream = field.open(&head).await;
        tokio::time::sleep(if stream.is_some() { HELD } else { BREATH }).await;
    }
}

/// Listens over a WebSocket, and does not read.
async fn deaf_sockets(field: Arc<Field>, number: usize) {
    let (address, reader) = (&field.address, &field.reader);
    let url = format!("ws://{address}/xrpc/com.example.subscribeFeed?feed=garden&actor={reader}");
    loop {
        let mut request = url.as_str().into_client_request().unwrap();
        let from = from(51, number).parse().unwrap();
        request.headers_mut().insert("x-forwarded-for", from);
        let socket = tokio_tungstenite::connect_async(request).await;
        let status = match &socket {
            Ok(_) => 101,
            Err(tokio_tungstenite::tungstenite::Error::Http(answer)) => answer.status().as_u16(),
            Err(_) => 0,
        };
        field.note("deaf socket", &super::from(51, number), status);
        tokio::time::sleep(if status == 101 { HELD } else { BREATH * 20 }).await;
    }
}

/// Takes a large page a byte at a time.
async fn trickling_readers(field: Arc<Field>, number: usize) {
    let head = head(&large_page(&field), "*/*", &from(52, number));
    loop {
        let Some(mut stream) = field.open(&head).await else {
            tokio::time::sleep(BREATH).await;
            continue;
        };
        for _ in 0..TRICKLED {
            if !matches!(stream.read(&mut [0]).await, Ok(1)) {
                break;
            }
            tokio::time::sleep(TRICKLE).await;
        }
    }
}

/// Sends a body a byte at a time.
async fn slow_bodies(field: Arc<Field>, number: usize) {
    let from = from(53, number);
    let head = format!(
        "POST /xrpc/com.example.notifyOfUpdate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: 900000\r\nx-forwarded-for: {from}\r\n\r\n"
    );
    loop {
        let Some(mut stream) = field.open(&head).await else {
            tokio::time::sleep(BREATH).await;
            continue;
        };
        for _ in 0..TRICKLED {
            if stream.write_all(b"[").await.is_err() {
                break;
            }
            tokio::time::sleep(TRICKLE).await;
        }
    }
}

/// Connections that say nothing, opened again when they are closed.
async fn idle(field: Arc<Field>, _: usize) {
    let mut streams: Vec<TcpStream> = Vec::new();
    loop {
        streams.retain(|stream| !matches!(stream.try_read(&mut [0]), Ok(0)));
        while streams.len() < IDLE {
            match field.open("").await {
                Some(stream) => streams.push(stream),
                None => break,
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
