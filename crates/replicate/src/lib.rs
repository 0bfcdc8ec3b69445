//! The log as a service: blocks in SQLite, over HTTP and WebSocket.
//!
//! In:    requests of peers and readers.
//! Out:   positions, pages, hints.
//! Never: a rule of the log itself; those live in the crate `blocklog`.
//!
//! The process that serves it passes in what it knows: the time, the settings, who asks.
//! A module names only modules above it in this list.

// The time, as an argument.
pub mod time;

// Every metric by name.
pub mod metrics;

// What an answer cost SQLite.
#[cfg(test)]
mod effort;

// Whether a page of another origin asks.
pub mod origin;

// `[log]` in the configuration file.
pub mod settings;

// What a published block tells.
pub mod event;

// The log in SQLite.
pub mod sqlite;

// Who waits for a space to advance.
pub mod hub;

// What a request costs its sender.
pub mod charge;

// Bytes kept for clients.
pub mod memory_pool;

// Where a client's messages are counted in bytes.
pub mod client_memory;

// Who may read, append and create.
pub mod access;

// How much may be appended per second.
pub mod rate;

// The body of a request, whole and bounded.
pub mod body;

// CBOR as ordinary programs write it.
mod cbor_read;

// Messages in CBOR.
pub mod cbor;

// How a message is written in bytes.
mod spelling;

// How many requests may block at once.
mod threads;

// The log of this process.
pub mod log;

// Durable Streams, the public protocol, over the same store.
pub mod streams;

// Spaces, made and deleted on request.
mod spaces;

// From a message to its reply.
mod answer;

// What the operator sees of the spaces.
pub mod overview;

// What is looked after while nobody asks.
pub mod keeper;

// The log over HTTP.
pub mod service;

// What every request passes before its handler.
mod guard;

// The log over WebSocket.
pub mod socket;

// This log as the replica of another.
pub mod peer;

#[cfg(test)]
mod tests;

use axum::Router;
use axum::http::{Method, Uri, header};
use axum::middleware;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use log::Log;

/// Every path of the log, to be merged into the server.
pub fn router(log: Log) -> Router {
    Router::new()
        .route("/log/{space}", get(socket::upgrade))
        .route("/log/{space}/{kind}", post(service::post))
        .with_state(log.clone())
        .merge(streams::router(log.clone()))
        .layer(middleware::from_fn_with_state(log, guard::guard))
        .route("/log.js", get(client))
}

/// Whether a request waits for news of a stream, for as long as the log's settings allow.
#[must_use]
pub fn waits(method: &Method, uri: &Uri) -> bool {
    let mut parameters = uri.query().unwrap_or_default().split('&');
    *method == Method::GET
        && uri.path().starts_with("/v1/stream/")
        && parameters.any(|parameter| parameter.starts_with("live="))
}

/// The client for browsers, as it is.
async fn client() -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, "text/javascript; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    ];
    (headers, include_str!("../assets/log.js"))
}
