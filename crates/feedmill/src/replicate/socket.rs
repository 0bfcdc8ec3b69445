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

use super::hub::News;
use super::log::Log;
use super::service::Spelling;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use blocklog::message::{Advanced, Answer, Fault, Reply};
use blocklog::page::Selection;
use blocklog::store::LogStore;
use serde_json::Value;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::broadcast::{self, error::RecvError};

/// A connection that says nothing for so long is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(30);

/// `GET /log/{space}`.
pub(super) async fn upgrade(
    State(log): State<Log>,
    Path(space): Path<String>,
    upgrade: WebSocketUpgrade,
) -> Response {
    if log.connections().fetch_add(1, Ordering::Relaxed) >= log.settings().connections_max {
        log.connections().fetch_sub(1, Ordering::Relaxed);
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            "connections_max is reached",
        )
            .into_response();
    }
    let message_bytes_max = log
        .limits()
        .batch_bytes_max
        .saturating_mul(2)
        .saturating_add(1 << 20);
    upgrade
        .max_message_size(message_bytes_max)
        .on_upgrade(async move |socket| {
            let connection = Connection {
                news: log.hub().listen(&space),
                log: log.clone(),
                space,
                socket,
                subscribed: None,
                spelling: Spelling::Json,
            };
            connection.run().await;
            log.connections().fetch_sub(1, Ordering::Relaxed);
        })
}

struct Connection {
    log: Log,
    space: String,
    socket: WebSocket,
    news: broadcast::Receiver<News>,
    /// What it wants hints about; `None` before it subscribes.
    subscribed: Option<Selection>,
    spelling: Spelling,
}

impl Connection {
    async fn run(mut self) {
        loop {
            let going_on = tokio::select! {
                message = self.socket.recv() => match message {
                    Some(Ok(message)) => self.take(message).await,
                    Some(Err(_)) | None => false,
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
        let (log, space) = (self.log.clone(), self.space.clone());
        let work = move || match spelling.read(&bytes) {
            Ok(message) => (
                log.answer(&space, None, &message),
                wanted(&log, &space, &message),
            ),
            Err(fault) => (
                Reply {
                    id: None,
                    outcome: Err(fault),
                },
                None,
            ),
        };
        let (reply, selection) = tokio::task::spawn_blocking(work).await.unwrap_or((
            Reply {
                id: None,
                outcome: Err(Fault::Unavailable),
            },
            None,
        ));
        if matches!(reply.outcome, Ok(Answer::Subscribed(_))) {
            self.subscribed = selection;
        }
        self.send(&reply.to_message()).await
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
        let advanced = Advanced {
            space: self.space.clone(),
            position_max: news.map_or(0, |news| news.position_max),
        };
        self.send(&advanced.to_message()).await
    }

    async fn send(&mut self, message: &Value) -> bool {
        let bytes = self.spelling.write(message);
        let message = match self.spelling {
            Spelling::Json => match String::from_utf8(bytes) {
                Ok(text) => Message::Text(text.into()),
                Err(_) => return false,
            },
            Spelling::Cbor => Message::Binary(bytes.into()),
        };
        self.socket.send(message).await.is_ok()
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
