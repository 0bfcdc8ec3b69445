//! Conflicts: what becomes of a block whose key another block has.
//!
//! In:    blocks that lost their key, and the waiting blocks of their feed.
//! Out:   the same contents under new sequences, in the order they were written.
//! Never: a content dropped; a sequence used again; a signed block changed.
//!
//! Two replicas that write under one actor while they are offline use the same
//! sequences. The authority keeps the first block it is given; the other replica
//! writes its own again, behind everything that is known. Whoever follows a block
//! that moved moves too, because its predecessor is not there any more.
//!
//! A signed block cannot be written again by anybody but its author, so it is
//! kept and listed, and so is what the authority refuses for other reasons.

use crate::block::{Block, Hash, Held, Payload, Predecessor};
use crate::chain::{Sealed, Tip};
use crate::limits::INTEGER_MAX;
use std::collections::BTreeSet;

/// The reasons of a refusal that another sequence cures.
pub const CURABLE: [&str; 2] = ["conflict", "predecessor"];

/// A block of a replica that its authority does not have and will not take as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aside {
    /// The block.
    pub held: Held,
    /// The code of the refusal; `conflict` where another block has its key.
    pub reason: String,
}

/// Whether a replica may write the content of this block again under another sequence.
#[must_use]
pub fn can_reissue(block: &Block) -> bool {
    block.signature.is_none() && matches!(block.payload, Payload::Bytes(_))
}

/// The blocks to write again: those that lost, and the waiting ones that follow them.
/// Both lists are of one feed and in Lamport order.
#[must_use]
pub fn displaced(lost: Vec<Held>, waiting: Vec<Held>) -> Vec<Held> {
    let mut moved: BTreeSet<Hash> = lost.iter().map(|held| held.hash).collect();
    let mut names: BTreeSet<(u64, String)> = lost.iter().map(name).collect();
    let mut all = lost;
    for held in waiting {
        let follows = held.block.predecessor.as_ref().is_some_and(|before| {
            let named = (before.sequence, before.actor.clone());
            match &before.hash {
                Some(hash) => moved.contains(hash),
                None => names.contains(&named),
            }
        });
        if follows && can_reissue(&held.block) && !moved.contains(&held.hash) {
            moved.insert(held.hash);
            names.insert(name(&held));
            all.push(held);
        }
    }
    all.sort_by_key(name);
    all
}

/// The one of two newest blocks that the other comes before.
#[must_use]
pub fn newer(one: Option<Tip>, other: Option<Tip>) -> Option<Tip> {
    let rank = |tip: &Tip| (tip.sequence, tip.actor.clone());
    // Of two under one name the second counts: it is the authority's.
    match (one, other) {
        (Some(one), Some(other)) if rank(&one) > rank(&other) => Some(one),
        (one, other) => other.or(one),
    }
}

fn name(held: &Held) -> (u64, String) {
    (held.block.sequence, held.block.actor.clone())
}

/// The same contents as the next blocks of their feed: above the sequence `used`, the highest
/// that anybody used, the first of them behind `newest`. `None` when the sequences are used up.
#[must_use]
pub fn reissue(
    space: &str,
    blocks: &[Held],
    used: u64,
    newest: Option<Tip>,
) -> Option<Vec<Sealed>> {
    let mut before = newest;
    let mut sequence = before.as_ref().map_or(used, |tip| tip.sequence.max(used));
    let mut again = Vec::with_capacity(blocks.len());
    for held in blocks {
        sequence += 1;
        if sequence > INTEGER_MAX {
            return None;
        }
        let block = Block {
            sequence,
            predecessor: before.map(|tip| Predecessor {
                sequence: tip.sequence,
                actor: tip.actor,
                hash: Some(tip.hash),
            }),
            ..held.block.clone()
        };
        let sealed = Sealed::new(space, block);
        before = Some(Tip::after(None, &sealed));
        again.push(sealed);
    }
    Some(again)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::{Draft, next};
    use crate::signature::Author;

    /// Blocks of one feed, each on top of the one before.
    fn chain(author: &Author, texts: &[&str]) -> Vec<Held> {
        let mut tip = None;
        let mut blocks = Vec::new();
        for text in texts {
            let draft = Draft {
                timestamp_ms: 1,
                data: (*text).into(),
            };
            let sealed = next("s", "f", tip.as_ref(), author, &draft).unwrap();
            tip = Some(Tip::after(tip, &sealed));
            blocks.push(Held {
                block: sealed.block,
                hash: sealed.hash,
                position: None,
                namespace: None,
            });
        }
        blocks
    }

    #[test]
    fn whoever_follows_a_block_that_moves_moves_too() {
        let mut blocks = chain(&Author::named("a"), &["1", "2", "3", "4"]);
        // The last one follows a block that stays.
        blocks[3].block.predecessor.as_mut().unwrap().hash = Some(Hash::of(b"another"));
        let moved = displaced(vec![blocks[0].clone()], blocks.clone());
        assert_eq!(moved, blocks[..3]);
        // A predecessor without a hash counts by its name.
        blocks[1].block.predecessor.as_mut().unwrap().hash = None;
        let moved = displaced(vec![blocks[0].clone()], blocks.clone());
        assert_eq!(moved, blocks[..3]);
    }

    #[test]
    fn what_is_signed_stays_as_it_is() {
        let blocks = chain(&Author::keyed(&[1; 32]), &["1", "2"]);
        assert!(!can_reissue(&blocks[1].block));
        assert_eq!(
            displaced(vec![blocks[0].clone()], blocks.clone()),
            blocks[..1]
        );
    }

    #[test]
    fn the_same_contents_come_again_in_order_above_every_sequence() {
        let blocks = chain(&Author::named("a"), &["1", "2"]);
        let newest = Tip {
            sequence: 5,
            actor: "b".into(),
            hash: Hash::of(b"five"),
        };
        let again = reissue("s", &blocks, 9, Some(newest.clone())).unwrap();
        let sequences: Vec<u64> = again.iter().map(|sealed| sealed.block.sequence).collect();
        assert_eq!(sequences, [10, 11]);
        let first = again[0].block.predecessor.clone().unwrap();
        assert_eq!((first.sequence, first.hash), (5, Some(newest.hash)));
        let second = again[1].block.predecessor.clone().unwrap();
        assert_eq!(second.hash, Some(again[0].hash));
        assert!(again.iter().zip(&blocks).all(|(new, old)| {
            new.block.payload == old.block.payload
                && new.block.timestamp_ms == old.block.timestamp_ms
        }));
        assert_eq!(reissue("s", &blocks, INTEGER_MAX, None), None);
    }
}
