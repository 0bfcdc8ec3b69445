//! The operator's paths by themselves: what a process answers that serves no feeds.
//!
//! In:    requests for `/health`, `/ready`, `/status` and `/metrics`.
//! Out:   the same answers as those of a process that serves feeds.
//! Never: an answer that waits longer for the store than `STATUS_TIMEOUT`; more
//!        than `STATUS_MAX` threads that wait for it.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::Semaphore;

use super::error::XrpcError;
use super::health;
use crate::clock::Clock;
use crate::fanout::Fanout;
use crate::status::Status;
use crate::store::SharedStore;

/// How long `/status` may take.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);
/// Questions for `/status` that are answered at once.
const STATUS_MAX: usize = 4;

/// What the operator's paths are answered from.
#[derive(Debug, Clone)]
pub struct Operator {
    pub store: SharedStore,
    pub status: Arc<Status>,
    pub clock: Clock,
    /// Timelines in memory, if there are any.
    pub fanout: Option<Arc<Fanout>>,
}

impl Operator {
    /// The paths.
    pub fn router(self) -> Router {
        Router::new()
            .route("/health", get(async || live()))
            .route("/ready", get(ready_path))
            .route("/status", get(status_path))
            .route("/metrics", get(metrics_path))
            .fallback(async || XrpcError::not_found("nothing is served at this path"))
            .with_state((self, Arc::new(Semaphore::new(STATUS_MAX))))
    }

    pub(super) fn ready(&self) -> Response {
        let (ready, body) = health::ready(self);
        let code = match ready {
            true => StatusCode::OK,
            false => StatusCode::SERVICE_UNAVAILABLE,
        };
        (code, axum::Json(body)).into_response()
    }

    pub(super) fn metrics(&self) -> Response {
        let text = health::metrics(self);
        ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
    }
}

/// What the paths share: the operator, and who may ask the store.
type Shared = (Operator, Arc<Semaphore>);

pub(super) fn live() -> Response {
    axum::Json(health::health()).into_response()
}

async fn ready_path(State((operator, _)): State<Shared>) -> Response {
    operator.ready()
}

async fn metrics_path(State((operator, _)): State<Shared>) -> Response {
    operator.metrics()
}

async fn status_path(State((operator, permits)): State<Shared>) -> Response {
    let Ok(permit) = permits.try_acquire_owned() else {
        return XrpcError::busy("too many requests at once; try again").into_response();
    };
    let made = tokio::task::spawn_blocking(move || {
        let answer = health::status(&operator);
        drop(permit);
        answer
    });
    match tokio::time::timeout(STATUS_TIMEOUT, made).await {
        Ok(Ok(answer)) => answer.into_response(),
        Ok(Err(_)) => XrpcError::internal().into_response(),
        Err(_) => XrpcError::slow().into_response(),
    }
}
