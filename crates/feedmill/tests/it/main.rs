//! Every integration test, in one binary.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

mod backfill;
mod bad_input;
mod bed;
mod examples;
mod jetstream;
mod oracle;
mod page;
mod peers;
mod pool;
mod store;
mod tidy;
mod verify;
