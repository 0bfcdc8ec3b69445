//! The chain: how a feed grows, and what may not be added to it.
//!
//! In:    a new block and what the store knows about its feed.
//! Out:   the next block of a feed; or whether an offered one is new, a repeat,
//!        or refused and why.
//! Never: a sequence handed out twice; other bytes under a known key.
//!
//! A sequence is one more than the highest its author has seen in the feed, by
//! anybody. Two authors who write at once may use the same number, and an author
//! who was away leaves gaps: both are legal. The predecessor names the block the
//! author stood on. If we hold that block its hash must match; if we do not (it
//! was evicted, or is still on its way) the claim stays open.

use crate::block::{Block, BlockKey, Hash, Payload, Predecessor};
use crate::limits::{INTEGER_MAX, Limits};
use crate::signature::{Author, SignatureFault, verify};

/// A block with its content hash, worked out before any lock is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The block.
    pub block: Block,
    /// Its hash in the space it is meant for.
    pub hash: Hash,
}

impl Sealed {
    /// Hash `block` for `space`.
    #[must_use]
    pub fn new(space: &str, block: Block) -> Self {
        let hash = block.hash(space);
        Self { block, hash }
    }
}

/// The newest block of a feed by Lamport time. It outlives the block's eviction,
/// so a sequence is never used again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tip {
    /// The highest sequence anybody used.
    pub sequence: u64,
    /// Who used it; the greatest actor if several did.
    pub actor: String,
    /// That block's hash.
    pub hash: Hash,
}

impl Tip {
    /// The tip after `sealed` joined a feed whose tip was `before`.
    #[must_use]
    pub fn after(before: Option<Self>, sealed: &Sealed) -> Self {
        let candidate = Self {
            sequence: sealed.block.sequence,
            actor: sealed.block.actor.clone(),
            hash: sealed.hash,
        };
        match before {
            Some(tip) if (tip.sequence, &tip.actor) >= (candidate.sequence, &candidate.actor) => {
                tip
            }
            _ => candidate,
        }
    }
}

/// What an author wants to say next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// The author's clock, in Unix milliseconds.
    pub timestamp_ms: u64,
    /// The content.
    pub data: Vec<u8>,
}

/// The next block of `feed` by `author`, on top of `tip`.
///
/// `None` when the feed has used up its sequences.
#[must_use]
pub fn next(
    space: &str,
    feed: &str,
    tip: Option<&Tip>,
    author: &Author,
    draft: &Draft,
) -> Option<Sealed> {
    let sequence = tip.map_or(Some(1), |tip| tip.sequence.checked_add(1))?;
    if sequence > INTEGER_MAX {
        return None;
    }
    let block = Block {
        feed: feed.to_owned(),
        actor: author.actor().to_owned(),
        sequence,
        predecessor: tip.map(|tip| Predecessor {
            sequence: tip.sequence,
            actor: tip.actor.clone(),
            hash: Some(tip.hash),
        }),
        timestamp_ms: draft.timestamp_ms,
        payload: Payload::Bytes(draft.data.clone()),
        signature: None,
    };
    let mut sealed = Sealed::new(space, block);
    sealed.block.signature = author.sign(&sealed.hash);
    Some(sealed)
}

/// Why one block is refused. Nothing of its batch was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another block has this key. The first is kept; the author equivocates,
    /// or was restored from a copy.
    #[error("another block with this key is held, its hash is {held}")]
    Conflict {
        /// The hash of the block that is kept.
        held: Hash,
    },
    /// The predecessor is not what it is said to be.
    #[error("the predecessor does not match")]
    Predecessor,
    /// The feed's highest sequence is the largest integer, so it has no next one.
    #[error("the feed has used up its sequences")]
    Exhausted,
    /// The signature is missing or wrong.
    #[error("{0}")]
    Signature(SignatureFault),
    /// This actor may not append to this feed.
    #[error("the actor may not append to this feed")]
    NotAllowed,
    /// This replica neither pulls nor pushes the feed, so the block would never be sent.
    #[error("this replica does not replicate the feed, so nothing can be written to it here")]
    NotReplicated,
    /// The payload is too long.
    #[error("the payload is longer than {max} bytes")]
    TooLarge {
        /// `block_bytes_max`.
        max: usize,
    },
    /// The feed lives in another namespace.
    #[error("the feed belongs to another namespace")]
    Namespace,
    /// The space holds as many feeds as it may.
    #[error("the space is full, no feed can be added: see space_feeds_max")]
    SpaceFull,
    /// The space holds as many bytes as it may.
    #[error("the space would hold more than {max} bytes, which is its space_bytes_max")]
    SpaceBytes {
        /// `space_bytes_max`.
        max: u64,
    },
}

impl Refusal {
    /// The stable word for it on the wire.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "conflict",
            Self::Predecessor => "predecessor",
            Self::Exhausted => "exhausted",
            Self::Signature(_) => "signature",
            Self::NotAllowed => "notAllowed",
            Self::NotReplicated => "notReplicated",
            Self::TooLarge { .. } => "tooLarge",
            Self::Namespace => "namespace",
            Self::SpaceFull => "spaceFull",
            Self::SpaceBytes { .. } => "spaceBytes",
        }
    }
}

/// One refused block of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Its place in the batch.
    pub index: usize,
    /// Its key.
    pub key: BlockKey,
    /// Why.
    pub refusal: Refusal,
}

