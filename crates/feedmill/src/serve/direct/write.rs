//! `PUT` and `DELETE /records/{collection}/{id}`.
//!
//! A record has one owner as long as it stands: who put it first. Once it is
//! deleted, its id is free for anybody. What the app leaves out of a record
//! (its id, its actor, its time) is filled in, so that the record says it by
//! itself wherever it is shown.

use serde_json::json;

use super::{Asked, Kept, Object, object};
use crate::check::Claim;
use crate::local::{self, LocalId};
use crate::serve::Answer;
use crate::serve::error::XrpcError;
use crate::store::{Op, Row, Verdict};

/// Puts a record, new or in a new version.
pub(super) fn put(
    asked: &Asked<'_>,
    short: &str,
    id: &str,
    body: &[u8],
) -> Result<Answer, XrpcError> {
    asked.app_only()?;
    let direct = asked.direct;
    let kept = writable(asked, short)?;
    let id = direct.id(id)?;
    let mut record = object(body)?;
    let actor = asked.actor(&direct.settings.actor, &record)?;
    agree(&mut record, &direct.settings.id, &id)?;
    agree(&mut record, &direct.settings.actor, &actor)?;
    let uri = id.uri(&kept.nsid);
    let _alone = direct.hold(&uri);
    let before = asked.server.store.record(&uri)?;
    if let Some(row) = &before {
        owned(row, &direct.settings.actor, &actor)?;
    }
    complete(asked, kept, &mut record, before.as_ref());
    let revision = direct.next_revision(asked.server.clock.now_us());
    let rkey = id.encoded();
    let claim = Claim {
        did: local::REPO,
        collection: &kept.nsid,
        rkey: &rkey,
        rev: revision,
    };
    let text = serde_json::Value::Object(record).to_string();
    let verdict = direct.checker.json(claim, None, &text);
    if let Verdict::Refused(letter) = &verdict {
        let place = letter.path.join(".");
        return Err(XrpcError::declared(
            "InvalidRecord",
            format!("{} {place}: {}", letter.stage, letter.message),
        ));
    }
    let op = Op {
        collection: kept.nsid.clone(),
        rkey: rkey.clone(),
        verdict,
    };
    let drawn = direct.commit(asked.server, local::REPO.to_owned(), revision, vec![op])?;
    Ok(Answer::json(
        json!({"id": id.to_json(), "collection": short, "uri": uri, "created": before.is_none(), "drawn": drawn})
            .to_string(),
    ))
}

/// Deletes a record; its place in the order stays known, for cursors.
pub(super) fn delete(asked: &Asked<'_>, short: &str, id: &str) -> Result<Answer, XrpcError> {
    asked.app_only()?;
    let direct = asked.direct;
    let kept = writable(asked, short)?;
    let id = direct.id(id)?;
    let uri = id.uri(&kept.nsid);
    let _alone = direct.hold(&uri);
    let row = asked
        .server
        .store
        .record(&uri)?
        .ok_or_else(|| XrpcError::not_found(format!("no record {id} in {short}")))?;
    if let Some(actor) = asked.named()? {
        owned(&row, &direct.settings.actor, &actor)?;
    }
    let op = Op {
        collection: kept.nsid.clone(),
        rkey: id.encoded(),
        verdict: Verdict::Delete,
    };
    let revision = direct.next_revision(asked.server.clock.now_us());
    let drawn = direct.commit(asked.server, local::REPO.to_owned(), revision, vec![op])?;
    Ok(Answer::json(
        json!({"id": id.to_json(), "collection": short, "deleted": true, "drawn": drawn})
            .to_string(),
    ))
}

fn writable<'a>(asked: &Asked<'a>, short: &str) -> Result<&'a Kept, XrpcError> {
    let kept = asked.direct.kept(short)?;
    if kept.subject.is_some() {
        return Err(XrpcError::invalid(format!(
            "{short} holds follows; use POST /follow and POST /unfollow with \"collection\": {short:?}"
        )));
    }
    Ok(kept)
}

/// The field says what the request says, or says it from now on.
fn agree(record: &mut Object, field: &str, id: &LocalId) -> Result<(), XrpcError> {
    match record.get(field) {
        None => {
            record.insert(field.to_owned(), id.to_json());
            Ok(())
        }
        Some(value) if LocalId::from_json(value).as_ref() == Ok(id) => Ok(()),
        Some(value) => Err(XrpcError::invalid(format!(
            "the field {field:?} is {value}, the request says {id}"
        ))),
    }
}

fn owned(row: &Row, field: &str, actor: &LocalId) -> Result<(), XrpcError> {
    let record: Object = serde_json::from_str(&row.body).unwrap_or_default();
    let owner = record
        .get(field)
        .and_then(|value| LocalId::from_json(value).ok());
    if owner.as_ref() == Some(actor) {
        Ok(())
    } else {
        Err(XrpcError::forbidden("the record belongs to somebody else"))
    }
}

/// Fills in the time, from the version before where there is one, and the type.
fn complete(asked: &Asked<'_>, kept: &Kept, record: &mut Object, before: Option<&Row>) {
    if let Some(field) = kept.time.as_ref().filter(|field| !field.contains('.'))
        && !record.contains_key(field)
    {
        let old: Option<Object> = before.and_then(|row| serde_json::from_str(&row.body).ok());
        let time = match old.and_then(|mut old| old.remove(field)) {
            Some(time) => time,
            None => record::datetime::format_us(asked.server.clock.now_us()).into(),
        };
        record.insert(field.clone(), time);
    }
    if kept.validate && !record.contains_key("$type") {
        record.insert("$type".to_owned(), kept.nsid.clone().into());
    }
}
