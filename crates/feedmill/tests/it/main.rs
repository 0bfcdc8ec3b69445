//! Every integration test, in one binary.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

mod bad_input;
mod examples;
mod oracle;
mod page;
mod peers;
mod store;
mod tidy;
