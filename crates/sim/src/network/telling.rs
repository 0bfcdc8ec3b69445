//! Events as Jetstream tells them: one JSON message per operation.
//!
//! In:    an event of the world.
//! Out:   its messages in version 1 or version 2, each with the collection it
//!        is about, for the filter.
//! Never: a message built from our own frames: bodies are the source.

use std::borrow::Cow;

use record::cid::Cid;
use record::event::{Action, Frame};
use record::value::Value;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};

use crate::clock;
use crate::event::{Body, Operation, SeqEvent, word};
use crate::model::Standing;

use super::xrpc::with;

/// Version 2 numbers every operation; the relay numbers commits. A commit has
/// at most 200 operations, so its number and theirs fit one another so.
pub(super) const NUMBERS_PER_EVENT: u64 = 256;

/// The kinds of version 2.
pub(super) const KINDS: [&str; 4] = ["commit", "identity", "account", "sync"];

/// One message.
#[derive(Debug)]
pub(super) struct Told<'e> {
    pub(super) kind: &'static str,
    /// The collection of a commit.
    pub(super) collection: Option<&'e str>,
    /// The number in version 2.
    pub(super) seq: u64,
    pub(super) text: String,
}

fn raw(operation: &Operation) -> Option<Box<RawValue>> {
    let (_, block) = operation.record.as_ref()?;
    Some(RawValue::from_string(super::pds::json(block)).expect("a record as JSON is JSON"))
}

fn cid(operation: &Operation) -> Option<String> {
    let cid: Option<Cid> = operation.record.as_ref().map(|(cid, _)| *cid);
    cid.map(|cid| cid.to_string())
}

#[derive(Serialize)]
struct CommitV1<'a> {
    did: &'a str,
    time_us: i64,
    kind: &'static str,
    commit: OperationV1<'a>,
}

#[derive(Serialize)]
struct OperationV1<'a> {
    rev: &'a str,
    operation: &'static str,
    collection: &'a str,
    rkey: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cid: Option<String>,
}

#[derive(Serialize)]
struct MessageV2<T> {
    #[serde(rename = "$type")]
    kind: &'static str,
    payload: T,
}

#[derive(Serialize)]
struct CommitV2<'a> {
    #[serde(rename = "$type")]
    kind: &'static str,
    seq: u64,
    did: &'a str,
    time: &'a str,
    #[serde(rename = "witnessedAt")]
    witnessed_at: &'a str,
    rev: &'a str,
    operation: &'static str,
    collection: &'a str,
    rkey: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cid: Option<String>,
}

fn line(message: &impl Serialize) -> String {
    serde_json::to_string(message).expect("plain data becomes JSON")
}

/// The upstream identity event.
fn identity(event: &SeqEvent, handle: &str) -> Json {
    json!({
        "did": &*event.did,
        "handle": handle,
        "seq": event.seq,
        "time": clock::micros(event.time_us),
    })
}

/// The upstream account event.
fn account(event: &SeqEvent, standing: Standing) -> Json {
    let body = json!({
        "active": standing == Standing::Active,
        "did": &*event.did,
        "seq": event.seq,
        "time": clock::micros(event.time_us),
    });
    with(body, "status", standing.status())
}

/// The upstream sync event, its blocks as `$bytes`.
fn sync(event: &SeqEvent) -> Option<Json> {
    let Ok(Frame::Sync(sync)) = Frame::parse(&event.frame) else {
        return None;
    };
    let blocks = Value::Bytes(Cow::Borrowed(sync.blocks));
    let mut text = String::new();
    record::json::to_json(&blocks, &mut text);
    let blocks: Json = serde_json::from_str(&text).ok()?;
    Some(json!({
        "did": sync.did,
        "rev": sync.rev.to_string(),
        "seq": event.seq,
        "time": sync.time,
        "blocks": blocks,
    }))
}

/// The event in version 1. A `#sync` is not told there.
pub(super) fn v1(event: &SeqEvent) -> Vec<Told<'_>> {
    let seq = event.seq * NUMBERS_PER_EVENT;
    let single = |kind: &'static str, body: Json| {
        let message = json!({
            "did": &*event.did,
            "time_us": event.time_us,
            "kind": kind,
            kind: body,
        });
        vec![Told {
            kind,
            collection: None,
            seq,
            text: message.to_string(),
        }]
    };
    match &event.body {
        Body::Sync { .. } => Vec::new(),
        Body::Identity { handle } => single("identity", identity(event, handle)),
        Body::Account { standing } => single("account", account(event, *standing)),
        Body::Commit { rev, ops, .. } => ops
            .iter()
            .map(|operation| Told {
                kind: "commit",
                collection: Some(&operation.collection),
                seq,
                text: line(&CommitV1 {
                    did: &event.did,
                    time_us: event.time_us,
                    kind: "commit",
                    commit: OperationV1 {
                        rev,
                        operation: word(operation.action),
                        collection: &operation.collection,
                        rkey: &operation.rkey,
                        record: raw(operation),
                        cid: cid(operation),
                    },
                }),
            })
            .collect(),
    }
}

/// The event in version 2.
pub(super) fn v2(event: &SeqEvent) -> Vec<Told<'_>> {
    let seq = event.seq * NUMBERS_PER_EVENT;
    let time = clock::micros(event.time_us);
    let single = |kind: &'static str, body: Json| {
        let payload = json!({
            "$type": format!("network.bsky.jetstream.subscribeEvents#{kind}"),
            "seq": seq,
            "did": &*event.did,
            "time": time,
            "witnessedAt": time,
            kind: body,
        });
        vec![Told {
            kind,
            collection: None,
            seq,
            text: envelope(&payload),
        }]
    };
    match &event.body {
        Body::Sync { .. } => sync(event).map_or_else(Vec::new, |body| single("sync", body)),
        Body::Identity { handle } => single("identity", identity(event, handle)),
        Body::Account { standing } => single("account", account(event, *standing)),
        Body::Commit { rev, ops, .. } => ops
            .iter()
            .zip(seq..)
            .map(|(operation, seq)| commit_v2(event, rev, operation, seq, &time))
            .collect(),
    }
}

fn commit_v2<'e>(
    event: &'e SeqEvent,
    rev: &str,
    operation: &'e Operation,
    seq: u64,
    time: &str,
) -> Told<'e> {
    let gone = operation.action == Action::Delete;
    let payload = CommitV2 {
        kind: "network.bsky.jetstream.subscribeEvents#commit",
        seq,
        did: &event.did,
        time,
        witnessed_at: time,
        rev,
        operation: word(operation.action),
        collection: &operation.collection,
        rkey: &operation.rkey,
        record: raw(operation).filter(|_| !gone),
        cid: cid(operation),
    };
    Told {
        kind: "commit",
        collection: Some(&operation.collection),
        seq,
        text: envelope(&payload),
    }
}

fn envelope(payload: &impl Serialize) -> String {
    line(&MessageV2 {
        kind: "message",
        payload,
    })
}

/// A notice in version 2.
pub(super) fn info(name: &str, message: &str) -> String {
    envelope(&json!({
        "$type": "network.bsky.jetstream.subscribeEvents#info",
        "name": name,
        "message": message,
    }))
}
