//! Replies: an answer's JSON, or a word that the client has it already.
//!
//! In:    the JSON, and the tags that the client sent.
//! Out:   200 with the JSON and its tag; 304 without it.
//!
//! The tag is weak, because the same answer may travel compressed or not.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use xxhash_rust::xxh3::xxh3_64;

use super::Answer;

/// The reply to a client that sent these tags (`If-None-Match`), if any.
pub(super) fn json(answer: Answer, asked: Option<&HeaderValue>) -> Response {
    let Answer { body, tag } = answer;
    let tag = tag.unwrap_or_else(|| xxh3_64(body.as_bytes()));
    let tag = written(tag);
    let known = asked
        .and_then(|asked| asked.to_str().ok())
        .is_some_and(|asked| names(asked, &tag));
    let mut headers = HeaderMap::with_capacity(8);
    if let Ok(tag) = HeaderValue::try_from(tag) {
        headers.insert(header::ETAG, tag);
    }
    if known {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    let mut response = Response::new(Body::from(body));
    *response.headers_mut() = headers;
    response
}

/// A tag as HTTP writes it: `W/"0123456789abcdef"`.
fn written(tag: u64) -> String {
    let digits = (0..16).rev().map(|place| (tag >> (4 * place)) as u32 & 15);
    let digits = digits.filter_map(|digit| char::from_digit(digit, 16));
    let mut text = String::with_capacity(20);
    text.push_str("W/\"");
    text.extend(digits);
    text.push('"');
    text
}

/// Whether a list of tags names this one, strength aside.
fn names(asked: &str, tag: &str) -> bool {
    let strong = tag.trim_start_matches("W/");
    let mut tags = asked.split(',').map(str::trim);
    asked.trim() == "*" || tags.any(|one| one.trim_start_matches("W/") == strong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(asked: Option<&str>, expected: StatusCode) {
        let asked = asked.map(|text| HeaderValue::from_str(text).unwrap());
        let reply = json(Answer::json("{}".into()), asked.as_ref());
        assert_eq!(reply.status(), expected, "{asked:?}");
        assert!(reply.headers().contains_key(header::ETAG));
    }

    #[test]
    fn a_client_that_has_the_answer_is_told_so() {
        let tag = json(Answer::json("{}".into()), None).headers()[header::ETAG].clone();
        let tag = tag.to_str().unwrap();
        check(None, StatusCode::OK);
        check(Some("\"other\""), StatusCode::OK);
        check(Some(tag), StatusCode::NOT_MODIFIED);
        check(Some(tag.trim_start_matches("W/")), StatusCode::NOT_MODIFIED);
        check(Some(&format!("\"other\", {tag}")), StatusCode::NOT_MODIFIED);
        check(Some("*"), StatusCode::NOT_MODIFIED);
    }
}
