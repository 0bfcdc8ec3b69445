//! Order: the one sequence in which every reader sees the blocks of a space.
//!
//! In:    two blocks.
//! Out:   which comes first, the same answer everywhere.
//! Never: an order that depends on insertion or arrival.
//!
//! Positioned blocks come first, by position. Behind them stand the blocks that
//! still wait for one, by Lamport timestamp: sequence, then actor. The feed
//! breaks the last tie, because one actor may use one sequence in two feeds.

use crate::block::{BlockKey, Held};
use std::cmp::Ordering;

/// The place of an unpositioned block among its kind.
///
/// The fields are compared from top to bottom.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PendingKey {
    /// Lamport time.
    pub sequence: u64,
    /// Breaks ties between authors.
    pub actor: String,
    /// Breaks ties of one author between feeds.
    pub feed: String,
}

impl PendingKey {
    /// The same block's name.
    #[must_use]
    pub fn key(&self) -> BlockKey {
        BlockKey {
            feed: self.feed.clone(),
            sequence: self.sequence,
            actor: self.actor.clone(),
        }
    }
}

impl From<&BlockKey> for PendingKey {
    fn from(key: &BlockKey) -> Self {
        Self {
            sequence: key.sequence,
            actor: key.actor.clone(),
            feed: key.feed.clone(),
        }
    }
}

/// Which of two held blocks a reader sees first.
#[must_use]
pub fn compare(a: &Held, b: &Held) -> Ordering {
    match (a.position, b.position) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => {
            let lamport = |held: &Held| {
                (
                    held.block.sequence,
                    held.block.actor.clone(),
                    held.block.feed.clone(),
                )
            };
            lamport(a).cmp(&lamport(b))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Block, Hash, Payload};

    fn held(position: Option<u64>, sequence: u64, actor: &str) -> Held {
        Held {
            block: Block {
                feed: "f".into(),
                actor: actor.into(),
                sequence,
                predecessor: None,
                timestamp_ms: 0,
                payload: Payload::Bytes(vec![]),
                signature: None,
            },
            hash: Hash::of(b""),
            position,
            namespace: None,
        }
    }

    #[test]
    fn positions_come_first_then_lamport_time_whatever_the_arrival() {
        let mut blocks = [
            held(None, 2, "b"),
            held(None, 2, "a"),
            held(Some(9), 1, "z"),
            held(None, 0, "c"),
            held(None, 1, "b"),
            held(Some(3), 8, "q"),
            held(None, 0, "a"),
        ];
        blocks.sort_by(compare);
        let seen: Vec<String> = blocks
            .iter()
            .map(|held| format!("{}{}", held.block.actor, held.block.sequence))
            .collect();
        assert_eq!(seen, ["q8", "z1", "a0", "c0", "b1", "a2", "b2"]);
    }
}
