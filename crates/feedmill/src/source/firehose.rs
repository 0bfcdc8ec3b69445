//! `com.atproto.sync.subscribeRepos`: frames over a WebSocket, for ever.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use metrics::counter;
use tokio::sync::{mpsc, watch};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tracing::{info, warn};

use super::Arrival;
use super::pause::Pauses;
use crate::config::Intake;
use crate::metrics as names;
use crate::status::Status;
use crate::store::SharedStore;

/// How many times larger than allowed a frame may be and still be received,
/// so that it can be refused by itself instead of costing the connection.
const OVERSIZE: usize = 4;

/// One subscription, with its pool of equal hosts.
#[derive(Debug)]
pub struct Firehose {
    pub name: String,
    pub urls: Vec<String>,
    pub store: SharedStore,
    pub intake: Intake,
    pub status: Arc<Status>,
    pub frames: mpsc::Sender<Arrival>,
    /// Set by the stage below to say: read again from this cursor.
    pub rewind: Arc<parking_lot::Mutex<Option<i64>>>,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("cannot connect")]
    Refused(#[source] Box<tokio_tungstenite::tungstenite::Error>),
    #[error("connection broke")]
    Broke(#[source] Box<tokio_tungstenite::tungstenite::Error>),
    #[error("closed by the host")]
    Closed,
    #[error("silent for {0} s")]
    Silent(u64),
    #[error("nobody reads the frames any more")]
    Deaf,
    #[error("the store cannot tell the cursor: {0}")]
    Store(#[from] crate::store::StoreError),
}

impl Firehose {
    /// Reads until `stop` is set. Every end but that is followed by a pause and a new connection.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut pauses = Pauses::new(
            Duration::from_millis(self.intake.reconnect_ms),
            Duration::from_millis(self.intake.reconnect_ms_max),
        );
        let mut turn = 0usize;
        while !*stop.borrow() {
            let Some(url) = self.urls.get(turn % self.urls.len().max(1)) else {
                return;
            };
            let ended = tokio::select! {
                ended = self.connection(url, &mut pauses) => ended,
                _ = stop.changed() => break,
            };
            self.status.connected.store(false, Ordering::Relaxed);
            if matches!(ended, Ended::Deaf) {
                return;
            }
            let pause = pauses.next(chance());
            warn!(
                source = self.name,
                url,
                error = crate::check::chain(&ended),
                pause_ms = pause.as_millis() as u64,
                "stream ended"
            );
            turn += 1;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = stop.changed() => break,
            }
        }
    }

    async fn connection(&self, url: &str, pauses: &mut Pauses) -> Ended {
        let cursor = match self.rewind.lock().take() {
            Some(cursor) => Ok(Some(cursor)),
            None => self.store.cursor(&self.name),
        };
        let cursor = match cursor {
            Ok(cursor) => cursor.unwrap_or(0),
            Err(error) => return error.into(),
        };
        let address = format!(
            "{}/xrpc/com.atproto.sync.subscribeRepos?cursor={cursor}",
            url.trim_end_matches('/')
        );
        let settings = WebSocketConfig::default()
            .max_message_size(Some(self.intake.frame_bytes_max * OVERSIZE))
            .max_frame_size(Some(self.intake.frame_bytes_max * OVERSIZE));
        let connected =
            tokio_tungstenite::connect_async_with_config(address, Some(settings), true).await;
        let result = if connected.is_ok() { "ok" } else { "refused" };
        counter!(names::CONNECTIONS, "source" => self.name.clone(), "result" => result)
            .increment(1);
        let mut socket = match connected {
            Ok((socket, _)) => socket,
            Err(error) => return Ended::Refused(Box::new(error)),
        };
        info!(source = self.name, url, cursor, "reading");
        self.status.connected.store(true, Ordering::Relaxed);
        loop {
            let silence = Duration::from_secs(self.intake.silence_s_max);
            let message = match tokio::time::timeout(silence, socket.next()).await {
                Err(_) => {
                    // An idle host still answers a ping; a dead one does not.
                    match probe(&mut socket).await {
                        true => continue,
                        false => return Ended::Silent(self.intake.silence_s_max),
                    }
                }
                Ok(None) => return Ended::Closed,
                Ok(Some(Err(error))) => return Ended::Broke(Box::new(error)),
                Ok(Some(Ok(message))) => message,
            };
            let frame = match message {
                Message::Binary(frame) => frame,
                Message::Text(text) => text.into(),
                Message::Close(_) => return Ended::Closed,
                _ => continue,
            };
            pauses.reset();
            self.status.frames.fetch_add(1, Ordering::Relaxed);
            self.status.pending.fetch_add(1, Ordering::Relaxed);
            // Waits here while the river is full: that is the back-pressure.
            if self.frames.send(Arrival { frame }).await.is_err() {
                return Ended::Deaf;
            }
            if self.rewind.lock().is_some() {
                return Ended::Closed;
            }
        }
    }
}

type Socket =
    tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;

async fn probe(socket: &mut Socket) -> bool {
    let ping = async {
        socket.send(Message::Ping(Default::default())).await.ok()?;
        socket.next().await?.ok()
    };
    matches!(
        tokio::time::timeout(Duration::from_secs(10), ping).await,
        Ok(Some(_))
    )
}

/// Randomness for jitter.
fn chance() -> f64 {
    let mut bytes = [0u8; 4];
    match getrandom::fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX),
        Err(_) => 0.5,
    }
}
