//! The bytes side of the crate, through its public door: CBOR, archives,
//! keys, trees, commits and events, against the network's own test vectors,
//! against random values, and against hostile bytes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stderr)]

mod car;
mod cbor;
mod event;
mod fixture;
mod hostile_tree;
mod key;
mod mst;
mod tid;
mod tree;
mod values;
