//! `{ns}.subscribeFeed`: a reader's feed as it changes, over WebSocket or as
//! server-sent events.
//!
//! In:    a feed, a reader, and the cursor of the last message it had.
//! Out:   `start`, then `entry`, `removal` and `changed`, each with a cursor.
//! Never: a connection that is waited for: one that falls `listener_events_max`
//!        or `listener_bytes_max` behind, or does not take a message in time, is
//!        closed with a reason; more bytes for all than `listeners_bytes_max`; a
//!        cursor after which something is missing.
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
use bytes::Bytes;
use tokio::sync::Notify;

use super::caller::Caller;
use super::error::XrpcError;
use super::line::Closing;
use super::params::Params;
use super::unsent::Counted;
use super::{Server, body, charges, cursor, ending, feed, first_read, following};
use crate::live::{Ear, Entry, ListenError, Listening, NOBODY, News, Next, Told};
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

/// Bytes of a message of a reader, who has nothing to say.
const HEARD_BYTES_MAX: usize = 4 << 10;
/// Bytes that a socket has to read such messages.
const READ_BYTES: usize = 1 << 10;

/// Bytes handed to a connection at once: it keeps no more than a few of these.
const PIECE: usize = 16 << 10;

/// One message: its type, its cursor, and its fields as JSON, shared by all who are told the same.
#[derive(Debug)]
struct Said {
    kind: &'static str,
    cursor: String,
    fields: Bytes,
}

impl Said {
    /// What sending it costs.
    fn cost_steps(&self) -> u64 {
        charges::answered(self.fields.len() as u64, false)
    }

    /// The JSON up to the fields.
    fn head(&self) -> String {
        format!(
            "{{\"type\":\"{}\",\"cursor\":\"{}\"",
            self.kind, self.cursor
        )
    }

    /// All of the JSON.
    fn text(&self) -> String {
        let head = self.head();
        let mut text = String::with_capacity(head.len() + self.fields.len() + 1);
        text.push_str(&head);
        text.push_str(std::str::from_utf8(&self.fields).unwrap_or_default()); // it was made of text
        text.push('}');
        text
    }

    /// An event, in pieces that share the fields.
    fn pieces(&self) -> VecDeque<Bytes> {
        // Our JSON has no line breaks of its own: record bodies are stored without.
        let (kind, cursor, head) = (self.kind, &self.cursor, self.head());
        let begin = format!("event: {kind}\nid: {cursor}\ndata: {head}");
        let mut pieces = VecDeque::from([begin.into()]);
        let mut rest = self.fields.clone();
        while !rest.is_empty() {
            pieces.push_back(rest.split_to(rest.len().min(PIECE)));
        }
        pieces.push_back(Bytes::from_static(b"}\n\n"));
        pieces
    }
}

/// A reader on its way through its news.
struct Walk {
    server: Arc<Server>,
    /// Who pays for what is read.
    caller: Arc<Caller>,
    ear: Ear,
    listening: Listening,
    /// Set off when the connection is to be closed.
    closing: Arc<Notify>,
    /// What is left of the event being sent.
    pieces: VecDeque<Bytes>,
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
    let closing = match (events, parts.extensions.get::<Closing>()) {
        (true, Some(Closing(closing))) => Arc::clone(closing),
        _ => Arc::default(),
    };
    let caller = Caller::current(server.limits.timeout());
    let begun = {
        let (again, shared) = (caller.again(), Arc::clone(&server));
        let begin = move |_: &Server| Walk::begin(shared, again, &params, last.as_deref(), closing);
        server.read(&caller, begin).await
    };
    let walk = begun?;
    match upgrade {
        Ok(upgrade) if !events => Ok(upgrade
            .max_message_size(HEARD_BYTES_MAX)
            .max_frame_size(HEARD_BYTES_MAX)
            .read_buffer_size(READ_BYTES)
            .on_upgrade(|socket| walk.over_socket(socket))),
        _ => walk.into_events(),
    }
}

