//! `{ns}.subscribeFeed`: a reader's feed as it changes, over WebSocket or as
//! server-sent events.
//!
//! In:    a feed, a reader, and the cursor of the last message it had.
//! Out:   `start`, then `entry`, `removal` and `changed`, each with a cursor.
//! Never: a connection that is waited for: one that falls `listener_events_max`
//!        behind, or does not take a message in time, is closed with a reason;
//!        a cursor after which something is missing.
//!
//! Messages are JSON objects with a `type`. As server-sent events the type is
//! the event's name, the cursor its id, and `Last-Event-ID` resumes it; the
//! last event there is `end`, for a socket's close frame.

use std::collections::VecDeque;
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
use super::{Server, body, cursor, ending, feed, first_read, following};
use crate::live::{Ear, Entry, ListenError, Listening, News, Told};
use crate::store::batch::{Batch, Item};
use crate::store::plan::FeedPlan;
use crate::store::{Position, StoreError};

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
    ear: Ear,
    listening: Listening,
    /// Told, and not yet said: waiting may be broken off at any point.
    pending: Option<Told>,
    /// What one piece of news has to say, and was not sent yet.
    messages: VecDeque<Said>,
    /// Of the last message, or the one it came with.
    cursor: String,
    ended: bool,
}

/// Answers a request to listen.
pub(super) async fn subscribe(
    server: Arc<Server>,
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
    // A reader of whom nothing is here is asked for as if it read; what comes of it is told.
    first_read::before(&server, &params).await;
    let walk = {
        let begin = move || Walk::begin(server, &params, last.as_deref());
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
    fn begin(server: Arc<Server>, params: &Params, last: Option<&str>) -> Result<Self, XrpcError> {
        let live = server
            .live
            .clone()
            .ok_or_else(|| XrpcError::busy("nobody can listen here"))?;
        let feed = feed::named(&server, params.need("feed")?)?;
        let (name, did) = (feed.name.clone(), server.reader(feed, params)?);
        // A browser that comes back asks with the address it began with, and says where it is now.
        let from = last.or(params.get("cursor"));
        let position = from.map(|text| cursor::read(&scope(&name), text));
        let position = position.transpose()?.map(|position| position.time_us);
        let reader = reader_number(&server, &did)?;
        let feed = name;
        let ear = Ear { feed, did, reader };
        let listening = live.listen(ear.clone(), position).map_err(refusal)?;
        Ok(Self {
            server,
            ear,
            listening,
            pending: None,
            messages: VecDeque::new(),
            cursor: from.unwrap_or_default().to_owned(),
            ended: false,
        })
    }

    /// The next message; `None` when it is over.
    async fn next(&mut self) -> Option<Said> {
        loop {
            if let Some(said) = self.messages.pop_front() {
                self.cursor.clone_from(&said.cursor);
                return Some(said);
            }
            if self.pending.is_none() {
                self.pending = Some(self.listening.next().await?);
            }
            let told = self.pending.clone()?;
            let (server, ear) = (Arc::clone(&self.server), self.ear.clone());
            let made = tokio::task::spawn_blocking(move || tell(&server, &ear, &told)).await;
            self.pending = None;
            match made {
                Ok(Ok(said)) => self.messages.extend(said),
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
                let text = serde_json::json!({"type": "end", "cursor": self.cursor, "name": name, "message": message});
                format!("event: end\ndata: {text}\n\n")
            }
        })
    }
}

fn scope(feed: &str) -> String {
    format!("live:{feed}")
}

/// The number of a reader; one that nobody ever named is given one, so that its first follow is told.
fn reader_number(server: &Server, did: &str) -> Result<i64, XrpcError> {
    if let Some(number) = server.store.key(did)? {
        return Ok(number);
    }
    let item = Item::Reader {
        did: did.to_owned(),
    };
    let batch = Batch::of_no_source(server.clock.now_us(), item);
    server.store.commit(batch)?;
    let number = server.store.key(did)?;
    number.ok_or_else(|| StoreError::Broken("a reader was given no number".to_owned()).into())
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

/// What is said of one piece of news: nothing if there is nothing to show any more.
fn tell(server: &Server, ear: &Ear, told: &Told) -> Result<Vec<Said>, XrpcError> {
    let messages = messages(server, ear, &told.news)?;
    let scope = scope(&ear.feed);
    let count = messages.len();
    let said = messages.into_iter().enumerate();
    let said = said.map(|(index, (kind, fields))| {
        // Who had only some of it is told all of it again.
        let is_last = told.is_last && index + 1 == count;
        let time_us = Told {
            is_last,
            ..told.clone()
        }
        .after();
        let uri = String::new();
        let cursor = cursor::write(&scope, &Position { time_us, uri });
        Said {
            kind,
            text: format!("{{\"type\":\"{kind}\",\"cursor\":\"{cursor}\"{fields}}}"),
            cursor,
        }
    });
    Ok(said.collect())
}

/// The messages of one piece of news: each its type, and its fields as JSON.
fn messages(
    server: &Server,
    ear: &Ear,
    news: &News,
) -> Result<Vec<(&'static str, String)>, XrpcError> {
    let plan = feed::named(server, &ear.feed)?;
    let changed = ("changed", String::new());
    Ok(match news {
        News::Start => vec![("start", String::new())],
        News::Outdated => vec![("info", outdated()), ("start", String::new())],
        News::Changed => vec![changed],
        News::Removal { uri, time_us, .. } => {
            let mut said = vec![("removal", removal(plan, uri, *time_us))];
            // What it kept beyond the end is in the feed now.
            said.extend(plan.end.then_some(changed));
            said
        }
        News::Entry(entry) => {
            if entry.text.get().is_none() {
                // Two connections may both make it; they make the same.
                drop(entry.text.set(text(server, plan, entry)?));
            }
            let Some(fields) = entry.text.get().and_then(Option::as_ref) else {
                return Ok(Vec::new());
            };
            let (is_shown, is_full) = match plan.end {
                true => ending::holds(server, plan, &ear.did, &entry.uri)?,
                false => (true, false),
            };
            let mut said = Vec::from_iter(is_shown.then(|| ("entry", fields.clone())));
            // It may have pushed another beyond the end.
            said.extend((is_shown && is_full).then_some(changed));
            said
        }
    })
}

fn outdated() -> String {
    let mut fields = String::from(",\"name\":\"OutdatedCursor\",\"message\":");
    let message = "what happened since the cursor is not kept any more; read the feed again";
    body::push_string(&mut fields, message);
    fields
}

fn removal(plan: &FeedPlan, uri: &str, time_us: i64) -> String {
    let uri = uri.to_owned();
    let (name, value) = match plan.merged {
        Some(_) => {
            let place = Position { time_us, uri };
            ("id", cursor::write(&following::scope(&plan.name), &place))
        }
        None => ("uri", uri),
    };
    let mut fields = format!(",\"{name}\":");
    body::push_string(&mut fields, &value);
    fields
}

/// `,"record":{…}` or `,"activity":{…}`; `None` if it is gone, hidden or elsewhere by now.
fn text(server: &Server, plan: &FeedPlan, entry: &Entry) -> Result<Option<String>, XrpcError> {
    let Some(merged) = &plan.merged else {
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
    following::push_activity(server, &mut field, &plan.name, merged, &activity)?;
    Ok(Some(field))
}
