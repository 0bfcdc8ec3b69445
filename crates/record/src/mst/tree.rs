//! A whole tree in memory, for those who write repos.
//!
//! Nodes are shared between clones and copied when one of them changes, so
//! keeping the tree of an earlier revision costs only what has changed since.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cid::Cid;

use super::node::{Link, Node, Nowhere};
use super::{MstError, edit, is_path};

/// The records of one repo.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    root: Arc<Node>,
}

impl Tree {
    /// A repo without records.
    pub fn new() -> Self {
        Self::default()
    }

    /// The record at `path`.
    pub fn get(&self, path: &str) -> Option<Cid> {
        let mut node = &self.root;
        loop {
            let (at, found) = node.find(path.as_bytes());
            if found {
                return node.entries.get(at).map(|entry| entry.value);
            }
            match node.gap(at) {
                Link::Node(child) => node = child,
                Link::None | Link::Stub(_) => return None,
            }
        }
    }

    /// Sets the record at `path`; returns the one before.
    pub fn insert(&mut self, path: &str, record: Cid) -> Result<Option<Cid>, MstError> {
        if !is_path(path.as_bytes()) {
            return Err(MstError::Path);
        }
        edit::put(&mut self.root, path.as_bytes(), record, &Nowhere)
    }

    /// Removes the record at `path`; returns it if there was one.
    pub fn remove(&mut self, path: &str) -> Result<Option<Cid>, MstError> {
        if self.get(path).is_none() {
            return Ok(None);
        }
        edit::take(&mut self.root, path.as_bytes(), &Nowhere)
    }

    /// The CID of the root: what a commit signs as `data`.
    pub fn root(&self) -> Cid {
        self.root.cid()
    }

    /// Every node, the root first.
    pub fn blocks(&self) -> Vec<(Cid, Vec<u8>)> {
        let mut blocks = Vec::new();
        collect(&self.root, &mut blocks);
        blocks
    }

    /// Every record in the order of its path.
    pub fn records(&self) -> Vec<(&str, Cid)> {
        let mut records = Vec::new();
        list(&self.root, &mut records);
        records
    }

    /// The node blocks a commit must carry that created, updated or deleted
    /// `paths` and led to this tree; the root first.
    ///
    /// They are the nodes on the way to each path and down both sides of it
    /// to its neighbours. All nodes the commit made are among them, for an
    /// edit changes no others; and they suffice to undo it, because putting a
    /// key back cuts the nodes on its way and taking one out joins the nodes
    /// beside it.
    pub fn proof<'p>(&self, paths: impl IntoIterator<Item = &'p str>) -> Vec<(Cid, Vec<u8>)> {
        let mut nodes = vec![&self.root];
        let mut seen = BTreeSet::from([self.root.cid()]);
        for path in paths {
            cover(&self.root, path, &mut |node| {
                if seen.insert(node.cid()) {
                    nodes.push(node);
                }
            });
        }
        nodes
            .into_iter()
            .map(|node| (node.cid(), node.to_block()))
            .collect()
    }
}

fn collect(node: &Node, blocks: &mut Vec<(Cid, Vec<u8>)>) {
    blocks.push((node.cid(), node.to_block()));
    for at in 0..=node.entries.len() {
        if let Link::Node(child) = node.gap(at) {
            collect(child, blocks);
        }
    }
}

fn list<'t>(node: &'t Node, records: &mut Vec<(&'t str, Cid)>) {
    if let Link::Node(child) = &node.left {
        list(child, records);
    }
    for entry in &node.entries {
        let path = std::str::from_utf8(&entry.key).expect("only paths were put in");
        records.push((path, entry.value));
        if let Link::Node(child) = &entry.right {
            list(child, records);
        }
    }
}

/// Visits the nodes below `node` on the way to `path` and its neighbours.
fn cover<'t>(node: &'t Node, path: &str, visit: &mut impl FnMut(&'t Arc<Node>)) {
    let (at, found) = node.find(path.as_bytes());
    if let Link::Node(child) = node.gap(at) {
        visit(child);
        cover(child, path, visit);
    }
    if found && let Link::Node(child) = node.gap(at + 1) {
        visit(child);
        cover(child, path, visit);
    }
}