impl Walk {
    fn begin(
        server: Arc<Server>,
        caller: Arc<Caller>,
        params: &Params,
        last: Option<&str>,
        closing: Arc<Notify>,
    ) -> Result<Self, XrpcError> {
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
        let reader = reader_number(&server, params, &did)?;
        let ear = Ear {
            feed: name,
            did,
            reader,
            address: caller.address,
        };
        let listening = live.listen(ear.clone(), position, Arc::clone(&closing));
        Ok(Self {
            server,
            caller,
            ear,
            listening: listening.map_err(refusal)?,
            closing,
            pieces: VecDeque::new(),
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
                self.server.charge(&self.caller, said.cost_steps());
                self.cursor.clone_from(&said.cursor);
                return Some(said);
            }
            // The reader comes back with its cursor and misses nothing, whatever is refused here.
            if self.pending.is_none() {
                match self.listening.next().await {
                    Next::Told(told) => self.pending = Some(told),
                    Next::Over => return None,
                    Next::Missed(missed) => {
                        let read = move |_: &Server| {
                            missed.read();
                            Ok(())
                        };
                        self.server.read(&self.caller.again(), read).await.ok()?;
                        continue;
                    }
                }
            }
            let (told, ear) = (self.pending.clone()?, self.ear.clone());
            let caller = self.caller.again();
            let made = self
                .server
                .read(&caller, move |server| tell(server, &ear, &told));
            let made = made.await;
            self.pending = None;
            self.messages.extend(made.ok()?);
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
                    Some(said) => {
                        // Beside the text the socket keeps a copy of it.
                        if !self.listening.room_for(2 * said.fields.len()).await {
                            break;
                        }
                        Message::Text(said.text().into())
                    }
                    None => break,
                },
                heard = socket.recv() => match heard {
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                    Some(Ok(_)) => continue,
                },
                () = tokio::time::sleep(IDLE) => Message::Ping(Default::default()),
            };
            let sent = tokio::select! {
                sent = tokio::time::timeout(SEND_MAX, socket.send(message)) => sent,
                () = self.closing.notified() => return,
            };
            self.listening.sent();
            match sent {
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
            // nginx would hold events back until a buffer is full.
            .header("x-accel-buffering", "no")
            .extension(Counted)
            .body(Body::from_stream(body))
            .map_err(|_| XrpcError::internal())
    }

    /// The next piece of an event; `None` at the end.
    async fn event(&mut self) -> Option<Bytes> {
        if let Some(piece) = self.pieces.pop_front() {
            return Some(piece);
        }
        self.listening.sent();
        if self.ended {
            return None;
        }
        let said = tokio::select! {
            said = self.next() => said,
            () = tokio::time::sleep(IDLE) => return Some(Bytes::from_static(b": still here\n\n")),
        };
        let Some(said) = said else {
            self.ended = true;
            let (_, name, message) = self.reason();
            let text = serde_json::json!({"type": "end", "cursor": self.cursor, "name": name, "message": message});
            return Some(format!("event: end\ndata: {text}\n\n").into());
        };
        if !self.listening.room_for(said.fields.len()).await {
            // No word about the end: its cursor would be that of the message that was not sent.
            self.ended = true;
            return None;
        }
        self.pieces = said.pieces();
        self.pieces.pop_front()
    }
}

fn scope(feed: &str) -> String {
    format!("live:{feed}")
}

/// The number of a reader; one that nobody ever named is given one, so that its first follow is told. An
/// anonymous request writes nothing: it listens to an empty feed until it asks again.
fn reader_number(server: &Server, params: &Params, did: &str) -> Result<i64, XrpcError> {
    if let Some(number) = server.store.key(did)? {
        return Ok(number);
    }
    if params.is_anonymous_as(did) {
        return Ok(NOBODY);
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
            cursor,
            fields,
        }
    });
    Ok(said.collect())
}

/// The messages of one piece of news: each its type, and its fields as JSON.
fn messages(
    server: &Server,
    ear: &Ear,
    news: &News,
) -> Result<Vec<(&'static str, Bytes)>, XrpcError> {
    let plan = feed::named(server, &ear.feed)?;
    let changed = ("changed", Bytes::new());
    Ok(match news {
        News::Start => vec![("start", Bytes::new())],
        News::Outdated => vec![("info", outdated().into()), ("start", Bytes::new())],
        News::Changed => vec![changed],
        News::Removal { uri, time_us, .. } => {
            let mut said = vec![("removal", removal(plan, uri, *time_us).into())];
            // What it kept beyond the end is in the feed now.
            said.extend(plan.end.then_some(changed));
            said
        }
        News::Entry(entry) => {
            let known = server.live.as_ref().and_then(|live| live.text(entry));
            let fields = match known {
                Some(text) => text,
                None => {
                    // Two connections may both make it; they make the same.
                    let text = text(server, plan, entry)?.map(Bytes::from);
                    if let Some(live) = &server.live {
                        live.remember(entry, text.clone());
                    }
                    text
                }
            };
            let Some(fields) = fields else {
                return Ok(Vec::new());
            };
            let (is_shown, is_full) = match plan.end {
                true => ending::holds(server, plan, &ear.did, &entry.uri)?,
                false => (true, false),
            };
            let mut said = Vec::from_iter(is_shown.then_some(("entry", fields)));
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
    Ok(found.and_then(|page| {
        let activity = page.activities.first()?;
        let mut field = String::from(",\"activity\":");
        following::push_activity(&mut field, plan, merged, (activity, &page.named));
        Some(field)
    }))
}
