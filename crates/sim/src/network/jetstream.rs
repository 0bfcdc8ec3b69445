//! Jetstream: the same events as JSON, in both versions of its protocol.
//!
//! In:    a WebSocket with filters, a cursor, and a wish for compression.
//! Out:   one message per operation wanted.
//! Never: a silent default for a filter that cannot be met: such a request is
//!        refused before the upgrade.
//!
//! Version 1 is `/subscribe`: cursors are microseconds, one below the window is
//! clamped without a word, one from the future starts at the tip. Version 2 is
//! `network.bsky.jetstream.subscribeEvents`: cursors are numbers, inclusive;
//! 10¹⁵ and above are microseconds.

use std::collections::HashSet;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{ConnectInfo, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::event::SeqEvent;
use crate::faults::Fault;
use crate::wire::Knife;

use super::dictionary::dictionary;
use super::line::{Encoding, Line, Talk};
use super::telling::{KINDS, NUMBERS_PER_EVENT, Told, info, v1, v2};
use super::xrpc::{Params, Refusal};
use super::{Moment, Shared};

const COLLECTIONS_MAX: usize = 100;
const DIDS_MAX: usize = 10_000;
/// Cursors of version 2 from here on are microseconds.
const MICROSECONDS_FROM: u64 = 1_000_000_000_000_000;
/// The WebSocket subprotocol of version 2.
const SUBPROTOCOL: &str = "xrpc.v1.json";

type Pairs = Query<Vec<(String, String)>>;

/// Both streams, and the dictionary.
pub(super) fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route("/subscribe", get(subscribe_v1))
        .route("/dictionary", get(get_dictionary))
        .route(
            "/xrpc/network.bsky.jetstream.subscribeEvents",
            get(subscribe_v2),
        )
        .route(
            "/xrpc/network.bsky.jetstream.getZstdDictionary",
            get(get_dictionary),
        )
}

/// Which messages a client wants.
#[derive(Debug, Default)]
struct Filter {
    kinds: Vec<String>,
    collections: HashSet<String>,
    prefixes: Vec<String>,
    dids: HashSet<String>,
    /// Longest message wanted; 0 for any.
    bytes_max: usize,
    /// The first number wanted, in version 2.
    seq_min: u64,
}

impl Filter {
    fn read(params: &Params, collections: &str, dids: &str) -> Result<Self, Refusal> {
        let mut filter = Self::default();
        for wanted in params.all(collections) {
            match wanted.strip_suffix(".*") {
                Some(prefix) if is_prefix(prefix) => filter.prefixes.push(format!("{prefix}.")),
                None if record::ids::Nsid::is_valid(wanted) => {
                    filter.collections.insert(wanted.to_owned());
                }
                _ => return Err(Refusal::invalid(format!("invalid collection {wanted}"))),
            }
        }
        if filter.collections.len() + filter.prefixes.len() > COLLECTIONS_MAX {
            return Err(Refusal::invalid("too many collections"));
        }
        for wanted in params.all(dids) {
            if !record::ids::Did::is_valid(wanted) {
                return Err(Refusal::invalid(format!("invalid DID {wanted}")));
            }
            filter.dids.insert(wanted.to_owned());
        }
        if filter.dids.len() > DIDS_MAX {
            return Err(Refusal::invalid("too many DIDs"));
        }
        if let Some(text) = params.get("maxMessageSizeBytes") {
            filter.bytes_max = text
                .parse()
                .map_err(|_| Refusal::invalid("maxMessageSizeBytes is not a number"))?;
        }
        Ok(filter)
    }

    fn wants(&self, did: &str, told: &Told<'_>) -> bool {
        let kind = self.kinds.is_empty() || self.kinds.iter().any(|kind| kind == told.kind);
        let any = self.collections.is_empty() && self.prefixes.is_empty();
        let collection = told.collection.is_none_or(|collection| {
            any || self.collections.contains(collection)
                || self.prefixes.iter().any(|it| collection.starts_with(it))
        });
        let account = self.dids.is_empty() || self.dids.contains(did);
        let size = self.bytes_max == 0 || told.text.len() <= self.bytes_max;
        kind && collection && account && size && told.seq >= self.seq_min
    }

    fn talk(self, tell: fn(&SeqEvent) -> Vec<Told<'_>>) -> Talk {
        Talk {
            tell: Box::new(move |event| {
                tell(event)
                    .into_iter()
                    .filter(|told| self.wants(&event.did, told))
                    .map(|told| Bytes::from(told.text))
                    .collect()
            }),
            too_slow: None,
        }
    }
}

/// A prefix such as `app.bsky`: the beginning of an NSID at a dot.
fn is_prefix(prefix: &str) -> bool {
    record::ids::Nsid::is_valid(&format!("{prefix}.x.x"))
}

fn zstd() -> Result<Encoding, Refusal> {
    let compressor = dictionary().compressor();
    compressor
        .map(Encoding::Zstd)
        .map_err(|_| Refusal::invalid("compression is not to be had"))
}

