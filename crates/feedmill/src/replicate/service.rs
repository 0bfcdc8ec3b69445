//! The log over HTTP: one path per kind of message.
//!
//! In:    `POST /log/{space}/query`, `subscribe`, `append`, `list`.
//! Out:   the reply, as JSON, or as CBOR for whoever sends or asks for it.
//! Never: a reply without the id of a request that could be read.

use super::cbor;
use super::log::Log;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use blocklog::message::{Fault, Kind, Reply, RequestId};
use serde_json::Value;

/// How a message is spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    Json,
    Cbor,
}

impl Spelling {
    /// The message in `bytes`.
    pub(super) fn read(self, bytes: &[u8]) -> Result<Value, Fault> {
        let read = match self {
            Self::Json => serde_json::from_slice(bytes).ok(),
            Self::Cbor => cbor::to_json(bytes),
        };
        read.ok_or_else(|| match self {
            Self::Json => Fault::bad("message", "is not JSON"),
            Self::Cbor => Fault::bad("message", "is not DAG-CBOR"),
        })
    }

    /// The bytes of a message.
    pub(super) fn write(self, message: &Value) -> Vec<u8> {
        match self {
            Self::Json => message.to_string().into_bytes(),
            Self::Cbor => cbor::from_json(message),
        }
    }
}

fn named(headers: &HeaderMap, name: header::HeaderName) -> Option<Spelling> {
    let value = headers.get(name)?.to_str().ok()?;
    Some(if value.contains(cbor::MEDIA_TYPE) {
        Spelling::Cbor
    } else {
        Spelling::Json
    })
}

/// `POST /log/{space}/{kind}`.
pub(super) async fn post(
    State(log): State<Log>,
    Path((space, kind)): Path<(String, String)>,
    request: Request<Body>,
) -> Response {
    let incoming = named(request.headers(), header::CONTENT_TYPE).unwrap_or(Spelling::Json);
    let outgoing = match named(request.headers(), header::ACCEPT) {
        Some(Spelling::Cbor) => Spelling::Cbor,
        _ => incoming,
    };
    // Base64 makes four bytes of three, and every block has some fields besides.
    let body_bytes_max = log
        .limits()
        .batch_bytes_max
        .saturating_mul(2)
        .saturating_add(1 << 20);
    let reply = match super::body::read(request.into_body(), body_bytes_max).await {
        Ok(bytes) => answer(log, space, kind, incoming, bytes).await,
        Err(_) => Reply {
            id: None,
            outcome: Err(Fault::TooLarge {
                limit: "batch_bytes_max".into(),
                max: log.limits().batch_bytes_max as u64,
            }),
        },
    };
    respond(&reply, outgoing)
}

/// What a browser asks before a page of another origin asks.
pub(super) async fn preflight() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "POST"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "accept, content-type"),
        (header::ACCESS_CONTROL_MAX_AGE, "86400"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

async fn answer(
    log: Log,
    space: String,
    kind: String,
    spelling: Spelling,
    bytes: Vec<u8>,
) -> Reply {
    let work = move || {
        let message = match spelling.read(&bytes) {
            Ok(message) => message,
            Err(fault) => {
                return Reply {
                    id: None,
                    outcome: Err(fault),
                };
            }
        };
        match Kind::named(&kind) {
            Ok(kind) => log.answer(&space, Some(kind), &message),
            Err(fault) => Reply {
                id: RequestId::of(&message, log.limits().request_id_bytes_max),
                outcome: Err(fault),
            },
        }
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or(Reply {
        id: None,
        outcome: Err(Fault::Unavailable),
    })
}

fn respond(reply: &Reply, spelling: Spelling) -> Response {
    let status = match &reply.outcome {
        Ok(_) => StatusCode::OK,
        Err(fault) => {
            StatusCode::from_u16(fault.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
        }
    };
    let media_type = match spelling {
        Spelling::Json => "application/json",
        Spelling::Cbor => cbor::MEDIA_TYPE,
    };
    let mut response = (status, spelling.write(&reply.to_message())).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        HeaderValue::from_static("*"),
    );
    if let Err(Fault::RateLimited { retry_after_ms }) = &reply.outcome {
        let seconds = retry_after_ms.div_ceil(1000);
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
