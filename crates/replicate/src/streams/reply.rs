//! Replies of the stream protocol.
//!
//! In:    a status, headers, a body.
//! Out:   an HTTP response that no browser can mistake for something else.
//! Never: a response without the headers that keep content from being sniffed.

use super::header;
use super::offset;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use blocklog::chain::{Refusal as BlockRefusal, Refused};
use blocklog::message::Fault;
use blocklog::store::{AppendError, StoreError};

/// What to send back.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Body,
}

impl Reply {
    pub(super) fn new(status: StatusCode) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Body::empty(),
        }
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(super) fn with_offset(self, position: u64) -> Self {
        self.with(header::NEXT_OFFSET, offset::text(position))
    }

    pub(super) fn with_closed(self, closed: bool) -> Self {
        if closed {
            self.with(header::CLOSED, "true")
        } else {
            self
        }
    }

    pub(super) fn with_body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        let fixed = [
            ("x-content-type-options", "nosniff"),
            ("cross-origin-resource-policy", "cross-origin"),
        ];
        let headers = response.headers_mut();
        for (name, value) in fixed {
            headers.insert(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        response
    }
}

/// Why a request was not done.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The answer says it all.
    Answer(Box<Reply>),
    /// The store failed.
    Store(StoreError),
}

impl Refusal {
    pub(super) fn status(status: StatusCode, message: &'static str) -> Self {
        let reply = Reply::new(status)
            .with("content-type", "text/plain")
            .with("cache-control", "no-store");
        Self::Answer(Box::new(reply.with_body(message)))
    }

    /// The request is malformed.
    pub(super) fn bad(message: &'static str) -> Self {
        Self::status(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn absent() -> Self {
        Self::status(StatusCode::NOT_FOUND, "there is no such stream")
    }

    pub(super) fn gone() -> Self {
        Self::status(StatusCode::GONE, "the stream is gone")
    }

    pub(super) fn conflict(message: &'static str) -> Self {
        Self::status(StatusCode::CONFLICT, message)
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        let status = StatusCode::from_u16(fault.status()).unwrap_or(StatusCode::FORBIDDEN);
        let mut reply = Reply::new(status)
            .with("content-type", "text/plain")
            .with("cache-control", "no-store");
        if fault == Fault::Unauthorized {
            reply = reply.with("www-authenticate", "Bearer");
        }
        Self::Answer(Box::new(reply.with_body(fault.to_string())))
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(crate::sqlite::passing(error))
    }
}

impl From<AppendError> for Refusal {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Store(error) => Self::Store(error),
            AppendError::Refused(refused) => {
                let full = |one: &Refused| matches!(one.refusal, BlockRefusal::SpaceBytes { .. });
                match refused.iter().any(full) {
                    true => Self::status(
                        StatusCode::INSUFFICIENT_STORAGE,
                        "the streams hold as many bytes as log.space_bytes_max allows",
                    ),
                    false => Self::conflict("the log refused the block"),
                }
            }
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Answer(reply) => reply.into_response(),
            Self::Store(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a stream request failed"
                );
                Reply::new(StatusCode::SERVICE_UNAVAILABLE).into_response()
            }
        }
    }
}