/// The refusal of the next block of a feed whose sequences are used up.
#[must_use]
pub fn exhausted(feed: &str, author: &Author) -> Vec<Refused> {
    refused_draft(feed, author, INTEGER_MAX, Refusal::Exhausted)
}

/// The refusal of a draft for a feed that a replica does not replicate. It has no sequence yet.
#[must_use]
pub fn not_replicated(feed: &str, author: &Author) -> Vec<Refused> {
    refused_draft(feed, author, 0, Refusal::NotReplicated)
}

fn refused_draft(feed: &str, author: &Author, sequence: u64, refusal: Refusal) -> Vec<Refused> {
    let key = BlockKey {
        feed: feed.to_owned(),
        sequence,
        actor: author.actor().to_owned(),
    };
    vec![Refused {
        index: 0,
        key,
        refusal,
    }]
}

/// What can be said of a block without looking at the store.
///
/// # Errors
/// If no store could accept it.
pub fn check_alone(sealed: &Sealed, limits: &Limits) -> Result<(), Refusal> {
    let block = &sealed.block;
    if block.payload.size() > limits.block_bytes_max {
        return Err(Refusal::TooLarge {
            max: limits.block_bytes_max,
        });
    }
    if let Some(predecessor) = &block.predecessor
        && predecessor.sequence >= block.sequence
    {
        return Err(Refusal::Predecessor);
    }
    verify(block, &sealed.hash).map_err(Refusal::Signature)
}

/// What a store knows that bears on an offered block.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The hash held under the block's key.
    pub same_key: Option<Hash>,
    /// The hash held under its predecessor's key.
    pub predecessor: Option<Hash>,
}

/// Whether an offered block must be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Never seen.
    New,
    /// Held already, byte for byte.
    Repeat,
}

/// Judge an offered block against what is known.
///
/// # Errors
/// See [`Refusal`].
pub fn judge(sealed: &Sealed, known: &Known) -> Result<Verdict, Refusal> {
    if let Some(held) = known.same_key {
        return if held == sealed.hash {
            Ok(Verdict::Repeat)
        } else {
            Err(Refusal::Conflict { held })
        };
    }
    let claimed = sealed
        .block
        .predecessor
        .as_ref()
        .and_then(|claim| claim.hash);
    if let (Some(claimed), Some(held)) = (claimed, known.predecessor)
        && claimed != held
    {
        return Err(Refusal::Predecessor);
    }
    Ok(Verdict::New)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ada() -> Author {
        Author::named("ada")
    }

    fn draft(text: &str) -> Draft {
        Draft {
            timestamp_ms: 1,
            data: text.into(),
        }
    }

    fn grow(tip: Option<&Tip>, author: &Author, text: &str) -> Sealed {
        next("s", "f", tip, author, &draft(text)).unwrap()
    }

    #[test]
    fn a_sequence_is_one_above_the_highest_of_all_actors() {
        let first = grow(None, &ada(), "1");
        assert_eq!((first.block.sequence, &first.block.predecessor), (1, &None));
        let mut tip = Tip::after(None, &first);
        tip.sequence = 41;
        tip.actor = "bob".into();
        let second = grow(Some(&tip), &ada(), "2");
        assert_eq!(second.block.sequence, 42);
        let predecessor = second.block.predecessor.unwrap();
        assert_eq!(
            (predecessor.sequence, predecessor.actor.as_str()),
            (41, "bob")
        );
    }

    #[test]
    fn a_late_block_does_not_pull_the_tip_down() {
        let first = grow(None, &ada(), "1");
        let tip = Tip {
            sequence: 9,
            ..Tip::after(None, &first)
        };
        assert_eq!(Tip::after(Some(tip.clone()), &first), tip);
    }

    #[test]
    fn a_feed_at_the_end_of_the_integers_takes_no_more() {
        let tip = Tip {
            sequence: INTEGER_MAX,
            actor: "x".into(),
            hash: Hash::of(b""),
        };
        assert_eq!(next("s", "f", Some(&tip), &ada(), &draft("no")), None);
    }

    #[test]
    fn the_same_block_again_is_a_repeat_and_other_bytes_are_a_conflict() {
        let (one, other) = (grow(None, &ada(), "one"), grow(None, &ada(), "other"));
        let known = Known {
            same_key: Some(one.hash),
            ..Known::default()
        };
        assert_eq!(judge(&one, &known), Ok(Verdict::Repeat));
        assert_eq!(
            judge(&other, &known),
            Err(Refusal::Conflict { held: one.hash })
        );
    }

    #[test]
    fn a_false_predecessor_is_refused_and_an_unknown_one_is_not() {
        let limits = Limits::default();
        let first = grow(None, &ada(), "1");
        let second = grow(Some(&Tip::after(None, &first)), &ada(), "2");
        let mut known = Known::default();
        assert_eq!(judge(&second, &known), Ok(Verdict::New));
        known.predecessor = Some(first.hash);
        assert_eq!(judge(&second, &known), Ok(Verdict::New));
        known.predecessor = Some(Hash::of(b"forged"));
        assert_eq!(judge(&second, &known), Err(Refusal::Predecessor));
        let mut backwards = second;
        backwards.block.sequence = 1;
        assert_eq!(check_alone(&backwards, &limits), Err(Refusal::Predecessor));
    }
}
