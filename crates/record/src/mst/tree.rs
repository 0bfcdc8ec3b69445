//! A whole tree in memory, for writing repos.
//!
//! Clones share their nodes, which are copied when one of them changes. So the
//! tree of an earlier revision costs only the nodes changed since.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cid::Cid;

use super::node::{Link, NoBlocks, Node};
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

    /// Sets the record at `path`; returns the previous one.
    pub fn insert(&mut self, path: &str, record: Cid) -> Result<Option<Cid>, MstError> {
        if !is_path(path.as_bytes()) {
            return Err(MstError::Path);
        }
        edit::insert(&mut self.root, path.as_bytes(), record, &NoBlocks)
    }

    /// Removes the record at `path`; returns it if there was one.
    pub fn remove(&mut self, path: &str) -> Result<Option<Cid>, MstError> {
        if self.get(path).is_none() {
            return Ok(None);
        }
        edit::remove(&mut self.root, path.as_bytes(), &NoBlocks)
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

    /// The node blocks of a commit that created, updated or deleted `paths`
    /// and resulted in this tree; the root first.
    ///
    /// They are the nodes on the path to each key, and from there down to both
    /// of its neighbours. An edit changes no other nodes, so these include all
    /// new ones. They suffice to undo the commit: inserting a key again splits
    /// nodes on its path, and removing one merges the nodes beside it.
    pub fn proof<'p>(&self, paths: impl IntoIterator<Item = &'p str>) -> Vec<(Cid, Vec<u8>)> {
        let mut nodes = vec![&self.root];
        let mut seen = BTreeSet::from([self.root.cid()]);
        for path in paths {
            visit_around(&self.root, path, &mut |node| {
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
        let path = std::str::from_utf8(&entry.key).expect("only paths were inserted");
        records.push((path, entry.value));
        if let Link::Node(child) = &entry.right {
            list(child, records);
        }
    }
}

/// Visits the nodes below `node` on the path to a key and to its neighbours.
fn visit_around<'t>(node: &'t Node, path: &str, visit: &mut impl FnMut(&'t Arc<Node>)) {
    let (at, found) = node.find(path.as_bytes());
    if let Link::Node(child) = node.gap(at) {
        visit(child);
        visit_around(child, path, visit);
    }
    if found && let Link::Node(child) = node.gap(at + 1) {
        visit(child);
        visit_around(child, path, visit);
    }
}
