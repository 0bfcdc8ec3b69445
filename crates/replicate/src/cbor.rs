//! Messages in CBOR.
//!
//! In:    the same messages, with byte strings for data, hashes and signatures.
//! Out:   the JSON form they stand for, and back.
//! Never: a second meaning: CBOR is another spelling, nothing more.

use crate::cbor_read::{bytes_in_json, is_hash};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use blocklog::message::BYTE_FIELDS;
use record::cbor::{decode, encode};
use record::value::Value as Cbor;
use serde_json::{Map, Number, Value as Json};
use std::borrow::Cow;

/// The media type of CBOR, which is read as ordinary programs write it.
pub const MEDIA_TYPE: &str = "application/cbor";

/// The media type of canonical CBOR, of which nothing else is read.
pub const CANONICAL_TYPE: &str = "application/vnd.ipld.dag-cbor";

/// The JSON form of a CBOR message; `None` if it is not CBOR.
#[must_use]
pub fn to_json(bytes: &[u8]) -> Option<Json> {
    crate::cbor_read::read(bytes)
}

/// The JSON form of a canonical CBOR message; `None` if it is not DAG-CBOR.
#[must_use]
pub fn canonical_to_json(bytes: &[u8]) -> Option<Json> {
    json("", decode(bytes).ok()?)
}

/// The CBOR form of a message, canonical.
#[must_use]
pub fn from_json(message: &Json) -> Vec<u8> {
    encode(&cbor("", message))
}

fn json(field: &str, value: Cbor<'_>) -> Option<Json> {
    Some(match value {
        Cbor::Null => Json::Null,
        Cbor::Bool(value) => Json::Bool(value),
        Cbor::Int(value) => Json::Number(Number::from(value)),
        Cbor::Text(value) => Json::String(value.into_owned()),
        Cbor::Bytes(bytes) => Json::String(bytes_in_json(field, &bytes)),
        Cbor::Link(_) => return None,
        Cbor::List(values) => {
            let values = values.into_iter().map(|value| json("", value));
            Json::Array(values.collect::<Option<_>>()?)
        }
        Cbor::Map(fields) => {
            let fields = fields.into_iter().map(|(name, value)| {
                let value = json(&name, value)?;
                Some((name.into_owned(), value))
            });
            Json::Object(fields.collect::<Option<Map<_, _>>>()?)
        }
    })
}

fn cbor<'a>(field: &str, value: &'a Json) -> Cbor<'a> {
    match value {
        Json::Null => Cbor::Null,
        Json::Bool(value) => Cbor::Bool(*value),
        Json::Number(number) => Cbor::Int(number.as_i64().unwrap_or(i64::MAX)),
        Json::String(text) => match bytes(field, text) {
            Some(bytes) => Cbor::Bytes(Cow::Owned(bytes)),
            None => Cbor::Text(Cow::Borrowed(text)),
        },
        Json::Array(values) => Cbor::List(values.iter().map(|value| cbor("", value)).collect()),
        Json::Object(fields) => {
            let mut fields: Vec<(Cow<'a, str>, Cbor<'a>)> = fields
                .iter()
                .map(|(name, value)| (Cow::Borrowed(name.as_str()), cbor(name, value)))
                .collect();
            fields.sort_by(|(a, _), (b, _)| (a.len(), a).cmp(&(b.len(), b)));
            Cbor::Map(fields)
        }
    }
}

/// The bytes behind a text field that is bytes in CBOR.
fn bytes(field: &str, text: &str) -> Option<Vec<u8>> {
    if !BYTE_FIELDS.contains(&field) {
        return None;
    }
    if is_hash(field) {
        return blocklog::block::Hash::from_hex(text).map(|hash| hash.bytes().to_vec());
    }
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_message_comes_back_as_it_was() {
        let message = json!({
            "requestId": "r", "n": -3, "flag": true, "none": null,
            "blocks": [{"data": "aGk=", "hash": "ab".repeat(32), "actorId": "aGk="}],
        });
        let bytes = from_json(&message);
        assert_eq!(to_json(&bytes), Some(message.clone()));
        assert_eq!(canonical_to_json(&bytes), Some(message));
        assert!(
            bytes.windows(2).any(|pair| pair == b"hi"),
            "data travels as bytes"
        );
    }

    #[test]
    fn what_is_not_cbor_is_nothing() {
        assert_eq!(to_json(b"{\"requestId\":1}"), None);
        assert_eq!(to_json(b""), None);
        let unsorted = b"\xa2\x62bb\x01\x61a\x02";
        assert_eq!(to_json(unsorted), Some(json!({"a": 2, "bb": 1})));
        assert_eq!(canonical_to_json(unsorted), None);
    }
}
