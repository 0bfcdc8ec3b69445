//! `{ns}.<short>.listRecords` and `.getRecord`.

use record::ids::UriParts;

use super::cursor;
use super::error::XrpcError;
use super::hydration::Hydration;
use super::params::Params;
use super::{Answer, Server};
use crate::store::ListQuery;
use crate::store::shown::ShownPage;

/// A page of a collection, newest first.
pub(super) fn list(server: &Server, nsid: &str, params: &Params) -> Result<Answer, XrpcError> {
    let hydration = Hydration::read(server, nsid, params)?;
    let asked = server.questions.read(nsid, params)?;
    let scope = format!("list:{nsid}{}", asked.scope);
    let lane = server
        .plan
        .listing(nsid)
        .ok_or_else(|| XrpcError::invalid(format!("{nsid} is not listed")))?;
    let did = match params.get("actor").or(params.get("did")) {
        Some(actor) => Some(server.actor(actor)?),
        None => None,
    };
    let (before, rung) = cursor::of(&scope, params)?;
    let query = ListQuery {
        lane,
        did,
        lens: server.focus(nsid, asked.from(rung), before.as_ref())?,
        before,
        limit: params.limit()?,
        scan_max: server.page_scan_max,
    };
    hydration.fitting(server, &scope, query.limit, |limit| {
        let among = query.lens.among.is_some();
        let lens = match among && limit < query.limit {
            // Candidates are given once: they are looked up anew.
            true => server.focus(nsid, query.lens.clone(), query.before.as_ref())?,
            false => query.lens.clone(),
        };
        let query = ListQuery {
            limit,
            lens,
            ..query.clone()
        };
        Ok(ShownPage::from(server.store.list(&query)?))
    })
}

/// The URI of a record, with its authority resolved to a DID.
pub(super) fn uri(server: &Server, text: &str) -> Result<String, XrpcError> {
    let parts = UriParts::parse(text).ok();
    let named = parts.and_then(|parts| Some((parts.authority, parts.collection?, parts.rkey?)));
    let (authority, collection, rkey) =
        named.ok_or_else(|| XrpcError::invalid("uri must be at://<actor>/<collection>/<rkey>"))?;
    let did = server.authority(authority)?;
    Ok(format!("at://{did}/{collection}/{rkey}"))
}

/// One record.
pub(super) fn get(server: &Server, nsid: &str, params: &Params) -> Result<Answer, XrpcError> {
    let hydration = Hydration::read(server, nsid, params)?;
    let uri = params.need("uri")?;
    let found = self::uri(server, uri)?;
    if UriParts::parse(&found)
        .ok()
        .and_then(|parts| parts.collection)
        != Some(nsid)
    {
        return Err(XrpcError::invalid(format!(
            "uri must name a record of {nsid}"
        )));
    }
    let row = server
        .store
        .record(&found)?
        .ok_or_else(|| XrpcError::not_found(format!("no record at {uri}")))?;
    Ok(Answer::json(hydration.one(server, &row)?))
}
