//! One label: what a labeler says of a record or an account.
//!
//! In:    a value of a labeler's stream, and the key that must have signed it.
//! Out:   the label with all that decides whether it is shown; or why not.
//! Never: a label that one labeler says in another's name.

use record::key::PublicKey;
use record::value::Value;
use serde_json::{Map, json};

/// Bytes of the longest subject and of the longest word, as the lexicon says.
const URI_BYTES_MAX: usize = 8 * 1024;
const WORD_BYTES_MAX: usize = 128;

/// A label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// A record's URI, or an account's DID.
    pub uri: String,
    /// The one version of the record that is meant, if only one is.
    pub cid: Option<String>,
    pub word: String,
    /// It takes back what was said before.
    pub negated: bool,
    pub made_us: i64,
    pub ends_us: Option<i64>,
    /// As clients see it.
    pub json: String,
}

/// Why a label is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// The labeler is at fault; there is nothing to do.
    #[error("not a label: {0}")]
    Malformed(&'static str),
    /// It is not this labeler's word.
    #[error("said in another's name")]
    Foreign,
    /// Nobody, or somebody else, signed it.
    #[error("not signed with the labeler's key")]
    Unsigned,
}

impl Label {
    /// Reads a label of the labeler `src`; `key` where it must be signed.
    pub fn read(value: &Value<'_>, src: &str, key: Option<&PublicKey>) -> Result<Self, LabelError> {
        let text = |name: &'static str| {
            let found = value.get(name).and_then(Value::text);
            found.ok_or(LabelError::Malformed(name))
        };
        let moment = |text: &str, name: &'static str| {
            record::datetime::parse_us(text).ok_or(LabelError::Malformed(name))
        };
        if text("src")? != src {
            return Err(LabelError::Foreign);
        }
        if let Some(key) = key {
            signed(value, key)?;
        }
        let (uri, word, made) = (text("uri")?, text("val")?, text("cts")?);
        if uri.len() > URI_BYTES_MAX || word.len() > WORD_BYTES_MAX {
            return Err(LabelError::Malformed("too long"));
        }
        let optional = |name: &str| value.get(name).and_then(Value::text);
        let ends = optional("exp");
        let mut shown = Map::new();
        for (name, text) in [("src", src), ("uri", uri), ("val", word), ("cts", made)] {
            shown.insert(name.to_owned(), json!(text));
        }
        for name in ["cid", "exp"] {
            shown.extend(optional(name).map(|text| (name.to_owned(), json!(text))));
        }
        Ok(Self {
            uri: uri.to_owned(),
            cid: optional("cid").map(str::to_owned),
            word: word.to_owned(),
            negated: value.get("neg").and_then(Value::bool).unwrap_or(false),
            made_us: moment(made, "cts")?,
            ends_us: ends.map(|ends| moment(ends, "exp")).transpose()?,
            json: serde_json::Value::Object(shown).to_string(),
        })
    }
}

/// The signature is over the label without it.
fn signed(value: &Value<'_>, key: &PublicKey) -> Result<(), LabelError> {
    let (Value::Map(fields), Some(Value::Bytes(signature))) = (value, value.get("sig")) else {
        return Err(LabelError::Unsigned);
    };
    let rest = fields.iter().filter(|(name, _)| name != "sig").cloned();
    let message = record::cbor::encode(&Value::Map(rest.collect()));
    key.verify(&message, signature)
        .map_err(|_| LabelError::Unsigned)
}
