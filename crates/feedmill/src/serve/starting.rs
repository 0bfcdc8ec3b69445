//! Starting: what is answered before there is a server to answer.
//!
//! In:    requests from the moment the address is bound.
//! Out:   that the process lives, and what it is doing; from then on, everything the server says.
//! Never: a connection refused or left waiting because a store is being opened.
//!
//! A store that was laid out for another configuration is laid out anew before any page is exact,
//! and that takes time. Whoever watches the process must be able to tell it from one that hangs.

use std::sync::OnceLock;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde_json::json;

use super::front::Front;
use super::line::Answers;
use super::page::page;
use crate::metrics as names;

/// What answers, from the first connection on.
#[derive(Debug)]
pub struct Starting {
    finished: OnceLock<Finished>,
    doing: Mutex<Doing>,
}

/// What answers once the start is over.
#[derive(Debug)]
pub enum Finished {
    /// A process that serves feeds.
    Feeds(Front),
    /// One that only ingests.
    Operator(Router),
}

/// Why there is no server yet.
#[derive(Debug, Clone, Copy)]
pub enum Doing {
    /// A step of the start.
    Starting(&'static str),
    /// Another process ingests into the store.
    Standby,
}

impl Doing {
    fn code(self) -> &'static str {
        match self {
            Self::Starting(_) => "starting",
            Self::Standby => "standby",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::Starting(_) => "wait; the log of the process says how far it is",
            Self::Standby => {
                "nothing is wrong; to end the other process is to put this one in its place"
            }
        }
    }

    fn detail(self) -> &'static str {
        match self {
            Self::Starting(step) => step,
            Self::Standby => {
                "another process ingests into this store; this one takes over when that one ends. To serve pages beside it, use `feedmill serve`"
            }
        }
    }
}

impl Default for Starting {
    fn default() -> Self {
        Self {
            finished: OnceLock::new(),
            doing: Mutex::new(Doing::Starting("starting")),
        }
    }
}

impl Starting {
    /// What the start is busy with now, for whoever asks.
    pub fn now(&self, doing: Doing) {
        *self.doing.lock() = doing;
    }

    /// The start is over: this answers from now on.
    pub fn done(&self, finished: Finished) {
        // The first one stays: there is one start.
        drop(self.finished.set(finished));
    }

    /// The process is there and not ready: every series with the value it begins with.
    fn metrics(doing: Doing) -> Response {
        metrics::gauge!(names::READY).set(0.0);
        let waits = matches!(doing, Doing::Standby);
        metrics::gauge!(names::STANDBY).set(f64::from(u8::from(waits)));
        names::recorder().render().into_response()
    }

    fn early(&self, path: &str) -> Response {
        if path == "/" {
            return page(); // it says what `/status` says
        }
        let doing = *self.doing.lock();
        if path == "/metrics" {
            return Self::metrics(doing);
        }
        let problem = json!({
            "code": doing.code(), "blocking": true, "detail": doing.detail(), "advice": doing.advice(),
        });
        let (code, doing) = (doing.code(), doing.detail());
        let version = env!("CARGO_PKG_VERSION");
        let (status, body) = match path {
            "/health" | "/xrpc/_health" => (
                StatusCode::OK,
                json!({"version": version, "status": code, "detail": doing}),
            ),
            "/status" => (
                StatusCode::SERVICE_UNAVAILABLE,
                json!({"status": code, "ready": false, "problems": [problem]}),
            ),
            "/ready" => (
                StatusCode::SERVICE_UNAVAILABLE,
                json!({"ready": false, "problems": [problem]}),
            ),
            _ => (
                StatusCode::SERVICE_UNAVAILABLE,
                json!({"error": "Starting", "message": format!("not started yet: {doing}")}),
            ),
        };
        let mut response = (status, body.to_string()).into_response();
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_ORIGIN,
            HeaderValue::from_static("*"),
        );
        if status != StatusCode::OK {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl Answers for std::sync::Arc<Starting> {
    async fn answer(&self, request: Request) -> Response {
        match self.finished.get() {
            Some(Finished::Feeds(front)) => front.answer(request).await,
            Some(Finished::Operator(paths)) => paths.answer(request).await,
            None => self.early(request.uri().path()),
        }
    }
}
