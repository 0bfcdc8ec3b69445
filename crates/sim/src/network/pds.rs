//! The personal data server: `com.atproto.repo.*` and handle resolution.
//!
//! One server hosts every account of the world.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::routing::get;
use axum::{Json, Router};
use record::cid::Cid;
use serde_json::{Value, json};

use super::Shared;
use super::directory::document;
use super::xrpc::{Answer, Params, Refusal, find_served, with};

type Pairs = Query<Vec<(String, String)>>;

/// The methods of this file.
pub(super) fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route("/xrpc/com.atproto.repo.listRecords", get(list_records))
        .route("/xrpc/com.atproto.repo.getRecord", get(get_record))
        .route("/xrpc/com.atproto.repo.describeRepo", get(describe_repo))
        .route(
            "/xrpc/com.atproto.identity.resolveHandle",
            get(resolve_handle),
        )
}

/// A record as these methods show it.
fn show(did: &str, path: &str, (cid, block): &(Cid, axum::body::Bytes)) -> Value {
    json!({
        "uri": format!("at://{did}/{path}"),
        "cid": cid.to_string(),
        "value": value(block),
    })
}

/// A record block as JSON.
pub(super) fn value(block: &[u8]) -> Value {
    serde_json::from_str(&json(block)).expect("a record as JSON is JSON")
}

/// The same as text.
pub(super) fn json(block: &[u8]) -> String {
    let value = record::cbor::decode(block).expect("the world writes lawful records");
    let mut text = String::with_capacity(block.len() * 2);
    record::json::to_json(&value, &mut text);
    text
}

async fn list_records(State(shared): State<Arc<Shared>>, Query(pairs): Pairs) -> Answer {
    let params = Params::new(pairs);
    let limit = params.limit(50, 100)?;
    let collection = params.need("collection")?;
    let ascending = params.get("reverse") == Some("true");
    let state = shared.state();
    let account = find_served(&state.world, params.need("repo")?)?;
    let mut records: Vec<_> = account.repo.collection(collection).collect();
    if !ascending {
        records.reverse();
    }
    let cursor = params
        .get("cursor")
        .map(|rkey| format!("{collection}/{rkey}"));
    let behind = |path: &str| match &cursor {
        None => true,
        Some(cursor) if ascending => path > cursor.as_str(),
        Some(cursor) => path < cursor.as_str(),
    };
    let page: Vec<_> = records
        .into_iter()
        .filter(|(path, _)| behind(path))
        .take(limit)
        .collect();
    let shown: Vec<Value> = page
        .iter()
        .map(|(path, entry)| show(&account.did, path, entry))
        .collect();
    let last = page.last().and_then(|(path, _)| path.split_once('/'));
    let cursor = last.map(|(_, rkey)| rkey);
    Ok(Json(with(json!({ "records": shown }), "cursor", cursor)))
}

async fn get_record(State(shared): State<Arc<Shared>>, Query(pairs): Pairs) -> Answer {
    let params = Params::new(pairs);
    let (collection, rkey) = (params.need("collection")?, params.need("rkey")?);
    let state = shared.state();
    let account = find_served(&state.world, params.need("repo")?)?;
    let path = format!("{collection}/{rkey}");
    let entry = account
        .repo
        .record(&path)
        .filter(|(cid, _)| {
            let asked = params.get("cid");
            asked.is_none_or(|asked| asked == cid.to_string())
        })
        .ok_or_else(|| Refusal::new("RecordNotFound", format!("no record at {path}")))?;
    Ok(Json(show(&account.did, &path, entry)))
}

async fn describe_repo(State(shared): State<Arc<Shared>>, Query(pairs): Pairs) -> Answer {
    let params = Params::new(pairs);
    let state = shared.state();
    let account = find_served(&state.world, params.need("repo")?)?;
    Ok(Json(json!({
        "handle": account.handle,
        "did": &*account.did,
        "didDoc": document(account, &shared.pds_url),
        "collections": account.repo.collections(),
        "handleIsCorrect": true,
    })))
}

async fn resolve_handle(State(shared): State<Arc<Shared>>, Query(pairs): Pairs) -> Answer {
    let params = Params::new(pairs);
    let handle = params.need("handle")?;
    let state = shared.state();
    match state.world.by_handle(handle) {
        Some(account) => Ok(Json(json!({ "did": &*account.did }))),
        None => Err(Refusal::new("HandleNotFound", "unable to resolve handle")),
    }
}
