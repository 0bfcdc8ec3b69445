//! Starting: what is answered before there is a server to answer.
//!
//! In:    requests from the moment the address is bound.
//! Out:   that the process lives, and what it is doing; from then on, everything the server says.
//! Never: a connection refused or left waiting because a store is being opened; an answer, before
//!        the start is over or after it, to a request for a name that is not ours.
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

use super::allowed_hosts::AllowedHosts;
use super::front::Front;
use super::line::Answers;
use super::page::page;
use crate::metrics as names;

/// What answers, from the first connection on.
#[derive(Debug)]
pub struct Starting {
    hosts: AllowedHosts,
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

impl Starting {
    /// Answers requests for these names alone.
    pub fn new(hosts: AllowedHosts) -> Self {
        Self {
            hosts,
            finished: OnceLock::new(),
            doing: Mutex::new(Doing::Starting("starting")),
        }
    }

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
        if let Some(refusal) = self.hosts.refusal(request.headers()) {
            return refusal;
        }
        match self.finished.get() {
            Some(Finished::Feeds(front)) => front.answer(request).await,
            Some(Finished::Operator(paths)) => paths.answer(request).await,
            None => self.early(request.uri().path()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;
    use futures_util::FutureExt as _;

    use super::*;
    use crate::config;

    #[test]
    fn a_strangers_name_is_refused_before_the_start_is_over_and_after_it() {
        let hosts = AllowedHosts::serving(&config::Serve::default());
        let starting = Arc::new(Starting::new(hosts));
        let check = |host: &str, path: &str, status: u16| {
            let request = Request::builder().uri(path).header(header::HOST, host);
            let answer = starting.answer(request.body(Body::empty()).unwrap());
            let answer = answer.now_or_never().expect("nothing is waited for");
            assert_eq!(answer.status(), status, "{host} {path}");
        };
        for path in ["/health", "/metrics"] {
            check("localhost:8080", path, 200);
            check("evil.example", path, 421);
        }
        starting.done(Finished::Operator(Router::new()));
        check("localhost:8080", "/health", 404);
        check("evil.example", "/health", 421);
    }
}
