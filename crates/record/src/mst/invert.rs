//! Undoing a commit to check that it follows from the previous one.
//!
//! In:    the archive of a commit, its tree root, and its operations.
//! Out:   the root before the operations, which must be the commit's `prevData`.
//! Never: a root from a tree that does not contain the records the operations
//!        name.
//!
//! Only the nodes that the operations change are read. Faults elsewhere in the
//! tree are found by [`super::walk`], when the whole repo is read.
//!
//! If a host omits or invents an operation, the root differs. This is the only
//! way to detect lost events, since relays do not report gaps.

use std::sync::Arc;

use crate::car::Car;
use crate::cid::Cid;

use super::node::Node;
use super::{MstError, edit, is_path};

/// One operation: a create has no `prev`, a delete has no `cid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op<'a> {
    pub path: &'a str,
    pub cid: Option<Cid>,
    pub prev: Option<Cid>,
}

/// The root before `ops` led to `root`.
pub fn invert(blocks: &Car<'_>, root: Cid, ops: &[Op<'_>]) -> Result<Cid, MstError> {
    let mut tree = Arc::new(Node::read(&root, None, blocks)?);
    once_each(ops)?;
    for op in ops {
        if !is_path(op.path.as_bytes()) {
            return Err(MstError::Path);
        }
        if edit::get(&mut tree, op.path.as_bytes(), blocks)? != op.cid {
            return Err(MstError::Disagrees("another record at the path"));
        }
    }
    for op in ops {
        match (op.cid, op.prev) {
            (_, Some(prev)) => {
                edit::insert(&mut tree, op.path.as_bytes(), prev, blocks)?;
            }
            (Some(_), None) => {
                edit::remove(&mut tree, op.path.as_bytes(), blocks)?;
            }
            (None, None) => return Err(MstError::Disagrees("a delete without its record")),
        }
    }
    Ok(tree.cid())
}

/// A commit may change a path only once; otherwise the order would matter.
fn once_each(ops: &[Op<'_>]) -> Result<(), MstError> {
    if ops.len() < 2 {
        return Ok(());
    }
    let mut paths: Vec<&str> = ops.iter().map(|op| op.path).collect();
    paths.sort_unstable();
    if paths.is_sorted_by(|a, b| a < b) {
        return Ok(());
    }
    Err(MstError::Disagrees("two operations on one path"))
}
