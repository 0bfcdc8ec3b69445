//! `POST /follow`, `/unfollow`, `/follow-many` and `/tokens`.
//!
//! A follow is a record in the follower's own repository, under a key made of
//! what is followed: following twice is following once, and unfollowing what
//! is not followed changes nothing. Mutes and blocks are follows too, in a
//! collection that a feed hides: `"collection"` says which.

use serde_json::{Value, json};

use super::{Asked, Follows, Object, object, timeline};
use crate::check::Claim;
use crate::local::{self, LocalId};
use crate::serve::Answer;
use crate::serve::error::XrpcError;
use crate::store::{Op, Row, Verdict};

/// Bytes of a followed key that is not a person.
const KEY_BYTES_MAX: usize = 160;
/// The field that names who follows.
const USER: &str = "user";
/// The field that names where the follow goes; the home feed's first collection of follows unless set.
const COLLECTION: &str = "collection";

/// The field that says since when.
const SINCE: &str = "createdAt";

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
    known_fields(&body, &[USER, "follows", "key", COLLECTION])?;
    let place = place(asked, &body)?;
    let reader = asked.actor(USER, &body)?;
    let followed = match (body.get("follows"), body.get("key")) {
        (Some(person), None) => person_of(asked, person)?,
        (None, Some(key)) => key_of(key)?,
        _ => {
            return Err(XrpcError::invalid(
                "name one of \"follows\" (a person's id) and \"key\" (anything else)",
            ));
        }
    };
    let drawn = commit(asked, place, &reader, &[followed], follows)?;
    Ok(Answer::json(
        json!({"user": reader.to_json(), "following": follows, "drawn": drawn}).to_string(),
    ))
}

/// `{"user": 404, "follows": [501, 502, …]}`: the first sign-in. The timeline is warm afterwards.
pub(super) fn many(asked: &Asked<'_>, body: &[u8]) -> Result<Answer, XrpcError> {
    asked.app_only()?;
    let body = object(body)?;
    known_fields(&body, &[USER, "follows", COLLECTION])?;
    let place = place(asked, &body)?;
    let reader = asked.actor(USER, &body)?;
    let people = body
        .get("follows")
        .and_then(Value::as_array)
        .ok_or_else(|| XrpcError::invalid("\"follows\" must be a list of people's ids"))?;
    let mut followed = people
        .iter()
        .map(|person| person_of(asked, person))
        .collect::<Result<Vec<_>, _>>()?;
    followed.sort_by(|a, b| a.rkey.cmp(&b.rkey));
    followed.dedup_by(|a, b| a.rkey == b.rkey);
    let settings = &asked.direct.settings;
    // Nobody must mute a number of people before they can begin.
    let least = if place.first {
        settings.follow_many_min
    } else {
        1
    };
    let most = settings.follow_many_max;
    if followed.len() < least || followed.len() > most {
        return Err(XrpcError::declared(
            "FollowCount",
            format!(
                "follow from {least} to {most} different people, not {}",
                followed.len()
            ),
        ));
    }
    let drawn = commit(asked, place, &reader, &followed, true)?;
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

/// Where the follow goes.
fn place<'a>(asked: &Asked<'a>, body: &Object) -> Result<Follows<'a>, XrpcError> {
    let named = match body.get(COLLECTION) {
        None => None,
        Some(Value::String(short)) => Some(short.as_str()),
        Some(_) => {
            return Err(XrpcError::invalid(
                "\"collection\" must be a collection's short name",
            ));
        }
    };
    asked.direct.follows(named)
}

fn person_of(asked: &Asked<'_>, value: &Value) -> Result<Followed, XrpcError> {
    let id = asked.direct.person_in("follows", value)?;
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
    place: Follows<'_>,
    reader: &LocalId,
    followed: &[Followed],
    follows: bool,
) -> Result<bool, XrpcError> {
    let did = reader.did();
    let _alone = asked.direct.hold(&did);
    let now_us = asked.server.clock.now_us();
    let revision = asked.direct.next_revision(now_us);
    let mut ops = Vec::with_capacity(followed.len());
    for one in followed {
        let verdict = if follows {
            let claim = Claim {
                did: &did,
                collection: place.nsid,
                rkey: &one.rkey,
                rev: revision,
            };
            asked
                .direct
                .checker
                .json(claim, None, &record(place, &one.key, now_us))
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
            collection: place.nsid.to_owned(),
            rkey: one.rkey.clone(),
            verdict,
        });
    }
    asked.direct.commit(asked.server, did, revision, ops)
}

/// A follow as it is listed: in the words with which it was asked for.
pub(super) fn shown(row: &Row) -> Value {
    let mut fields = Object::new();
    if let Some(user) = LocalId::of_did(&row.did) {
        fields.insert(USER.to_owned(), user.to_json());
    }
    let (name, followed) = match row.rkey.strip_prefix('-') {
        Some(key) => ("key", local::unescaped(key).map(Value::from)),
        None => ("follows", LocalId::decode(&row.rkey).map(|id| id.to_json())),
    };
    fields.insert(name.to_owned(), followed.unwrap_or_default());
    let body: Object = serde_json::from_str(&row.body).unwrap_or_default();
    fields.extend(
        body.get_key_value(SINCE)
            .map(|(name, time)| (name.clone(), time.clone())),
    );
    fields.into()
}

/// A follow record: the key stands at the collection's `subject` path.
fn record(place: Follows<'_>, key: &str, now_us: i64) -> String {
    let mut value = Value::from(key);
    for part in place.subject.rsplit('.') {
        value = json!({ part: value });
    }
    if let Value::Object(fields) = &mut value {
        fields.insert("$type".into(), place.nsid.into());
        fields.insert(SINCE.into(), record::datetime::format_us(now_us).into());
    }
    value.to_string()
}
