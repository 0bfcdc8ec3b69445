//! The walk: a value and its node, side by side, down to the leaves.
//!
//! Fields of a value and fields of a node are in the same order, so an object
//! is checked in one pass over both. `room` counts the levels that may still
//! follow; lexicons may be cyclic, values are not, so it always ends.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::json::{self, DEPTH_MAX, ModelError};
use crate::lexicon::{Catalog, Field, Node, NodeId, Union};
use crate::value::{Value, key_order};

use super::fault::Fault;
use super::scalar;

/// Boxed, so that the good answer travels in a register.
pub(super) type Checked = Result<(), Box<Fault>>;

type Entries<'a> = [(Cow<'a, str>, Value<'a>)];

pub(super) struct Walk<'c> {
    pub(super) catalog: &'c Catalog,
}

impl Walk<'_> {
    pub(super) fn check(&self, node: NodeId, value: &Value<'_>, room: usize) -> Checked {
        match self.catalog.node(node) {
            Node::Text(rule) => scalar::text(rule, value),
            Node::Object(fields) => match value {
                Value::Map(entries) => self.object(fields, entries, less(room)?),
                _ => Err(Fault::kind("object", value)),
            },
            Node::Array { items, length } => match value {
                Value::List(list) if length.hold(list.len()) => {
                    let room = less(room)?;
                    for (index, item) in list.iter().enumerate() {
                        self.check(*items, item, room)
                            .map_err(|fault| fault.under(index.to_string()))?;
                    }
                    Ok(())
                }
                Value::List(list) => Err(scalar::amount("array", *length, list.len(), "items")),
                _ => Err(Fault::kind("array", value)),
            },
            Node::Union(union) => self.union(union, value, room),
            Node::Integer(rule) => scalar::integer(rule, value),
            Node::Boolean(rule) => scalar::boolean(*rule, value),
            Node::Bytes(length) => scalar::bytes(*length, value),
            Node::Blob(rule) => {
                scalar::blob(rule, value)?;
                model(value, room)
            }
            Node::Token(name) => scalar::token(name, value),
            Node::Link => match value {
                Value::Link(_) => Ok(()),
                _ => Err(Fault::kind("cid-link", value)),
            },
            Node::Null => match value {
                Value::Null => Ok(()),
                _ => Err(Fault::kind("null", value)),
            },
            Node::Unknown => unknown(value, room),
            Node::Any => model(value, room),
        }
    }

    fn object(&self, fields: &[Field], entries: &Entries<'_>, room: usize) -> Checked {
        debug_assert!(
            entries.is_sorted_by(|(a, _), (b, _)| key_order(a, b).is_lt()),
            "keys of a value are in canonical order"
        );
        let mut fields = fields.iter();
        let mut due = fields.next();
        for (key, value) in entries {
            loop {
                let Some(field) = due else {
                    undescribed(key, value, entries, room)?;
                    break;
                };
                match key_order(&field.name, key) {
                    // The field comes before this key: it is absent.
                    Ordering::Less => {
                        present_if_required(field)?;
                        due = fields.next();
                    }
                    Ordering::Equal => {
                        self.field(field, value, room)?;
                        due = fields.next();
                        break;
                    }
                    Ordering::Greater => {
                        undescribed(key, value, entries, room)?;
                        break;
                    }
                }
            }
        }
        while let Some(field) = due {
            present_if_required(field)?;
            due = fields.next();
        }
        Ok(())
    }

    fn field(&self, field: &Field, value: &Value<'_>, room: usize) -> Checked {
        if matches!(value, Value::Null) && field.nullable {
            return Ok(());
        }
        self.check(field.node, value, room)
            .map_err(|fault| fault.under(&*field.name))
    }

    fn union(&self, union: &Union, value: &Value<'_>, room: usize) -> Checked {
        if !matches!(value, Value::Map(_)) {
            return Err(Fault::kind("object with $type", value));
        }
        let name = match value.get("$type") {
            // A blob is a value of its own kind that only looks like an object.
            Some(Value::Text(name)) if name == "blob" => {
                return Err(Fault::new("object with $type", "blob"));
            }
            Some(Value::Text(name)) => name,
            Some(other) => return Err(Fault::kind("string", other).under("$type")),
            None => return Err(Fault::new("string", "nothing").under("$type")),
        };
        match union.member(name) {
            Some(node) => self.check(node, value, room),
            None if union.closed => {
                let names: Vec<&str> = union.names().collect();
                let expected = format!("one of {}", names.join(", "));
                Err(Fault::new(expected, name).under("$type"))
            }
            None => model(value, room),
        }
    }
}

fn less(room: usize) -> Result<usize, Box<Fault>> {
    room.checked_sub(1).ok_or_else(too_deep)
}

#[cold]
fn too_deep() -> Box<Fault> {
    Fault::new(
        format!("at most {DEPTH_MAX} levels of nesting"),
        "more levels",
    )
}

fn present_if_required(field: &Field) -> Checked {
    if field.required {
        Err(Fault::new("a value", "nothing").under(&*field.name))
    } else {
        Ok(())
    }
}

/// A field the lexicon does not name. Keys with a dollar sign belong to the
/// data model, which has its own opinion on them.
fn undescribed(key: &str, value: &Value<'_>, entries: &Entries<'_>, room: usize) -> Checked {
    match value {
        Value::Text(name) if key == "$type" && !matches!(&**name, "" | "blob") => return Ok(()),
        _ if key.starts_with('$') => json::check_map(entries).map_err(model_fault)?,
        _ => {}
    }
    model(value, room).map_err(|fault| fault.under(key))
}

/// An object of any shape; a link, bytes or a blob is not one.
fn unknown(value: &Value<'_>, room: usize) -> Checked {
    match value {
        Value::Map(_) if value.get("$type").and_then(Value::text) == Some("blob") => {
            Err(Fault::new("object", "blob"))
        }
        Value::Map(_) => model(value, room),
        _ => Err(Fault::kind("object", value)),
    }
}

/// The data model alone.
pub(super) fn model(value: &Value<'_>, room: usize) -> Checked {
    match value {
        Value::List(items) => {
            let room = less(room)?;
            for (index, item) in items.iter().enumerate() {
                model(item, room).map_err(|fault| fault.under(index.to_string()))?;
            }
            Ok(())
        }
        Value::Map(entries) => {
            let room = less(room)?;
            json::check_map(entries).map_err(model_fault)?;
            for (key, value) in entries {
                model(value, room).map_err(|fault| fault.under(&**key))?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

#[cold]
fn model_fault(error: ModelError) -> Box<Fault> {
    Fault::new("an object of the data model", error.to_string())
}
