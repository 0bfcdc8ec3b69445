//! The log over HTTP: one path per kind of message.
//!
//! In:    `POST /log/{space}/query`, `subscribe`, `append`, `list`.
//! Out:   the reply, as JSON, or as CBOR for whoever sends or asks for it.
//! Never: a reply without the id of a request that could be read.

use super::access::Caller;
use super::body::{self, NoBody, Upload};
use super::cbor;
use super::client_memory::ClientMemory;
use super::log::Log;
use super::settings::Right;
use super::spelling::Spelling;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use blocklog::message::{Fault, Reply};

/// How the body of a request is spelled. Only these: a form of another site's page can
/// send none of them.
fn incoming(headers: &HeaderMap) -> Result<Spelling, Fault> {
    let value = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let essence = value
        .and_then(|value| value.split(';').next())
        .map(str::trim);
    match essence {
        Some(kind) if kind.eq_ignore_ascii_case("application/json") => Ok(Spelling::Json),
        Some(kind) if kind.eq_ignore_ascii_case(cbor::MEDIA_TYPE) => Ok(Spelling::Cbor),
        Some(kind) if kind.eq_ignore_ascii_case(cbor::CANONICAL_TYPE) => Ok(Spelling::Canonical),
        _ => Err(Fault::MediaType),
    }
}

fn outgoing(headers: &HeaderMap, incoming: Spelling) -> Spelling {
    let accepted = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    let accepts = |kind: &str| accepted.is_some_and(|value| value.contains(kind));
    let wanted = [Spelling::Canonical, Spelling::Cbor];
    let found = wanted.into_iter().find(|one| accepts(one.media_type()));
    found.unwrap_or(incoming)
}

/// What is asked for on this path may be refused before the body is read.
fn admit(log: &Log, space: &str, kind: &str, caller: &Caller) -> Result<(), Fault> {
    let right = match kind {
        "append" => Right::Append,
        "create" | "delete" | "purge" => Right::Create,
        _ => Right::Read,
    };
    log.may(right, space, caller)
}

/// `POST /log/{space}/{kind}`.
pub(super) async fn post(
    State(log): State<Log>,
    Path((space, kind)): Path<(String, String)>,
    request: Request<Body>,
) -> Response {
    let caller = Caller::of(request.headers());
    let memory = request.extensions().get::<ClientMemory>().cloned();
    let spelling = match incoming(request.headers()) {
        Ok(spelling) => spelling,
        Err(fault) => return respond(&refused(fault), Spelling::Json),
    };
    let outgoing = outgoing(request.headers(), spelling);
    if let Err(fault) = admit(&log, &space, &kind, &caller) {
        return respond(&refused(fault), outgoing);
    }
    let limits = log.limits();
    let (bytes_max, limit, max) = match kind == "append" {
        true => {
            let max = limits.batch_bytes_max;
            (limits.append_message_bytes_max(), "batch_bytes_max", max)
        }
        false => {
            let max = limits.request_bytes_max;
            (max, "request_bytes_max", max)
        }
    };
    let reply = match body::read(request.into_body(), bytes_max, memory.as_ref()).await {
        Ok(Upload { bytes, reservation }) => {
            let said = (spelling, bytes);
            let (reply, making) = log.reply(&space, Some(&kind), said, caller, None).await;
            drop(reservation);
            let response = respond(&reply, outgoing);
            drop(making);
            return response;
        }
        Err(NoBody::TooLong | NoBody::Broken) => refused(Fault::TooLarge {
            limit: limit.into(),
            max: max as u64,
        }),
        Err(NoBody::NoRoom) => refused(Fault::Unavailable),
    };
    respond(&reply, outgoing)
}

fn refused(fault: Fault) -> Reply {
    Reply {
        id: None,
        outcome: Err(fault),
    }
}

pub(super) fn respond(reply: &Reply, spelling: Spelling) -> Response {
    let status = match &reply.outcome {
        Ok(_) => StatusCode::OK,
        Err(fault) => {
            StatusCode::from_u16(fault.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
        }
    };
    let mut response = (status, spelling.write(&reply.to_message())).into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(spelling.media_type()),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Err(Fault::Unauthorized) = &reply.outcome {
        let bearer = HeaderValue::from_static("Bearer");
        headers.insert(header::WWW_AUTHENTICATE, bearer);
    }
    if let Err(Fault::RateLimited { retry_after_ms }) = &reply.outcome {
        let seconds = retry_after_ms.div_ceil(1000);
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
