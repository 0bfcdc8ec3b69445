//! `com.atproto.sync.subscribeRepos`: the stream of everything.
//!
//! In:    a WebSocket, perhaps with a cursor.
//! Out:   the events behind the cursor, then those to come, with the faults
//!        this connection is due.
//! Never: an event of the backlog skipped in silence, except by a fault that
//!        is counted; a word after an error frame.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{ConnectInfo, Query, State};
use axum::response::Response;
use axum::routing::get;
use futures_util::stream::SplitSink;
use futures_util::{SinkExt, StreamExt};
use record::event::{Frame, InfoEvent};
use tokio::sync::watch;

use crate::event::SeqEvent;
use crate::faults::{Deed, Fault, Meddler};
use crate::wire::Knife;

use super::xrpc::Params;
use super::{Shared, set};

/// Events taken from the backlog at once.
const BATCH_MAX: usize = 64;
/// WebSocket close codes: policy violation, and going away.
const POLICY: u16 = 1008;
const AWAY: u16 = 1001;

/// The stream's route.
pub(super) fn router() -> Router<Arc<Shared>> {
    Router::new().route("/xrpc/com.atproto.sync.subscribeRepos", get(subscribe))
}

async fn subscribe(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(knife): ConnectInfo<Knife>,
    Query(pairs): Query<Vec<(String, String)>>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let cursor = Params::new(pairs).get("cursor").map(str::to_owned);
    upgrade.on_upgrade(move |socket| async move {
        let mut meddler = shared.relay.meddler();
        shared.relay.take_orders(&mut meddler);
        let mut line = Line::new(socket, knife);
        let start = start(&shared, cursor.as_deref(), &mut meddler);
        for frame in start.frames {
            if line.send(frame).await.is_err() {
                return;
            }
        }
        match start.from {
            Some(from) => stream(&shared, &mut line, &mut meddler, from).await,
            None => line.close(POLICY).await,
        }
    })
}

/// How a connection begins.
struct Start {
    /// Frames before the first event.
    frames: Vec<Bytes>,
    /// The first event wanted; `None` if the connection is refused.
    from: Option<u64>,
}

fn start(shared: &Shared, cursor: Option<&str>, meddler: &mut Meddler) -> Start {
    let state = shared.state();
    let last = state.backlog.last_seq();
    let Some(text) = cursor else {
        return Start {
            frames: Vec::new(),
            from: Some(last + 1),
        };
    };
    let Ok(cursor) = text.parse::<u64>() else {
        return refused("InvalidRequest", "cursor is not a sequence number");
    };
    let notices = shared.options.cursor_notices;
    if meddler.strikes(Fault::Future) || (cursor > last && notices) {
        return refused("FutureCursor", "cursor is in the future");
    }
    let from = cursor + u64::from(!shared.options.cursor_inclusive);
    if meddler.strikes(Fault::Outdated) {
        // As if the relay kept only the newer half of what is asked for.
        return outdated(from + last.saturating_sub(from) / 2);
    }
    if state.backlog.lacks(from) && notices {
        return outdated(state.backlog.first_seq());
    }
    Start {
        frames: Vec::new(),
        from: Some(from),
    }
}

fn refused(error: &str, message: &str) -> Start {
    let message = Some(message);
    Start {
        frames: vec![Frame::Error { error, message }.to_bytes().into()],
        from: None,
    }
}

fn outdated(from: u64) -> Start {
    let info = Frame::Info(InfoEvent {
        name: "OutdatedCursor",
        message: Some("requested cursor exceeded limit, possibly missing events"),
    });
    Start {
        frames: vec![info.to_bytes().into()],
        from: Some(from),
    }
}

