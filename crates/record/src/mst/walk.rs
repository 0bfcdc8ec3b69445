//! Every record of a repo, in order, straight from the archive.
//!
//! In:    the archive of a whole repo and the root of its tree.
//! Out:   paths and CIDs in ascending order.
//! Never: a path twice or out of order; a node of a wrong layer; more records
//!        than the caller allows; anything after the first error.
//!
//! The strict order of paths and the decreasing layers also bound the work: a
//! node that is linked twice repeats its keys, which ends the walk.

use std::sync::Arc;

use crate::car::Car;
use crate::cid::Cid;

use super::MstError;
use super::node::{Link, Node};

/// Reads every record below `root`.
pub fn walk<'c, 'a>(blocks: &'c Car<'a>, root: Cid, records_max: usize) -> Walk<'c, 'a> {
    Walk {
        blocks,
        pending: vec![Step::Node(root, None)],
        last: Vec::new(),
        left: records_max,
        records_max,
    }
}

/// The records of a repo; see [`walk`].
#[derive(Debug)]
pub struct Walk<'c, 'a> {
    blocks: &'c Car<'a>,
    /// The steps still to be done, the next one last.
    pending: Vec<Step>,
    last: Vec<u8>,
    left: usize,
    records_max: usize,
}

#[derive(Debug)]
enum Step {
    Node(Cid, Option<u8>),
    Record(Arc<[u8]>, Cid),
}

impl Walk<'_, '_> {
    fn step(&mut self) -> Result<Option<(String, Cid)>, MstError> {
        while let Some(step) = self.pending.pop() {
            match step {
                Step::Node(cid, layer) => self.open(&cid, layer)?,
                Step::Record(path, cid) => return self.record(&path, cid).map(Some),
            }
        }
        Ok(None)
    }

    fn open(&mut self, cid: &Cid, layer: Option<u8>) -> Result<(), MstError> {
        let node = Node::read(cid, layer, self.blocks)?;
        let below = node.layer.checked_sub(1);
        let push = |pending: &mut Vec<Step>, link: &Link| {
            if let Some(cid) = link.cid() {
                pending.push(Step::Node(cid, below));
            }
        };
        for entry in node.entries.into_iter().rev() {
            push(&mut self.pending, &entry.right);
            self.pending.push(Step::Record(entry.key, entry.value));
        }
        push(&mut self.pending, &node.left);
        Ok(())
    }

    fn record(&mut self, path: &[u8], cid: Cid) -> Result<(String, Cid), MstError> {
        if *path <= *self.last {
            return Err(MstError::Malformed("keys out of order"));
        }
        self.left = self
            .left
            .checked_sub(1)
            .ok_or(MstError::TooMany(self.records_max))?;
        self.last.clear();
        self.last.extend_from_slice(path);
        let path = std::str::from_utf8(path).map_err(|_| MstError::Path)?;
        Ok((path.to_owned(), cid))
    }
}

impl Iterator for Walk<'_, '_> {
    type Item = Result<(String, Cid), MstError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            self.pending.clear();
        }
        step.transpose()
    }
}
