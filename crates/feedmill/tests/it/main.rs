//! Every integration test, in one binary.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

mod dead;
mod desk;
mod oracle;
mod page;
mod peers;
mod references;
mod rules;
mod settle;
mod store;
mod tidy;
