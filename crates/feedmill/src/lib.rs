//! The river: streams of records in, feeds out.
//!
//! Water runs one way: a module names only modules above it in this list.

/// The clock, as an argument.
pub mod clock;

/// Named crash points.
pub mod crash;

/// Configuration.
pub mod config;

/// Where checked records come to rest.
pub mod store;
