//! Labelers of a request, and their labels beside what is shown.
//!
//! In:    `atproto-accept-labelers`, or the parameter `labelers`.
//! Out:   `labels` of records and profiles; `atproto-content-labelers`.
//! Never: a labeler that nobody listens to named as if it had been asked.

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::Server;
use super::error::XrpcError;
use super::methods::Method;
use super::params::Params;
use crate::labels::Subject;

/// Whose labels a client wants.
pub(super) const ACCEPT: &str = "atproto-accept-labelers";
/// Whose labels were looked up.
const CONTENT: HeaderName = HeaderName::from_static("atproto-content-labelers");
/// The parameter that says the same as the header.
pub(super) const PARAMETER: &str = "labelers";

/// The labelers that apply to a request; none where the method shows no labels.
pub(super) fn of(
    server: &Server,
    method: &Method,
    params: &Params,
    headers: &HeaderMap,
) -> Result<Vec<String>, XrpcError> {
    let shows = || method.parameters.iter().any(|one| one.name == PARAMETER);
    let Some(labels) = server.labels.as_ref().filter(|_| shows()) else {
        return Ok(Vec::new());
    };
    let header = headers.get(ACCEPT).map(|value| value.to_str());
    let text = match (params.get(PARAMETER), header) {
        (Some(text), _) | (None, Some(Ok(text))) => Some(text),
        (None, Some(Err(_))) => return Err(malformed("")),
        (None, None) => None,
    };
    let named = text.map(read).transpose()?;
    Ok(labels.applied(named.as_deref()))
}

/// `did:plc:a;redact, did:plc:b`: what a labeler may do beside labelling is not looked at.
fn read(text: &str) -> Result<Vec<String>, XrpcError> {
    let mut named: Vec<String> = Vec::new();
    let parts = text.split(',').map(str::trim);
    for part in parts.filter(|part| !part.is_empty()) {
        let did = part.split(';').next().unwrap_or_default().trim();
        if !record::ids::Did::is_valid(did) {
            return Err(malformed(part));
        }
        if !named.iter().any(|known| known == did) {
            named.push(did.to_owned());
        }
    }
    Ok(named)
}

fn malformed(part: &str) -> XrpcError {
    XrpcError::invalid(format!(
        "labelers are DIDs with commas between them; {part:?} is none"
    ))
}

/// Names the labelers in an answer.
pub(super) fn tell(labelers: &[String], headers: &mut HeaderMap) {
    if !labelers.is_empty()
        && let Ok(value) = HeaderValue::from_str(&labelers.join(","))
    {
        headers.insert(CONTENT, value);
    }
}

/// Appends `,"labels":[…]` of these subjects, if there are any.
pub(super) fn push(
    server: &Server,
    labelers: &[String],
    subjects: &[Subject<'_>],
    out: &mut String,
) -> Result<(), XrpcError> {
    let Some(labels) = server.labels.as_ref().filter(|_| !labelers.is_empty()) else {
        return Ok(());
    };
    let now_us = server.clock.now_us();
    let mut found = Vec::new();
    for subject in subjects {
        found.extend(labels.of(*subject, labelers, now_us)?);
    }
    if !found.is_empty() {
        out.push_str(",\"labels\":[");
        out.push_str(&found.join(","));
        out.push(']');
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labelers_are_named_once_each_whatever_else_is_said_of_them() {
        let found = read("did:plc:a;redact, did:web:b.example,,did:plc:a").unwrap();
        assert_eq!(found, ["did:plc:a", "did:web:b.example"]);
        assert_eq!(read("").unwrap(), Vec::<String>::new());
        assert_eq!(read("somebody").unwrap_err().name, "InvalidRequest");
    }
}
