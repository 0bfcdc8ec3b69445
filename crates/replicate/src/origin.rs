//! Origin: whether a page of another origin made a request.
//!
//! In:    the method and the headers of a request, the origins that may ask.
//! Out:   whether a program, a page of ours, a page that may ask, or a foreign page asks.
//!
//! A browser names the origin of the page in `Origin` on every request that could change
//! something and on every WebSocket. Where it does not, `Sec-Fetch-Site` says whether the
//! page is one of ours. Programs send neither.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};

/// The setting that allows every origin.
const ANY: &str = "*";
const FETCH_SITE: &str = "sec-fetch-site";

/// Where a request comes from.
#[derive(Debug, PartialEq, Eq)]
pub enum Origin {
    /// A program, or a page that this server served.
    Own,
    /// A page of another origin that may ask; the value to answer with.
    Allowed(HeaderValue),
    /// A page of another origin.
    Foreign,
}

/// Whether a setting can be the origin of a page.
#[must_use]
pub fn is_origin(text: &str) -> bool {
    text == ANY || text == "null" || text.contains("://")
}

impl Origin {
    /// The origin that a request's headers name, where these others are allowed.
    pub fn of(method: &Method, headers: &HeaderMap, allowed: &[String]) -> Self {
        let changes = *method != Method::GET && *method != Method::HEAD;
        let Some(value) = headers.get(header::ORIGIN) else {
            let site = headers.get(HeaderName::from_static(FETCH_SITE));
            let own = site.is_none_or(|site| site == "same-origin" || site == "none");
            return match own || !changes || allowed.iter().any(|one| one == ANY) {
                true => Self::Own,
                false => Self::Foreign,
            };
        };
        let Ok(text) = value.to_str() else {
            return Self::Foreign;
        };
        let host = headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok());
        let authority = text.split_once("://").map(|(_, authority)| authority);
        if authority.is_some() && host.is_some_and(|host| authority == Some(host)) {
            return Self::Own;
        }
        let listed = allowed
            .iter()
            .any(|one| one == ANY || one.eq_ignore_ascii_case(text));
        match listed {
            true => Self::Allowed(value.clone()),
            false => Self::Foreign,
        }
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
        assert_eq!(
            &Origin::of(&method, &headers, &allowed),
            expected,
            "{sent:?}"
        );
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
