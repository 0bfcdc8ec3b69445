//! One event of the world, as the relay sends it and as Jetstream tells it.
//!
//! In:    what an act changed.
//! Out:   the frame's bytes beside the same facts in the open, because the
//!        servers of other protocols must not parse our own frames.
//! Never: a body that disagrees with its frame.

use std::ops::Range;
use std::sync::Arc;

use axum::body::Bytes;
use record::cid::Cid;
use record::event::Action;

use crate::model::Standing;

/// An event with its place in the relay's sequence.
#[derive(Debug, Clone)]
pub struct SeqEvent {
    /// Positive and growing, with gaps.
    pub seq: u64,
    /// The world's time when it was sent.
    pub time_us: i64,
    pub did: Arc<str>,
    /// The `subscribeRepos` frame.
    pub frame: Bytes,
    pub body: Body,
}

/// What the event says.
#[derive(Debug, Clone)]
pub enum Body {
    Commit {
        rev: String,
        /// What was done; nothing where it was too big to say so.
        ops: Vec<Operation>,
        too_big: bool,
        /// Where the CAR lies within the frame.
        blocks: Range<usize>,
    },
    Sync {
        rev: String,
    },
    Identity {
        handle: String,
    },
    Account {
        standing: Standing,
    },
}

/// The word for an action in every protocol.
pub fn word(action: Action) -> &'static str {
    match action {
        Action::Create => "create",
        Action::Update => "update",
        Action::Delete => "delete",
    }
}

/// One operation of a commit.
#[derive(Debug, Clone)]
pub struct Operation {
    pub action: Action,
    pub collection: String,
    pub rkey: String,
    /// The record's block and its name; `None` for a delete.
    pub record: Option<(Cid, Bytes)>,
    /// Whether the record satisfies its lexicon; true for a delete.
    pub sound: bool,
}
