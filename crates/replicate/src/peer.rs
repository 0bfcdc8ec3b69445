//! A peer: this log as the replica of another, over WebSocket.
//!
//! In:    the address of an authority, a space, what to replicate.
//! Out:   the same blocks here, as they come; our own blocks there.
//! Never: a decision about the log: the step function of crate `blocklog` makes
//!        them all. This file only carries messages and wakes it.
//!
//! One connection at a time. When it breaks, the pause before the next grows;
//! what was under way is asked again.

use super::hub::News;
use super::log::{Log, random};
use super::socket::MESSAGE_BYTES_MAX;
use crate::metrics as names;
use blocklog::limits::Limits;
use blocklog::message::{Advanced, Answer, Fault, Reply, Request, RequestId, SubscribeRequest};
use blocklog::page::Selection;
use blocklog::replica::{Mode, Target};
use blocklog::store::{LogStore, ReplicaStore, Role, StoreError};
use blocklog::sync::{Input, Sync, SyncReport, SyncSettings};
use futures_util::{SinkExt, StreamExt};
use metrics::counter;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{broadcast, watch};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message, http};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// The share of a pause by which it grows at most, so that replicas do not return together.
const JITTER: f64 = 0.25;

/// How long a connection may take to be made.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// The longest sleep between two looks at the clock.
const TICK_MS_MAX: u64 = 5_000;

/// Bytes of one message of the authority: the largest page it gives, in base64, and to spare.
const ANSWER_BYTES_MAX: usize = 64 << 20;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// What to replicate, from where.
#[derive(Debug, Clone)]
pub struct PeerSettings {
    /// `ws://` or `wss://` and the host of the authority.
    pub url: String,
    /// The space, by the same name here and there.
    pub space: String,
    /// What of it, and from when on.
    pub lanes: Vec<(Target, Mode)>,
    /// The token that the authority asks for.
    pub token: Option<String>,
}

