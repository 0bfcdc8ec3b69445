//! The crate through its public functions: against vectors of our own, against
//! the published ones where they are found, against random values, and against
//! hostile bytes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod published;
mod values;
mod vectors;

mod car;
mod cbor;
mod dag_cbor;
mod event;
mod examples;
mod hostile;
mod hostile_tree;
mod json;
mod key;
mod lexicon;
mod links;
mod mst;
mod records;
mod syntax;
mod tid;
mod tree;
mod validate;
