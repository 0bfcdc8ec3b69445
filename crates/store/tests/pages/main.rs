//! Every page equals what a naive computation over all rows gives, on every engine, within its
//! round trips.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod naive;
mod world;

mod children;
mod dead;
mod explain;
mod feed;
mod graph;
mod list;
mod merged;
mod record;
mod reference;
mod status;