/// Why a replica cannot be.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// This log gives the positions of that space itself. Two authorities would
    /// give one position to two blocks: name another space, or start with an
    /// empty log.
    #[error("the log is the authority of the space {0} itself")]
    Authority(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a connection ended.
#[derive(Debug)]
enum Ended {
    /// It broke, or the authority sent what is not a message: connect again.
    Broken,
    /// The authority does not let us in: another token is needed, or none helps.
    Refused(u16),
    /// The owner wants to stop.
    Stopped,
    /// Our own store failed: connect again after a pause.
    Store(StoreError),
}

/// A replica at work.
#[derive(Debug)]
pub struct Peer {
    log: Log,
    settings: PeerSettings,
    limits: Limits,
    sync: Arc<Mutex<Sync>>,
    /// Whether this run has asked the authority to create the space.
    asked_to_create: bool,
    /// Bytes of one message that the authority takes.
    message_bytes_max: usize,
}

/// What a replica at work has done so far.
#[derive(Debug, Clone)]
pub struct Reports(Arc<Mutex<Sync>>);

impl Reports {
    /// As of now.
    #[must_use]
    pub fn now(&self) -> SyncReport {
        self.0.lock().report()
    }
}

/// What has happened, owned, so that it can change threads.
#[derive(Debug)]
enum Event {
    Tick,
    Changed,
    Hint,
    Lost,
    Reply(Reply),
}

impl Peer {
    /// A replica of `settings.space` in `log`. Its lanes are set as they are
    /// described, unless they already are. Blocks.
    ///
    /// # Errors
    /// If the space is our own, or the store fails.
    pub fn new(log: Log, settings: PeerSettings) -> Result<Self, PeerError> {
        log.open_space(&settings.space, Role::Replica)?;
        let state = log.store().space(&settings.space)?;
        if state.is_none_or(|state| state.role != Role::Replica) {
            return Err(PeerError::Authority(settings.space));
        }
        let held = log.store().lanes(&settings.space)?;
        for (target, mode) in &settings.lanes {
            let same = held
                .iter()
                .any(|lane| lane.target == *target && lane.mode == *mode);
            if !same {
                log.store().set_lane(&settings.space, target, Some(*mode))?;
            }
        }
        let run: String = random().iter().map(|byte| format!("{byte:02x}")).collect();
        // A page of another log may be larger than ours would be.
        let limits = Limits {
            block_bytes_max: usize::MAX,
            ..log.limits().clone()
        };
        let sync = Sync::new(
            &settings.space,
            &run,
            SyncSettings::default(),
            limits.clone(),
        );
        Ok(Self {
            log,
            settings,
            limits,
            sync: Arc::new(Mutex::new(sync)),
            asked_to_create: false,
            message_bytes_max: usize::MAX,
        })
    }

    /// What has been done so far.
    #[must_use]
    pub fn report(&self) -> SyncReport {
        self.sync.lock().report()
    }

    /// What will have been done, for who runs it.
    #[must_use]
    pub fn reports(&self) -> Reports {
        Reports(self.sync.clone())
    }

    /// Replicate until `stop` becomes true.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            let ended = self.connected(&mut stop).await;
            if let Err(error) = self.step(Event::Lost).await {
                tracing::warn!(space = %self.settings.space, %error, "log store failed");
            }
            // The one back-off is that of the state machine: it knows what was of use.
            let left_ms = self.sync.lock().wake_ms().saturating_sub(self.log.now_ms());
            let pause = Duration::from_millis(left_ms).mul_f64(1.0 + JITTER * chance());
            let pause_ms = pause.as_millis() as u64;
            match ended {
                Ended::Stopped => return,
                Ended::Broken => {
                    tracing::warn!(space = %self.settings.space, pause_ms, "the log cannot be reached, or its connection ended");
                }
                Ended::Refused(status) => {
                    tracing::warn!(space = %self.settings.space, pause_ms, status, "the log refuses the connection; is its token right?");
                }
                Ended::Store(error) => {
                    tracing::warn!(space = %self.settings.space, pause_ms, %error, "log store failed");
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = stop.changed() => {}
            }
        }
    }

    /// One connection, from its beginning to its end.
    async fn connected(&mut self, stop: &mut watch::Receiver<bool>) -> Ended {
        let url = address(&self.settings.url, &self.settings.space);
        let Some(request) = request(&url, self.settings.token.as_deref()) else {
            return Ended::Broken;
        };
        let settings = WebSocketConfig::default()
            .max_message_size(Some(ANSWER_BYTES_MAX))
            .max_frame_size(Some(ANSWER_BYTES_MAX));
        let connecting =
            tokio_tungstenite::connect_async_with_config(request, Some(settings), false);
        let connecting = tokio::time::timeout(CONNECT_WITHIN, connecting);
        let connected = tokio::select! {
            connected = connecting => connected,
            _ = stop.changed() => return Ended::Stopped,
        };
        let mut socket = match connected {
            Ok(Ok((socket, answer))) => {
                self.message_bytes_max = message_bytes_max(&answer);
                socket
            }
            Ok(Err(tungstenite::Error::Http(answer))) if answer.status().is_client_error() => {
                return Ended::Refused(answer.status().as_u16());
            }
            _ => return Ended::Broken,
        };
        let mut news = self.log.hub().listen(&self.settings.space);
        // Hints about everything: what does not concern us costs one short query.
        let subscribe = Request::Subscribe(SubscribeRequest {
            renew: None,
            selection: Selection::Space,
        });
        if !say(&mut socket, &RequestId::text("hints"), &subscribe).await {
            return Ended::Broken;
        }
        let mut next = match self.step(Event::Hint).await {
            Ok(next) => next,
            Err(error) => return Ended::Store(error),
        };
        loop {
            if let Err(ended) = self.send(&mut socket, next).await {
                return ended;
            }
            next = match self.wait(&mut socket, &mut news, stop).await {
                Ok(next) => next,
                Err(ended) => return ended,
            };
        }
    }

    /// Send a request. One that the authority would not read is answered here: the next has less in it.
    async fn send(
        &mut self,
        socket: &mut Socket,
        mut next: Option<(RequestId, Request)>,
    ) -> Result<(), Ended> {
        while let Some((id, request)) = next {
            let text = request.to_message(&id).to_string();
            if text.len() <= self.message_bytes_max {
                let said = socket.send(Message::text(text)).await;
                return said.map_err(|_| Ended::Broken);
            }
            let fault = Fault::TooLarge {
                limit: "message_bytes_max".to_owned(),
                max: self.message_bytes_max as u64,
            };
            let reply = Reply {
                id: Some(id),
                outcome: Err(fault),
            };
            next = self.take_reply(reply).await?;
        }
        Ok(())
    }

    /// Wait for something to happen, and take one step.
    async fn wait(
        &mut self,
        socket: &mut Socket,
        news: &mut broadcast::Receiver<News>,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<Option<(RequestId, Request)>, Ended> {
        let left_ms = self.sync.lock().wake_ms().saturating_sub(self.log.now_ms());
        let left = Duration::from_millis(left_ms.clamp(1, TICK_MS_MAX));
        tokio::select! {
            message = socket.next() => match message {
                Some(Ok(Message::Text(text))) => self.take(socket, text.as_str()).await,
                Some(Ok(Message::Close(_)) | Err(_)) | None => Err(Ended::Broken),
                Some(Ok(_)) => Ok(None),
            },
            _ = news.recv() => self.step(Event::Changed).await.map_err(Ended::Store),
            () = tokio::time::sleep(left) => self.tick().await,
            _ = stop.changed() => Err(Ended::Stopped),
        }
    }

    /// Time has passed. A question that nobody answered in time was asked over a
    /// line that is dead, whatever the socket says.
    async fn tick(&mut self) -> Result<Option<(RequestId, Request)>, Ended> {
        let before = self.report().failed;
        let next = self.step(Event::Tick).await.map_err(Ended::Store)?;
        match self.report().failed > before {
            true => Err(Ended::Broken),
            false => Ok(next),
        }
    }

    async fn take(
        &mut self,
        socket: &mut Socket,
        text: &str,
    ) -> Result<Option<(RequestId, Request)>, Ended> {
        let message: Value = serde_json::from_str(text).map_err(|_| Ended::Broken)?;
        if Advanced::from_message(&message).is_some() {
            return self.step(Event::Hint).await.map_err(Ended::Store);
        }
        let reply = Reply::parse(&message, &self.settings.space, &self.limits)
            .map_err(|_| Ended::Broken)?;
        if let (Err(Fault::UnknownSpace), false) = (&reply.outcome, self.asked_to_create) {
            // Whoever may create spaces there creates this one; else the next question fails too.
            self.asked_to_create = true;
            let create = json!({"type": "create", "requestId": "create"});
            let said = socket.send(Message::text(create.to_string())).await;
            return said.map(|()| None).map_err(|_| Ended::Broken);
        }
        if let Ok(Answer::Changed(_)) = &reply.outcome {
            return Err(Ended::Broken); // the space is there now: begin again
        }
        let learned = match &reply.outcome {
            Ok(Answer::Blocks(page)) => {
                let feeds: BTreeSet<String> = page
                    .blocks
                    .iter()
                    .map(|held| held.block.feed.clone())
                    .collect();
                Some((page.covered, feeds))
            }
            _ => None,
        };
        let before = self.report();
        let next = self.take_reply(reply).await?;
        if let Some((position_max, feeds)) = learned
            && self.report().pulled > before.pulled
        {
            self.log
                .tell(&self.settings.space, position_max, feeds, None);
        }
        Ok(next)
    }

    async fn take_reply(&mut self, reply: Reply) -> Result<Option<(RequestId, Request)>, Ended> {
        let before = self.report();
        let next = self.step(Event::Reply(reply)).await.map_err(Ended::Store)?;
        self.report_losses(&before);
        Ok(next)
    }

    /// Say what was lost to other blocks, or refused, since `before`.
    fn report_losses(&self, before: &SyncReport) {
        let (now, space) = (self.report(), &self.settings.space);
        let reissued = now.reissued - before.reissued;
        if reissued > 0 {
            counter!(names::LOG_REISSUED).increment(reissued);
            tracing::info!(%space, reissued, "blocks whose key another block has are sent again under new sequences");
        }
        if let Some(code) = now.refused {
            counter!(names::LOG_REFUSALS, "error" => code)
                .increment(now.refusals - before.refusals);
            if before.refused != now.refused {
                tracing::warn!(%space, error = code, "the authority refuses what this replica asks; it is tried again");
            }
        }
        let aside = (now.conflicts + now.set_aside) - (before.conflicts + before.set_aside);
        if aside > 0 {
            tracing::warn!(%space, aside, "blocks are not at the authority and cannot be sent: see `feedmill log conflicts`");
        }
    }

    /// One step, off the threads that drive sockets.
    async fn step(&mut self, event: Event) -> Result<Option<(RequestId, Request)>, StoreError> {
        let (store, now_ms, sync) = (
            self.log.store().clone(),
            self.log.now_ms(),
            self.sync.clone(),
        );
        let work = move || {
            let input = match &event {
                Event::Tick => Input::Tick,
                Event::Changed => Input::Changed,
                Event::Hint => Input::Hint,
                Event::Lost => Input::Lost,
                Event::Reply(reply) => Input::Reply(reply),
            };
            sync.lock().step(store.as_ref(), now_ms, input)
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|error| Err(StoreError::Passing(Box::new(error))))
    }
}

/// How long a message the authority takes, as it said when the connection was made.
fn message_bytes_max<T>(answer: &http::Response<T>) -> usize {
    let announced = answer.headers().get(MESSAGE_BYTES_MAX);
    let announced = announced.and_then(|value| value.to_str().ok()?.parse().ok());
    announced.unwrap_or(usize::MAX)
}

/// Randomness for jitter, in 0..1.
fn chance() -> f64 {
    f64::from(random().first().copied().unwrap_or(0)) / 256.0
}

/// The address of a space: whatever its name, it is one piece of the path.
#[must_use]
pub fn address(server: &str, space: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let piece: String = space
        .bytes()
        .map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect();
    format!("{}/log/{piece}", server.trim_end_matches('/'))
}

/// The request for a WebSocket, with a token where one is known.
pub fn request(url: &str, token: Option<&str>) -> Option<tungstenite::handshake::client::Request> {
    let mut request = url.into_client_request().ok()?;
    if let Some(token) = token {
        let value = format!("Bearer {token}").parse().ok()?;
        request.headers_mut().insert("authorization", value);
    }
    Some(request)
}

/// Send a request; false if the connection is broken.
async fn say(socket: &mut Socket, id: &RequestId, request: &Request) -> bool {
    let message = Message::text(request.to_message(id).to_string());
    socket.send(message).await.is_ok()
}
