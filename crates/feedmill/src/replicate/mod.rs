//! The log as a service: blocks in SQLite, over HTTP and WebSocket.
//!
//! In:    requests of peers and readers.
//! Out:   positions, pages, hints.
//! Never: a rule of the log itself; those live in the crate `blocklog`.

// `[log]` in the configuration file.
pub mod settings;

// What a published block tells.
pub mod event;

// The log in SQLite.
pub mod sqlite;

// Who waits for a space to advance.
pub mod hub;

// How much may be appended per second.
pub mod rate;

// The body of a request, whole and bounded.
pub mod body;

// Messages in CBOR.
pub mod cbor;

// The log of this process.
pub mod log;

// What is looked after while nobody asks.
pub mod keeper;

// The log over HTTP.
pub mod service;

// The log over WebSocket.
pub mod socket;

// This log as the replica of another.
pub mod peer;

// Durable Streams, the public protocol, over the same store.
pub mod streams;

#[cfg(test)]
mod tests;

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use log::Log;

/// Every path of the log, to be merged into the server.
pub fn router(log: Log) -> Router {
    Router::new()
        .route("/log.js", get(client))
        .route("/log/{space}", get(socket::upgrade))
        .route(
            "/log/{space}/{kind}",
            post(service::post).options(service::preflight),
        )
        .with_state(log.clone())
        .merge(streams::router(log))
}

/// The client for browsers, as it is.
async fn client() -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, "text/javascript; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    ];
    (headers, include_str!("../../assets/log.js"))
}