async fn subscribe_v1(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(knife): ConnectInfo<Knife>,
    Query(pairs): Pairs,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Refusal> {
    let params = Params::new(pairs);
    let filter = Filter::read(&params, "wantedCollections", "wantedDids")?;
    let says = |name: header::HeaderName, word: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.is_some_and(|value| value.contains(word))
    };
    let compress = params.get("compress") == Some("true")
        || says(header::HeaderName::from_static("socket-encoding"), "zstd");
    if compress && says(header::SEC_WEBSOCKET_EXTENSIONS, "permessage-deflate") {
        return Err(Refusal::invalid("compressed twice"));
    }
    let cursor = match params.get("cursor") {
        None => None,
        Some(text) => Some(
            text.parse::<i64>()
                .map_err(|_| Refusal::invalid("cursor is not a number"))?,
        ),
    };
    let encoding = if compress { zstd()? } else { Encoding::Text };
    let from = {
        let backlog = &shared.state().backlog;
        cursor.map_or(backlog.last_seq() + 1, |cursor| backlog.seq_at(cursor))
    };
    let talk = filter.talk(v1);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let meddler = shared.jetstream.meddler();
        let mut line = Line::new(socket, knife, encoding);
        line.stream(&shared, &shared.jetstream, meddler, from, talk)
            .await;
    }))
}

/// Where a subscription of version 2 begins.
struct Start {
    /// The event, by the relay's number.
    from: u64,
    /// The first message, by its own number.
    seq_min: u64,
    notice: Option<String>,
}

fn start_v2(shared: &Shared, cursor: Option<u64>, outdated: bool) -> Result<Start, Refusal> {
    let state = shared.state();
    let backlog = &state.backlog;
    let tip = backlog.last_seq() + 1;
    let begin = |from, notice| {
        let seq_min = 0;
        Start {
            from,
            seq_min,
            notice,
        }
    };
    let Some(cursor) = cursor else {
        return Ok(begin(tip, None));
    };
    if cursor >= MICROSECONDS_FROM {
        let from = backlog.seq_at(cursor as i64);
        let clamped = from == backlog.first_seq() && backlog.lacks(1);
        let notice = clamped.then(|| info("OutdatedCursor", &format!("resumed from {from}")));
        return Ok(begin(from, notice));
    }
    let from = cursor / NUMBERS_PER_EVENT;
    if outdated || backlog.lacks(from) {
        let floor = backlog.first_seq() * NUMBERS_PER_EVENT;
        return Err(Refusal::new("CursorTooOld", format!("floor is {floor}")));
    }
    if from > tip {
        let notice = info("FutureCursor", "started at the live tip");
        return Ok(begin(tip, Some(notice)));
    }
    Ok(Start {
        from,
        seq_min: cursor,
        notice: None,
    })
}

fn filter_v2(params: &Params) -> Result<Filter, Refusal> {
    for name in [
        "wantedCollections",
        "wantedDids",
        "compress",
        "requireHello",
    ] {
        if params.get(name).is_some() {
            let message = format!("{name} is a parameter of version 1");
            return Err(Refusal::invalid(message));
        }
    }
    let mut filter = Filter::read(params, "collections", "dids")?;
    for kind in params.all("kinds") {
        if !KINDS.contains(&kind) {
            return Err(Refusal::invalid(format!("unknown kind {kind}")));
        }
        filter.kinds.push(kind.to_owned());
    }
    let some = !filter.collections.is_empty() || !filter.prefixes.is_empty();
    let commits = filter.kinds.is_empty() || filter.kinds.iter().any(|kind| kind == "commit");
    if some && !commits {
        return Err(Refusal::invalid("collections without kind commit"));
    }
    Ok(filter)
}

fn encoding_v2(params: &Params) -> Result<Encoding, Refusal> {
    let Some(text) = params.get("zstdDictionary") else {
        return Ok(Encoding::Text);
    };
    let current = dictionary().id();
    if text.parse() != Ok(current) {
        let message = format!("current dictionary is {current}");
        return Err(Refusal::new("UnknownZstdDictionary", message));
    }
    zstd()
}

async fn subscribe_v2(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(knife): ConnectInfo<Knife>,
    Query(pairs): Pairs,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Refusal> {
    let params = Params::new(pairs);
    let mut filter = filter_v2(&params)?;
    let encoding = encoding_v2(&params)?;
    let cursor = match params.get("cursor") {
        None => None,
        Some(text) => Some(
            text.parse::<u64>()
                .map_err(|_| Refusal::invalid("cursor is not a number"))?,
        ),
    };
    let mut meddler = shared.jetstream.meddler();
    shared
        .jetstream
        .take_orders(&mut meddler, Moment::Connecting);
    let outdated = cursor.is_some() && meddler.strikes(Fault::Outdated);
    let start = start_v2(&shared, cursor, outdated)?;
    filter.seq_min = start.seq_min;
    let talk = filter.talk(v2);
    let upgrade = upgrade.protocols([SUBPROTOCOL]);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let mut line = Line::new(socket, knife, encoding);
        if let Some(notice) = start.notice
            && line.send(notice.into()).await.is_err()
        {
            return;
        }
        line.stream(&shared, &shared.jetstream, meddler, start.from, talk)
            .await;
    }))
}

async fn get_dictionary(Query(pairs): Pairs) -> Result<Response, Refusal> {
    let params = Params::new(pairs);
    let dictionary = dictionary();
    let id = dictionary.id().to_string();
    if params.get("id").is_some_and(|asked| asked != id) {
        return Err(Refusal {
            status: StatusCode::NOT_FOUND,
            error: "DictionaryNotFound",
            message: format!("current dictionary is {id}"),
        });
    }
    let head = [
        ("content-type", "application/octet-stream".to_owned()),
        ("x-zstd-dictionary-id", id),
    ];
    Ok((head, dictionary.bytes()).into_response())
}
