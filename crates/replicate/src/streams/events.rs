//! Reading a stream as server-sent events.
//!
//! In:    `GET` with `live=sse`.
//! Out:   a `data` event for every piece, each followed by a `control` event with
//!        the offset to go on with; the connection ends after a while, or when
//!        the stream is closed.
//! Never: a line break of the content taken for one of the protocol.

use super::header;
use super::offset::{self, From};
use super::read::{Piece, Question, listening, next_cursor, read};
use super::reply::{Refusal, Reply};
use crate::hub::News;
use crate::log::Log;
use axum::body::Body;
use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::time::{Instant, timeout_at};

/// One reader, on its way through a stream.
struct Walk {
    log: Log,
    path: String,
    next: u64,
    cursor: Option<u64>,
    news: broadcast::Receiver<News>,
    until: Instant,
    base64: bool,
    /// What was read before the response began.
    first: Option<Piece>,
    /// The reader has been told that it is up to date.
    told: bool,
    ended: bool,
}

/// `GET` with `live=sse`.
pub(super) async fn events(log: Log, question: Question) -> Result<Reply, Refusal> {
    let from = question
        .from
        .ok_or_else(|| Refusal::bad("live=sse needs an offset"))?;
    let first = read(&log, &question.path, from).await?;
    let essence = header::essence(&first.stream.content_type);
    let base64 = !(essence.starts_with("text/") || essence == "application/json");
    let walk = Walk {
        news: log.hub().listen(&listening(&first.stream)),
        until: Instant::now() + Duration::from_secs(log.settings().event_stream_seconds_max),
        log,
        path: question.path,
        next: first.after,
        cursor: question.cursor,
        base64,
        first: Some(first),
        told: false,
        ended: false,
    };
    let body = futures_util::stream::unfold(walk, async |mut walk| {
        let text = walk.step().await?;
        Some((Ok::<_, Infallible>(text), walk))
    });
    let reply = Reply::new(StatusCode::OK)
        .with("content-type", "text/event-stream")
        .with("cache-control", "no-cache")
        // nginx would hold events back until a buffer is full.
        .with("x-accel-buffering", "no")
        .with_body(Body::from_stream(body));
    Ok(if base64 {
        reply.with(header::DATA_ENCODING, "base64")
    } else {
        reply
    })
}

impl Walk {
    /// The next events; `None` at the end.
    async fn step(&mut self) -> Option<String> {
        loop {
            if self.ended {
                return None;
            }
            let piece = match self.first.take() {
                Some(piece) => piece,
                None => read(&self.log, &self.path, From::After(self.next))
                    .await
                    .ok()?,
            };
            self.next = piece.next;
            self.ended = piece.is_at_end();
            let news =
                !piece.contents.is_empty() || self.ended || (piece.is_at_tail() && !self.told);
            if news {
                self.told = piece.is_at_tail();
                return Some(self.say(&piece));
            }
            // A reader that fell behind the news asks again, as after any.
            timeout_at(self.until, self.news.recv()).await.ok()?.ok();
        }
    }

    fn say(&mut self, piece: &Piece) -> String {
        let mut text = String::new();
        if !piece.contents.is_empty() {
            let bytes = piece.bytes();
            let content = if self.base64 {
                STANDARD.encode(bytes)
            } else {
                String::from_utf8_lossy(&bytes).into_owned()
            };
            text.push_str("event: data\n");
            for line in content.replace("\r\n", "\n").split(['\n', '\r']) {
                text.push_str("data:");
                text.push_str(line);
                text.push('\n');
            }
            text.push('\n');
        }
        let mut control = json!({"streamNextOffset": offset::text(piece.next)});
        if let Some(fields) = control.as_object_mut() {
            if self.ended {
                fields.insert("streamClosed".into(), json!(true));
            } else {
                let cursor = next_cursor(self.log.now_ms(), self.cursor);
                self.cursor = Some(cursor);
                fields.insert("streamCursor".into(), json!(cursor.to_string()));
            }
            if piece.is_at_tail() {
                fields.insert("upToDate".into(), json!(true));
            }
        }
        text.push_str(&format!("event: control\ndata:{control}\n\n"));
        text
    }
}
