//! The atomics of everything that pages read while the writer writes.
//!
//! Modules with an ordering argument take them from here and not from `std`: with `--cfg loom`
//! they are those of `loom`, which tries the orders that the memory model allows, see `models.rs`.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};
