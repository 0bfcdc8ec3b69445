//! Where it is kept.
//!
//! In:    the wants and the writes of a decision; the ranges of a page.
//! Out:   rows, in one snapshot; changes, in commit order.
//! Never: a rule of the product. An engine cannot tell a post from a follow.
//!
//! [`port`] says what an engine promises, [`apply`] runs a batch through one,
//! and `memory` and `sqlite` are engines. A module names only modules above it
//! in this list.

// What can go wrong, by what is done about it.
pub mod error;

// What every engine promises.
pub mod port;

// A batch, from its names to its commit.
pub mod apply;

// A repository that was fetched whole, slice by slice.
pub mod repository;

// What is due without anybody asking.
pub mod work;

// Pages, over a snapshot of any engine.
pub mod page;

// The reference engine: ordered maps.
pub mod memory;

// The default engine: one file.
pub mod sqlite;
