//! `com.atproto.sync.*` except the stream: what repositories there are, and
//! their contents.
//!
//! Relays and personal data servers both answer these.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;

use crate::account::Account;
use crate::model::Standing;

use super::Shared;
use super::xrpc::{Answer, Params, Refusal, find, find_served, with};

type Pairs = Query<Vec<(String, String)>>;

/// The methods of this file.
pub(super) fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route("/xrpc/_health", get(health))
        .route("/xrpc/com.atproto.sync.listRepos", get(list_repos))
        .route(
            "/xrpc/com.atproto.sync.listReposByCollection",
            get(list_repos_by_collection),
        )
        .route("/xrpc/com.atproto.sync.getRepo", get(get_repo))
        .route(
            "/xrpc/com.atproto.sync.getLatestCommit",
            get(get_latest_commit),
        )
        .route("/xrpc/com.atproto.sync.getRepoStatus", get(get_repo_status))
}

async fn health() -> Json<serde_json::Value> {
    Json(json!({ "version": "sim" }))
}

/// Accounts numbered from the cursor on, and the cursor behind them.
///
/// The cursor is an account number: numbers are never reused, so a page is
/// right whatever happened since the one before.
fn page<'a>(
    accounts: &'a [Account],
    params: &Params,
    limit: usize,
    wanted: impl Fn(&Account) -> bool,
) -> Result<(Vec<&'a Account>, Option<String>), Refusal> {
    let start: usize = match params.get("cursor") {
        None => 0,
        Some(text) => text
            .parse()
            .map_err(|_| Refusal::invalid("malformed cursor"))?,
    };
    let mut found = accounts
        .iter()
        .enumerate()
        .skip(start)
        .filter(|(_, account)| wanted(account));
    let page: Vec<(usize, &Account)> = found.by_ref().take(limit).collect();
    let more = found.next().is_some();
    let cursor = page
        .last()
        .filter(|_| more)
        .map(|(number, _)| (number + 1).to_string());
    Ok((
        page.into_iter().map(|(_, account)| account).collect(),
        cursor,
    ))
}

async fn list_repos(State(shared): State<Arc<Shared>>, Query(pairs): Pairs) -> Answer {
    let params = Params::new(pairs);
    let limit = params.limit(500, 1000)?;
    let state = shared.state();
    let here =
        |account: &Account| account.standing != Standing::Deleted && account.repo.head().is_some();
    let (accounts, cursor) = page(state.world.accounts(), &params, limit, here)?;
    let repos: Vec<_> = accounts
        .into_iter()
        .filter_map(|account| {
            let head = account.repo.head()?;
            let repo = json!({
                "did": &*account.did,
                "head": head.cid.to_string(),
                "rev": head.rev.to_string(),
                "active": account.standing == Standing::Active,
            });
            Some(with(repo, "status", account.standing.status()))
        })
        .collect();
    Ok(Json(with(json!({ "repos": repos }), "cursor", cursor)))
}

async fn list_repos_by_collection(
    State(shared): State<Arc<Shared>>,
    Query(pairs): Pairs,
) -> Answer {
    let params = Params::new(pairs);
    let limit = params.limit(500, 2000)?;
    let collection = params.need("collection")?.to_owned();
    let state = shared.state();
    let holds = |account: &Account| {
        !account.standing.hides() && account.repo.collection(&collection).next().is_some()
    };
    let (accounts, cursor) = page(state.world.accounts(), &params, limit, holds)?;
    let repos: Vec<_> = accounts
        .into_iter()
        .map(|account| json!({ "did": &*account.did }))
        .collect();
    Ok(Json(with(json!({ "repos": repos }), "cursor", cursor)))
}

async fn get_repo(
    State(shared): State<Arc<Shared>>,
    Query(pairs): Pairs,
) -> Result<Response, Refusal> {
    let params = Params::new(pairs);
    let did = params.need("did")?;
    let state = shared.state();
    let account = find_served(&state.world, did)?;
    let car = account.repo.export();
    Ok(([(header::CONTENT_TYPE, "application/vnd.ipld.car")], car).into_response())
}

async fn get_latest_commit(State(shared): State<Arc<Shared>>, Query(pairs): Pairs) -> Answer {
    let params = Params::new(pairs);
    let did = params.need("did")?;
    let state = shared.state();
    let account = find_served(&state.world, did)?;
    let head = account
        .repo
        .head()
        .ok_or_else(|| Refusal::new("RepoNotFound", "no commit yet"))?;
    Ok(Json(
        json!({ "cid": head.cid.to_string(), "rev": head.rev.to_string() }),
    ))
}

async fn get_repo_status(State(shared): State<Arc<Shared>>, Query(pairs): Pairs) -> Answer {
    let params = Params::new(pairs);
    let did = params.need("did")?;
    let state = shared.state();
    let account = find(&state.world, did)?;
    let body = json!({
        "did": &*account.did,
        "active": account.standing == Standing::Active,
    });
    let status = account.standing.status();
    let head = account.repo.head().filter(|_| status.is_none());
    let body = with(body, "rev", head.map(|head| head.rev.to_string()));
    Ok(Json(with(body, "status", status)))
}
