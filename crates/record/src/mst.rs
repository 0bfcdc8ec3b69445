//! The Merkle search tree: the records of a repo under one hash.
//!
//! In:    record paths and CIDs; or the blocks of a commit or a whole repo.
//! Out:   the root CID, the node blocks, the proof a commit must carry, the
//!        previous root a commit implies, or every record of a repo.
//! Never: a node read whose keys are out of order, at a wrong height or not
//!        record paths; recursion deeper than 128 layers, the bit pairs of a
//!        SHA-256.
//!
//! A key's height is the number of leading zero bit pairs of its SHA-256. So
//! the keys alone determine the tree, and a set of records has exactly one
//! root. [`invert`] uses that: it undoes a commit's operations on the part of
//! the tree that the commit contains, which must give the previous root.

use sha2::{Digest, Sha256};

use crate::cbor::CborError;
use crate::cid::Cid;

mod edit;
mod invert;
mod node;
mod tree;
mod walk;

pub use invert::{Op, invert};
pub use tree::Tree;
pub use walk::{Walk, walk};

/// Bytes of one record path, `collection/rkey`.
pub const PATH_BYTES_MAX: usize = 1024;

/// Why a tree cannot be read or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MstError {
    /// A node is needed that the archive lacks: fetch the whole repo.
    #[error("block {0} is not in the archive")]
    Missing(Cid),

    /// A node block is not CBOR, or has other fields.
    #[error("node block")]
    Block(#[from] CborError),

    /// A node that no valid tree contains.
    #[error("not a merkle search tree: {0}")]
    Malformed(&'static str),

    /// Not a valid record path.
    #[error("not a record path")]
    Path,

    /// The tree does not contain the record that an operation names.
    #[error("tree and operation disagree: {0}")]
    Disagrees(&'static str),

    /// More records than the caller allows.
    #[error("more than {0} records")]
    TooMany(usize),
}

/// The layer a key belongs to: leading zero bit pairs of its SHA-256.
pub fn height(key: &[u8]) -> u8 {
    let digest: [u8; 32] = Sha256::digest(key).into();
    let mut zeros = 0;
    for byte in digest {
        zeros += byte.leading_zeros();
        if byte != 0 {
            break;
        }
    }
    (zeros / 2) as u8
}

/// Length in bytes of the common prefix of two keys.
pub fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(a, b)| a == b).count()
}

/// Whether `path` is a record path: two non-empty parts of the allowed
/// characters, separated by one slash.
pub fn is_path(path: &[u8]) -> bool {
    // No early exit, so that the compiler can use vector instructions.
    let (mut allowed, mut slashes) = (true, 0usize);
    for &byte in path {
        let slash = byte == b'/';
        slashes += usize::from(slash);
        allowed &= slash | is_part_byte(byte);
    }
    let inside = path.first() != Some(&b'/') && path.last() != Some(&b'/');
    allowed && slashes == 1 && inside && path.len() <= PATH_BYTES_MAX
}

#[inline]
fn is_part_byte(byte: u8) -> bool {
    let letter = (byte | 0x20).wrapping_sub(b'a') < 26;
    let digit = byte.wrapping_sub(b'0') < 11; // the colon follows the nine
    letter | digit | (byte == b'_') | (byte == b'~') | (byte == b'-') | (byte == b'.')
}
