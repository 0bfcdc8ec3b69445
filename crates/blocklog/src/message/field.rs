//! Fields: one value out of a JSON object, typed and bounded.
//!
//! In:    an object and a name.
//! Out:   the value; `None` if it is absent or null; a fault that names the field.
//! Never: a number rounded, a negative one wrapped, a string taken for a number.

use super::fault::Fault;
use crate::limits::{INTEGER_MAX, Limits};
use serde_json::{Map, Value};

pub(super) type Object = Map<String, Value>;

/// The value, with null read as absent.
pub(super) fn get<'a>(object: &'a Object, name: &str) -> Option<&'a Value> {
    object.get(name).filter(|value| !value.is_null())
}

/// A whole number from 0 to the largest that JSON carries exactly.
pub(super) fn integer(object: &Object, name: &str) -> Result<Option<u64>, Fault> {
    let Some(value) = get(object, name) else {
        return Ok(None);
    };
    match value.as_u64() {
        Some(number) if number <= INTEGER_MAX => Ok(Some(number)),
        Some(_) => Err(Fault::bad(name, "is larger than 2^53 - 1")),
        None if value.as_i64().is_some() => Err(Fault::bad(name, "is negative")),
        None if value.is_number() => Err(Fault::bad(name, "is not a whole number")),
        None => Err(Fault::bad(name, "is not a number")),
    }
}

pub(super) fn required(object: &Object, name: &str) -> Result<u64, Fault> {
    integer(object, name)?.ok_or_else(|| Fault::bad(name, "is missing"))
}

pub(super) fn flag(object: &Object, name: &str) -> Result<bool, Fault> {
    match get(object, name) {
        None => Ok(false),
        Some(value) => value
            .as_bool()
            .ok_or_else(|| Fault::bad(name, "is not true or false")),
    }
}

pub(super) fn text<'a>(object: &'a Object, name: &str) -> Result<Option<&'a str>, Fault> {
    match get(object, name) {
        None => Ok(None),
        Some(value) => value
            .as_str()
            .map(Some)
            .ok_or_else(|| Fault::bad(name, "is not a string")),
    }
}

/// An id of a space, feed, actor or namespace.
pub(super) fn id(object: &Object, name: &str, limits: &Limits) -> Result<Option<String>, Fault> {
    match text(object, name)? {
        None => Ok(None),
        Some(id) => check_id(id, name, limits).map(Some),
    }
}

pub(super) fn check_id(id: &str, name: &str, limits: &Limits) -> Result<String, Fault> {
    if limits.allows_id(id) {
        Ok(id.to_owned())
    } else {
        Err(Fault::bad(
            name,
            "is empty, too long, or holds control characters",
        ))
    }
}

/// A list of feed ids; absent is `None`.
pub(super) fn ids(
    object: &Object,
    name: &str,
    limits: &Limits,
) -> Result<Option<Vec<String>>, Fault> {
    let Some(value) = get(object, name) else {
        return Ok(None);
    };
    let list = value
        .as_array()
        .ok_or_else(|| Fault::bad(name, "is not a list"))?;
    if list.len() > limits.feed_ids_max {
        return Err(Fault::TooLarge {
            limit: "feed_ids_max".into(),
            max: limits.feed_ids_max as u64,
        });
    }
    let mut ids = Vec::with_capacity(list.len());
    for value in list {
        let id = value
            .as_str()
            .ok_or_else(|| Fault::bad(name, "holds something other than strings"))?;
        ids.push(check_id(id, name, limits)?);
    }
    if ids.iter().map(String::len).sum::<usize>() > limits.feed_ids_bytes_max {
        return Err(Fault::TooLarge {
            limit: "feed_ids_bytes_max".into(),
            max: limits.feed_ids_bytes_max as u64,
        });
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(Some(ids))
}
