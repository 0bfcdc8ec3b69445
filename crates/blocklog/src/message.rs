//! Messages: what peers say to each other.
//!
//! In:    a JSON object from a stranger.
//! Out:   a [`Request`] with its id; and the JSON of its answer.
//! Never: a reply without the id of its request; a number that was rounded.
//!
//! The shapes are those of the public description of this log: Query, Subscribe,
//! Append and List, told apart by a `type` field, by the path they came on, or by
//! their fields. Anything more than those shapes have is optional. CBOR uses the
//! same names, with byte strings where JSON has base64 or hexadecimal.

mod answer;
mod fault;
mod field;
mod form;
mod request;

pub use answer::{Advanced, Answer, Appended, Blocks, Feeds, Reply, Subscribed};
pub use fault::{BadBlock, Fault, RefusedBlock};
pub use form::{BYTE_FIELDS, parse_block};
pub use request::{
    AppendRequest, Expected, From, Kind, ListRequest, QueryRequest, Request, SubscribeRequest,
    Wanted,
};

use serde_json::Value;

/// The id of a request, given back as it came: a string or an integer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(Value);

impl RequestId {
    /// An id from text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self(Value::String(text.into()))
    }

    /// The id in a message, wherever it can be found: a broken request is
    /// answered under its id too.
    #[must_use]
    pub fn of(message: &Value, bytes_max: usize) -> Option<Self> {
        match message.get("requestId")? {
            Value::String(text) if text.len() <= bytes_max => {
                Some(Self(Value::String(text.clone())))
            }
            Value::Number(number) if number.is_u64() || number.is_i64() => {
                Some(Self(Value::Number(number.clone())))
            }
            _ => None,
        }
    }

    /// As it stands in a message.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.0
    }
}
