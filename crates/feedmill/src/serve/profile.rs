//! `{ns}.getProfile`, and the profiles that stand beside a page.
//!
//! A profile is the record `self` of a collection named by `profiles` in the
//! configuration. An account without one is shown by its DID and handle.

use std::collections::BTreeSet;

use super::error::XrpcError;
use super::params::Params;
use super::{Answer, Server, body, labelers};
use crate::labels::Subject;

/// The profiles of one account.
pub(super) fn get(server: &Server, params: &Params) -> Result<Answer, XrpcError> {
    let did = server.actor(params.need("actor")?)?;
    if server.store.account(&did)?.is_none() {
        return Err(XrpcError::not_found(format!("no profile of {did}")));
    }
    let entries = entries(server, BTreeSet::from([did.as_str()]), &params.labelers)?;
    Ok(Answer::json(format!("{{\"profiles\":{entries}}}")))
}

/// A JSON list with an entry for each account and kind of profile.
pub(super) fn entries(
    server: &Server,
    dids: BTreeSet<&str>,
    shown_by: &[String],
) -> Result<String, XrpcError> {
    let mut out = String::from("[");
    for did in dids {
        let handle = server.store.handle_of(did)?;
        let mut found = Vec::new();
        for nsid in &server.plan.profiles {
            found.extend(server.store.record(&format!("at://{did}/{nsid}/self"))?);
        }
        let head = |out: &mut String| {
            if out.len() > 1 {
                out.push(',');
            }
            out.push_str("{\"did\":");
            body::push_string(out, did);
            out.push_str(",\"handle\":");
            match &handle {
                Some(handle) => body::push_string(out, handle),
                None => out.push_str("null"),
            }
        };
        let account = Subject {
            uri: did,
            cid: None,
        };
        if found.is_empty() {
            head(&mut out);
            labelers::push(server, shown_by, &[account], &mut out)?;
            out.push('}');
        }
        for row in found {
            head(&mut out);
            for (name, text) in [
                ("uri", Some(&row.uri)),
                ("collection", Some(&row.collection)),
                ("rkey", Some(&row.rkey)),
                ("cid", row.cid.as_ref()),
            ] {
                if let Some(text) = text {
                    out.push_str(&format!(",\"{name}\":"));
                    body::push_string(&mut out, text);
                }
            }
            out.push_str(",\"value\":");
            out.push_str(&row.body);
            let record = Subject {
                uri: &row.uri,
                cid: row.cid.as_deref(),
            };
            labelers::push(server, shown_by, &[account, record], &mut out)?;
            out.push('}');
        }
    }
    out.push(']');
    Ok(out)
}
