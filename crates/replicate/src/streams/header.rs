//! The headers of the protocol, read strictly.
//!
//! In:    the headers of a request.
//! Out:   typed values; `None` if absent; a refusal if malformed.
//! Never: a number with a sign, a leading zero or an exponent.

use super::reply::Refusal;
use axum::http::HeaderMap;
use blocklog::limits::INTEGER_MAX;

pub(super) const NEXT_OFFSET: &str = "stream-next-offset";
pub(super) const UP_TO_DATE: &str = "stream-up-to-date";
pub(super) const CURSOR: &str = "stream-cursor";
pub(super) const CLOSED: &str = "stream-closed";
pub(super) const TTL: &str = "stream-ttl";
pub(super) const EXPIRES_AT: &str = "stream-expires-at";
pub(super) const SEQUENCE: &str = "stream-seq";
pub(super) const DATA_ENCODING: &str = "stream-sse-data-encoding";
pub(super) const FORKED_FROM: &str = "stream-forked-from";
pub(super) const FORK_OFFSET: &str = "stream-fork-offset";
pub(super) const FORK_SUB_OFFSET: &str = "stream-fork-sub-offset";
pub(super) const PRODUCER_ID: &str = "producer-id";
pub(super) const PRODUCER_EPOCH: &str = "producer-epoch";
pub(super) const PRODUCER_SEQUENCE: &str = "producer-seq";
pub(super) const PRODUCER_EXPECTED: &str = "producer-expected-seq";
pub(super) const PRODUCER_RECEIVED: &str = "producer-received-seq";

/// The text of a header.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Refusal> {
    match headers.get(name) {
        None => Ok(None),
        Some(value) => value
            .to_str()
            .map(Some)
            .map_err(|_| Refusal::bad("a header is not text")),
    }
}

/// A whole number in plain decimal notation.
pub(super) fn number(headers: &HeaderMap, name: &str) -> Result<Option<u64>, Refusal> {
    let Some(text) = text(headers, name)? else {
        return Ok(None);
    };
    let plain =
        text == "0" || (!text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = if plain {
        text.parse::<u64>().ok()
    } else {
        None
    };
    match number.filter(|number| *number <= INTEGER_MAX) {
        Some(number) => Ok(Some(number)),
        None => Err(Refusal::bad(
            "a header is not a whole number in plain decimal notation",
        )),
    }
}

/// Whether the request closes the stream.
pub(super) fn closes(headers: &HeaderMap) -> bool {
    let value = headers.get(CLOSED).and_then(|value| value.to_str().ok());
    value.is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// A media type without its parameters, in lower case.
pub(super) fn essence(content_type: &str) -> String {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

/// Who sends, for exactly-once appends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Producer {
    pub(super) id: String,
    pub(super) epoch: u64,
    pub(super) sequence: u64,
}

/// The producer of a request: all three headers, or none.
pub(super) fn producer(headers: &HeaderMap) -> Result<Option<Producer>, Refusal> {
    let id = text(headers, PRODUCER_ID)?;
    let epoch = number(headers, PRODUCER_EPOCH)?;
    let sequence = number(headers, PRODUCER_SEQUENCE)?;
    match (id, epoch, sequence) {
        (None, None, None) => Ok(None),
        (Some(id), Some(epoch), Some(sequence)) if !id.is_empty() && id.len() <= 256 => {
            Ok(Some(Producer {
                id: id.to_owned(),
                epoch,
                sequence,
            }))
        }
        _ => Err(Refusal::bad(
            "the three producer headers belong together, and the id is not empty",
        )),
    }
}

/// When a stream ends by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Lifetime {
    /// Seconds since it was last read or written.
    pub(super) ttl_seconds: Option<u64>,
    /// At this time, in Unix milliseconds, and as it was written.
    pub(super) expires: Option<(u64, String)>,
}

/// The lifetime a request asks for.
pub(super) fn lifetime(headers: &HeaderMap) -> Result<Lifetime, Refusal> {
    let ttl_seconds = number(headers, TTL)?;
    let expires = match text(headers, EXPIRES_AT)? {
        None => None,
        Some(text) => {
            let us = record::datetime::parse_us(text).and_then(|us| u64::try_from(us).ok());
            let us = us.ok_or_else(|| Refusal::bad("Stream-Expires-At is not an RFC 3339 time"))?;
            Some((us / 1000, text.to_owned()))
        }
    };
    if ttl_seconds.is_some() && expires.is_some() {
        return Err(Refusal::bad(
            "Stream-TTL and Stream-Expires-At exclude each other",
        ));
    }
    Ok(Lifetime {
        ttl_seconds,
        expires,
    })
}
