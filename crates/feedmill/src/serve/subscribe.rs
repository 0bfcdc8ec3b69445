//! `{ns}.subscribeFeed`: a reader's feed as it changes, over WebSocket or as
//! server-sent events.
//!
//! In:    a feed, a reader, and the cursor of the last message it had.
//! Out:   `start`, then `entry`, `removal` and `changed`, each with a cursor.
//! Never: a connection that is waited for: one that falls `listener_events_max`
//!        behind, or does not take a message in time, is closed with a reason.
//!
//! Messages are JSON objects with a `type`. As server-sent events the type is
//! the event's name, the cursor its id, and `Last-Event-ID` resumes it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts as _, Request};
use axum::http::{StatusCode, header};
use axum::response::Response;

use super::error::XrpcError;
use super::params::Params;
use super::{Server, body, cursor, feed, following};
use crate::live::{Entry, ListenError, Listening, News, Told};
use crate::store::Position;

/// A connection without news is asked, or told, that it is there.
const IDLE: Duration = Duration::from_secs(15);
/// How long one message may take to be sent.
const SEND_MAX: Duration = Duration::from_secs(10);
/// The close code of a reader who took too long: try again later.
const TRY_AGAIN: u16 = 1013;
/// The close code of a server that stops.
const GOING_AWAY: u16 = 1001;

/// One message: its type, its cursor, its JSON.
#[derive(Debug)]
struct Said {
    kind: &'static str,
    cursor: String,
    text: String,
}

/// A reader on its way through its news.
struct Walk {
    server: Arc<Server>,
    feed: String,
    listening: Listening,
    first: std::vec::IntoIter<Said>,
    /// Told, and not yet said: waiting may be broken off at any point.
    pending: Option<Told>,
    ended: bool,
}

/// Answers a request to listen.
///
/// `issuer` is the account that proved who it is, where the method is private: it hears its own feed only.
pub(super) async fn subscribe(
    server: Arc<Server>,
    issuer: Option<String>,
    params: Params,
    request: Request,
) -> Result<Response, XrpcError> {
    let (mut parts, _) = request.into_parts();
    let accepts = parts
        .headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    let events = accepts.is_some_and(|accept| accept.contains("text/event-stream"));
    let last = parts
        .headers
        .get("last-event-id")
        .and_then(|value| value.to_str().ok());
    let last = last.map(str::to_owned).filter(|_| events);
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
    if upgrade.is_err() && !events {
        return Err(XrpcError::invalid(
            "open a WebSocket, or ask with the header \"Accept: text/event-stream\"",
        ));
    }
    let walk = {
        let begin = move || Walk::begin(server, issuer.as_deref(), &params, last.as_deref());
        let begun = tokio::task::spawn_blocking(begin).await;
        begun.map_err(|_| XrpcError::internal())??
    };
    match upgrade {
        Ok(upgrade) if !events => Ok(upgrade
            .max_message_size(1 << 16)
            .on_upgrade(|socket| walk.over_socket(socket))),
        _ => walk.into_events(),
    }
}

impl Walk {
    fn begin(
        server: Arc<Server>,
        issuer: Option<&str>,
        params: &Params,
        last: Option<&str>,
    ) -> Result<Self, XrpcError> {
        let live = server
            .live
            .clone()
            .ok_or_else(|| XrpcError::busy("nobody can listen here"))?;
        let name = feed::named(&server, params.need("feed")?)?.name.clone();
        let reader = server.actor(params.need("actor")?)?;
        if issuer.is_some_and(|issuer| issuer != reader) {
            let message = "feed actor must match the service-auth issuer";
            return Err(XrpcError::forbidden(message));
        }
        let scope = scope(&name);
        let from = params.get("cursor").or(last);
        let from = from.map(|text| cursor::read(&scope, text)).transpose()?;
        let from = from.map(|position| position.time_us);
        let number = reader_number(&server, &reader)?;
        let mut listening = live.listen(&name, number, from).map_err(refusal)?;
        let mut first = Vec::new();
        if listening.outdated {
            let message =
                "what happened since the cursor is not kept any more; read the feed again";
            first.push(said(
                "info",
                &scope,
                listening.position,
                ",\"name\":\"OutdatedCursor\",\"message\":",
                Some(message),
            ));
        }
        if from.is_none() || listening.outdated {
            first.push(said("start", &scope, listening.position, "", None));
        }
        for told in std::mem::take(&mut listening.missed) {
            first.extend(tell(&server, &name, &told)?);
        }
        Ok(Self {
            server,
            feed: name,
            listening,
            first: first.into_iter(),
            pending: None,
            ended: false,
        })
    }

    /// The next message; `None` when it is over.
    async fn next(&mut self) -> Option<Said> {
        if let Some(said) = self.first.next() {
            return Some(said);
        }
        loop {
            if self.pending.is_none() {
                self.pending = Some(self.listening.next().await?);
            }
            let told = self.pending.clone()?;
            let (server, feed) = (Arc::clone(&self.server), self.feed.clone());
            let made = tokio::task::spawn_blocking(move || tell(&server, &feed, &told)).await;
            self.pending = None;
            match made {
                Ok(Ok(Some(said))) => return Some(said),
                Ok(Ok(None)) => {}
                // The reader comes back with its cursor and misses nothing.
                Ok(Err(_)) | Err(_) => return None,
            }
        }
    }

    /// Why it is over.
    fn reason(&self) -> (u16, &'static str, &'static str) {
        if self.listening.was_slow() {
            (
                TRY_AGAIN,
                "ConsumerTooSlow",
                "messages were not taken in time; come back with the last cursor",
            )
        } else {
            (
                GOING_AWAY,
                "GoingAway",
                "the server stops; come back with the last cursor",
            )
        }
    }

