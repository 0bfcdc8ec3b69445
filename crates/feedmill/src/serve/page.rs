//! The operator's page: one file, with the headers that keep it what it is.
//!
//! In:    `GET /`.
//! Out:   the page; a policy that names its own script and style by their hashes.
//! Never: a script, a frame or a connection that is not the page's own.

use std::sync::LazyLock;

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// The page is one document: its parts are put where it names them.
static HTML: LazyLock<String> = LazyLock::new(|| {
    let parts = [
        ("/* page.css */\n", include_str!("../../assets/page.css")),
        (
            "/* process.js */\n",
            include_str!("../../assets/process.js"),
        ),
        ("/* spaces.js */\n", include_str!("../../assets/spaces.js")),
    ];
    let html = include_str!("../../assets/index.html").to_owned();
    parts
        .iter()
        .fold(html, |html, (name, part)| html.replacen(name, part, 1))
});

static POLICY: LazyLock<String> = LazyLock::new(|| policy(&HTML));

/// `GET /`.
pub(super) fn page() -> Response {
    let fixed: [(HeaderName, &str); 6] = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, &POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    let mut response = HTML.as_str().into_response();
    for (name, value) in fixed {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn policy(html: &str) -> String {
    let hashes = |tag: &str| -> String {
        let hash = |text: &str| format!(" 'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
        inline(html, tag).into_iter().map(hash).collect()
    };
    format!(
        "default-src 'none'; script-src{}; style-src{}; img-src 'self' data:; connect-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        hashes("script"),
        hashes("style"),
    )
}

/// What stands between the tags of a page.
fn inline<'a>(html: &'a str, tag: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{tag}"), format!("</{tag}>"));
    let parts = html.split(open.as_str()).skip(1);
    let inner = parts.filter_map(|part| part.split_once('>')?.1.split_once(close.as_str()));
    inner.map(|(text, _)| text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_names_the_hash_of_each_script_and_style() {
        let html = "<style>a</style><script>b</script><script type=module>c</script>";
        let policy = policy(html);
        let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
        assert!(policy.contains(&format!("script-src {} {};", hash("b"), hash("c"))));
        assert!(policy.contains(&format!("style-src {};", hash("a"))));
        assert!(!policy.contains("unsafe"));
        assert_eq!(
            (inline(&HTML, "script").len(), inline(&HTML, "style").len()),
            (1, 1)
        );
    }
}
