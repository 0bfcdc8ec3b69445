//! Health, status and metrics: what an operator and his machines ask.

use replicate::log::Log;
use serde_json::{Map, Value, json};

use super::error::XrpcError;
use super::methods::Auth;
use super::operator::Operator;
use super::params::Params;
use super::{Answer, Server};
use crate::clock::Micros;
use crate::condition::{self, Problem};
use crate::config::method;
use crate::status::heartbeat::Progress;
use crate::store::StoreError;
use crate::store::plan::FeedPlan;

/// `GET /health`: the process answers. Whether it is of use is what `/ready` says.
pub(super) fn health() -> serde_json::Value {
    json!({"version": env!("CARGO_PKG_VERSION"), "status": "ok"})
}

/// Everything that is wrong now. Asks memory only.
fn problems(operator: &Operator) -> Vec<Problem> {
    let writing = operator.store.writing();
    operator.status.problems(operator.clock.now_us(), &writing)
}

fn shown(problems: &[Problem], now_us: Micros) -> Vec<condition::Shown> {
    problems
        .iter()
        .map(|problem| problem.shown(now_us))
        .collect()
}

/// `GET /ready`: whether the process is ready, and every reason why not. Asks memory only, so a
/// store that does not answer cannot delay it.
pub(super) fn ready(operator: &Operator) -> (bool, serde_json::Value) {
    let problems = problems(operator);
    let ready = condition::is_ready(&problems);
    let shown = shown(&problems, operator.clock.now_us());
    let body = json!({"ready": ready, "problems": shown, "loading": loading(operator)});
    (ready, body)
}

/// The text of `/metrics`. Asks memory only.
pub(super) fn metrics(operator: &Operator) -> String {
    let writing = operator.store.writing();
    operator.status.scrape(operator.clock.now_us(), &writing)
}

/// Accounts due for a resync that `/status` counts before it stops counting.
const RESYNCS_COUNTED_MAX: usize = 1000;

/// `GET /status`: what is wrong, then counts, lag and backlog. Where the store does not answer,
/// what only it knows is left out, and `store_error` says why.
pub(super) fn status(operator: &Operator) -> Answer {
    let now_us = operator.clock.now_us();
    let problems = problems(operator);
    let mut all = Map::new();
    let mut set = |name: &str, value: Value| drop(all.insert(name.to_owned(), value));
    let ready = condition::is_ready(&problems);
    set("status", json!(if ready { "ok" } else { "not ready" }));
    set("ready", json!(ready));
    set("problems", json!(shown(&problems, now_us)));
    set("timelines", timelines(operator));
    match operator.status.log().map(Log::overview).transpose() {
        Ok(log) => set("log", json!(log)),
        Err(error) => set("log_error", json!(error.to_string())),
    }
    let mut ingestion = operator.status.ingestion(now_us).shown(now_us);
    if let Some(fields) = ingestion.as_object_mut() {
        fields.insert("rate".into(), json!(operator.status.rate(now_us)));
    }
    match stored(operator) {
        Ok(Stored { fields, cursors }) => {
            for (name, value) in fields {
                set(&name, value);
            }
            if let Some(ingestion) = ingestion.as_object_mut() {
                ingestion.insert("cursors".into(), cursors);
            }
        }
        Err(error) => set("store_error", json!(error.to_string())),
    }
    set(
        "freshness",
        json!({"last_event_at": ingestion.get("date"), "seconds_ago": ingestion.get("seconds_ago")}),
    );
    set("ingestion", ingestion);
    Answer::json(Value::Object(all).to_string())
}

/// What only the store knows.
struct Stored {
    fields: Map<String, Value>,
    cursors: Value,
}

