//! Putting a key into the tree and taking one out.
//!
//! Both touch only the path to the key and the seam beside it. Nodes shared
//! with another tree are copied before they change. Every step works on
//! partial trees: a stub on the way is loaded from the [`Source`], and a stub
//! that is not there ends the edit with [`MstError::Missing`].

use std::sync::Arc;

use crate::cid::Cid;

use super::node::{Entry, Link, Node, Source, follows};
use super::{MstError, height};

/// Sets `key` to `value` and returns what it was before.
pub(super) fn put(
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
    put_below(root, layer, key, value, source)
}

fn put_below(
    node: &mut Arc<Node>,
    layer: u8,
    key: &[u8],
    value: Cid,
    source: &impl Source,
) -> Result<Option<Cid>, MstError> {
    let node = changed(node);
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
        return put_below(child, layer, key, value, source);
    }
    let new = Link::Node(Arc::new(leaf(layer, key, value)));
    *node.gap_mut(at) = raise(new, layer, here);
    Ok(None)
}

/// Takes `key` out and returns its value. For a key that is not there the
/// tree stays the same, but nodes on the way are copied and named anew, so
/// callers look first.
pub(super) fn take(
    root: &mut Arc<Node>,
    key: &[u8],
    source: &impl Source,
) -> Result<Option<Cid>, MstError> {
    let taken = take_below(root, key, source)?;
    // A root without keys hands over to its only child.
    while root.entries.is_empty() && !root.is_empty() {
        let below = root.layer.saturating_sub(1);
        let mut left = std::mem::take(&mut changed(root).left);
        match left.load(below, source)? {
            Some(child) => *root = child.clone(),
            None => break,
        }
    }
    Ok(taken)
}

fn take_below(
    node: &mut Arc<Node>,
    key: &[u8],
    source: &impl Source,
) -> Result<Option<Cid>, MstError> {
    let node = changed(node);
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
    let taken = take_below(child, key, source)?;
    if child.is_empty() {
        *node.gap_mut(at) = Link::None;
    }
    Ok(taken)
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
    // Loading a stub changes no name, so the node keeps its CID.
    match Arc::make_mut(root).child(at, source)? {
        Some(child) => get(child, key, source),
        None => Ok(None),
    }
}

/// Cuts what is linked into the parts before and after `key`.
fn split(
    mut link: Link,
    key: &[u8],
    layer: u8,
    source: &impl Source,
) -> Result<(Link, Link), MstError> {
    let Some(node) = link.load(layer, source)? else {
        return Ok((Link::None, Link::None));
    };
    let node = changed(node);
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

/// Joins two neighbours, of which every key of the left is the smaller.
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
    let (node, other) = (changed(node), changed(other));
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

/// The node to change: unshared, its name forgotten.
fn changed(node: &mut Arc<Node>) -> &mut Node {
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

/// Puts nodes without keys on top until the link fits below `layer`.
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
