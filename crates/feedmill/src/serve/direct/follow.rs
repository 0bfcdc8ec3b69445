//! `POST /follow`, `/unfollow`, `/follow-many` and `/tokens`.
//!
//! A follow is a record in the follower's own repository, under a key made of
//! what is followed: following twice is following once, and unfollowing what
//! is not followed changes nothing.

use serde_json::{Value, json};

use super::{Asked, Home, Object, object, timeline};
use crate::check::Claim;
use crate::local::{self, LocalId};
use crate::serve::Answer;
use crate::serve::error::XrpcError;
use crate::store::{Op, Verdict};

/// Bytes of a followed key that is not a person.
const KEY_BYTES_MAX: usize = 160;
/// The field that names who follows.
const USER: &str = "user";

/// What is followed: how the feed knows it, and the record key of the follow.
struct Followed {
    key: String,
    rkey: String,
}

/// `{"user": 404, "follows": 501}`, or `"key"` for what is not a person.
pub(super) fn follow(asked: &Asked<'_>, body: &[u8]) -> Result<Answer, XrpcError> {
    change(asked, body, true)
}

/// The same, undone.
pub(super) fn unfollow(asked: &Asked<'_>, body: &[u8]) -> Result<Answer, XrpcError> {
    change(asked, body, false)
}

fn change(asked: &Asked<'_>, body: &[u8], follows: bool) -> Result<Answer, XrpcError> {
    asked.app_only()?;
    let body = object(body)?;
    known_fields(&body, &[USER, "follows", "key"])?;
    let reader = asked.actor(USER, &body)?;
    let followed = match (body.get("follows"), body.get("key")) {
        (Some(person), None) => person_of(person)?,
        (None, Some(key)) => key_of(key)?,
        _ => {
            return Err(XrpcError::invalid(
                "name one of \"follows\" (a person's id) and \"key\" (anything else)",
            ));
        }
    };
    let drawn = commit(asked, &reader, &[followed], follows)?;
    Ok(Answer::json(
        json!({"user": reader.to_json(), "following": follows, "drawn": drawn}).to_string(),
    ))
}

/// `{"user": 404, "follows": [501, 502, …]}`: the first sign-in. The timeline is warm afterwards.
pub(super) fn many(asked: &Asked<'_>, body: &[u8]) -> Result<Answer, XrpcError> {
    asked.app_only()?;
    let body = object(body)?;
    known_fields(&body, &[USER, "follows"])?;
    let reader = asked.actor(USER, &body)?;
    let people = body
        .get("follows")
        .and_then(Value::as_array)
        .ok_or_else(|| XrpcError::invalid("\"follows\" must be a list of people's ids"))?;
    let mut followed = people
        .iter()
        .map(person_of)
        .collect::<Result<Vec<_>, _>>()?;
    followed.sort_by(|a, b| a.rkey.cmp(&b.rkey));
    followed.dedup_by(|a, b| a.rkey == b.rkey);
    let settings = &asked.direct.settings;
    let (least, most) = (settings.follow_many_min, settings.follow_many_max);
    if followed.len() < least || followed.len() > most {
        return Err(XrpcError::declared(
            "FollowCount",
            format!(
                "follow from {least} to {most} different people, not {}",
                followed.len()
            ),
        ));
    }
    let drawn = commit(asked, &reader, &followed, true)?;
    timeline::warm(asked, &reader)?;
    Ok(Answer::json(
        json!({"user": reader.to_json(), "followed": followed.len(), "drawn": drawn}).to_string(),
    ))
}

/// `{"user": 404}`: a token with which that reader reads.
pub(super) fn token(asked: &Asked<'_>, body: &[u8]) -> Result<Answer, XrpcError> {
    asked.app_only()?;
    let body = object(body)?;
    known_fields(&body, &[USER])?;
    let reader = asked.actor(USER, &body)?;
    let (token, ends) = asked
        .direct
        .door
        .mint(&reader, asked.server.clock.now_us())?;
    let ends = record::datetime::format_us(ends.saturating_mul(1_000_000));
    Ok(Answer::json(
        json!({"user": reader.to_json(), "token": token, "expires_at": ends}).to_string(),
    ))
}

fn known_fields(body: &Object, known: &[&str]) -> Result<(), XrpcError> {
    match body.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(XrpcError::invalid(format!(
            "unknown field {name:?}; this request takes {}",
            known.join(", ")
        ))),
        None => Ok(()),
    }
}

fn person_of(value: &Value) -> Result<Followed, XrpcError> {
    let id = LocalId::from_json(value)
        .map_err(|error| XrpcError::invalid(format!("follows: {error}")))?;
    Ok(Followed {
        key: id.did(),
        rkey: id.encoded(),
    })
}

fn key_of(value: &Value) -> Result<Followed, XrpcError> {
    let key = value
        .as_str()
        .filter(|key| !key.is_empty() && key.len() <= KEY_BYTES_MAX)
        .ok_or_else(|| {
            XrpcError::invalid(format!("key must be a text of 1 to {KEY_BYTES_MAX} bytes"))
        })?;
    Ok(Followed {
        key: key.to_owned(),
        rkey: format!("-{}", local::escaped(key)),
    })
}

fn commit(
    asked: &Asked<'_>,
    reader: &LocalId,
    followed: &[Followed],
    follows: bool,
) -> Result<bool, XrpcError> {
    let home = asked.direct.home()?;
    let did = reader.did();
    let _alone = asked.direct.hold(&did);
    let now_us = asked.server.clock.now_us();
    let revision = asked.direct.next_revision(now_us);
    let mut ops = Vec::with_capacity(followed.len());
    for one in followed {
        let verdict = if follows {
            let claim = Claim {
                did: &did,
                collection: &home.follow_nsid,
                rkey: &one.rkey,
                rev: revision,
            };
            asked
                .direct
                .checker
                .json(claim, None, &record(home, &one.key, now_us))
        } else {
            Verdict::Delete
        };
        if let Verdict::Refused(letter) = &verdict {
            return Err(XrpcError::declared(
                "InvalidRecord",
                format!("the follow does not fit its lexicon: {}", letter.message),
            ));
        }
        ops.push(Op {
            collection: home.follow_nsid.clone(),
            rkey: one.rkey.clone(),
            verdict,
        });
    }
    asked.direct.commit(asked.server, did, revision, ops)
}

/// A follow record: the key stands at the feed's `subject` path.
fn record(home: &Home, key: &str, now_us: i64) -> String {
    let mut value = Value::from(key);
    for part in home.subject.rsplit('.') {
        value = json!({ part: value });
    }
    if let Value::Object(fields) = &mut value {
        fields.insert("$type".into(), home.follow_nsid.clone().into());
        fields.insert(
            "createdAt".into(),
            record::datetime::format_us(now_us).into(),
        );
    }
    value.to_string()
}
