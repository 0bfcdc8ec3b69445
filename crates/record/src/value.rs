//! One value of the AT Protocol data model, borrowed from the bytes it came from.
//!
//! A record is read once, from CBOR or from JSON, into a [`Value`]; the
//! validator, the search for links and the writers all walk the same tree.

use std::borrow::Cow;

use crate::cid::Cid;

/// A value of the data model. There are no floats in it.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    Link(Cid),
    List(Vec<Value<'a>>),
    /// Keys are unique and in canonical order: shorter first, then bytewise.
    Map(Vec<(Cow<'a, str>, Value<'a>)>),
}

impl<'a> Value<'a> {
    /// The field `key` of a map; `None` for anything else.
    pub fn get(&self, key: &str) -> Option<&Value<'a>> {
        match self {
            Value::Map(fields) => fields
                .iter()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value),
            _ => None,
        }
    }

    /// Follows a dotted path of field names, such as `subject.uri`.
    pub fn at(&self, path: &str) -> Option<&Value<'a>> {
        path.split('.').try_fold(self, |value, key| value.get(key))
    }

    /// The text, if this is text.
    pub fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The integer, if this is one.
    pub fn int(&self) -> Option<i64> {
        match self {
            Value::Int(int) => Some(*int),
            _ => None,
        }
    }

    /// The boolean, if this is one.
    pub fn bool(&self) -> Option<bool> {
        match self {
            Value::Bool(bool) => Some(*bool),
            _ => None,
        }
    }

    /// The lexicon's name for the type of this value, for error messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Int(_) => "integer",
            Value::Text(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::Link(_) => "cid-link",
            Value::List(_) => "array",
            Value::Map(_) => "object",
        }
    }

    /// The same value, owning what it borrowed.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Value::Null => Value::Null,
            Value::Bool(bool) => Value::Bool(bool),
            Value::Int(int) => Value::Int(int),
            Value::Text(text) => Value::Text(Cow::Owned(text.into_owned())),
            Value::Bytes(bytes) => Value::Bytes(Cow::Owned(bytes.into_owned())),
            Value::Link(cid) => Value::Link(cid),
            Value::List(items) => Value::List(items.into_iter().map(Value::into_owned).collect()),
            Value::Map(fields) => Value::Map(
                fields
                    .into_iter()
                    .map(|(key, value)| (Cow::Owned(key.into_owned()), value.into_owned()))
                    .collect(),
            ),
        }
    }
}

/// Canonical map order of DAG-CBOR: by length, then bytewise.
pub fn key_order(a: &str, b: &str) -> std::cmp::Ordering {
    a.len()
        .cmp(&b.len())
        .then_with(|| a.as_bytes().cmp(b.as_bytes()))
}
