//! What a reader sees: exact feeds, in memory, at any scale.
//!
//! In:    records, follows, mutes and takedowns as the store hands them out.
//! Out:   pages of record ids, newest first, for any reader.
//! Never: I/O, a clock, randomness; an answer that may be wrong.
//!
//! The store is the truth and can answer every page by itself. This crate is
//! its accelerator: it answers what it can answer exactly and says plainly
//! when it cannot. [`Timelines`] is the door; everything else stands behind
//! it, and each module names only modules above it.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("timelines need a 64-bit target: positions, limits and packed words have 64 bits");

pub mod merge;

mod sync;

mod version;

mod window_floor;

mod ahead;

mod column;

mod journal;

mod sorted;

mod counted;

mod shards;

mod block;

mod accounts;

mod numbers;

mod uris;

mod reuse;

mod records;

mod sequence;

mod outboxes;

mod slab;

mod line;

mod ring;

mod rings;

mod pushes;

mod settings;

mod lane;

mod audience;

mod readers;

mod changes;

mod gather;

mod page;

mod feed;

mod warm;

mod sweep;

mod witness;

mod engine;

mod reading;

mod pages;

mod timelines;

#[cfg(all(test, loom))]
mod models;

pub use ahead::fetch;
pub use feed::Registered;
pub use lane::{Inserted, NewRecord};
pub use page::{Entry, Page, Read, Request, Target};
pub use pages::{Moment, Pages};
pub use reading::{Cold, Inspection};
pub use records::Position;
pub use rings::RING_ITEMS_MAX;
pub use settings::{FeedSpec, KeyId, KeyList, RECORD_BYTES, RecordId, Settings, TargetSpec};
pub use shards::Quick;
pub use timelines::{Stats, Timelines};
