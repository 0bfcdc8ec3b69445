//! From values to canonical bytes.
//!
//! [`Writer`] writes one item after the other, for callers who know their
//! fields and write them in canonical order; [`encode`] writes any [`Value`]
//! and sorts its keys.

use super::reader::LINK_HEAD;
use crate::cid::Cid;
use crate::value::{Value, key_order};

/// Writes CBOR into a growing buffer.
#[derive(Debug, Default)]
pub struct Writer {
    out: Vec<u8>,
}

impl Writer {
    /// An empty buffer of this capacity in bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            out: Vec::with_capacity(capacity),
        }
    }

    /// The bytes written so far.
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    #[inline]
    fn head(&mut self, major: u8, argument: u64) {
        let major = major << 5;
        if argument < 24 {
            self.out.push(major | argument as u8);
        } else if let Ok(argument) = u8::try_from(argument) {
            self.out.extend([major | 24, argument]);
        } else if let Ok(argument) = u16::try_from(argument) {
            self.out.push(major | 25);
            self.out.extend(argument.to_be_bytes());
        } else if let Ok(argument) = u32::try_from(argument) {
            self.out.push(major | 26);
            self.out.extend(argument.to_be_bytes());
        } else {
            self.out.push(major | 27);
            self.out.extend(argument.to_be_bytes());
        }
    }

    /// Bytes that are already canonical CBOR, such as a known field name.
    pub fn literal(&mut self, cbor: &[u8]) -> &mut Self {
        self.out.extend_from_slice(cbor);
        self
    }

    /// The head of a map; `count` keys and values must follow in canonical order.
    pub fn map(&mut self, count: usize) -> &mut Self {
        self.head(5, count as u64);
        self
    }

    /// The head of a list; `count` values must follow.
    pub fn list(&mut self, count: usize) -> &mut Self {
        self.head(4, count as u64);
        self
    }

    /// Text, which may be a key.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.head(3, text.len() as u64);
        self.out.extend_from_slice(text.as_bytes());
        self
    }

    /// Text or null.
    pub fn text_or_null(&mut self, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.text(text),
            None => self.null(),
        }
    }

    /// A byte string.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.head(2, bytes.len() as u64);
        self.out.extend_from_slice(bytes);
        self
    }

    /// An integer.
    pub fn int(&mut self, int: i64) -> &mut Self {
        match u64::try_from(int) {
            Ok(unsigned) => self.head(0, unsigned),
            // -1 - int, which fits because int is negative.
            Err(_) => self.head(1, !int as u64),
        }
        self
    }

    /// A boolean.
    pub fn bool(&mut self, bool: bool) -> &mut Self {
        self.out.push(if bool { 0xf5 } else { 0xf4 });
        self
    }

    /// Null.
    pub fn null(&mut self) -> &mut Self {
        self.out.push(0xf6);
        self
    }

    /// A link.
    pub fn link(&mut self, cid: &Cid) -> &mut Self {
        self.out.extend_from_slice(&LINK_HEAD);
        self.out.extend_from_slice(cid.as_bytes());
        self
    }

    /// A link or null.
    pub fn link_or_null(&mut self, cid: Option<&Cid>) -> &mut Self {
        match cid {
            Some(cid) => self.link(cid),
            None => self.null(),
        }
    }

    /// Any value; keys of maps are sorted.
    pub fn value(&mut self, value: &Value<'_>) -> &mut Self {
        match value {
            Value::Null => self.null(),
            Value::Bool(bool) => self.bool(*bool),
            Value::Int(int) => self.int(*int),
            Value::Text(text) => self.text(text),
            Value::Bytes(bytes) => self.bytes(bytes),
            Value::Link(cid) => self.link(cid),
            Value::List(items) => {
                self.list(items.len());
                items.iter().fold(self, |writer, item| writer.value(item))
            }
            Value::Map(fields) => {
                self.map(fields.len());
                if fields.is_sorted_by(|(a, _), (b, _)| key_order(a, b).is_lt()) {
                    return fields
                        .iter()
                        .fold(self, |writer, (key, value)| writer.text(key).value(value));
                }
                let mut sorted: Vec<_> = fields.iter().collect();
                sorted.sort_by(|(a, _), (b, _)| key_order(a, b));
                sorted
                    .into_iter()
                    .fold(self, |writer, (key, value)| writer.text(key).value(value))
            }
        }
    }
}

/// The canonical bytes of `value`. Keys are sorted here; [`Value::Map`]
/// guarantees that they are unique.
pub fn encode(value: &Value<'_>) -> Vec<u8> {
    let mut writer = Writer::with_capacity(128);
    writer.value(value);
    writer.into_bytes()
}
