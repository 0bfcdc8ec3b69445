//! The walk: visits a value and its schema together.
//!
//! Fields of a value and fields of a schema are in the same order, so an object
//! is checked in one pass over both. `levels` is the number of levels still
//! allowed. Lexicons may be cyclic, values are not, so every walk ends.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::json::{self, DEPTH_MAX, ModelError};
use crate::lexicon::{Catalog, Field, Node, NodeId, Union};
use crate::value::{Value, key_order};

use super::fault::Fault;
use super::scalar;

/// Boxed, so that `Ok` is returned in a register.
pub(super) type Checked = Result<(), Box<Fault>>;

type Entries<'a> = [(Cow<'a, str>, Value<'a>)];

pub(super) struct Walk<'c> {
    pub(super) catalog: &'c Catalog,
}

impl Walk<'_> {
    pub(super) fn check(&self, node: NodeId, value: &Value<'_>, levels: usize) -> Checked {
        match self.catalog.node(node) {
            Node::Text(rule) => scalar::text(rule, value),
            Node::Object(fields) => match value {
                Value::Map(entries) => self.object(fields, entries, one_fewer(levels)?),
                _ => Err(Fault::kind("object", value)),
            },
            Node::Array { items, length } => match value {
                Value::List(list) if length.contains(list.len()) => {
                    let levels = one_fewer(levels)?;
                    for (index, item) in list.iter().enumerate() {
                        self.check(*items, item, levels)
                            .map_err(|fault| fault.under(index.to_string()))?;
                    }
                    Ok(())
                }
                Value::List(list) => Err(scalar::amount("array", *length, list.len(), "items")),
                _ => Err(Fault::kind("array", value)),
            },
            Node::Union(union) => self.union(union, value, levels),
            Node::Integer(rule) => scalar::integer(rule, value),
            Node::Boolean(rule) => scalar::boolean(*rule, value),
            Node::Bytes(length) => scalar::bytes(*length, value),
            Node::Blob(rule) => {
                scalar::blob(rule, value)?;
                model(value, levels)
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
            Node::Unknown => unknown(value, levels),
            Node::Any => model(value, levels),
        }
    }

    fn object(&self, fields: &[Field], entries: &Entries<'_>, levels: usize) -> Checked {
        debug_assert!(
            entries.is_sorted_by(|(a, _), (b, _)| key_order(a, b).is_lt()),
            "keys of a value are in canonical order"
        );
        let mut fields = fields.iter();
        let mut next = fields.next();
        for (key, value) in entries {
            loop {
                let Some(field) = next else {
                    undescribed(key, value, entries, levels)?;
                    break;
                };
                match key_order(&field.name, key) {
                    // The field comes before this key: it is absent.
                    Ordering::Less => {
                        check_absent(field)?;
                        next = fields.next();
                    }
                    Ordering::Equal => {
                        self.field(field, value, levels)?;
                        next = fields.next();
                        break;
                    }
                    Ordering::Greater => {
                        undescribed(key, value, entries, levels)?;
                        break;
                    }
                }
            }
        }
        while let Some(field) = next {
            check_absent(field)?;
            next = fields.next();
        }
        Ok(())
    }

    fn field(&self, field: &Field, value: &Value<'_>, levels: usize) -> Checked {
        if matches!(value, Value::Null) && field.nullable {
            return Ok(());
        }
        self.check(field.node, value, levels)
            .map_err(|fault| fault.under(&*field.name))
    }

    fn union(&self, union: &Union, value: &Value<'_>, levels: usize) -> Checked {
        if !matches!(value, Value::Map(_)) {
            return Err(Fault::kind("object with $type", value));
        }
        let name = match value.get("$type") {
            // A blob is a type of its own, though it looks like an object.
            Some(Value::Text(name)) if name == "blob" => {
                return Err(Fault::new("object with $type", "blob"));
            }
            Some(Value::Text(name)) => name,
            Some(other) => return Err(Fault::kind("string", other).under("$type")),
            None => return Err(Fault::new("string", "nothing").under("$type")),
        };
        match union.member(name) {
            Some(node) => self.check(node, value, levels),
            None if union.closed => {
                let names: Vec<&str> = union.names().collect();
                let expected = format!("one of {}", names.join(", "));
                Err(Fault::new(expected, name).under("$type"))
            }
            None => model(value, levels),
        }
    }
}

fn one_fewer(levels: usize) -> Result<usize, Box<Fault>> {
    levels.checked_sub(1).ok_or_else(too_deep)
}

#[cold]
fn too_deep() -> Box<Fault> {
    Fault::new(
        format!("at most {DEPTH_MAX} levels of nesting"),
        "more levels",
    )
}

fn check_absent(field: &Field) -> Checked {
    if field.required {
        Err(Fault::new("a value", "nothing").under(&*field.name))
    } else {
        Ok(())
    }
}

/// A field that the lexicon does not name. Keys with a dollar sign are checked
/// by the rules of the data model.
fn undescribed(key: &str, value: &Value<'_>, entries: &Entries<'_>, levels: usize) -> Checked {
    match value {
        Value::Text(name) if key == "$type" && !matches!(&**name, "" | "blob") => return Ok(()),
        _ if key.starts_with('$') => json::check_map(entries).map_err(model_fault)?,
        _ => {}
    }
    model(value, levels).map_err(|fault| fault.under(key))
}

/// An object of any shape, but not a link, bytes or a blob.
fn unknown(value: &Value<'_>, levels: usize) -> Checked {
    match value {
        Value::Map(_) if value.get("$type").and_then(Value::text) == Some("blob") => {
            Err(Fault::new("object", "blob"))
        }
        Value::Map(_) => model(value, levels),
        _ => Err(Fault::kind("object", value)),
    }
}

/// Checks the data model only.
pub(super) fn model(value: &Value<'_>, levels: usize) -> Checked {
    match value {
        Value::List(items) => {
            let levels = one_fewer(levels)?;
            for (index, item) in items.iter().enumerate() {
                model(item, levels).map_err(|fault| fault.under(index.to_string()))?;
            }
            Ok(())
        }
        Value::Map(entries) => {
            let levels = one_fewer(levels)?;
            json::check_map(entries).map_err(model_fault)?;
            for (key, value) in entries {
                model(value, levels).map_err(|fault| fault.under(&**key))?;
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
