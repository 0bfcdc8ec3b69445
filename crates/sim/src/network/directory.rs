//! Who is who: the PLC directory, did:web documents and handle files.
//!
//! In:    a DID in the path, or a host name in the `Host` header.
//! Out:   a DID document with the current key, or the DID of a handle.
//! Never: a document of an account that does not exist.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::account::Account;

use super::Shared;

/// `GET /{did}`.
pub(super) fn plc_router() -> Router<Arc<Shared>> {
    Router::new()
        .route("/_health", get(async || Json(json!({ "version": "sim" }))))
        .route("/{did}", get(plc_document))
}

/// `GET /.well-known/…`, by host.
pub(super) fn web_router() -> Router<Arc<Shared>> {
    Router::new()
        .route("/.well-known/did.json", get(web_document))
        .route("/.well-known/atproto-did", get(handle_file))
}

/// The account's DID document.
pub(super) fn document(account: &Account, pds_url: &str) -> Value {
    json!({
        "@context": [
            "https://www.w3.org/ns/did/v1",
            "https://w3id.org/security/multikey/v1",
            "https://w3id.org/security/suites/secp256k1-2019/v1",
        ],
        "id": &*account.did,
        "alsoKnownAs": [format!("at://{}", account.handle)],
        "verificationMethod": [{
            "id": format!("{}#atproto", account.did),
            "type": "Multikey",
            "controller": &*account.did,
            "publicKeyMultibase": account.key.public().to_multikey(),
        }],
        "service": [{
            "id": "#atproto_pds",
            "type": "AtprotoPersonalDataServer",
            "serviceEndpoint": pds_url,
        }],
    })
}

async fn plc_document(State(shared): State<Arc<Shared>>, Path(did): Path<String>) -> Response {
    let state = shared.state();
    match state.world.account(&did).filter(|it| !it.is_web()) {
        Some(account) => {
            let kind = [(header::CONTENT_TYPE, "application/did+ld+json")];
            (kind, document(account, &shared.pds_url).to_string()).into_response()
        }
        None => {
            let body = json!({ "message": format!("DID not registered: {did}") });
            (StatusCode::NOT_FOUND, Json(body)).into_response()
        }
    }
}

/// The host name of a request, without its port.
fn host(headers: &HeaderMap) -> Option<&str> {
    let host = headers.get(header::HOST)?.to_str().ok()?;
    Some(host.split(':').next().unwrap_or(host))
}

async fn web_document(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let state = shared.state();
    let did = host(&headers).map(|host| format!("did:web:{host}"));
    match did.and_then(|did| state.world.account(&did)) {
        Some(account) => Json(document(account, &shared.pds_url)).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn handle_file(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let state = shared.state();
    match host(&headers).and_then(|host| state.world.by_handle(host)) {
        Some(account) => account.did.to_string().into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
