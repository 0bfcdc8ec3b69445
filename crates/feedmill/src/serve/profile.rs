//! `{ns}.getProfile`, and the profiles that stand beside a page.
//!
//! A profile is the record `self` of a collection named by `profiles` in the
//! configuration. An account without one is shown by its DID and handle.

use std::collections::BTreeMap;

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
    let mut profiles = Profiles::default();
    profiles.add(server, [did.as_str()], &params.labelers)?;
    let entries = profiles.written();
    Ok(Answer::json(format!("{{\"profiles\":{entries}}}")))
}

/// A JSON list with an entry for each account and kind of profile, by account.
#[derive(Debug, Default)]
pub(super) struct Profiles(BTreeMap<String, String>);

impl Profiles {
    /// Adds the profiles of accounts that are not among them yet.
    pub(super) fn add<'a>(
        &mut self,
        server: &Server,
        dids: impl IntoIterator<Item = &'a str>,
        shown_by: &[String],
    ) -> Result<(), XrpcError> {
        for did in dids {
            if !self.0.contains_key(did) {
                let entries = entries(server, did, shown_by)?;
                self.0.insert(did.to_owned(), entries);
            }
        }
        Ok(())
    }

    /// How long the list is.
    pub(super) fn bytes(&self) -> usize {
        self.0.values().map(String::len).sum()
    }

    /// The list.
    pub(super) fn written(&self) -> String {
        let entries: Vec<&str> = self.0.values().map(String::as_str).collect();
        format!("[{}]", entries.join(","))
    }
}

/// The entries of one account, with commas between them.
fn entries(server: &Server, did: &str, shown_by: &[String]) -> Result<String, XrpcError> {
    let mut out = String::new();
    let handle = server.store.handle_of(did)?;
    let mut found = Vec::new();
    for nsid in &server.plan.profiles {
        found.extend(server.store.record(&format!("at://{did}/{nsid}/self"))?);
    }
    let head = |out: &mut String| {
        if !out.is_empty() {
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
    Ok(out)
}
