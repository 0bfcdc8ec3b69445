//! Durable Streams: the public HTTP protocol, over the same store.
//!
//! In:    `PUT`, `POST`, `GET`, `HEAD`, `DELETE` on `/v1/stream/…`.
//! Out:   append-only streams of bytes, or of JSON messages, that can be read
//!        from any offset, waited for, forked, closed.
//! Never: an acknowledged append that a crash can take back.
//!
//! `Stream-Seq` is compared per stream. A stream's lifetime by `Stream-TTL` is
//! renewed by reading and writing, not by `HEAD`.

mod append;
mod create;
mod events;
mod header;
mod offset;
mod read;
mod reply;
mod stream;

use super::access::Caller;
use super::body::{self, NoBody};
use super::client_memory::ClientMemory;
use super::log::Log;
use super::settings::{Right, WritersSetting};
use super::sqlite::Remembered;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use blocklog::store::{LogStore, Role, StoreError};
use read::{Parameters, Question};
use reply::{Refusal, Reply};
pub(super) use stream::SPACE;
use stream::{Presence, Stream};

/// Bytes of the path of a stream.
const PATH_BYTES_MAX: usize = 1024;

/// The paths of the protocol.
pub fn router(log: Log) -> Router {
    Router::new()
        .route("/v1/stream/{*path}", any(handle))
        .with_state(log)
}

async fn handle(State(log): State<Log>, request: Request<Body>) -> Response {
    match dispatch(log, request).await {
        Ok(reply) => reply.into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

async fn dispatch(log: Log, request: Request<Body>) -> Result<Reply, Refusal> {
    let path = request.uri().path().to_owned();
    if path.len() > PATH_BYTES_MAX {
        return Err(Refusal::status(
            StatusCode::URI_TOO_LONG,
            "the path is too long",
        ));
    }
    let method = request.method().clone();
    let headers = request.headers().clone();
    let right = match method {
        Method::GET | Method::HEAD => Right::Read,
        Method::POST => Right::Append,
        _ => Right::Create,
    };
    log.may(right, SPACE, &Caller::of(&headers))?;
    if method == Method::GET {
        let parameters = Parameters::parse(request.uri().query().unwrap_or_default())?;
        let Parameters { from, cursor, live } = parameters;
        let question = Question { path, from, cursor };
        return match live.as_deref() {
            None => {
                let work = log.clone();
                blocking(&work, move || read::catch_up(&log, &question, &headers)).await
            }
            Some(_) if from.is_none() => Err(Refusal::bad("a live read needs an offset")),
            Some("long-poll") => read::long_poll(log, question).await,
            Some("sse") => events::events(log, question).await,
            Some(_) => Err(Refusal::bad("live is neither long-poll nor sse")),
        };
    }
    let body_bytes_max = log.limits().block_bytes_max;
    let memory = request.extensions().get::<ClientMemory>().cloned();
    let upload = body::read(request.into_body(), body_bytes_max, memory.as_ref()).await;
    let upload = upload.map_err(|problem| match problem {
        NoBody::NoRoom => unavailable(),
        _ => Refusal::status(StatusCode::PAYLOAD_TOO_LARGE, "block_bytes_max is passed"),
    })?;
    let (body, _reservation) = (upload.bytes, upload.reservation);
    if method == Method::POST {
        admit(&log)?;
        return append::post(&log, path, headers, body).await;
    }
    let work = log.clone();
    blocking(&work, move || match method {
        Method::HEAD => read::head(&log, &path),
        Method::PUT => {
            admit(&log)?;
            open(&log)?;
            create::put(&log, &path, &headers, &body)
        }
        Method::DELETE => {
            admit(&log)?;
            delete(&log, &path)
        }
        _ => Err(Refusal::status(
            StatusCode::METHOD_NOT_ALLOWED,
            "no such method",
        )),
    })
    .await
}

/// Whether streams may be written to now. Nobody signs a stream, so none can be told from
/// another: they are open where everybody may write, and can only be read elsewhere.
fn admit(log: &Log) -> Result<(), Refusal> {
    if log.settings().writers != WritersSetting::Anyone {
        let told = "streams are only read here: log.writers is not \"anyone\"";
        return Err(Refusal::status(StatusCode::FORBIDDEN, told));
    }
    log.has_room()?;
    log.take(SPACE, 1).map_err(|wait_ms| {
        let reply = Reply::new(StatusCode::TOO_MANY_REQUESTS)
            .with("retry-after", wait_ms.div_ceil(1000).to_string());
        Refusal::Answer(Box::new(reply))
    })
}

/// Make the space of all streams, if it is not there.
fn open(log: &Log) -> Result<(), Refusal> {
    if log.store().space(SPACE)?.is_some() {
        return Ok(());
    }
    Ok(log.open_space(SPACE, Role::Authority)?)
}

/// End streams whose time is over, some at a time. Blocks.
pub(super) fn sweep(log: &Log) -> Result<(), StoreError> {
    let now_ms = log.now_ms();
    let swept = log.store().writing(|moment| {
        for stream in Stream::expired(moment, now_ms)? {
            stream.end(moment)?;
        }
        Ok(())
    });
    swept.map_err(|refusal: Refusal| StoreError::Passing(format!("{refusal:?}").into()))
}

/// End every stream whose time is over, before somebody reads their blocks. Blocks.
pub(super) fn end_expired(log: &Log) -> Result<(), StoreError> {
    let now_ms = log.now_ms();
    let expired = || {
        let look = |connection: &rusqlite::Connection| Stream::is_any_expired(connection, now_ms);
        log.store().reading(look)
    };
    while expired()? {
        sweep(log)?;
    }
    Ok(())
}

/// Run `work` on a thread that may wait for the disk.
async fn blocking<T: Send + 'static>(
    log: &Log,
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let done = log.reading(work).await;
    done.unwrap_or_else(|| Err(unavailable()))
}

fn unavailable() -> Refusal {
    let told = "the log is not available now";
    Refusal::status(StatusCode::SERVICE_UNAVAILABLE, told)
}

/// `DELETE`. Blocks.
fn delete(log: &Log, path: &str) -> Result<Reply, Refusal> {
    let now_ms = log.now_ms();
    log.store().writing(|moment| {
        match Stream::enter(moment, &mut Remembered::default(), path, now_ms)? {
            Presence::Absent => Err(Refusal::absent()),
            Presence::Gone => Err(Refusal::gone()),
            Presence::Live(stream) => stream.end(moment),
        }
    })?;
    Ok(Reply::new(StatusCode::NO_CONTENT))
}
