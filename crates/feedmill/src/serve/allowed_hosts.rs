//! Allowed hosts: by which names this server may be asked.
//!
//! In:    the settings, the `Host` header of a request.
//! Out:   whether the request is meant for us.
//! Never: a server on a loopback address that answers to a stranger's name.
//!
//! A page can point its own name at 127.0.0.1 once it is loaded (DNS rebinding). Its requests
//! are then of its own origin, and only the name in `Host` shows whose they are. An address
//! in numbers cannot be pointed elsewhere. Where a proxy stands before us, names are its business.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::error::XrpcError;
use crate::config;

/// The names that are answered.
#[derive(Debug, Default)]
pub struct AllowedHosts {
    /// `None`: every name.
    names: Option<BTreeSet<String>>,
}

impl AllowedHosts {
    /// Names are checked on a loopback address, unless a proxy before the server checks them.
    pub fn serving(settings: &config::Serve) -> Self {
        match settings.proxy_header {
            Some(_) => Self::default(),
            None => Self::at(&settings.bind, settings),
        }
    }

    /// The same where only the operator is answered: no proxy stands before that.
    pub fn ingesting(intake: &config::Intake, settings: &config::Serve) -> Self {
        Self::at(&intake.bind, settings)
    }

    fn at(bind: &str, settings: &config::Serve) -> Self {
        let bind = bind.parse::<SocketAddr>();
        if !bind.is_ok_and(|address| address.ip().is_loopback()) {
            return Self::default();
        }
        let public = settings.public_url.as_deref().and_then(|url| {
            let (_, rest) = url.split_once("://")?;
            rest.split('/').next()
        });
        let listed = settings.hosts.iter().map(String::as_str).chain(public);
        Self {
            names: Some(listed.map(bare).collect()),
        }
    }

    /// The refusal of a request that is meant for another name.
    pub(super) fn refusal(&self, headers: &HeaderMap) -> Option<Response> {
        let names = self.names.as_ref()?;
        let ours = |name: String| {
            name.parse::<IpAddr>().is_ok()
                || name == "localhost"
                || name.ends_with(".localhost")
                || names.contains(&name)
        };
        let mut asked = headers.get_all(header::HOST).iter();
        if asked.all(|value| value.to_str().is_ok_and(|text| ours(bare(text)))) {
            return None;
        }
        let error = XrpcError {
            status: StatusCode::MISDIRECTED_REQUEST,
            name: "UnknownHost",
            message: "this server is not known by that name; list it in serve.hosts".to_owned(),
        };
        Some(error.into_response())
    }
}

/// A host without its port, in lower case; an IPv6 address without its brackets.
fn bare(host: &str) -> String {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.split(':').next().unwrap_or(host),
    };
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(change: impl Fn(&mut config::Serve), host: &str, answered: bool) {
        let mut settings = config::Serve::default();
        change(&mut settings);
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        let refusal = AllowedHosts::serving(&settings).refusal(&headers);
        assert_eq!(refusal.is_none(), answered, "{host}");
    }

    #[test]
    fn a_server_on_loopback_answers_to_its_own_names_alone() {
        for own in ["127.0.0.1:8080", "LOCALHOST:1", "a.localhost", "[::1]:8080"] {
            check(|_| {}, own, true);
        }
        for other in [
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
        ] {
            check(|_| {}, other, false);
        }
        check(
            |it| it.hosts = vec!["Mill.example".into()],
            "mill.example:80",
            true,
        );
        let public = |it: &mut config::Serve| it.public_url = Some("https://mill.example/x".into());
        check(public, "mill.example", true);
        check(|it| it.bind = "0.0.0.0:8080".into(), "evil.example", true);
        let proxied = |it: &mut config::Serve| it.proxy_header = Some("x-forwarded-for".into());
        check(proxied, "mill.example", true);
    }
}
