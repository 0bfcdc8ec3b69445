//! Links: the records and accounts that a record refers to.
//!
//! In:    a record and the catalog that describes it; or a record and a path.
//! Out:   every AT URI and DID in it, each with its path.
//! Never: an error. The record may be invalid; fields that break the lexicon
//!        are skipped, and the validator reports them.
//!
//! The lexicon says which fields are links (formats `at-uri` and `did`; a
//! `strongRef` is an object with a `uri`), so a new collection needs no code.
//! The path identifies the type of the link: field names joined by dots, without
//! indexes of lists, so `facets.features.did` is every mention of a post.

use crate::json::DEPTH_MAX;
use crate::lexicon::{Catalog, Format, Node, NodeId};
use crate::value::Value;

impl Catalog {
    /// Calls `found` with the path and target of every link in a record of
    /// the collection `nsid`. Without a lexicon for it there are none.
    pub fn links(&self, nsid: &str, record: &Value<'_>, found: &mut impl FnMut(&str, &str)) {
        let Some(collection) = self.collection(nsid) else {
            return;
        };
        if self.is_linked(collection.node) {
            let mut path = String::new();
            self.links_below(collection.node, record, &mut path, found, DEPTH_MAX);
        }
    }

    /// The caller has checked that `node` can have a link.
    fn links_below(
        &self,
        node: NodeId,
        value: &Value<'_>,
        path: &mut String,
        found: &mut impl FnMut(&str, &str),
        levels: usize,
    ) {
        match (self.node(node), value) {
            (Node::Text(rule), Value::Text(target))
                if rule.format.is_some_and(|format| is_link(format, target)) =>
            {
                found(path, target);
            }
            (Node::Array { items, .. }, Value::List(list)) if levels > 0 => {
                for item in list {
                    self.links_below(*items, item, path, found, levels - 1);
                }
            }
            (Node::Object(fields), Value::Map(entries)) if levels > 0 => {
                let linked = fields.iter().filter(|field| self.is_linked(field.node));
                for field in linked {
                    let Some((_, value)) = entries.iter().find(|(key, _)| **key == *field.name)
                    else {
                        continue;
                    };
                    let length = push(path, &field.name);
                    self.links_below(field.node, value, path, found, levels - 1);
                    path.truncate(length);
                }
            }
            (Node::Union(union), Value::Map(_)) => {
                let name = value.get("$type").and_then(Value::text);
                if let Some(member) = name.and_then(|name| union.member(name))
                    && self.is_linked(member)
                {
                    self.links_below(member, value, path, found, levels);
                }
            }
            _ => {}
        }
    }
}

/// Calls `found` with `path` and every text at that path, through all items of
/// lists. For links that are none by their lexicon, such as a `sourceUrl`.
pub fn along(record: &Value<'_>, path: &str, found: &mut impl FnMut(&str, &str)) {
    follow(record, Some(path), DEPTH_MAX, &mut |target| {
        found(path, target);
    });
}

/// `rest` is the part of the path not yet followed; `None` at its end.
fn follow(value: &Value<'_>, rest: Option<&str>, levels: usize, found: &mut impl FnMut(&str)) {
    match (value, rest) {
        (Value::List(items), _) if levels > 0 => {
            for item in items {
                follow(item, rest, levels - 1, found);
            }
        }
        (Value::Text(text), None) => found(text),
        (Value::Map(_), Some(path)) if levels > 0 => {
            let (key, rest) = match path.split_once('.') {
                Some((key, rest)) => (key, Some(rest)),
                None => (path, None),
            };
            if let Some(value) = value.get(key) {
                follow(value, rest, levels - 1, found);
            }
        }
        _ => {}
    }
}

fn is_link(format: Format, target: &str) -> bool {
    matches!(format, Format::AtUri | Format::Did) && format.accepts(target)
}

/// Adds a step to the path and returns the previous length.
fn push(path: &mut String, step: &str) -> usize {
    let length = path.len();
    if length > 0 {
        path.push('.');
    }
    path.push_str(step);
    length
}
