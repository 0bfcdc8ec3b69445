//! The bytes side of the crate, through its public door: CBOR, archives,
//! keys, trees, commits and events, against the network's own test vectors.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stderr)]

mod fixture;
mod mst;
