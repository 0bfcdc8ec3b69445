//! The log of a peer: the space in which another Feedmill publishes.
//!
//! In:    the address of a space and a durable place in it.
//! Out:   its blocks, one frame each, in the order of their positions, for ever.
//! Never: a place in one history given to another.
//!
//! A log that was replaced has another epoch, and the epoch is part of the name
//! under which the place is kept: so it is read from its beginning. One that
//! was rolled back shows another block at our place, or none, and is read from
//! its beginning too. What comes again is recognised by the store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use blocklog::limits::Limits;
use blocklog::message::{Advanced, Fault, parse_block};
use futures_util::{SinkExt, StreamExt};
use metrics::{counter, gauge};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tracing::info;

use super::hear::ANSWER_MAX;
use super::link::{self, Link};
use super::pending::Pending;
use super::{Arrival, Rewind};
use crate::config::Intake;
use crate::decode::log::{GONE, ROLLED_BACK, mark, position};
use crate::metrics as names;
use crate::pause::Pauses;
use crate::status::SourceState;
use crate::store::SharedStore;

/// Blocks asked for at once.
const PAGE_BLOCKS: u64 = 1000;
/// Bytes of one answer: the largest page a peer gives, in base64, and to spare.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// How long to wait for a hint before asking all the same: hints may be lost.
const POLL: Duration = Duration::from_secs(5);
/// How often the subscription that brings hints is made anew; it lives for an hour.
const SUBSCRIBE_EVERY: Duration = Duration::from_secs(1200);

/// One log, read for ever.
#[derive(Debug)]
pub struct LogStream {
    pub name: String,
    /// `ws://` or `wss://`, with the path of the space.
    pub url: String,
    pub space: String,
    /// The token that the log asks for.
    pub token: Option<String>,
    pub store: SharedStore,
    pub intake: Intake,
    pub state: Arc<SourceState>,
    pub frames: mpsc::Sender<Arrival>,
    pub pending: Pending,
    pub rewind: Arc<Rewind>,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("its address or its token cannot be sent")]
    Unaddressable,
    #[error("cannot connect")]
    Refused(#[source] Box<tokio_tungstenite::tungstenite::Error>),
    #[error("no answer within {} s", ANSWER_MAX.as_secs())]
    Unanswered,
    #[error("connection broke")]
    Broke,
    #[error("an answer that is none")]
    Nonsense,
    #[error("the log refuses")]
    Fault(#[from] Fault),
    #[error("the log is not the one that was read; it is read from its beginning")]
    RolledBack,
    #[error("nobody reads the frames any more")]
    Deaf,
    #[error("the store cannot tell the cursor: {0}")]
    Store(#[from] crate::store::StoreError),
}

type Socket =
    tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;

/// An open connection and the place up to which it was read.
struct Reader<'a> {
    stream: &'a LogStream,
    socket: Socket,
    row: Arc<str>,
    /// A position, or the log's own cursor once it has given one.
    cursor: Value,
    /// Whether the walk began at the oldest block kept and has not come to its end.
    catching_up: bool,
    hinted: bool,
    subscribed: Instant,
}

impl LogStream {
    /// Reads until `stop` is set.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        link::read_for_ever(&self, &self.intake, &self.state, stop).await;
    }

    async fn connect(&self) -> Result<Reader<'_>, Ended> {
        let settings = WebSocketConfig::default()
            .max_message_size(Some(ANSWER_BYTES_MAX))
            .max_frame_size(Some(ANSWER_BYTES_MAX));
        let request = replicate::peer::request(&self.url, self.token.as_deref())
            .ok_or(Ended::Unaddressable)?;
        let connecting =
            tokio_tungstenite::connect_async_with_config(request, Some(settings), true);
        let connected = tokio::time::timeout(ANSWER_MAX, connecting).await;
        let result = match &connected {
            Ok(Ok(_)) => "ok",
            _ => "refused",
        };
        counter!(names::CONNECTIONS, "source" => self.name.clone(), "result" => result)
            .increment(1);
        let (socket, _) = connected
            .map_err(|_| Ended::Unanswered)?
            .map_err(|error| Ended::Refused(Box::new(error)))?;
        let mut reader = Reader {
            stream: self,
            socket,
            row: self.name.as_str().into(),
            cursor: json!(0),
            catching_up: false,
            hinted: false,
            subscribed: Instant::now(),
        };
        reader.begin().await?;
        Ok(reader)
    }
}

impl Link for &LogStream {
    type Ended = Ended;

    async fn read(&mut self, pauses: &mut Pauses) -> Ended {
        let mut reader = match self.connect().await {
            Ok(reader) => reader,
            Err(ended) => return ended,
        };
        self.state.connect();
        loop {
            match reader.page().await {
                Ok(more) => {
                    pauses.reset();
                    if !more && let Err(ended) = reader.wait().await {
                        return ended;
                    }
                }
                Err(ended) => return ended,
            }
        }
    }

    fn is_over(ended: &Ended) -> bool {
        matches!(ended, Ended::Deaf)
    }

    fn place(&self) -> (&str, &str) {
        (&self.name, &self.url)
    }
}

