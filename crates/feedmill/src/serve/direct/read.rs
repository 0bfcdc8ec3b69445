//! `GET /records/{collection}` and `GET /records/{collection}/{id}`.

use super::{Asked, follow};
use crate::serve::error::XrpcError;
use crate::serve::params::Params;
use crate::serve::{Answer, body, cursor};
use crate::store::{Lens, ListQuery};

/// One record as it was put.
pub(super) fn one(asked: &Asked<'_>, short: &str, id: &str) -> Result<Answer, XrpcError> {
    asked.somebody()?;
    let kept = asked.direct.kept(short)?;
    if kept.subject.is_some() {
        return Err(XrpcError::invalid(format!(
            "{short} holds follows, which have no ids; list them with GET /records/{short}?actor="
        )));
    }
    let id = asked.direct.id(id)?;
    let row = asked
        .server
        .store
        .record(&id.uri(&kept.nsid))?
        .ok_or_else(|| XrpcError::not_found(format!("no record {id} in {short}")))?;
    Ok(Answer::json(row.body))
}

/// A page of a collection, newest first; `actor` chooses one person's. Follows are told in the app's own ids.
pub(super) fn list(asked: &Asked<'_>, short: &str, params: &Params) -> Result<Answer, XrpcError> {
    asked.somebody()?;
    params.only(["actor", "limit", "cursor"])?;
    let kept = asked.direct.kept(short)?;
    let lane = asked
        .server
        .plan
        .listing(&kept.nsid)
        .ok_or_else(|| XrpcError::invalid(format!("{short} is not listed")))?;
    let actor = params.get("actor");
    let actor = actor.map(|text| asked.direct.person("actor", text));
    let actor = actor.transpose()?;
    let scope = format!("records:{short}");
    let query = ListQuery {
        lane,
        did: actor.map(|id| id.did()),
        before: params
            .get("cursor")
            .map(|text| cursor::read(&scope, text))
            .transpose()?,
        limit: params.limit()?,
        lens: Lens::default(),
        scan_max: asked.server.page_scan_max,
    };
    let page = asked.server.store.list(&query)?;
    let mut out = String::from("{\"records\":[");
    for (index, row) in page.rows.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        match kept.subject {
            Some(_) => out.push_str(&follow::shown(row).to_string()),
            None => out.push_str(&row.body),
        }
    }
    out.push(']');
    if let Some(next) = &page.next {
        out.push_str(",\"cursor\":");
        body::push_string(&mut out, &cursor::write(&scope, next));
    }
    out.push('}');
    Ok(Answer::json(out))
}
