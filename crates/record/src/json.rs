//! AT Protocol JSON: text to [`Value`] and back.
//!
//! In:    JSON text whose top is an object; or a value.
//! Out:   a value of the data model; or JSON text.
//! Never: a float, a repeated key, a `$link` without a CID, a blob
//!        without its parts, nesting beyond [`DEPTH_MAX`].
//!
//! JSON has no links and no bytes: they are written as objects with the single
//! key `$link` or `$bytes`. Reading never leaves such an object in a tree as a
//! map, so all JSON written here can be read here.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::cid::Cid;
use crate::value::{Value, key_order};

/// Levels of lists and maps in one value.
pub const DEPTH_MAX: usize = 64;
/// Greatest float read as an integer: 2^48. serde_json may round the last bits
/// of a long float wrongly. Below 2^48 such an error leaves a fraction, which is
/// refused; above, it could give another integer.
const INTEGRAL_FLOAT_MAX: f64 = 281_474_976_710_656.0;

/// `$bytes`: written without padding, read with or without it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Why text is not a value.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// Not JSON: the sender has a fault, or the text was truncated.
    #[error("not JSON")]
    Syntax(#[source] serde_json::Error),

    /// JSON, but not of the network's data model.
    #[error("JSON outside the data model")]
    Model(#[source] serde_json::Error),
}

impl From<serde_json::Error> for JsonError {
    fn from(error: serde_json::Error) -> Self {
        match error.classify() {
            serde_json::error::Category::Data => Self::Model(error),
            _ => Self::Syntax(error),
        }
    }
}

/// The rule of the data model that an object breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    #[error("$type must be text that is not empty")]
    Type,
    #[error("a blob needs ref, mimeType and size")]
    Blob,
    #[error("$link must be the only key and contain a CID")]
    Link,
    #[error("$bytes must be the only key and contain base64")]
    Bytes,
}

/// Reads a record or another object.
pub fn from_json(text: &str) -> Result<Value<'_>, JsonError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = ValueSeed { depth: 0 }.deserialize(&mut reader)?;
    reader.end()?;
    match value {
        Value::Map(_) => Ok(value),
        _ => Err(JsonError::Model(de::Error::custom(
            "the top must be an object",
        ))),
    }
}

/// Appends `value` as JSON; keys keep their canonical order.
pub fn to_json(value: &Value<'_>, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Int(int) => write!(out, "{int}").expect("writing to a String cannot fail"),
        Value::Text(text) => write_text(text, out),
        Value::Bytes(bytes) => {
            out.push_str("{\"$bytes\":\"");
            BASE64.encode_string(bytes, out);
            out.push_str("\"}");
        }
        Value::Link(cid) => {
            write!(out, "{{\"$link\":\"{cid}\"}}").expect("writing to a String cannot fail");
        }
        Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                to_json(item, out);
            }
            out.push(']');
        }
        Value::Map(fields) => {
            out.push('{');
            for (index, (key, field)) in fields.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_text(key, out);
                out.push(':');
                to_json(field, out);
            }
            out.push('}');
        }
    }
}

/// Checks the rules of the data model for one map, which hold whatever its
/// lexicon says and whatever format it was read from. Values inside are not
/// visited.
pub fn check_map(fields: &[(Cow<'_, str>, Value<'_>)]) -> Result<(), ModelError> {
    for (key, value) in fields {
        match (key.as_ref(), value) {
            ("$type", Value::Text(text)) if text == "blob" => check_blob(fields)?,
            ("$type", Value::Text(text)) if !text.is_empty() => {}
            ("$type", _) => return Err(ModelError::Type),
            ("$link", _) => return Err(ModelError::Link),
            ("$bytes", _) => return Err(ModelError::Bytes),
            _ => {}
        }
    }
    Ok(())
}

/// The size has no bound: blobs converted from the network's first blob format
/// have the size -1.
fn check_blob(fields: &[(Cow<'_, str>, Value<'_>)]) -> Result<(), ModelError> {
    let parts = fields.iter().filter(|(key, value)| {
        matches!(
            (key.as_ref(), value),
            ("ref", Value::Link(_)) | ("mimeType", Value::Text(_)) | ("size", Value::Int(_))
        )
    });
    if parts.count() == 3 {
        Ok(())
    } else {
        Err(ModelError::Blob)
    }
}

