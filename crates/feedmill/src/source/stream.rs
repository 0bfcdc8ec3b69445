//! One subscription: a pool of equal hosts, one of them read at a time, for ever.
//!
//! In:    addresses, and for each its own durable cursor.
//! Out:   frames of one host after the other, in each host's order.
//! Never: a cursor of one host given to another: their numbers differ.
//!
//! A host that goes on delivering is kept, however often its connection
//! breaks. One that refuses, or says nothing while others could be asked, is
//! left; the next one is read from the last place proved *there*, which may be
//! long ago. What comes again is recognised by the store, so a host that was
//! blind for an hour costs a replay and loses nothing.

use std::sync::Arc;

use futures_util::SinkExt;
use metrics::counter;
use tokio::sync::{mpsc, watch};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};
use tracing::info;

use super::hear::{ANSWER_MAX, Unheard, hear};
use super::jetstream::{DictionaryError, Jetstream, Unpacker};
use super::link::{self, Link};
use super::pending::Pending;
use super::socket::{self, Socket};
use super::tap::{self, Acks};
use super::{Arrival, Rewind, firehose};
use crate::clock::Clock;
use crate::config::Intake;
use crate::metrics as names;
use crate::pause::Pauses;
use crate::status::SourceState;
use crate::store::SharedStore;

/// How a host is asked, and what its messages are.
#[derive(Debug, Clone)]
pub enum Dialect {
    Firehose,
    Jetstream(Jetstream),
    Tap,
}

