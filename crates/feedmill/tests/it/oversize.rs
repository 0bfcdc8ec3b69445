//! A message larger than a socket accepts is a dead letter under its number, and is not asked for again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use feedmill::config::Config;
use feedmill::river::River;
use futures_util::{SinkExt as _, StreamExt as _};
use parking_lot::Mutex;
use record::cbor::Writer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use crate::bed::{start, until};

/// Bytes of the messages that are too large, and of the parts in which some servers send them.
const LARGE: usize = 25_000_000;
const PART: usize = 4096;
const DID: &str = "did:plc:author";
const TIME: &str = "2026-01-02T03:04:05.000Z";

/// A server that sends the messages behind the cursor it is asked for, and notes what it hears.
#[derive(Default)]
struct Host {
    connections: AtomicUsize,
    acknowledged: Mutex<Vec<i64>>,
}

impl Host {
    /// Serves `messages`, numbered from 1, and returns its address.
    async fn start(messages: Vec<Vec<Message>>) -> (Arc<Self>, String) {
        let host = Arc::new(Self::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("ws://{}", listener.local_addr().unwrap());
        let (shared, messages) = (Arc::clone(&host), Arc::new(messages));
        tokio::spawn(async move {
            while let Ok((line, _)) = listener.accept().await {
                let (host, messages) = (Arc::clone(&shared), Arc::clone(&messages));
                tokio::spawn(async move { host.serve(line, &messages).await });
            }
        });
        (host, address)
    }

    #[allow(clippy::result_large_err)] // the type of a refusal is the library's
    async fn serve(&self, line: tokio::net::TcpStream, messages: &[Vec<Message>]) {
        let mut cursor = 0;
        let note = |request: &Request, response: Response| {
            let query = request.uri().query().unwrap_or_default();
            let told = query.split('&').find_map(|it| it.strip_prefix("cursor="));
            cursor = told.map_or(0, |text| text.parse().unwrap());
            Ok(response)
        };
        let shaken = tokio_tungstenite::accept_hdr_async(line, note).await;
        self.connections.fetch_add(1, Ordering::Relaxed);
        let (mut out, mut heard) = shaken.unwrap().split();
        for message in messages.iter().skip(cursor) {
            for part in message {
                // The client may have gone; then it comes again, and that is counted.
                drop(out.feed(part.clone()).await);
            }
        }
        drop(out.flush().await);
        while let Some(Ok(message)) = heard.next().await {
            if let Message::Text(text) = message {
                let ack: Value = serde_json::from_str(&text).unwrap();
                self.acknowledged.lock().push(ack["id"].as_i64().unwrap());
            }
        }
    }
}

async fn river(source: &str) -> River {
    feedmill::identity::provide_tls();
    let text = format!(
        "namespace = \"com.example\"\n[store]\nurl = \"sqlite::memory:\"\n[serve]\nbind = \"127.0.0.1:0\"\n\
         [intake]\nreconnect_ms = 20\nplc_url = \"http://127.0.0.1:9\"\n\
         [collections.post]\ncollection = \"app.bsky.feed.post\"\nvalidate = false\n\
         [[source]]\nname = \"host\"\n{source}\n"
    );
    start(&Config::parse(&text).unwrap()).await
}

/// The numbers of the dead letters, in order.
fn dead(river: &River) -> Vec<i64> {
    let letters = river.store.dead(None, 1000).unwrap();
    assert!(
        letters.iter().all(|letter| letter.stage == "frame"),
        "{letters:?}"
    );
    let mut numbers: Vec<i64> = letters.iter().map(|letter| letter.cursor).collect();
    numbers.sort_unstable();
    numbers
}

/// Small and large messages in turn; `large` makes one with its number.
fn in_turn(
    small: impl Fn(i64) -> Message,
    large: impl Fn(i64) -> Vec<Message>,
) -> Vec<Vec<Message>> {
    let one = |number: i64| match number % 2 {
        0 => large(number),
        _ => vec![small(number)],
    };
    (1..=4).map(one).collect()
}

fn account(seq: i64) -> Message {
    let mut writer = Writer::with_capacity(200);
    writer.map(2).text("t").text("#account").text("op").int(1);
    writer.map(4).text("did").text(DID).text("seq").int(seq);
    writer.text("time").text(TIME).text("active").bool(true);
    Message::binary(writer.into_bytes())
}

fn commit(seq: i64) -> Vec<u8> {
    let mut writer = Writer::with_capacity(LARGE + 500);
    writer.map(2).text("t").text("#commit").text("op").int(1);
    writer.map(6).text("ops").list(0);
    writer.text("rev").text("3aaaaaaaaaa22");
    writer.text("seq").int(seq).text("repo").text(DID);
    writer.text("time").text(TIME);
    writer.text("blocks").bytes(&vec![7; LARGE]);
    writer.into_bytes()
}

/// Reads everything over one connection, with the large messages dead under their numbers.
async fn check_firehose(large: impl Fn(i64) -> Vec<Message>) {
    let (host, address) = Host::start(in_turn(account, large)).await;
    let river = river(&format!("firehose = \"{address}\"")).await;
    let store = river.store.clone();
    until(|| store.cursor("host").unwrap() == Some(4)).await;
    assert_eq!(dead(&river), [2, 4]);
    assert_eq!(host.connections.load(Ordering::Relaxed), 1);
    drop(store);
    river.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_larger_than_the_socket_accepts_is_dead_under_its_number_and_costs_no_connection() {
    check_firehose(|seq| vec![Message::binary(commit(seq))]).await;
}

/// As Go's servers send what does not fit into their buffers.
#[tokio::test(flavor = "multi_thread")]
async fn a_frame_in_thousands_of_parts_is_too_large_as_well() {
    check_firehose(|seq| {
        let bytes = commit(seq);
        let last = bytes.chunks(PART).len() - 1;
        let part = |(number, part): (usize, &[u8])| {
            let data = if number == 0 {
                Data::Binary
            } else {
                Data::Continue
            };
            let part = bytes::Bytes::copy_from_slice(part);
            Message::Frame(Frame::message(part, OpCode::Data(data), number == last))
        };
        bytes.chunks(PART).enumerate().map(part).collect()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_message_of_jetstream_is_dead_under_its_number_wherever_it_is_cut() {
    let small = |time_us: i64| {
        let account = json!({"active": true, "did": DID, "seq": time_us, "time": TIME});
        let event = json!({"did": DID, "time_us": time_us, "kind": "account", "account": account});
        Message::text(event.to_string())
    };
    let large = |time_us: i64| {
        let text = "\u{20ac}".repeat(LARGE / 3);
        let event = format!(
            "{{\"did\":\"{DID}\",\"time_us\":{time_us},\"kind\":\"commit\",\"commit\":{{\"record\":\"{text}\"}}}}"
        );
        vec![Message::text(event)]
    };
    let (host, address) = Host::start(in_turn(small, large)).await;
    let river = river(&format!("jetstream = \"{address}/subscribe\"")).await;
    let store = river.store.clone();
    until(|| store.cursor("host").unwrap() == Some(4)).await;
    assert_eq!(dead(&river), [2, 4]);
    assert_eq!(host.connections.load(Ordering::Relaxed), 1);
    drop(store);
    river.stop().await;
}

/// A message that is not acknowledged comes again for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_message_of_a_tap_is_acknowledged() {
    let small = |id: i64| {
        let identity =
            json!({"did": DID, "handle": "a.test", "is_active": true, "status": "active"});
        Message::text(json!({"id": id, "type": "identity", "identity": identity}).to_string())
    };
    let large = |id: i64| {
        let text = "x".repeat(LARGE);
        vec![Message::text(format!(
            "{{\"id\":{id},\"type\":\"record\",\"record\":{{\"text\":\"{text}\"}}}}"
        ))]
    };
    let (host, address) = Host::start(in_turn(small, large)).await;
    let river = river(&format!("tap = \"{address}\"")).await;
    until(|| host.acknowledged.lock().len() == 4).await;
    let mut acknowledged = host.acknowledged.lock().clone();
    acknowledged.sort_unstable();
    assert_eq!(acknowledged, [1, 2, 3, 4]);
    assert_eq!(dead(&river).len(), 2);
    assert_eq!(host.connections.load(Ordering::Relaxed), 1);
    river.stop().await;
}