/// UTF-8 is copied unchanged; only characters that JSON forbids are escaped.
fn write_text(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    let forbidden = |byte: u8| byte < 0x20 || matches!(byte, b'"' | b'\\');
    while let Some(at) = rest.bytes().position(forbidden) {
        let (before, odd) = rest.split_at_checked(at).unwrap_or((rest, ""));
        out.push_str(before);
        let mut letters = odd.chars();
        match letters.next() {
            Some('"') => out.push_str("\\\""),
            Some('\\') => out.push_str("\\\\"),
            Some('\n') => out.push_str("\\n"),
            Some('\r') => out.push_str("\\r"),
            Some('\t') => out.push_str("\\t"),
            Some(control) => write!(out, "\\u{:04x}", u32::from(control))
                .expect("writing to a String cannot fail"),
            None => {}
        }
        rest = letters.as_str();
    }
    out.push_str(rest);
    out.push('"');
}

/// Reads one value at a depth; text is borrowed from the input unless it has
/// escapes.
struct ValueSeed {
    depth: usize,
}

impl ValueSeed {
    /// The depth of the values inside a list or map at this depth.
    fn inner<E: de::Error>(&self, depth_max: usize) -> Result<usize, E> {
        if self.depth < depth_max {
            Ok(self.depth + 1)
        } else {
            Err(E::custom(format_args!(
                "nested deeper than {DEPTH_MAX} levels"
            )))
        }
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed {
    type Value = Value<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed {
    type Value = Value<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of the data model")
    }

    fn visit_unit<E>(self) -> Result<Value<'de>, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, bool: bool) -> Result<Value<'de>, E> {
        Ok(Value::Bool(bool))
    }

    fn visit_i64<E>(self, int: i64) -> Result<Value<'de>, E> {
        Ok(Value::Int(int))
    }

    fn visit_u64<E: de::Error>(self, int: u64) -> Result<Value<'de>, E> {
        i64::try_from(int)
            .map(Value::Int)
            .map_err(|_| E::custom("integer beyond 64 bits"))
    }

    /// JavaScript reads `123.0` as an integer, so this does too.
    fn visit_f64<E: de::Error>(self, float: f64) -> Result<Value<'de>, E> {
        if float.fract() == 0.0 && float.abs() <= INTEGRAL_FLOAT_MAX {
            Ok(Value::Int(float as i64))
        } else {
            Err(E::custom("the data model has no floats"))
        }
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value<'de>, A::Error> {
        let mut items = Vec::new();
        let depth = self.inner(DEPTH_MAX)?;
        while let Some(item) = access.next_element_seed(ValueSeed { depth })? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value<'de>, A::Error> {
        let mut fields = Vec::new();
        // A link or bytes on the last level are an object in JSON only.
        let depth = self.inner(DEPTH_MAX + 1)?;
        while let Some(key) = access.next_key_seed(KeySeed)? {
            fields.push((key, access.next_value_seed(ValueSeed { depth })?));
        }
        fields.sort_unstable_by(|(a, _), (b, _)| key_order(a, b));
        let repeated = fields
            .iter()
            .zip(fields.iter().skip(1))
            .any(|((a, _), (b, _))| a == b);
        if repeated {
            return Err(de::Error::custom("a key occurs twice in one object"));
        }
        let value = finish_map(fields).map_err(de::Error::custom)?;
        if matches!(value, Value::Map(_)) {
            self.inner(DEPTH_MAX)?;
        }
        Ok(value)
    }
}

/// Turns an object of JSON into a link, bytes or a map.
fn finish_map<'a>(fields: Vec<(Cow<'a, str>, Value<'a>)>) -> Result<Value<'a>, ModelError> {
    match fields.as_slice() {
        [(key, Value::Text(text))] if key == "$link" => Cid::parse(text)
            .map(Value::Link)
            .map_err(|_| ModelError::Link),
        [(key, Value::Text(text))] if key == "$bytes" => BASE64
            .decode(text.as_bytes())
            .map(|bytes| Value::Bytes(Cow::Owned(bytes)))
            .map_err(|_| ModelError::Bytes),
        _ => {
            check_map(&fields)?;
            Ok(Value::Map(fields))
        }
    }
}

struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeySeed {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}
