//! The form of a block on the wire.
//!
//! In:    a held block; or a JSON object from a stranger.
//! Out:   the JSON object; or the block, every field checked.
//! Never: a hash taken on trust: it is worked out again and compared.

use super::fault::Fault;
use super::field::{self, Object};
use crate::block::{Block, Hash, Held, Payload, Predecessor};
use crate::limits::Limits;
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Value, json};

/// Fields that are byte strings in CBOR and text in JSON.
pub const BYTE_FIELDS: [&str; 4] = ["data", "signature", "hash", "predHash"];

/// Standard base64 that writes padding and does not insist on it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A block for a reader.
pub(super) fn to_json(held: &Held) -> Value {
    let block = &held.block;
    let mut object = Object::new();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("feedId", json!(block.feed));
    if let Some(position) = held.position {
        put("position", json!(position));
    }
    put("sequence", json!(block.sequence));
    put("actorId", json!(block.actor));
    if let Some(predecessor) = &block.predecessor {
        put("predSequence", json!(predecessor.sequence));
        put("predActorId", json!(predecessor.actor));
        if let Some(hash) = &predecessor.hash {
            put("predHash", json!(hash.to_string()));
        }
    }
    put("timestamp", json!(block.timestamp_ms));
    match &block.payload {
        Payload::Bytes(bytes) => put("data", json!(BASE64.encode(bytes))),
        Payload::Purged { hash, bytes } => {
            put("purged", json!({"hash": hash.to_string(), "bytes": bytes}))
        }
    };
    put("hash", json!(held.hash.to_string()));
    if let Some(signature) = &block.signature {
        put("signature", json!(BASE64.encode(signature)));
    }
    if let Some(namespace) = &held.namespace {
        put("namespace", json!(namespace));
    }
    Value::Object(object)
}

/// A block from a stranger, with the hash it has in `space`.
///
/// # Errors
/// If it is no block, or not the one its hash names.
pub fn parse_block(value: &Value, space: &str, limits: &Limits) -> Result<Held, Fault> {
    let object = value
        .as_object()
        .ok_or_else(|| Fault::bad("blocks", "holds something other than objects"))?;
    let actor =
        field::id(object, "actorId", limits)?.ok_or_else(|| Fault::bad("actorId", "is missing"))?;
    let feed = field::id(object, "feedId", limits)?.unwrap_or_else(|| actor.clone());
    let block = Block {
        feed,
        actor,
        sequence: field::required(object, "sequence")?,
        predecessor: predecessor(object, limits)?,
        timestamp_ms: field::required(object, "timestamp")?,
        payload: payload(object)?,
        signature: signature(object)?,
    };
    let hash = block.hash(space);
    if hash_field(object, "hash")?.is_some_and(|claimed| claimed != hash) {
        return Err(Fault::bad(
            "hash",
            "is not the hash of this block in this space",
        ));
    }
    Ok(Held {
        block,
        hash,
        position: field::integer(object, "position")?,
        namespace: field::id(object, "namespace", limits)?,
    })
}

fn predecessor(object: &Object, limits: &Limits) -> Result<Option<Predecessor>, Fault> {
    let sequence = field::integer(object, "predSequence")?;
    let actor = field::id(object, "predActorId", limits)?;
    let hash = hash_field(object, "predHash")?;
    match (sequence, actor) {
        (Some(sequence), Some(actor)) => Ok(Some(Predecessor {
            sequence,
            actor,
            hash,
        })),
        (None, None) if hash.is_none() => Ok(None),
        _ => Err(Fault::bad(
            "predSequence",
            "and predActorId belong together",
        )),
    }
}

fn payload(object: &Object) -> Result<Payload, Fault> {
    if let Some(text) = field::text(object, "data")? {
        let bytes = BASE64
            .decode(text)
            .map_err(|_| Fault::bad("data", "is not base64"))?;
        return Ok(Payload::Bytes(bytes));
    }
    let Some(purged) = field::get(object, "purged") else {
        return Err(Fault::bad("data", "is missing"));
    };
    let purged = purged
        .as_object()
        .ok_or_else(|| Fault::bad("purged", "is not an object"))?;
    Ok(Payload::Purged {
        hash: hash_field(purged, "hash")?.ok_or_else(|| Fault::bad("purged", "has no hash"))?,
        bytes: field::required(purged, "bytes")?,
    })
}

fn signature(object: &Object) -> Result<Option<[u8; 64]>, Fault> {
    let Some(text) = field::text(object, "signature")? else {
        return Ok(None);
    };
    let bytes = BASE64
        .decode(text)
        .ok()
        .and_then(|bytes| bytes.try_into().ok());
    bytes
        .map(Some)
        .ok_or_else(|| Fault::bad("signature", "is not 64 bytes in base64"))
}

fn hash_field(object: &Object, name: &str) -> Result<Option<Hash>, Fault> {
    let Some(text) = field::text(object, name)? else {
        return Ok(None);
    };
    Hash::from_hex(text)
        .map(Some)
        .ok_or_else(|| Fault::bad(name, "is not 64 hexadecimal digits"))
}
