//! Tap: the same events as JSON over a channel on which each is acknowledged.
//!
//! In:    a WebSocket at `/channel`, and `{"type":"ack","id":…}` over it.
//! Out:   one message per operation, again after a new connection until it is
//!        acknowledged.
//! Never: a message of an account while one before it is unacknowledged,
//!        except among those that are not live: handles, standings, and what is
//!        from before the network began. Those come newest first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};

use crate::event::{Body, SeqEvent, word};
use crate::model::Standing;

use super::pds::value;
use super::telling::NUMBERS_PER_EVENT;
use super::xrpc::with;
use super::{Shared, lock, set};

/// Events looked at in one turn.
const LOOK_MAX: usize = 512;

/// What the clients have acknowledged.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    acked: BTreeSet<u64>,
    /// How often each message was sent.
    sent: BTreeMap<u64, u64>,
    /// Acknowledgements for what was never sent.
    strange: u64,
}

impl Outbox {
    /// Messages acknowledged.
    pub(super) fn acked(&self) -> usize {
        self.acked.len()
    }

    /// Messages sent more than once.
    pub(super) fn repeated(&self) -> usize {
        self.sent.values().filter(|times| **times > 1).count()
    }

    /// Acknowledgements for what was never sent.
    pub(super) fn strange(&self) -> u64 {
        self.strange
    }
}

/// The channel.
pub(super) fn router() -> Router<Arc<Shared>> {
    Router::new().route("/channel", get(channel))
}

async fn channel(State(shared): State<Arc<Shared>>, upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(move |socket| serve(shared, socket))
}

async fn serve(shared: Arc<Shared>, mut socket: WebSocket) {
    let (mut tip, mut stopping) = (shared.tip(), shared.stopping());
    let mut cut = shared.tap_cuts.subscribe();
    cut.mark_unchanged();
    let mut flight = Flight::default();
    loop {
        for (id, text) in flight.due(&shared) {
            if socket.send(Message::text(text)).await.is_err() {
                return;
            }
            *lock(&shared.tap).sent.entry(id).or_default() += 1;
        }
        tokio::select! {
            heard = socket.recv() => match heard {
                Some(Ok(Message::Text(text))) => flight.hear(&shared, &text),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
            _ = tip.changed() => {}
            _ = cut.changed() => return,
            () = set(&mut stopping) => return,
        }
    }
}

/// One connection's messages under way.
#[derive(Debug, Default)]
struct Flight {
    /// By account: what is under way, and whether it came live.
    under_way: HashMap<Arc<str>, BTreeMap<u64, bool>>,
    whose: HashMap<u64, Arc<str>>,
}

impl Flight {
    /// What may be sent now.
    fn due(&mut self, shared: &Shared) -> Vec<(u64, String)> {
        let state = shared.state();
        let outbox = lock(&shared.tap);
        let mut due = Vec::new();
        let mut from = 0;
        loop {
            let events = state.backlog.since(from, LOOK_MAX);
            let Some(last) = events.last() else { break };
            from = last.seq + 1;
            for event in &events {
                for (id, live, body) in tell(event, event.seq > shared.tap_live_after) {
                    if outbox.acked.contains(&id) {
                        continue;
                    }
                    let theirs = self.under_way.entry(Arc::clone(&event.did)).or_default();
                    let held = theirs.contains_key(&id)
                        || theirs.values().any(|live| *live)
                        || (live && !theirs.is_empty());
                    // Whoever waits holds up all that his account says later.
                    theirs.insert(id, live);
                    if !held {
                        self.whose.insert(id, Arc::clone(&event.did));
                        due.push((id, body().to_string()));
                    }
                }
            }
        }
        drop((state, outbox));
        // What was not sent is looked at anew in the next turn.
        for theirs in self.under_way.values_mut() {
            theirs.retain(|id, _| self.whose.contains_key(id));
        }
        due.reverse();
        due
    }

    fn hear(&mut self, shared: &Shared, text: &str) {
        let said: Value = serde_json::from_str(text).unwrap_or_default();
        let id = said.get("id").and_then(Value::as_u64);
        let Some(id) = id.filter(|_| said.get("type") == Some(&json!("ack"))) else {
            lock(&shared.tap).strange += 1;
            return;
        };
        let mut outbox = lock(&shared.tap);
        if !outbox.sent.contains_key(&id) {
            outbox.strange += 1;
            return;
        }
        outbox.acked.insert(id);
        if let Some(did) = self.whose.remove(&id)
            && let Some(theirs) = self.under_way.get_mut(&did)
        {
            theirs.remove(&id);
        }
    }
}

/// An event's messages: the number of each, whether it is live, and its text when it is wanted.
fn tell(event: &SeqEvent, live: bool) -> impl Iterator<Item = (u64, bool, impl Fn() -> Value)> {
    let (count, live) = match &event.body {
        // A Tap repairs by itself and tells only records.
        Body::Sync { .. } => (0, live),
        Body::Identity { .. } | Body::Account { .. } => (1, false),
        Body::Commit { ops, .. } => (ops.len(), live),
    };
    let first = event.seq * NUMBERS_PER_EVENT;
    (first..)
        .take(count)
        .enumerate()
        .map(move |(place, id)| (id, live, move || message(event, place, id, live)))
}

fn message(event: &SeqEvent, place: usize, id: u64, live: bool) -> Value {
    let identity = |handle: &str, active: bool, status: &str| {
        let identity =
            json!({ "did": &*event.did, "handle": handle, "is_active": active, "status": status });
        json!({ "id": id, "type": "identity", "identity": identity })
    };
    match &event.body {
        Body::Sync { .. } => Value::Null,
        Body::Identity { handle } => identity(handle, true, "active"),
        Body::Account { standing } => identity(
            "",
            *standing == Standing::Active,
            standing.status().unwrap_or("active"),
        ),
        Body::Commit { rev, ops, .. } => {
            let Some(operation) = ops.get(place) else {
                return Value::Null;
            };
            let told = json!({
                "live": live, "did": &*event.did, "rev": rev, "collection": operation.collection,
                "rkey": operation.rkey, "action": word(operation.action),
            });
            let (cid, record) = match &operation.record {
                Some((cid, block)) => (Some(cid.to_string()), Some(value(block))),
                None => (None, None),
            };
            let told = with(with(told, "cid", cid), "record", record);
            json!({ "id": id, "type": "record", "record": told })
        }
    }
}
