//! Strict DAG-CBOR: the one byte form every block of the network has.
//!
//! In:    bytes from anywhere, or a [`Value`](crate::value::Value) to write.
//! Out:   a [`Value`](crate::value::Value) that borrows the bytes; or canonical bytes.
//! Never: a second byte form of the same value accepted: no indefinite or
//!        padded lengths, no floats, no tag but 42, no unsorted or repeated
//!        keys, no text that is not UTF-8, nothing nested deeper than
//!        [`DEPTH_MAX`], no integer outside `i64`, no bytes left over. No
//!        memory is set aside because a length says so.
//!
//! A block is named by the hash of its bytes. Were two byte forms of one value
//! allowed, two honest programs could disagree about a record's name.

mod decode;
mod encode;
mod reader;

pub use decode::{decode, decode_first};
pub use encode::{Writer, encode};
pub use reader::{Fields, Major, Reader};

/// Containers inside containers that are still read.
pub const DEPTH_MAX: usize = 64;

/// Why bytes are not strict DAG-CBOR, or not of the shape asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CborError {
    /// More bytes could make this right.
    #[error("input ends inside a value")]
    Truncated,

    /// No continuation makes these bytes canonical.
    #[error("not strict dag-cbor: {0}")]
    Malformed(&'static str),

    /// Well formed, but nested beyond [`DEPTH_MAX`].
    #[error("nested deeper than {DEPTH_MAX}")]
    TooDeep,

    /// Well formed so far, but of another kind than the reader asked for.
    #[error("expected {0}")]
    Unexpected(&'static str),
}