/// Sends events until somebody hangs up.
async fn stream(shared: &Shared, line: &mut Line, meddler: &mut Meddler, mut from: u64) {
    let mut tip = shared.tip();
    let mut stopping = shared.stopping();
    let mut first = true;
    loop {
        tip.borrow_and_update();
        let (batch, too_slow) = {
            let state = shared.state();
            let too_slow = !first && state.backlog.lacks(from);
            (state.backlog.since(from, BATCH_MAX), too_slow)
        };
        first = false;
        if too_slow {
            let error = Frame::Error {
                error: "ConsumerTooSlow",
                message: Some("events wanted next have left the backlog"),
            };
            // The client may be gone; there is nobody else to tell.
            line.send(error.to_bytes().into()).await.ok();
            return line.close(POLICY).await;
        }
        shared.relay.take_orders(meddler);
        let deeds = deeds(&batch, meddler, |event| Some(event.frame.clone()));
        if line.perform(deeds, meddler).await.is_err() {
            return;
        }
        if let Some(event) = batch.last() {
            from = event.seq + 1;
            continue;
        }
        tokio::select! {
            changed = tip.changed() => if changed.is_err() { return },
            () = line.hung_up() => return,
            () = set(&mut stopping) => return line.close(AWAY).await,
        }
    }
}

/// What the socket is to do for these events, told by `message`.
pub(super) fn deeds(
    batch: &[Arc<SeqEvent>],
    meddler: &mut Meddler,
    mut message: impl FnMut(&SeqEvent) -> Option<Bytes>,
) -> Vec<Deed> {
    let mut deeds = Vec::new();
    for event in batch {
        if let Some(message) = message(event) {
            meddler.pass(event, message, &mut deeds);
        }
    }
    meddler.flush(&mut deeds);
    deeds
}

/// The connection is over.
#[derive(Debug)]
pub(super) struct Over;

/// One WebSocket, its cable, and word of the client's hanging up.
pub(super) struct Line {
    sink: SplitSink<WebSocket, Message>,
    knife: Knife,
    hung_up: watch::Receiver<bool>,
    text: bool,
}

impl Line {
    pub(super) fn new(socket: WebSocket, knife: Knife) -> Self {
        let (sink, mut source) = socket.split();
        let (gone, hung_up) = watch::channel(false);
        tokio::spawn(async move {
            // Clients of these streams have nothing to say; reading answers
            // their pings and notices when they leave.
            while let Some(Ok(_)) = source.next().await {}
            gone.send_replace(true);
        });
        Self {
            sink,
            knife,
            hung_up,
            text: false,
        }
    }

    /// Messages are text from now on.
    pub(super) fn speak_text(&mut self) {
        self.text = true;
    }

    pub(super) async fn send(&mut self, bytes: Bytes) -> Result<(), Over> {
        let message = match self.text {
            true => Message::Text(bytes.try_into().map_err(|_| Over)?),
            false => Message::Binary(bytes),
        };
        self.sink.send(message).await.map_err(|_| Over)
    }

    pub(super) async fn close(&mut self, code: u16) {
        let frame = CloseFrame {
            code,
            reason: "".into(),
        };
        // Whether the client still hears it is of no matter.
        self.sink.send(Message::Close(Some(frame))).await.ok();
        self.sink.close().await.ok();
    }

    /// Returns when the client has gone.
    pub(super) async fn hung_up(&mut self) {
        set(&mut self.hung_up).await;
    }

    /// Does the deeds in order.
    pub(super) async fn perform(
        &mut self,
        deeds: Vec<Deed>,
        meddler: &mut Meddler,
    ) -> Result<(), Over> {
        for deed in deeds {
            match deed {
                Deed::Send(bytes) => self.send(bytes).await?,
                Deed::Pause { ms } => {
                    tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
                }
                Deed::End => {
                    if meddler.below(2) == 0 {
                        self.close(AWAY).await;
                    }
                    self.knife.cut_after(0);
                    return Err(Over);
                }
                Deed::Tear(bytes) => {
                    let most = bytes.len().max(2) as u64 - 1;
                    self.knife.cut_after(1 + meddler.below(most));
                    self.send(bytes).await.ok(); // it cannot arrive
                    return Err(Over);
                }
            }
        }
        Ok(())
    }
}
