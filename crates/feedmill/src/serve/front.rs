//! The front: what every request passes before its method, and every answer
//! after it.
//!
//! In:    requests as they come from a connection.
//! Out:   answers that any web page may read, compressed where that was asked
//!        for, counted; refusals in the form that clients know.
//! Never: more requests at once than `requests_max`; one that takes longer
//!        than `timeout_s`; more of one address than its share.
//!
//! One function instead of a tower of layers: each layer costs every request a
//! copy of all that lies under it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use metrics::counter;
use tower_http::compression::Compression;
use tower_service::Service as _;

use super::Server;
use super::error::XrpcError;
use super::rate::{self, Asker, Client, Standing};
use crate::metrics as names;

/// Anybody's page may ask and read everything.
const ANY: HeaderValue = HeaderValue::from_static("*");
/// Seconds for which a browser remembers that.
const PREFLIGHT_S: HeaderValue = HeaderValue::from_static("86400");

/// Lets a request in, and its answer out.
pub(super) async fn pass(
    State(server): State<Arc<Server>>,
    mut request: Request,
    next: Next,
) -> Response {
    if is_preflight(&request) {
        return preflight();
    }
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let address = server
        .rates
        .address(peer.map(|info| info.0), request.headers());
    let now_s = server.clock.now_us() / 1_000_000;
    let taken = match address {
        Some(address) => server.rates.take(Asker::Address(address), 1, now_s),
        None => Ok(None),
    };
    let mut response = match taken {
        Err(standing) => standing.refusal(now_s),
        Ok(standing) => {
            request.extensions_mut().insert(Client(address));
            let mut response = shaped(bounded(&server, request, next).await);
            // An account's standing is told instead of the address's where both are counted.
            let own = response.extensions().get::<Standing>().copied();
            if let Some(standing) = own.or(standing)
                && !response.headers().contains_key(rate::LIMIT)
            {
                standing.write(response.headers_mut());
            }
            response
        }
    };
    open(response.headers_mut());
    response
}

/// Bounds a request in number and time, and counts it.
async fn bounded(server: &Arc<Server>, request: Request, next: Next) -> Response {
    let Ok(_slot) = server.slots.try_acquire() else {
        counter!(names::LIMITED, "by" => "requests").increment(1);
        return XrpcError::busy("too many requests at once; try again").into_response();
    };
    let begun = Instant::now();
    let meter = server.meters.of(request.uri().path());
    let response = match tokio::time::timeout(server.timeout, run(request, next)).await {
        Ok(response) => response,
        Err(_) => XrpcError::slow().into_response(),
    };
    meter.count(response.status(), begun.elapsed());
    response
}

/// Compression is looked at only where it was asked for.
async fn run(request: Request, mut next: Next) -> Response {
    if !request.headers().contains_key(header::ACCEPT_ENCODING) {
        let Ok(response) = next.call(request).await;
        return response;
    }
    let Ok(response) = Compression::new(next).call(request).await;
    response.map(Body::new)
}

/// Whether a browser asks on behalf of a page whether the page may ask.
fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS
        && request
            .headers()
            .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

fn preflight() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    open(headers);
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, ANY);
    // A star does not stand for this one.
    let allowed = HeaderValue::from_static("*, authorization");
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_S);
    response
}

fn open(headers: &mut HeaderMap) {
    const OPEN: [HeaderName; 2] = [
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
    ];
    for name in OPEN {
        headers.insert(name, ANY);
    }
}

/// Refusals of the HTTP stack as XRPC errors: unknown paths, wrong verbs, bodies too large.
fn shaped(response: Response) -> Response {
    let status = response.status();
    if !status.is_client_error() {
        return response;
    }
    let kind = response.headers().get(header::CONTENT_TYPE);
    if !kind.is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain")) {
        return response;
    }
    let (name, message) = match status.as_u16() {
        404 => ("NotFound", "nothing is served at this path"),
        405 => ("InvalidRequest", "this path takes another HTTP method"),
        413 => (
            "PayloadTooLarge",
            "the body is larger than serve.body_bytes_max",
        ),
        _ => ("InvalidRequest", "the request is not well formed"),
    };
    let (mut parts, _) = response.into_parts();
    let body = serde_json::json!({"error": name, "message": message}).to_string();
    parts.headers.remove(header::CONTENT_LENGTH);
    let json = HeaderValue::from_static("application/json");
    parts.headers.insert(header::CONTENT_TYPE, json);
    Response::from_parts(parts, Body::from(body))
}
