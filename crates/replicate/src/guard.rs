//! The guard: what every request to the log passes before its handler.
//!
//! In:    requests as they come.
//! Out:   those that may go on, and their answers with the headers that browsers need.
//! Never: a request that a page of another origin made, unless `log.origins` allows it: a
//!        browser would send it from inside the network of whoever reads that page.
//!
//! `origin` says how a page is told from a program.

use crate::charge::Charge;
use crate::log::Log;
use crate::origin::Origin;
use crate::service::respond;
use crate::spelling::Spelling;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use blocklog::message::{Fault, Reply};

const ANY: &str = "*";
/// The headers that a page of an allowed origin may send.
const HEADERS: &str = "accept, authorization, content-type, if-none-match, stream-seq, stream-ttl, \
    stream-expires-at, stream-closed, stream-forked-from, stream-fork-offset, \
    stream-fork-sub-offset, producer-id, producer-epoch, producer-seq";

/// Lets a request on, or refuses it.
pub(crate) async fn guard(State(log): State<Log>, request: Request, next: Next) -> Response {
    let origin = Origin::of(request.method(), request.headers(), &log.settings().origins);
    if origin == Origin::Foreign {
        return refuse(Fault::ForeignOrigin);
    }
    if let Some(charge) = request.extensions().get::<Charge>()
        && let Err(retry_after_ms) = charge.take(1)
    {
        return refuse(Fault::RateLimited { retry_after_ms });
    }
    let mut response = match *request.method() == Method::OPTIONS {
        true => preflight(),
        false => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    if let Origin::Allowed(value) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, value);
        let any = HeaderValue::from_static(ANY);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, any);
    }
    response
}

fn refuse(fault: Fault) -> Response {
    let reply = Reply {
        id: None,
        outcome: Err(fault),
    };
    respond(&reply, Spelling::Json)
}

/// What a browser asks before a page of an allowed origin asks.
fn preflight() -> Response {
    let methods = "GET, HEAD, POST, PUT, DELETE, OPTIONS";
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, methods),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, HEADERS),
        (header::ACCESS_CONTROL_MAX_AGE, "86400"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}
