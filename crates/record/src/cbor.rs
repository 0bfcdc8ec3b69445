//! Strict DAG-CBOR: every value has exactly one encoding.
//!
//! In:    any bytes, or a [`Value`](crate::value::Value) to write.
//! Out:   a [`Value`](crate::value::Value) that borrows the bytes; or canonical bytes.
//! Never: a second encoding of the same value accepted: no indefinite or
//!        padded lengths, no floats, no tag but 42, no unsorted or repeated
//!        keys, no text that is not UTF-8, nothing nested deeper than
//!        [`DEPTH_MAX`], no integer outside `i64`, no bytes left over; memory
//!        allocated because a length claims to need it.
//!
//! A CID is the hash of a block's bytes. If a value had two encodings, two
//! correct programs could compute different CIDs for the same record.

mod decode;
mod encode;
mod reader;

pub use decode::{decode, decode_first};
pub use encode::{Writer, encode};
pub use reader::{Fields, Major, Reader};

/// Levels of lists and maps inside each other.
pub const DEPTH_MAX: usize = 64;

/// Why bytes are not strict DAG-CBOR, or not of the type asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CborError {
    /// The input ends too early; more bytes could make it valid.
    #[error("input ends inside a value")]
    Truncated,

    /// The bytes are invalid whatever follows them.
    #[error("not strict dag-cbor: {0}")]
    Malformed(&'static str),

    /// Valid, but nested beyond [`DEPTH_MAX`].
    #[error("nested deeper than {DEPTH_MAX}")]
    TooDeep,

    /// Valid so far, but of another type than the caller asked for.
    #[error("expected {0}")]
    Unexpected(&'static str),
}
