//! `{ns}.listReferences` and `{ns}.getReferences`: references both ways.

use super::cursor;
use super::error::XrpcError;
use super::params::Params;
use super::{Answer, Server, body, direct};
use crate::store::{Position, Reference, ReferrerQuery, Row, budget};

/// The URI that is asked for, if who asks may see what is there: with its authority resolved to a
/// DID, where it names a record.
pub(super) fn resolved(server: &Server, params: &Params) -> Result<String, XrpcError> {
    let uri = params.need("uri")?;
    let Some(rest) = uri.strip_prefix("at://") else {
        return Ok(uri.to_owned()); // a DID or a web address is referred to as it is
    };
    let (authority, path) = rest
        .split_once('/')
        .ok_or_else(|| XrpcError::invalid("uri must be at://<actor>/<collection>/<rkey>"))?;
    let uri = format!("at://{}/{path}", server.authority(authority)?);
    match server.shows(params, &uri) {
        true => Ok(uri),
        false => Err(direct::nobody()),
    }
}

/// The records that refer to a URI, newest stored first.
pub(super) fn list(server: &Server, params: &Params) -> Result<Answer, XrpcError> {
    let uri = resolved(server, params)?;
    let scope = format!("references:{uri}");
    let limit = params.limit()?;
    let before = params
        .get("cursor")
        .map(|text| cursor::read(&scope, text))
        .transpose()?;
    let query = ReferrerQuery {
        uri,
        path: params.get("path").map(str::to_owned),
        before: before.map(|position| (position.time_us, position.uri)),
        limit: limit + 1, // one more tells whether there is more
    };
    let mut found = server.store.referrers(&query)?;
    let bytes = found.iter().map(|referrer| referrer.row.bytes()).sum();
    let more = found.len() > limit || budget::is_page_full(bytes);
    found.truncate(limit);
    let mut out = String::from("{\"references\":[");
    let shown = found.iter();
    let shown = shown.filter(|referrer| server.shows(params, &referrer.row.uri));
    for (index, referrer) in shown.enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str("{\"path\":");
        body::push_string(&mut out, &referrer.path);
        out.push_str(",\"record\":");
        body::push_record(&mut out, &referrer.row);
        out.push('}');
    }
    out.push(']');
    if let (true, Some(last)) = (more, found.last()) {
        push_cursor(&mut out, &scope, last.row.id, &last.path);
    }
    out.push('}');
    Ok(Answer::json(out))
}

/// What a record refers to; what is not here is shown as null with a flag.
pub(super) fn get(server: &Server, params: &Params) -> Result<Answer, XrpcError> {
    let uri = resolved(server, params)?;
    let scope = format!("referred:{uri}");
    let limit = params.limit()?;
    let after = params
        .get("cursor")
        .map(|text| cursor::read(&scope, text))
        .transpose()?
        .map(|position| {
            let (path, target) = position.uri.split_once('\n').unwrap_or_default();
            (path.to_owned(), target.to_owned())
        });
    let mut found = server
        .store
        .references(&uri, after.as_ref(), limit + 1)?
        .ok_or_else(|| XrpcError::not_found(format!("no record at {uri}")))?;
    let more = found.len() > limit || budget::is_page_full(found.iter().map(bytes).sum());
    found.truncate(limit);
    let mut out = String::from("{\"uri\":");
    body::push_string(&mut out, &uri);
    out.push_str(",\"references\":[");
    for (index, reference) in found.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str("{\"path\":");
        body::push_string(&mut out, &reference.path);
        out.push_str(",\"uri\":");
        body::push_string(&mut out, &reference.uri);
        let row = reference.row.as_ref();
        let row = row.filter(|row| server.shows(params, &row.uri));
        out.push_str(&format!(",\"exists\":{},\"record\":", row.is_some()));
        match row {
            Some(row) => body::push_record(&mut out, row),
            None => out.push_str("null"),
        }
        out.push('}');
    }
    out.push(']');
    if let (true, Some(last)) = (more, found.last()) {
        push_cursor(&mut out, &scope, 0, &format!("{}\n{}", last.path, last.uri));
    }
    out.push('}');
    Ok(Answer::json(out))
}

/// What an entry counts for on a page.
fn bytes(reference: &Reference) -> usize {
    let row = reference.row.as_ref().map_or(0, Row::bytes);
    row + reference.path.len() + reference.uri.len()
}

fn push_cursor(out: &mut String, scope: &str, number: i64, text: &str) {
    let position = Position {
        time_us: number,
        uri: text.to_owned(),
    };
    out.push_str(",\"cursor\":");
    body::push_string(out, &cursor::write(scope, &position));
}
