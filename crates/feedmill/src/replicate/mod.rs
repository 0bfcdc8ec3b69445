//! The log as a service: blocks in SQLite, over HTTP and WebSocket.
//!
//! In:    requests of peers and readers.
//! Out:   positions, pages, hints.
//! Never: a rule of the log itself; those live in the crate `blocklog`.

/// `[log]` in the configuration file.
pub mod settings;

/// The log in SQLite.
pub mod sqlite;

/// Who waits for a space to advance.
pub mod hub;

/// How much may be appended per second.
pub mod rate;

/// The body of a request, whole and bounded.
pub mod body;

/// Messages in CBOR.
pub mod cbor;

/// The log of this process.
pub mod log;

/// The log over HTTP.
pub mod service;

/// The log over WebSocket.
pub mod socket;

/// This log as the replica of another.
pub mod peer;

/// Durable Streams, the public protocol, over the same store.
pub mod streams;

#[cfg(test)]
mod tests;

use axum::Router;
use axum::routing::{get, post};
use log::Log;

/// Every path of the log, to be merged into the server.
pub fn router(log: Log) -> Router {
    Router::new()
        .route("/log/{space}", get(socket::upgrade))
        .route("/log/{space}/{kind}", post(service::post))
        .with_state(log.clone())
        .merge(streams::router(log))
}
