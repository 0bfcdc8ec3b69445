//! `feedmill log conflicts`: blocks of a replica that its authority does not have.
//!
//! In:    the file of a replica.
//! Out:   each block that lost its key or was refused, with the reason; an error if there are any.
//! Never: a block dropped unless that was asked for.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blocklog::block::Payload;
use blocklog::conflict::Aside;
use blocklog::store::{LogStore as _, ReplicaStore as _, Role};
use clap::Args;
use replicate::sqlite::SqliteLog;
use serde_json::{Value, json};

use super::super::{Ending, say};
use super::Trouble;

/// Which file, and what to do about what it lists.
#[derive(Debug, Args)]
pub(in crate::cli) struct Conflicts {
    /// The file that holds the replica
    file: PathBuf,
    /// Only this space
    #[arg(long)]
    space: Option<String>,
    /// Send what was refused again: its reason may be gone
    #[arg(long)]
    retry: bool,
    /// Drop the blocks whose key another block took, once they are printed
    #[arg(long)]
    forget: bool,
    /// Drop the blocks that were refused, once they are printed
    #[arg(long, conflicts_with = "retry")]
    discard: bool,
}

impl Conflicts {
    pub(super) fn run(self) -> Result<(), Ending> {
        if !self.file.is_file() {
            return Err(Trouble::NoFile(self.file).into());
        }
        let store = SqliteLog::open(&self.file)?;
        let mut left = 0;
        for space in store.spaces()? {
            let state = store.space(&space)?;
            let is_replica = state.is_some_and(|state| state.role == Role::Replica);
            if !is_replica || self.space.as_ref().is_some_and(|only| *only != space) {
                continue;
            }
            let asides = store.conflicts(&space, usize::MAX)?;
            asides.iter().for_each(|aside| say(&line(&space, aside)));
            left += asides.len();
            if self.retry {
                left -= usize::try_from(store.retry_refused(&space)?)?;
            }
            if self.discard {
                left -= usize::try_from(store.discard_refused(&space)?)?;
            }
            if self.forget {
                left -= usize::try_from(store.forget_conflicts(&space)?)?;
            }
        }
        match left {
            0 => Ok(()),
            left => Err(Trouble::Aside(left, self.file).into()),
        }
    }
}

fn line(space: &str, aside: &Aside) -> String {
    let block = &aside.held.block;
    let data = match &block.payload {
        Payload::Bytes(bytes) => Value::String(STANDARD.encode(bytes)),
        Payload::Purged { .. } => Value::Null,
    };
    let line = json!({
        "space": space, "feedId": block.feed, "actorId": block.actor, "sequence": block.sequence,
        "timestamp": block.timestamp_ms, "hash": aside.held.hash.to_string(), "error": aside.reason,
        "isSigned": block.signature.is_some(), "data": data,
    });
    line.to_string()
}
