//! Health, status and metrics: what an operator and his machines ask.

use std::sync::atomic::Ordering;

use serde_json::json;

use super::error::XrpcError;
use super::params::Params;
use super::{Answer, Server};

/// `GET /xrpc/_health`: the process answers and its store does too.
pub(super) fn health(server: &Server) -> Result<Answer, XrpcError> {
    server.store.head()?;
    Ok(Answer::json(
        json!({"version": env!("CARGO_PKG_VERSION"), "status": "ok"}).to_string(),
    ))
}

/// `{ns}.getCursor`: how far the records served have come.
pub(super) fn cursor(server: &Server, _: &Params) -> Result<Answer, XrpcError> {
    let event = server.status.event_us.load(Ordering::Relaxed);
    if event == 0 {
        return Ok(Answer::json("{}".to_owned()));
    }
    let seconds_ago = (server.clock.now_us() - event).max(0) / 1_000_000;
    Ok(Answer::json(
        json!({"time_us": event, "date": record::datetime::format_us(event), "seconds_ago": seconds_ago})
            .to_string(),
    ))
}

/// Accounts due for a resync that `/status` counts before it stops counting.
const RESYNCS_COUNTED_MAX: usize = 1000;

/// `GET /status`: counts, lag, backlog.
pub(super) fn status(server: &Server) -> Result<Answer, XrpcError> {
    let counts = server.store.counts()?;
    let accounting = server.store.accounting(None)?;
    let cursors: serde_json::Map<String, serde_json::Value> = server
        .store
        .cursors()?
        .into_iter()
        .map(|(name, cursor)| (name, json!(cursor)))
        .collect();
    let due = server.store.broken_accounts(RESYNCS_COUNTED_MAX)?.len();
    let streams: Vec<_> = server
        .status
        .streams
        .lock()
        .iter()
        .map(|(name, kind)| json!({"name": name, "kind": kind.name(), "loss": kind.loss()}))
        .collect();
    let now = server.clock.now_us();
    let load = |number: &std::sync::atomic::AtomicI64| number.load(Ordering::Relaxed);
    let event = load(&server.status.event_us);
    let total: i64 = counts.records.iter().map(|(_, records)| records).sum();
    let collections: Vec<_> = counts
        .records
        .iter()
        .map(|(collection, records)| json!({"collection": collection, "records": records}))
        .collect();
    Ok(Answer::json(
        json!({
            "status": "ok",
            "total_records": total,
            "collections": collections,
            "accounts": counts.accounts,
            "dead_letters": counts.dead,
            "held": counts.held,
            "accounting": accounting,
            "ingestion": {
                "connected": server.status.connected.load(Ordering::Relaxed),
                "cursors": cursors,
                "streams": streams,
                "cursor": (event != 0).then_some(event),
                "event_us": event,
                "date": (event != 0).then(|| record::datetime::format_us(event)),
                "seconds_ago": (event != 0).then(|| (now - event).max(0) / 1_000_000),
                "lag_seconds": server.status.lag_seconds(),
                "rate": server.status.rate(now),
                "pending": load(&server.status.pending),
                "frames": server.status.frames.load(Ordering::Relaxed),
            },
            "freshness": {
                "last_event_at": (event != 0).then(|| record::datetime::format_us(event)),
                "seconds_ago": (event != 0).then(|| (now - event).max(0) / 1_000_000),
            },
            "backfill": {
                "state": backfill_state(server, due),
                "running": server.status.listing.load(Ordering::Relaxed),
                "listed": server.status.listed.load(Ordering::Relaxed),
                "adopted": server.status.adopted.load(Ordering::Relaxed),
            },
            "timelines": timelines(server),
            "resync": {
                "due": due,
                "running": load(&server.status.resyncing),
                "done": server.status.resynced.load(Ordering::Relaxed),
            },
        })
        .to_string(),
    ))
}

/// What is in memory for feeds; null if it is given none.
fn timelines(server: &Server) -> serde_json::Value {
    let Some(fanout) = &server.fanout else {
        return serde_json::Value::Null;
    };
    let stats = fanout.stats();
    json!({
        "readers": stats.readers,
        "entries": stats.entries,
        "records": stats.records,
        "bytes": stats.reader_bytes,
        "fanouts": stats.fanouts,
        "pushed": stats.pushes,
        "pulled": stats.pulled,
        "position": fanout.position(),
    })
}

/// How far accounts have been found and fetched, in the words that clients know.
fn backfill_state(server: &Server, due: usize) -> &'static str {
    let status = &server.status;
    let listed = status.listed.load(Ordering::Relaxed) > 0;
    match (status.listing.load(Ordering::Relaxed), due > 0, listed) {
        (true, _, _) => "running",
        (false, true, _) => "incomplete",
        (false, false, true) => "complete",
        (false, false, false) => "not_started",
    }
}

/// `GET /page/readers`: some readers of a feed, to choose from; not of one that needs a token.
pub(super) fn readers(server: &Server) -> Result<Answer, XrpcError> {
    let mut feeds = Vec::new();
    let direct = server.direct.as_ref();
    let guarded = |name: &str| direct.is_some_and(|direct| direct.guards(name));
    let all = server.plan.feeds.iter();
    for feed in all.filter(|feed| !guarded(&feed.name)) {
        let Some(source) = feed.follows.first() else {
            continue;
        };
        let readers: Vec<String> = server
            .store
            .followers(*source, 0, 100)?
            .into_iter()
            .map(|(_, did)| did)
            .collect();
        feeds.push(json!({"feed": feed.name, "readers": readers}));
    }
    Ok(Answer::json(
        json!({"namespace": server.namespace, "feeds": feeds}).to_string(),
    ))
}
