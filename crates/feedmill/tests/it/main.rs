//! Every integration test, in one binary.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

mod app;
mod bad_input;
mod direct;
mod examples;
mod filters;
mod oracle;
mod page;
mod peers;
mod photos;
mod skeleton;
mod store;
mod tidy;
