//! A labeler: an account that says words of others, over
//! `com.atproto.label.subscribeLabels`.
//!
//! In:    labels, from the test that owns it.
//! Out:   signed labels to whoever listens, from any number on; its DID
//!        document, at the path where a plc directory has it.
//! Never: a label skipped for a listener that names the one before.

use std::borrow::Cow;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use record::key::SigningKey;
use record::value::{Value, key_order};
use serde_json::json;
use tokio::sync::watch;

/// A running labeler.
#[derive(Debug)]
pub struct Labeler {
    shared: Arc<Shared>,
    address: String,
}

#[derive(Debug)]
struct Shared {
    did: String,
    key: SigningKey,
    address: String,
    /// All that was said, each a whole frame; the first has number 1.
    frames: Mutex<Vec<Bytes>>,
    /// The cursors that listeners came with.
    cursors: Mutex<Vec<u64>>,
    tip: watch::Sender<usize>,
}

/// What is said of a subject.
#[derive(Debug, Clone, Default)]
pub struct Saying<'a> {
    /// Who says it; the labeler unless set.
    pub src: Option<&'a str>,
    pub uri: &'a str,
    pub word: &'a str,
    pub made: &'a str,
    pub cid: Option<&'a str>,
    pub ends: Option<&'a str>,
    pub negated: bool,
    /// Signed with another key than the document names.
    pub forged: bool,
}

impl Labeler {
    /// Begins to serve on a port of its own.
    pub async fn start(did: &str, key: SigningKey) -> io::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Shared {
            did: did.to_owned(),
            key,
            address: address.clone(),
            frames: Mutex::default(),
            cursors: Mutex::default(),
            tip: watch::Sender::new(0),
        });
        let router = Router::new()
            .route("/xrpc/com.atproto.label.subscribeLabels", get(subscribe))
            .route("/{did}", get(document))
            .with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { shared, address })
    }

    /// Where its document is found, as a plc directory's address; the document names the stream.
    pub fn directory(&self) -> &str {
        &self.address
    }

    /// Says something; its number.
    pub fn say(&self, saying: &Saying<'_>) -> usize {
        let mut frames = lock(&self.shared.frames);
        let seq = frames.len() + 1;
        frames.push(self.shared.frame(seq, saying).into());
        drop(frames);
        self.shared.tip.send_replace(seq);
        seq
    }

    /// The cursors that listeners came with so far.
    pub fn cursors(&self) -> Vec<u64> {
        lock(&self.shared.cursors).clone()
    }
}

impl Shared {
    fn frame(&self, seq: usize, saying: &Saying<'_>) -> Vec<u8> {
        let text = |text: &str| Value::Text(Cow::Owned(text.to_owned()));
        let mut fields = vec![
            ("ver", Value::Int(1)),
            ("src", text(saying.src.unwrap_or(&self.did))),
            ("uri", text(saying.uri)),
            ("val", text(saying.word)),
            ("cts", text(saying.made)),
        ];
        fields.extend(saying.cid.map(|cid| ("cid", text(cid))));
        fields.extend(saying.ends.map(|ends| ("exp", text(ends))));
        if saying.negated {
            fields.push(("neg", Value::Bool(true)));
        }
        let message = record::cbor::encode(&map(fields.clone()));
        let mut signature = self.key.sign(&message).to_vec();
        if saying.forged {
            signature.reverse();
        }
        fields.push(("sig", Value::Bytes(Cow::Owned(signature))));
        let header = map(vec![("op", Value::Int(1)), ("t", text("#labels"))]);
        let body = map(vec![
            ("seq", Value::Int(seq as i64)),
            ("labels", Value::List(vec![map(fields)])),
        ]);
        [record::cbor::encode(&header), record::cbor::encode(&body)].concat()
    }
}

/// A map in the one order that the network allows.
fn map(fields: Vec<(&'static str, Value<'static>)>) -> Value<'static> {
    let mut fields: Vec<_> = fields
        .into_iter()
        .map(|(name, value)| (Cow::Borrowed(name), value))
        .collect();
    fields.sort_by(|(a, _), (b, _)| key_order(a, b));
    Value::Map(fields)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn document(State(shared): State<Arc<Shared>>, Path(did): Path<String>) -> Response {
    if did != shared.did {
        return axum::http::StatusCode::NOT_FOUND.into_response();
    }
    let document = json!({
        "id": did,
        "verificationMethod": [{
            "id": format!("{did}#atproto_label"),
            "type": "Multikey",
            "publicKeyMultibase": shared.key.public().to_multikey(),
        }],
        "service": [{
            "id": "#atproto_labeler",
            "type": "AtprotoLabeler",
            "serviceEndpoint": shared.address,
        }],
    });
    document.to_string().into_response()
}

async fn subscribe(
    State(shared): State<Arc<Shared>>,
    Query(pairs): Query<Vec<(String, String)>>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let cursor = pairs.iter().find(|(name, _)| name == "cursor");
    let cursor = cursor.and_then(|(_, text)| text.parse().ok()).unwrap_or(0);
    lock(&shared.cursors).push(cursor);
    upgrade.on_upgrade(move |socket| tell(shared, socket, cursor as usize))
}

async fn tell(shared: Arc<Shared>, mut socket: WebSocket, mut told: usize) {
    let mut tip = shared.tip.subscribe();
    loop {
        let due: Vec<Bytes> = lock(&shared.frames).iter().skip(told).cloned().collect();
        told += due.len();
        for frame in due {
            if socket.send(Message::Binary(frame)).await.is_err() {
                return;
            }
        }
        tokio::select! {
            changed = tip.changed() => if changed.is_err() { return },
            heard = socket.recv() => match heard {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
        }
    }
}
