//! Every integration test, in one binary.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

mod app;
mod backfill;
mod bad_input;
mod bed;
mod branches;
mod dead;
mod desk;
mod direct;
mod examples;
mod filters;
mod jetstream;
mod oracle;
mod page;
mod paging;
mod peers;
mod photos;
mod pool;
mod references;
mod rules;
mod search;
mod settle;
mod skeleton;
mod store;
mod tidy;
mod verify;
