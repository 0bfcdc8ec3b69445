//! Undoing a commit to see whether it follows from the one before.
//!
//! In:    the archive of a commit, its tree root, and its operations.
//! Out:   the root before the operations, which must be the commit's `prevData`.
//! Never: a root from a tree that does not hold what the operations say.
//!
//! Only what the operations touch is looked at: a tree that is wrong elsewhere
//! is found by [`super::walk`], when its repo is read as a whole.
//!
//! A host that leaves an operation out of its list, or invents one, gets a
//! different root here. That is all the proof of loss there is, since relays
//! send no signal for a gap.

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
                edit::put(&mut tree, op.path.as_bytes(), prev, blocks)?;
            }
            (Some(_), None) => {
                edit::take(&mut tree, op.path.as_bytes(), blocks)?;
            }
            (None, None) => return Err(MstError::Disagrees("a delete without its record")),
        }
    }
    Ok(tree.cid())
}

/// A path may be touched once in a commit; otherwise the order would matter.
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
