//! Inserting a key into the tree and removing one.
//!
//! Both change only the nodes on the path to the key, and those that are split
//! or merged there. Nodes shared with another tree are copied before they
//! change. Partial trees are enough: a stub on the path is loaded from the
//! [`Source`]; without its block the edit ends with [`MstError::Missing`].

use std::sync::Arc;

use crate::cid::Cid;

use super::node::{Entry, Link, Node, Source, follows};
use super::{MstError, height};

/// Sets `key` to `value` and returns the previous value.
pub(super) fn insert(
    root: &mut Arc<Node>,
    key: &[u8],
    value: Cid,
    source: &impl Source,
) -> Result<Option<Cid>, MstError> {
    let layer = height(key);
    if root.is_empty() {
        *root = Arc::new(leaf(layer, key, value));
        return Ok(None);
    }
    if layer > root.layer {
        let below = root.layer;
        let (left, right) = split(Link::Node(root.clone()), key, below, source)?;
        let mut top = leaf(layer, key, value);
        top.left = raise(left, below, layer);
        if let Some(entry) = top.entries.first_mut() {
            entry.right = raise(right, below, layer);
        }
        *root = Arc::new(top);
        return Ok(None);
    }
    insert_below(root, layer, key, value, source)
}

fn insert_below(
    node: &mut Arc<Node>,
    layer: u8,
    key: &[u8],
    value: Cid,
    source: &impl Source,
) -> Result<Option<Cid>, MstError> {
    let node = make_mut(node);
    let here = node.layer;
    let (at, found) = node.find(key);
    if layer == here {
        if found && let Some(entry) = node.entries.get_mut(at) {
            return Ok(Some(std::mem::replace(&mut entry.value, value)));
        }
        let gap = node.gap_mut(at);
        let (left, right) = split(std::mem::take(gap), key, here.saturating_sub(1), source)?;
        *gap = left;
        node.entries.insert(
            at,
            Entry {
                key: key.into(),
                value,
                right,
            },
        );
        return Ok(None);
    }
    if let Some(child) = node.child(at, source)? {
        return insert_below(child, layer, key, value, source);
    }
    let new = Link::Node(Arc::new(leaf(layer, key, value)));
    *node.gap_mut(at) = raise(new, layer, here);
    Ok(None)
}

/// Removes `key` and returns its value. For an absent key the tree stays the
/// same, but the nodes on the path are copied and hashed again, so callers
/// check first.
pub(super) fn remove(
    root: &mut Arc<Node>,
    key: &[u8],
    source: &impl Source,
) -> Result<Option<Cid>, MstError> {
    let removed = remove_below(root, key, source)?;
    // A root without keys is replaced by its only child.
    while root.entries.is_empty() && !root.is_empty() {
        let below = root.layer.saturating_sub(1);
        let mut left = std::mem::take(&mut make_mut(root).left);
        match left.load(below, source)? {
            Some(child) => *root = child.clone(),
            None => break,
        }
    }
    Ok(removed)
}

fn remove_below(
    node: &mut Arc<Node>,
    key: &[u8],
    source: &impl Source,
) -> Result<Option<Cid>, MstError> {
    let node = make_mut(node);
    let below = node.layer.saturating_sub(1);
    let (at, found) = node.find(key);
    if found {
        let entry = node.entries.remove(at);
        let gap = node.gap_mut(at);
        *gap = merge(std::mem::take(gap), entry.right, below, source)?;
        return Ok(Some(entry.value));
    }
    let Some(child) = node.child(at, source)? else {
        return Ok(None);
    };
    let removed = remove_below(child, key, source)?;
    if child.is_empty() {
        *node.gap_mut(at) = Link::None;
    }
    Ok(removed)
}

/// The value at `key`.
pub(super) fn get(
    root: &mut Arc<Node>,
    key: &[u8],
    source: &impl Source,
) -> Result<Option<Cid>, MstError> {
    let (at, found) = root.find(key);
    if found {
        return Ok(root.entries.get(at).map(|entry| entry.value));
    }
    if root.layer == 0 || matches!(root.gap(at), Link::None) {
        return Ok(None);
    }
    // Loading a stub does not change the node, so it keeps its CID.
    match Arc::make_mut(root).child(at, source)? {
        Some(child) => get(child, key, source),
        None => Ok(None),
    }
}

/// Splits the linked subtree into the keys before and after `key`.
fn split(
    mut link: Link,
    key: &[u8],
    layer: u8,
    source: &impl Source,
) -> Result<(Link, Link), MstError> {
    let Some(node) = link.load(layer, source)? else {
        return Ok((Link::None, Link::None));
    };
    let node = make_mut(node);
    let (at, _) = node.find(key);
    let gap = std::mem::take(node.gap_mut(at));
    let (inner_left, inner_right) = split(gap, key, layer.saturating_sub(1), source)?;
    let right = Node {
        layer,
        left: inner_right,
        entries: node.entries.split_off(at),
        ..Node::default()
    };
    *node.gap_mut(at) = inner_left;
    Ok((Link::to(std::mem::take(node)), Link::to(right)))
}

/// Merges two neighbouring subtrees; every key of the left one must be smaller.
fn merge(
    mut left: Link,
    mut right: Link,
    layer: u8,
    source: &impl Source,
) -> Result<Link, MstError> {
    if matches!(left, Link::None) {
        return Ok(right);
    }
    if matches!(right, Link::None) {
        return Ok(left);
    }
    let (Some(node), Some(other)) = (left.load(layer, source)?, right.load(layer, source)?) else {
        return Ok(Link::None);
    };
    let (node, other) = (make_mut(node), make_mut(other));
    if !follows(node.entries.last(), other.entries.first()) {
        return Err(MstError::Malformed("keys out of order"));
    }
    let end = node.entries.len();
    let gap = node.gap_mut(end);
    *gap = merge(
        std::mem::take(gap),
        std::mem::take(&mut other.left),
        layer.saturating_sub(1),
        source,
    )?;
    node.entries.append(&mut other.entries);
    Ok(left)
}

/// The node for a change: not shared, and without its cached CID.
fn make_mut(node: &mut Arc<Node>) -> &mut Node {
    let node = Arc::make_mut(node);
    node.cid.take();
    node
}

fn leaf(layer: u8, key: &[u8], value: Cid) -> Node {
    Node {
        layer,
        entries: vec![Entry {
            key: key.into(),
            value,
            right: Link::None,
        }],
        ..Node::default()
    }
}

/// Adds parents without keys until the link fits below `layer`.
fn raise(mut link: Link, from: u8, layer: u8) -> Link {
    if matches!(link, Link::None) {
        return link;
    }
    for layer in from.saturating_add(1)..layer {
        link = Link::Node(Arc::new(Node {
            layer,
            left: link,
            ..Node::default()
        }));
    }
    link
}
