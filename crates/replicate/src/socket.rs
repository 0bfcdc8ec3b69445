//! The log over WebSocket: many requests, and hints in between.
//!
//! In:    messages, JSON as text or CBOR as bytes.
//! Out:   replies under the requests' ids, in order; hints when a subscribed
//!        feed has grown.
//! Never: a connection that holds more than one request in memory; more
//!        connections than `connections_max`.
//!
//! A hint carries no blocks and may be lost: it only says when to ask. Whoever
//! subscribes on a connection gets hints on it, spelled as its last request was.

use super::access::{Caller, PROTOCOL};
use super::charge::Charge;
use super::client_memory::ClientMemory;
use super::hub::News;
use super::log::Log;
use super::service::respond;
use super::settings::Right;
use super::spelling::Spelling;
use super::threads::Making;
use axum::Extension;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use blocklog::message::{Advanced, Answer, Reply};
use blocklog::page::Selection;
use blocklog::store::LogStore;
use serde_json::Value;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::broadcast::{self, error::RecvError};

/// Bytes that a connection has for reading, and for writing small messages.
const BUFFER_BYTES: usize = 4 << 10;

/// A connection that says nothing for so long is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(30);

/// The header of the upgrade that says how long a message may be: whoever sends a longer one
/// loses the connection.
pub(super) const MESSAGE_BYTES_MAX: HeaderName =
    HeaderName::from_static("feedmill-message-bytes-max");

/// `GET /log/{space}`.
pub(super) async fn upgrade(
    State(log): State<Log>,
    Path(space): Path<String>,
    charge: Option<Extension<Charge>>,
    memory: Option<Extension<ClientMemory>>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let caller = Caller::of(&headers);
    let reads = log.may(Right::Read, &space, &caller);
    let appends = log.may(Right::Append, &space, &caller);
    if let (Err(fault), Err(_)) = (reads, &appends) {
        let reply = Reply {
            id: None,
            outcome: Err(fault),
        };
        return respond(&reply, Spelling::Json);
    }
    let crowded = |told: &'static str| (StatusCode::SERVICE_UNAVAILABLE, told).into_response();
    let Some(seat) = Seat::take(&log) else {
        return crowded("connections_max is reached");
    };
    let memory = memory.map(|Extension(memory)| memory);
    if !memory
        .as_ref()
        .is_none_or(|it| it.begin_reading(2 * BUFFER_BYTES))
    {
        return crowded("there is no room for another connection; try again");
    }
    let message_bytes_max = match appends {
        Ok(()) => log.limits().append_message_bytes_max(),
        Err(_) => log.limits().request_bytes_max,
    };
    let mut answer = upgrade
        .protocols([PROTOCOL])
        .max_message_size(message_bytes_max)
        .max_frame_size(message_bytes_max)
        .read_buffer_size(BUFFER_BYTES)
        .write_buffer_size(BUFFER_BYTES)
        .on_upgrade(async move |socket| {
            let connection = Connection {
                news: log.hub().listen(&space),
                log: log.clone(),
                space,
                caller,
                charge: charge.map(|Extension(charge)| charge),
                memory,
                socket,
                subscribed: None,
                spelling: Spelling::Json,
            };
            connection.run().await;
            drop(seat);
        });
    let announced = HeaderValue::from(message_bytes_max);
    answer.headers_mut().insert(MESSAGE_BYTES_MAX, announced);
    answer
}

/// One of the connections there may be. It is given back however that ends, also if the
/// connection breaks before it is one.
struct Seat(Log);

impl Seat {
    fn take(log: &Log) -> Option<Self> {
        let seat = Self(log.clone());
        let taken = log.connections().fetch_add(1, Ordering::Relaxed);
        (taken < log.settings().connections_max).then_some(seat)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.connections().fetch_sub(1, Ordering::Relaxed);
    }
}

struct Connection {
    log: Log,
    space: String,
    caller: Caller,
    /// What each message costs.
    charge: Option<Charge>,
    /// Where its messages are counted.
    memory: Option<ClientMemory>,
    socket: WebSocket,
    news: broadcast::Receiver<News>,
    /// What it wants hints about; `None` before it subscribes.
    subscribed: Option<Selection>,
    spelling: Spelling,
}

impl Connection {
    async fn run(mut self) {
        let memory = self.memory.clone();
        loop {
            let going_on = tokio::select! {
                () = closed(memory.as_ref()) => false,
                message = self.socket.recv() => match message {
                    Some(Ok(message)) => {
                        let going_on = self.take(message).await;
                        if let Some(memory) = &self.memory {
                            memory.answered();
                        }
                        going_on
                    }
                    Some(Err(_)) => return self.refuse().await,
                    None => false,
                },
                news = self.news.recv() => match news {
                    Ok(news) => self.hint(Some(&news)).await,
                    Err(RecvError::Lagged(_)) => self.hint(None).await,
                    Err(RecvError::Closed) => false,
                },
                () = tokio::time::sleep(PING_EVERY) => {
                    self.socket.send(Message::Ping(Default::default())).await.is_ok()
                }
            };
            if !going_on {
                return;
            }
        }
    }