impl Reader<'_> {
    /// Finds out whose history this is, and goes to our place in it.
    async fn begin(&mut self) -> Result<(), Ended> {
        self.subscribe().await?;
        let state = self.ask(json!({"type": "query", "tail": true})).await?;
        let epoch = text(&state, "epoch")?;
        let position_max = number(&state, "maxPosition")?;
        self.row = format!("{} {epoch}", self.stream.name).into();
        let place = match self.stream.rewind.take(&self.row) {
            Some(place) => place,
            None => self.stream.store.cursor(&self.row)?.unwrap_or(0),
        };
        let (read, expected) = position(place);
        if read > position_max || (read > 0 && !self.still(read, expected).await?) {
            return self.start_over().await;
        }
        self.cursor = json!(read);
        info!(
            source = self.stream.name,
            url = self.stream.url,
            position = read,
            "reading"
        );
        Ok(())
    }

    /// Whether the block at our place is the one that was read. One that is no longer kept is believed.
    async fn still(&mut self, read: u64, expected: u16) -> Result<bool, Ended> {
        let question = json!({"type": "query", "cursor": read - 1, "limit": 1, "skipGone": true});
        let page = self.ask(question).await?;
        let Some(block) = blocks(&page)?.first() else {
            return Ok(true);
        };
        let held = parse_block(block, &self.stream.space, &Limits::default());
        Ok(held.map_or(true, |held| {
            held.position != Some(read) || expected == 0 || mark(&held) == expected
        }))
    }

    /// Tells the stage below to forget its place, and waits until it has asked for everything again.
    async fn start_over(&mut self) -> Result<(), Ended> {
        self.send(ROLLED_BACK.to_vec()).await?;
        let begun = Instant::now();
        while !self.stream.rewind.asked(&self.row) && begun.elapsed() < ANSWER_MAX {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(Ended::RolledBack)
    }

    /// Reads one page; true if more follows at once.
    async fn page(&mut self) -> Result<bool, Ended> {
        self.hinted = false;
        // What was let go before the first walk came there was never waited for.
        self.catching_up |= self.cursor == json!(0);
        let question = json!({
            "type": "query", "cursor": self.cursor, "limit": PAGE_BLOCKS, "skipGone": true,
        });
        let page = self.ask(question).await?;
        if page.get("evicted").is_some() && !self.catching_up {
            self.send(GONE.to_vec()).await?;
        }
        for block in blocks(&page)? {
            self.send(block.to_string().into_bytes()).await?;
        }
        let behind = number(&page, "maxPosition")?.saturating_sub(number(&page, "covered")?);
        gauge!(names::LOG_BEHIND, "space" => self.stream.space.clone()).set(behind as f64);
        self.cursor = json!(text(&page, "nextCursor")?);
        if self.stream.rewind.asked(&self.row) {
            return Err(Ended::RolledBack);
        }
        let has_more = page.get("hasMore") == Some(&Value::Bool(true));
        self.catching_up &= has_more;
        Ok(has_more)
    }

    /// Waits for a hint, or until it is time to ask without one.
    async fn wait(&mut self) -> Result<(), Ended> {
        if self.subscribed.elapsed() > SUBSCRIBE_EVERY {
            self.subscribe().await?;
        }
        let deadline = tokio::time::Instant::now() + POLL;
        while !self.hinted {
            match tokio::time::timeout_at(deadline, self.hear()).await {
                Err(_) => return Ok(()),
                Ok(heard) => drop(heard?),
            }
        }
        Ok(())
    }

    async fn subscribe(&mut self) -> Result<(), Ended> {
        self.ask(json!({"type": "subscribe"})).await?;
        self.subscribed = Instant::now();
        Ok(())
    }

    /// Asks, and waits for the answer; hints that come in between are remembered.
    async fn ask(&mut self, mut question: Value) -> Result<Value, Ended> {
        if let Some(object) = question.as_object_mut() {
            object.insert("requestId".into(), json!(1));
        }
        let sent = self.socket.send(Message::text(question.to_string())).await;
        sent.map_err(|_| Ended::Broke)?;
        let deadline = tokio::time::Instant::now() + ANSWER_MAX;
        loop {
            let heard = tokio::time::timeout_at(deadline, self.hear()).await;
            if let Some(answer) = heard.map_err(|_| Ended::Unanswered)?? {
                return match Fault::from_message(&answer) {
                    Some(fault) => Err(fault.into()),
                    None => Ok(answer),
                };
            }
        }
    }

    /// The next message, if it is an answer.
    async fn hear(&mut self) -> Result<Option<Value>, Ended> {
        match self.socket.next().await {
            Some(Ok(Message::Text(text))) => {
                let message: Value =
                    serde_json::from_str(text.as_str()).map_err(|_| Ended::Nonsense)?;
                if Advanced::from_message(&message).is_some() {
                    self.hinted = true;
                    return Ok(None);
                }
                Ok(Some(message))
            }
            Some(Ok(Message::Close(_)) | Err(_)) | None => Err(Ended::Broke),
            Some(Ok(_)) => Ok(None),
        }
    }

    async fn send(&self, frame: Vec<u8>) -> Result<(), Ended> {
        self.stream.state.arrive();
        let arrival = Arrival {
            reserved: self.stream.pending.reserve(frame.len()).await,
            frame: frame.into(),
            row: Arc::clone(&self.row),
            ..Arrival::default()
        };
        // Waits here while the river is full: that is the back-pressure.
        let sent = self.stream.frames.send(arrival).await;
        sent.map_err(|_| Ended::Deaf)
    }
}

fn blocks(page: &Value) -> Result<&Vec<Value>, Ended> {
    page.get("blocks")
        .and_then(Value::as_array)
        .ok_or(Ended::Nonsense)
}

fn number(message: &Value, field: &str) -> Result<u64, Ended> {
    message
        .get(field)
        .and_then(Value::as_u64)
        .ok_or(Ended::Nonsense)
}

fn text<'a>(message: &'a Value, field: &str) -> Result<&'a str, Ended> {
    message
        .get(field)
        .and_then(Value::as_str)
        .ok_or(Ended::Nonsense)
}
