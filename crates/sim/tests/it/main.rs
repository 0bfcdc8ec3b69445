//! The simulator through the door its users take.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod acts;
mod client;
mod faults;
mod feed;
mod jetstream;
mod labels;
mod model;
mod network;
mod world;