    async fn over_socket(mut self, mut socket: WebSocket) {
        loop {
            let message = tokio::select! {
                said = self.next() => match said {
                    Some(said) => Message::Text(said.text.into()),
                    None => break,
                },
                heard = socket.recv() => match heard {
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                    Some(Ok(_)) => continue,
                },
                () = tokio::time::sleep(IDLE) => Message::Ping(Default::default()),
            };
            match tokio::time::timeout(SEND_MAX, socket.send(message)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(_) => break,
            }
        }
        let (code, name, message) = self.reason();
        let frame = CloseFrame {
            code,
            reason: format!("{name}: {message}").into(),
        };
        // Whoever does not take it any more is gone already.
        drop(tokio::time::timeout(SEND_MAX, socket.send(Message::Close(Some(frame)))).await);
    }

    fn into_events(self) -> Result<Response, XrpcError> {
        let body = futures_util::stream::unfold(self, async |mut walk| {
            let text = walk.event().await?;
            Some((Ok::<_, Infallible>(text), walk))
        });
        Response::builder()
            .status(StatusCode::OK)
            .header(header::CONTENT_TYPE, "text/event-stream")
            .header(header::CACHE_CONTROL, "no-cache")
            .body(Body::from_stream(body))
            .map_err(|_| XrpcError::internal())
    }

    /// The next event's text; `None` at the end.
    async fn event(&mut self) -> Option<String> {
        if self.ended {
            return None;
        }
        let said = tokio::select! {
            said = self.next() => said,
            () = tokio::time::sleep(IDLE) => return Some(": still here\n\n".to_owned()),
        };
        Some(match said {
            // Our JSON has no line breaks of its own: record bodies are stored without.
            Some(said) => format!(
                "event: {}\nid: {}\ndata: {}\n\n",
                said.kind, said.cursor, said.text
            ),
            None => {
                self.ended = true;
                let (_, name, message) = self.reason();
                let text = serde_json::json!({"type": "error", "error": name, "message": message});
                format!("event: error\ndata: {text}\n\n")
            }
        })
    }
}

fn scope(feed: &str) -> String {
    format!("live:{feed}")
}

/// The number of a reader; one that nobody ever named is given none, and hears nothing until somebody does.
fn reader_number(server: &Server, reader: &str) -> Result<i64, XrpcError> {
    let number = server.store.key(reader)?;
    number.ok_or_else(|| {
        XrpcError::declared(
            "UnknownActor",
            format!("{reader} follows nothing here yet; read the feed first"),
        )
    })
}

fn refusal(error: ListenError) -> XrpcError {
    match error {
        ListenError::Full => XrpcError::busy("too many readers listen; try again"),
        ListenError::Store(error) => error.into(),
        ListenError::Future => XrpcError::declared(
            "FutureCursor",
            "the cursor lies ahead of everything that happened here",
        ),
        ListenError::UnknownFeed => XrpcError::declared("UnknownFeed", "no such feed"),
    }
}

fn said(kind: &'static str, scope: &str, position: i64, field: &str, value: Option<&str>) -> Said {
    let place = Position {
        time_us: position,
        uri: String::new(),
    };
    let cursor = cursor::write(scope, &place);
    let mut text = format!("{{\"type\":\"{kind}\",\"cursor\":\"{cursor}\"{field}");
    if let Some(value) = value {
        body::push_string(&mut text, value);
    }
    text.push('}');
    Said { kind, cursor, text }
}

/// The message of one piece of news; `None` if there is nothing to show any more.
fn tell(server: &Server, feed: &str, told: &Told) -> Result<Option<Said>, XrpcError> {
    let scope = scope(feed);
    Ok(match &told.news {
        News::Changed => Some(said("changed", &scope, told.position, "", None)),
        News::Removal { uri, time_us, .. } => {
            let merged = server
                .plan
                .feed(feed)
                .is_some_and(|plan| plan.merged.is_some());
            let place = Position {
                time_us: *time_us,
                uri: uri.clone(),
            };
            Some(if merged {
                let id = cursor::write(&following::scope(feed), &place);
                said("removal", &scope, told.position, ",\"id\":", Some(&id))
            } else {
                said("removal", &scope, told.position, ",\"uri\":", Some(uri))
            })
        }
        News::Entry(entry) => {
            if entry.text.get().is_none() {
                // Two connections may both make it; they make the same.
                drop(entry.text.set(text(server, feed, entry)?));
            }
            let field = entry.text.get().and_then(Option::as_ref);
            field.map(|field| said("entry", &scope, told.position, field, None))
        }
    })
}

/// `,"record":{…}` or `,"activity":{…}`; `None` if it is gone, hidden or elsewhere by now.
fn text(server: &Server, feed: &str, entry: &Entry) -> Result<Option<String>, XrpcError> {
    let merged = server.plan.feed(feed).and_then(|plan| plan.merged.as_ref());
    let Some(merged) = merged else {
        let (rows, _) = server.store.rows(&[entry.record])?;
        let row = rows.first().filter(|row| row.time_us == entry.time_us);
        return Ok(row.map(|row| {
            let mut field = String::from(",\"record\":");
            body::push_record(&mut field, row);
            field
        }));
    };
    let found = server
        .store
        .activities_at(merged.lane, &[(entry.record, entry.time_us)])?;
    let Some(activity) = found.and_then(|activities| activities.into_iter().next()) else {
        return Ok(None);
    };
    let mut field = String::from(",\"activity\":");
    following::push_activity(server, &mut field, feed, merged, &activity)?;
    Ok(Some(field))
}
