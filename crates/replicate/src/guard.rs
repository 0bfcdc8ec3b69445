//! The guard: what every request to the log passes before its handler.
//!
//! In:    requests as they come.
//! Out:   those that may go on, and their answers with the headers that browsers need.
//! Never: a request that a page of another origin made, unless `log.origins` allows it: a
//!        browser would send it from inside the network of whoever reads that page.
//!
//! A browser names the origin of the page in `Origin` on every request that could change
//! something and on every WebSocket. Where it does not, `Sec-Fetch-Site` says whether the
//! page is one of ours. Programs send neither.

use crate::charge::Charge;
use crate::log::Log;
use crate::service::respond;
use crate::spelling::Spelling;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use blocklog::message::{Fault, Reply};

/// The setting that allows every origin.
const ANY: &str = "*";
const FETCH_SITE: &str = "sec-fetch-site";
/// The headers that a page of an allowed origin may send.
const HEADERS: &str = "accept, authorization, content-type, if-none-match, stream-seq, stream-ttl, \
    stream-expires-at, stream-closed, stream-forked-from, stream-fork-offset, \
    stream-fork-sub-offset, producer-id, producer-epoch, producer-seq";

/// Where a request comes from.
#[derive(Debug, PartialEq, Eq)]
enum Origin {
    /// A program, or a page that this server served.
    Own,
    /// A page of another origin that may ask; the value to answer with.
    Allowed(HeaderValue),
    /// A page of another origin.
    Foreign,
}

/// Lets a request on, or refuses it.
pub(crate) async fn guard(State(log): State<Log>, request: Request, next: Next) -> Response {
    let origin = origin(request.method(), request.headers(), &log.settings().origins);
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

fn origin(method: &Method, headers: &HeaderMap, allowed: &[String]) -> Origin {
    let changes = *method != Method::GET && *method != Method::HEAD;
    let Some(value) = headers.get(header::ORIGIN) else {
        let site = headers.get(HeaderName::from_static(FETCH_SITE));
        let own = site.is_none_or(|site| site == "same-origin" || site == "none");
        return match own || !changes || allowed.iter().any(|one| one == ANY) {
            true => Origin::Own,
            false => Origin::Foreign,
        };
    };
    let Ok(text) = value.to_str() else {
        return Origin::Foreign;
    };
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let authority = text.split_once("://").map(|(_, authority)| authority);
    if authority.is_some() && host.is_some_and(|host| authority == Some(host)) {
        return Origin::Own;
    }
    let listed = allowed
        .iter()
        .any(|one| one == ANY || one.eq_ignore_ascii_case(text));
    match listed {
        true => Origin::Allowed(value.clone()),
        false => Origin::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: Method, sent: &[(&'static str, &str)], allowed: &[&str], expected: &Origin) {
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("127.0.0.1:8080"));
        for (name, value) in sent {
            headers.insert(*name, value.parse().unwrap());
        }
        let allowed: Vec<String> = allowed.iter().map(|one| (*one).to_owned()).collect();
        assert_eq!(&origin(&method, &headers, &allowed), expected, "{sent:?}");
    }

    #[test]
    fn only_programs_own_pages_and_listed_origins_may_ask() {
        let evil = ("origin", "https://evil.example");
        let allowed = Origin::Allowed(HeaderValue::from_static("https://evil.example"));
        check(Method::POST, &[], &[], &Origin::Own);
        let own = ("origin", "http://127.0.0.1:8080");
        check(Method::POST, &[own], &[], &Origin::Own);
        let other_port = ("origin", "http://127.0.0.1:3000");
        check(Method::POST, &[other_port], &[], &Origin::Foreign);
        check(Method::POST, &[evil], &[], &Origin::Foreign);
        check(Method::GET, &[evil], &[], &Origin::Foreign);
        check(Method::POST, &[("origin", "null")], &[], &Origin::Foreign);
        check(Method::POST, &[evil], &["https://evil.example"], &allowed);
        check(Method::POST, &[evil], &["*"], &allowed);
        let cross = ("sec-fetch-site", "cross-site");
        check(Method::POST, &[cross], &[], &Origin::Foreign);
        let same = ("sec-fetch-site", "same-origin");
        check(Method::POST, &[same], &[], &Origin::Own);
        check(Method::GET, &[cross], &[], &Origin::Own);
    }
}