/// One subscription, with its pool of equal hosts.
#[derive(Debug)]
pub struct Stream {
    pub name: String,
    pub dialect: Dialect,
    pub urls: Vec<String>,
    pub store: SharedStore,
    pub intake: Intake,
    pub state: Arc<SourceState>,
    pub frames: mpsc::Sender<Arrival>,
    /// What frames on their way may take.
    pub pending: Pending,
    /// Set by the stage below to say: read again from this cursor.
    pub rewind: Arc<Rewind>,
    /// What the stage below has made durable, where that is told.
    pub acks: Arc<Acks>,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("cannot connect")]
    Refused(#[source] Box<Error>),
    #[error("no answer within {} s", ANSWER_MAX.as_secs())]
    Unanswered,
    #[error("the host no longer has what lies behind our cursor")]
    TooOld,
    #[error("messages cannot be unpacked")]
    Packed(#[from] DictionaryError),
    #[error(transparent)]
    Unheard(#[from] Unheard),
    #[error("to be read again from an earlier place")]
    Rewound,
    #[error("nobody reads the frames any more")]
    Deaf,
    #[error("the store cannot tell the cursor: {0}")]
    Store(#[from] crate::store::StoreError),
}

impl Ended {
    /// Whether the host is at fault in a way that another host may not be.
    fn leaves(&self, delivered: bool) -> bool {
        match self {
            Self::Refused(_) | Self::Unanswered | Self::Packed(_) => true,
            Self::Unheard(Unheard::Silent(_)) => true,
            Self::Unheard(Unheard::Broke(_) | Unheard::Closed) => !delivered,
            Self::TooOld | Self::Rewound | Self::Deaf | Self::Store(_) => false,
        }
    }
}

/// The name under which a host's cursor is kept: the source's own, or in a pool one for each host.
pub fn row(name: &str, urls: &[String], url: &str) -> String {
    if urls.len() > 1 {
        format!("{name} {url}")
    } else {
        name.to_owned()
    }
}

impl Stream {
    /// Reads until `stop` is set.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        let turns = Turns {
            stream: &self,
            turn: 0,
            url: self.urls.first().map_or("", String::as_str),
        };
        link::read_for_ever(turns, &self.intake, &self.state, stop).await;
    }

    async fn connection(&self, url: &str, pauses: &mut Pauses, delivered: &mut bool) -> Ended {
        let row: Arc<str> = row(&self.name, &self.urls, url).into();
        let (mut socket, mut unpacker) = match self.connect(url, &row).await {
            Ok(connected) => connected,
            Err(ended) => return ended,
        };
        self.state.connect();
        let line_us = Clock::Wall.now_us();
        self.acks.begin(line_us);
        // Where others can be asked, silence alone is reason enough to: a host may be blind.
        let ask = self.urls.len() == 1;
        loop {
            let message = tokio::select! {
                next = hear(&mut socket, self.intake.silence_s_max, ask) => match next {
                    Ok(message) => message,
                    Err(unheard) => return unheard.into(),
                },
                done = self.acks.take() => match acknowledge(&mut socket, done).await {
                    Ok(()) => continue,
                    Err(error) => return Unheard::Broke(Box::new(error)).into(),
                },
            };
            let frame: Bytes = match (message, &mut unpacker) {
                (Message::Binary(packed), Some(unpacker)) => unpacker.unpack(packed),
                (Message::Binary(frame), None) => frame,
                (Message::Text(text), _) => text.into(),
                _ => continue,
            };
            pauses.reset();
            *delivered = true;
            self.state.arrive();
            let reserved = self.pending.reserve(frame.len()).await;
            let arrival = Arrival {
                frame,
                row: Arc::clone(&row),
                line_us,
                reserved,
                ..Arrival::default()
            };
            // Waits here while the river is full: that is the back-pressure.
            if self.frames.send(arrival).await.is_err() {
                return Ended::Deaf;
            }
            if self.rewind.asked(&row) {
                return Ended::Rewound;
            }
        }
    }

    async fn connect(&self, url: &str, row: &str) -> Result<(Socket, Option<Unpacker>), Ended> {
        let cursor = match self.rewind.take(row) {
            Some(cursor) => cursor,
            None => self.store.cursor(row)?.unwrap_or(0),
        };
        // One that is larger arrives cut off, and is refused by itself.
        let bytes_max = self.intake.frame_bytes_max;
        let (address, unpacker) = match &self.dialect {
            Dialect::Firehose => (firehose::address(url, cursor), None),
            Dialect::Tap => (tap::address(url), None),
            Dialect::Jetstream(jetstream) => {
                let unpacker = jetstream.unpacker(url, bytes_max).await?;
                (jetstream.address(url, cursor, unpacker.as_ref()), unpacker)
            }
        };
        let mut request = address
            .into_client_request()
            .map_err(|error| Ended::Refused(Box::new(error)))?;
        if let (Dialect::Tap, Some(password)) = (&self.dialect, tap::password()) {
            tap::authorize(&mut request, &password);
        }
        let connecting = socket::connect(request, bytes_max);
        let connected = tokio::time::timeout(ANSWER_MAX, connecting).await;
        let result = match &connected {
            Ok(Ok(_)) => "ok",
            _ => "refused",
        };
        counter!(names::CONNECTIONS, "source" => self.name.clone(), "result" => result)
            .increment(1);
        match connected {
            Ok(Ok(socket)) => {
                info!(source = self.name, url, cursor, "reading");
                Ok((socket, unpacker))
            }
            Ok(Err(error)) if is_too_old(&error) => {
                // Read all it still has; it says then that something is missing.
                self.rewind.ask(row, 0);
                Err(Ended::TooOld)
            }
            Ok(Err(error)) => Err(Ended::Refused(Box::new(error))),
            Err(_) => Err(Ended::Unanswered),
        }
    }
}

/// The hosts of a pool, one after the other.
struct Turns<'a> {
    stream: &'a Stream,
    turn: usize,
    url: &'a str,
}

impl Link for Turns<'_> {
    type Ended = Ended;

    async fn read(&mut self, pauses: &mut Pauses) -> Ended {
        let stream = self.stream;
        let Some(url) = stream.urls.get(self.turn % stream.urls.len().max(1)) else {
            return Ended::Deaf; // there is nobody to ask
        };
        self.url = url;
        let mut delivered = false;
        let ended = stream.connection(url, pauses, &mut delivered).await;
        self.turn += usize::from(ended.leaves(delivered));
        ended
    }

    fn is_over(ended: &Ended) -> bool {
        matches!(ended, Ended::Deaf)
    }

    fn place(&self) -> (&str, &str) {
        (&self.stream.name, self.url)
    }
}

/// Tells a Tap what is done.
async fn acknowledge(socket: &mut Socket, done: Vec<i64>) -> Result<(), Error> {
    for id in done {
        socket.feed(Message::text(tap::ack(id))).await?;
    }
    socket.flush().await
}

/// Whether a host refused because it no longer has what was asked for.
fn is_too_old(error: &Error) -> bool {
    let Error::Http(response) = error else {
        return false;
    };
    let body = response.body().as_deref().unwrap_or_default();
    String::from_utf8_lossy(body).contains("CursorTooOld")
}
