//! The memory store keeps every promise.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, unreachable_pub)]

mod suite;

use suite::promises;

promises!(blocklog::memory::Memory::default());