    async fn take(&mut self, message: Message) -> bool {
        let (spelling, bytes) = match message {
            Message::Text(text) => (Spelling::Json, text.as_bytes().to_vec()),
            Message::Binary(bytes) => (Spelling::Cbor, bytes.to_vec()),
            Message::Ping(_) | Message::Pong(_) => return true,
            Message::Close(_) => return false,
        };
        self.spelling = spelling;
        let said = (spelling, bytes);
        let again = said.clone();
        let (log, space, caller) = (self.log.clone(), self.space.clone(), self.caller);
        let charge = self.charge.clone();
        let (reply, making) = log.reply(&space, None, said, caller, charge.as_ref()).await;
        if matches!(reply.outcome, Ok(Answer::Subscribed(_))) {
            let (log, space) = (self.log.clone(), self.space.clone());
            let look = move || wanted(&log, &space, &again.0.read(&again.1).ok()?);
            self.subscribed = self.log.reading(look).await.flatten();
        }
        // What waits for a client that does not read is the message alone.
        let message = reply.to_message();
        drop(reply);
        self.send(message, making).await
    }

    /// Ends a connection that said what cannot be read: a message larger than any may be.
    async fn refuse(mut self) {
        let frame = CloseFrame {
            code: close_code::SIZE,
            reason: "batch_bytes_max is passed, or this is no WebSocket".into(),
        };
        // Whoever broke the line does not hear it.
        drop(self.socket.send(Message::Close(Some(frame))).await);
    }

    /// Say that the space has advanced, if that concerns this connection.
    async fn hint(&mut self, news: Option<&News>) -> bool {
        let concerns = match (&self.subscribed, news) {
            (None, _) => false,
            (Some(_), None) | (Some(Selection::Space), _) => true,
            (Some(Selection::Namespace(namespace)), Some(news)) => {
                news.namespace.as_ref().is_none_or(|of| **of == **namespace)
            }
            (Some(Selection::Feeds(feeds)), Some(news)) => {
                let grew = news.feeds.as_ref();
                grew.is_none_or(|grew| feeds.iter().any(|feed| grew.contains(feed)))
            }
        };
        if !concerns {
            return true;
        }
        let position_max = match news {
            Some(news) => news.position_max,
            None => self.position_max().await,
        };
        let advanced = Advanced {
            space: self.space.clone(),
            position_max,
        };
        self.send(advanced.to_message(), None).await
    }

    /// How far the space is, asked of the store: more was told than this connection could hear.
    async fn position_max(&mut self) -> u64 {
        let (log, space) = (self.log.clone(), self.space.clone());
        let asked = self.log.reading(move || log.store().space(&space)).await;
        let state = asked.and_then(Result::ok).flatten();
        state.map_or(0, |state| state.position_max)
    }

    async fn send(&mut self, message: Value, making: Option<Making>) -> bool {
        let bytes = self.spelling.write(&message);
        drop(message);
        let memory = self.memory.clone();
        // The socket copies a message into its buffer.
        let _reservation = memory.as_ref().map(|memory| memory.answer(2 * bytes.len()));
        drop(making);
        let message = match self.spelling {
            Spelling::Json => match String::from_utf8(bytes) {
                Ok(text) => Message::Text(text.into()),
                Err(_) => return false,
            },
            Spelling::Cbor | Spelling::Canonical => Message::Binary(bytes.into()),
        };
        tokio::select! {
            sent = self.socket.send(message) => sent.is_ok(),
            () = closed(memory.as_ref()) => false,
        }
    }
}

/// Waits until the connection is closed for others.
async fn closed(memory: Option<&ClientMemory>) {
    match memory {
        Some(memory) => memory.closing.notified().await,
        None => std::future::pending().await,
    }
}

/// What a subscribe message subscribes to, read back from the store: a renewal
/// does not name the feeds again.
fn wanted(log: &Log, space: &str, message: &Value) -> Option<Selection> {
    let feeds = message.get("feedIds").and_then(Value::as_array);
    if let Some(feeds) = feeds {
        let ids = feeds
            .iter()
            .filter_map(|feed| feed.as_str().map(str::to_owned));
        return Some(Selection::Feeds(ids.collect()));
    }
    if let Some(namespace) = message.get("namespace").and_then(Value::as_str) {
        return Some(Selection::Namespace(namespace.to_owned()));
    }
    match message.get("subscriptionId").and_then(Value::as_str) {
        Some(id) => log
            .store()
            .subscription(space, id)
            .ok()?
            .map(|held| held.selection),
        None => Some(Selection::Space),
    }
}
