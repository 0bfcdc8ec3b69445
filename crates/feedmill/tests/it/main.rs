//! Every integration test, in one binary.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

mod app;
mod direct;
mod filters;
mod oracle;
mod page;
mod peers;
mod photos;
mod skeleton;
mod tidy;
