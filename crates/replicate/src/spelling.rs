//! Spelling: how a message is written in bytes.
//!
//! In:    bytes and how they are meant, or a message.
//! Out:   the message, or its bytes.
//! Never: bytes that mean something else in another spelling.

use crate::cbor;
use blocklog::message::Fault;
use serde_json::Value;

/// How a message is spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    Json,
    /// Read as ordinary programs write it.
    Cbor,
    /// DAG-CBOR, and nothing else.
    Canonical,
}

impl Spelling {
    /// The message in `bytes`.
    pub(crate) fn read(self, bytes: &[u8]) -> Result<Value, Fault> {
        let (read, problem) = match self {
            Self::Json => (serde_json::from_slice(bytes).ok(), "is not JSON"),
            Self::Cbor => (cbor::to_json(bytes), "is not CBOR"),
            Self::Canonical => (cbor::canonical_to_json(bytes), "is not DAG-CBOR"),
        };
        read.ok_or_else(|| Fault::bad("message", problem))
    }

    /// The bytes of a message. CBOR is canonical, whoever asks.
    pub(crate) fn write(self, message: &Value) -> Vec<u8> {
        match self {
            Self::Json => message.to_string().into_bytes(),
            Self::Cbor | Self::Canonical => cbor::from_json(message),
        }
    }

    /// Its media type.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Cbor => cbor::MEDIA_TYPE,
            Self::Canonical => cbor::CANONICAL_TYPE,
        }
    }
}
