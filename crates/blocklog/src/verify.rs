//! Verifying a log: is every block what it says it is?
//!
//! In:    a store and a space.
//! Out:   how many blocks were looked at, and each that does not hold.
//! Never: a repair: damage is shown, not hidden.
//!
//! A block's hash is worked out again from its fields, its signature checked, and
//! its predecessor's hash compared with the block it names. Where this store gave
//! the positions, the running head is worked out again too, over every stretch
//! that eviction has left whole.

use crate::block::{BlockKey, Head, Held};
use crate::page::{PageMax, PendingStart, Selection, Start};
use crate::signature::verify as verify_signature;
use crate::store::{LogStore, Role, StoreError};

/// Blocks looked at together.
const PAGE: PageMax = PageMax {
    blocks: 500,
    bytes: 8 << 20,
};

/// What is wrong with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Its fields give another hash than the one that is kept.
    #[error("the content does not give the hash")]
    Hash,
    /// Its signature is missing or of another block.
    #[error("the signature does not hold")]
    Signature,
    /// The predecessor it names is held with another hash.
    #[error("the predecessor has another hash")]
    Predecessor,
    /// The head kept with its position is not what the blocks before it give.
    #[error("the head does not follow from the blocks before")]
    Head,
}

/// What a walk over a space found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verified {
    /// Blocks looked at.
    pub blocks: u64,
    /// Those that do not hold, each with what is wrong.
    pub damaged: Vec<(BlockKey, Damage)>,
}

/// Look at every block of a space.
///
/// # Errors
/// If the store fails.
pub fn verify(store: &dyn LogStore, space: &str) -> Result<Verified, StoreError> {
    let state = store.space(space)?.ok_or(StoreError::UnknownSpace)?;
    let mut found = Verified::default();
    let mut head = Some((0, Head::default()));
    let mut start = Start {
        after: 0,
        pending: PendingStart::All,
    };
    loop {
        let page = store.page(space, &Selection::Space, &start, PAGE)?;
        for held in &page.blocks {
            found.blocks += 1;
            if let Some(damage) = block_damage(store, space, held)? {
                found.damaged.push((held.block.key(), damage));
            }
            if state.role == Role::Authority
                && let Some(position) = held.position
            {
                let kept = store.head(space, position)?;
                let before = head.filter(|(below, _)| below + 1 == position);
                if before.is_some_and(|(_, before)| kept != Some(before.then(&held.hash))) {
                    found.damaged.push((held.block.key(), Damage::Head));
                }
                head = kept.map(|kept| (position, kept));
            }
        }
        start = page.next;
        if !page.has_more {
            return Ok(found);
        }
    }
}

fn block_damage(
    store: &dyn LogStore,
    space: &str,
    held: &Held,
) -> Result<Option<Damage>, StoreError> {
    let block = &held.block;
    if block.hash(space) != held.hash {
        return Ok(Some(Damage::Hash));
    }
    if verify_signature(block, &held.hash).is_err() {
        return Ok(Some(Damage::Signature));
    }
    let Some(predecessor) = &block.predecessor else {
        return Ok(None);
    };
    let Some(claimed) = predecessor.hash else {
        return Ok(None);
    };
    let key = BlockKey {
        feed: block.feed.clone(),
        sequence: predecessor.sequence,
        actor: predecessor.actor.clone(),
    };
    let differs = store
        .block(space, &key)?
        .is_some_and(|before| before.hash != claimed);
    Ok(differs.then_some(Damage::Predecessor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Block, Hash, Payload};
    use crate::chain::{Draft, Sealed};
    use crate::cursor::Epoch;
    use crate::limits::Limits;
    use crate::memory::Memory;
    use crate::signature::Author;
    use crate::store::FeedName;

    fn log() -> Memory {
        let log = Memory::default();
        log.open("s", Role::Authority, Epoch([1; 16])).unwrap();
        let name = FeedName {
            feed: "f",
            namespace: None,
        };
        let drafts = [b"1", b"2", b"3"].map(|data| Draft {
            timestamp_ms: 1,
            data: data.to_vec(),
        });
        log.write("s", &name, &Author::keyed(&[3; 32]), &drafts, 1)
            .unwrap();
        log
    }

    #[test]
    fn a_sound_log_is_found_sound_also_after_purge_and_eviction() {
        let log = log();
        assert_eq!(
            verify(&log, "s").unwrap(),
            Verified {
                blocks: 3,
                damaged: vec![]
            }
        );
        let page = PageMax {
            blocks: 9,
            bytes: 99,
        };
        let start = Start {
            after: 0,
            pending: PendingStart::All,
        };
        let second = log
            .page("s", &Selection::Space, &start, page)
            .unwrap()
            .blocks
            .remove(1);
        log.purge("s", &second.block.key()).unwrap();
        log.evict("s", "f", crate::store::Keep::Newest(2), 9)
            .unwrap();
        assert_eq!(
            verify(&log, "s").unwrap(),
            Verified {
                blocks: 2,
                damaged: vec![]
            }
        );
    }

    #[test]
    fn a_block_under_a_false_hash_or_signature_is_named() {
        let log = log();
        let block = |actor: &str, signature| Block {
            feed: "g".into(),
            actor: actor.into(),
            sequence: 1,
            predecessor: None,
            timestamp_ms: 1,
            payload: Payload::Bytes(vec![1]),
            signature,
        };
        let false_hash = Sealed {
            block: block("ada", None),
            hash: Hash::of(b"another"),
        };
        let forged = Sealed::new("s", block(Author::keyed(&[4; 32]).actor(), Some([7; 64])));
        log.append("s", None, &[false_hash, forged], 1, &Limits::default())
            .unwrap();
        let damage: Vec<Damage> = verify(&log, "s")
            .unwrap()
            .damaged
            .iter()
            .map(|(_, damage)| *damage)
            .collect();
        assert_eq!(damage, [Damage::Hash, Damage::Signature]);
    }
}
