//! `{ns}.<short>.listRecords` and `.getRecord`.

use super::cursor;
use super::error::XrpcError;
use super::params::Params;
use super::{Answer, Server, body};
use crate::store::ListQuery;

/// A page of a collection, newest first.
pub(super) fn list(server: &Server, nsid: &str, params: &Params) -> Result<Answer, XrpcError> {
    params.only(&["limit", "cursor", "actor", "did"])?;
    let scope = format!("list:{nsid}");
    let lane = server
        .plan
        .listing(nsid)
        .ok_or_else(|| XrpcError::invalid(format!("{nsid} is not listed")))?;
    let did = match params.get("actor").or(params.get("did")) {
        Some(actor) => Some(server.actor(actor)?),
        None => None,
    };
    let query = ListQuery {
        lane,
        did,
        before: params
            .get("cursor")
            .map(|text| cursor::read(&scope, text))
            .transpose()?,
        limit: params.limit()?,
    };
    let page = server.store.list(&query)?;
    let next = page
        .next
        .as_ref()
        .map(|position| cursor::write(&scope, position));
    Ok(Answer::json(body::records(&page.rows, next.as_deref())))
}

/// One record.
pub(super) fn get(server: &Server, nsid: &str, params: &Params) -> Result<Answer, XrpcError> {
    params.only(&["uri"])?;
    let uri = params.need("uri")?;
    let wrong = || XrpcError::invalid("uri must be at://<actor>/<collection>/<rkey>");
    let rest = uri.strip_prefix("at://").ok_or_else(wrong)?;
    let (authority, path) = rest.split_once('/').ok_or_else(wrong)?;
    let (collection, rkey) = path.split_once('/').ok_or_else(wrong)?;
    if collection != nsid || rkey.is_empty() || rkey.contains('/') {
        return Err(XrpcError::invalid(format!(
            "uri must name a record of {nsid}"
        )));
    }
    let did = server.actor(authority)?;
    let row = server
        .store
        .record(&format!("at://{did}/{collection}/{rkey}"))?
        .ok_or_else(|| XrpcError::not_found(format!("no record at {uri}")))?;
    let mut out = String::with_capacity(row.body.len() + 400);
    body::push_record(&mut out, &row);
    Ok(Answer::json(out))
}
