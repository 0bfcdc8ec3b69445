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
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{ConnectInfo, Query, State};
use axum::response::Response;
use axum::routing::get;
use record::event::{Frame, InfoEvent};

use crate::faults::{Fault, Meddler};
use crate::wire::Knife;

use super::line::{Encoding, Line, POLICY, Talk};
use super::xrpc::Params;
use super::{Moment, Shared};

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
        shared.relay.take_orders(&mut meddler, Moment::Connecting);
        let mut line = Line::new(socket, knife, Encoding::Binary);
        let start = start(&shared, cursor.as_deref(), &mut meddler);
        for frame in start.frames {
            if line.send(frame).await.is_err() {
                return;
            }
        }
        match start.from {
            Some(from) => {
                let talk = Talk {
                    tell: Box::new(|event| vec![event.frame.clone()]),
                    too_slow: Some(too_slow()),
                };
                line.stream(&shared, &shared.relay, meddler, from, talk)
                    .await;
            }
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

fn too_slow() -> Bytes {
    let error = Frame::Error {
        error: "ConsumerTooSlow",
        message: Some("events wanted next have left the backlog"),
    };
    error.to_bytes().into()
}