fn stored(operator: &Operator) -> Result<Stored, StoreError> {
    let counts = operator.store.counts()?;
    let accounting = operator.store.accounting(None)?;
    let cursors: Map<String, Value> = operator
        .store
        .cursors()?
        .into_iter()
        .map(|(name, cursor)| (name, json!(cursor)))
        .collect();
    let due = operator.store.broken_accounts(RESYNCS_COUNTED_MAX)?.len();
    let total: i64 = counts.records.iter().map(|(_, records)| records).sum();
    let collections: Vec<_> = counts
        .records
        .iter()
        .map(|(collection, records)| json!({"collection": collection, "records": records}))
        .collect();
    let progress = operator.status.progress();
    let fields = [
        ("total_records", json!(total)),
        ("collections", json!(collections)),
        ("accounts", json!(counts.accounts)),
        ("dead_letters", json!(counts.dead)),
        ("held", json!(counts.held)),
        ("unmerged", json!(counts.unmerged)),
        ("accounting", json!(accounting)),
        (
            "backfill",
            json!({
                "state": backfill_state(progress, due),
                "running": progress.listing,
                "listed": progress.listed,
                "adopted": progress.adopted,
            }),
        ),
        (
            "resync",
            json!({
                "due": due,
                "running": progress.resyncing,
                "done": progress.resynced,
            }),
        ),
    ];
    let fields = fields.map(|(name, value)| (name.to_owned(), value));
    Ok(Stored {
        fields: fields.into_iter().collect(),
        cursors: Value::Object(cursors),
    })
}

/// How far timelines are loaded after a start; null once they answer. Until then the store does,
/// so this is no reason not to be ready.
fn loading(operator: &Operator) -> serde_json::Value {
    let fanout = operator.fanout.as_ref();
    let progress = fanout.and_then(|fanout| fanout.progress());
    progress.map_or(serde_json::Value::Null, |progress| {
        json!({
            "records": progress.records,
            "expected": progress.expected,
            "percent": progress.percent(),
        })
    })
}

/// What is in memory for feeds; null if it is given none.
fn timelines(operator: &Operator) -> serde_json::Value {
    let Some(fanout) = &operator.fanout else {
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
        "loading": loading(operator),
    })
}

/// How far accounts have been found and fetched, in the words that clients know.
fn backfill_state(progress: Progress, due: usize) -> &'static str {
    match (progress.listing, due > 0, progress.listed > 0) {
        (true, _, _) => "running",
        (false, true, _) => "incomplete",
        (false, false, true) => "complete",
        (false, false, false) => "not_started",
    }
}

/// `{ns}.getCursor`: how far the records served have come.
pub(super) fn cursor(server: &Server, _: &Params) -> Result<Answer, XrpcError> {
    let now_us = server.clock.now_us();
    let Some(event) = server.status.ingestion(now_us).event_us() else {
        return Ok(Answer::json("{}".to_owned()));
    };
    let seconds_ago = (now_us - event).max(0) / 1_000_000;
    Ok(Answer::json(
        json!({"time_us": event, "date": record::datetime::format_us(event), "seconds_ago": seconds_ago})
            .to_string(),
    ))
}

/// `GET /page/readers`: each feed, how the page reads it, and some readers to choose from; none of a feed
/// that needs a token.
pub(super) fn readers(server: &Server) -> Result<Answer, XrpcError> {
    let mut feeds = Vec::new();
    for feed in &server.plan.feeds {
        let token = token(server, feed);
        let source = feed.follows.first().filter(|_| token.is_none());
        let followers = match source {
            Some(source) => server.store.followers(*source, 0, 100)?,
            None => Vec::new(),
        };
        let readers: Vec<String> = followers.into_iter().map(|(_, did)| did).collect();
        let mut shown = Map::new();
        shown.insert("feed".into(), feed.name.as_str().into());
        shown.insert("readers".into(), readers.into());
        if let Some(token) = token {
            shown.insert("token".into(), token.into());
        }
        if let Some(merged) = &feed.merged {
            shown.insert("subject".into(), merged.shown.subject.as_str().into());
            shown.insert("union".into(), merged.shown.union.as_str().into());
        }
        feeds.push(shown);
    }
    Ok(Answer::json(
        json!({"namespace": server.namespace, "feeds": feeds}).to_string(),
    ))
}

/// Whose token a feed is read with: the app's or its readers', one of service-auth, or none.
fn token(server: &Server, feed: &FeedPlan) -> Option<&'static str> {
    let direct = server.direct.as_ref();
    if direct.is_some_and(|direct| direct.guards(&feed.name)) {
        return Some("app");
    }
    let method = match feed.merged {
        Some(_) => method::Method::GetFollowingFeed,
        None => method::Method::GetFeed,
    };
    let nsid = format!("{}.{}", server.namespace, method.name());
    let mut table = server.table.iter();
    let found = table.find(|method| method.nsid.as_deref() == Some(nsid.as_str()))?;
    (found.auth == Auth::Service).then_some("service")
}
