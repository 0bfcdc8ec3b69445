//! A block: one immutable entry of a feed.
//!
//! In:    the fields an author chose.
//! Out:   its content hash, the same on every machine and for ever.
//! Never: a hash that depends on position, arrival or encoding on the wire.
//!
//! The hash covers the payload through the payload's own hash. So a block whose
//! payload was purged (its account was deleted) can still prove its place in
//! the chain and its signature. The space is part of it too: a block signed for
//! one space is worth nothing in another.

use sha2::{Digest, Sha256};
use std::fmt;

/// Says what is hashed and in which version of the encoding.
const HASH_DOMAIN: &[u8] = b"feedmill log block 1";

/// A SHA-256 hash; shown as lower-case hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash([u8; 32]);

impl Hash {
    /// The hash of `bytes`, without a domain.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The raw hash.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A hash from its 32 raw bytes; `None` for any other length.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// A hash from 64 hexadecimal digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let text = std::str::from_utf8(pair).ok()?;
            if !pair.iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            *byte = u8::from_str_radix(text, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// What names a block within its space: no two blocks share one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockKey {
    /// The feed.
    pub feed: String,
    /// Assigned by the author; with the actor it is a Lamport timestamp.
    pub sequence: u64,
    /// Who wrote it.
    pub actor: String,
}

/// The block an author saw as its feed's newest when it wrote the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Predecessor {
    /// Its sequence, lower than the block's own.
    pub sequence: u64,
    /// Its author.
    pub actor: String,
    /// Its content hash, where the author gave it.
    pub hash: Option<Hash>,
}

/// What a block carries.
#[derive(Clone, PartialEq, Eq)]
pub enum Payload {
    /// The content.
    Bytes(Vec<u8>),
    /// The content is gone for good; the block keeps its place.
    Purged {
        /// The hash of what was there.
        hash: Hash,
        /// Its length.
        bytes: u64,
    },
}

impl fmt::Debug for Payload {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(out, "Bytes({})", bytes.len()),
            Self::Purged { hash, bytes } => write!(out, "Purged({bytes}, {hash})"),
        }
    }
}

impl Payload {
    /// The hash of the content, also when the content is gone.
    #[must_use]
    pub fn hash(&self) -> Hash {
        match self {
            Self::Bytes(bytes) => Hash::of(bytes),
            Self::Purged { hash, .. } => *hash,
        }
    }

    /// The length of the content, also when the content is gone.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Purged { bytes, .. } => *bytes,
        }
    }

    /// How many bytes it holds in memory and on the wire.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Purged { .. } => 0,
        }
    }

    /// The same payload without its content.
    #[must_use]
    pub fn purged(&self) -> Self {
        Self::Purged {
            hash: self.hash(),
            bytes: self.length(),
        }
    }
}

/// One block, as its author made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The feed it belongs to.
    pub feed: String,
    /// Who wrote it; a public key where it begins with `ed25519:`.
    pub actor: String,
    /// Above every sequence its author knew in this feed.
    pub sequence: u64,
    /// The block that was the feed's newest, if there was one.
    pub predecessor: Option<Predecessor>,
    /// The author's clock, in Unix milliseconds.
    pub timestamp_ms: u64,
    /// The content.
    pub payload: Payload,
    /// Ed25519 over the content hash, where the actor is a key.
    pub signature: Option<[u8; 64]>,
}

impl Block {
    /// Its name within the space.
    #[must_use]
    pub fn key(&self) -> BlockKey {
        BlockKey {
            feed: self.feed.clone(),
            sequence: self.sequence,
            actor: self.actor.clone(),
        }
    }

    /// The content hash of this block in `space`.
    #[must_use]
    pub fn hash(&self, space: &str) -> Hash {
        let mut sha = Sha256::new();
        sha.update(HASH_DOMAIN);
        text(&mut sha, space);
        text(&mut sha, &self.feed);
        text(&mut sha, &self.actor);
        sha.update(self.sequence.to_be_bytes());
        match &self.predecessor {
            None => sha.update([0]),
            Some(predecessor) => {
                sha.update([if predecessor.hash.is_some() { 2 } else { 1 }]);
                sha.update(predecessor.sequence.to_be_bytes());
                text(&mut sha, &predecessor.actor);
                if let Some(hash) = &predecessor.hash {
                    sha.update(hash.bytes());
                }
            }
        }
        sha.update(self.timestamp_ms.to_be_bytes());
        sha.update(self.payload.length().to_be_bytes());
        sha.update(self.payload.hash().bytes());
        Hash(sha.finalize().into())
    }
}

/// Strings go in behind their length, so no two lists of fields read alike.
fn text(sha: &mut Sha256, text: &str) {
    sha.update((text.len() as u64).to_be_bytes());
    sha.update(text.as_bytes());
}

/// A block as a store holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The block.
    pub block: Block,
    /// Its content hash in the space it is held in.
    pub hash: Hash,
    /// Its place in the space's order; `None` until the authority gave one.
    pub position: Option<u64>,
    /// The namespace of its feed.
    pub namespace: Option<String>,
}

/// A running hash over every block of a space up to a position.
///
/// Two servers that show the same head at the same position hold the same
/// history up to it. That is how a reader learns that a server was rolled back
/// and went on from there, even when the positions look right again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head(pub [u8; 16]);

impl Head {
    /// The head after `hash` took the next position.
    #[must_use]
    pub fn then(&self, hash: &Hash) -> Self {
        let mut sha = Sha256::new();
        sha.update(self.0);
        sha.update(hash.bytes());
        let full: [u8; 32] = sha.finalize().into();
        let mut head = [0; 16];
        for (to, from) in head.iter_mut().zip(full) {
            *to = from;
        }
        Self(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> Block {
        Block {
            feed: "feed".into(),
            actor: "ada".into(),
            sequence: 7,
            predecessor: Some(Predecessor {
                sequence: 6,
                actor: "bob".into(),
                hash: None,
            }),
            timestamp_ms: 1_700_000_000_000,
            payload: Payload::Bytes(b"hello".to_vec()),
            signature: None,
        }
    }

    #[test]
    fn the_hash_of_a_known_block_never_changes() {
        // A change of this value is a change of the format on disk and on the
        // wire: it needs a new HASH_DOMAIN, not a new expectation.
        assert_eq!(
            block().hash("space").to_string(),
            "f59e2c89c9be46077b5d397e6f5af497cc316926951612faedb4e11eeb5a9bd7"
        );
    }

    #[test]
    fn every_field_but_the_signature_changes_the_hash() {
        let base = block();
        let mut others = vec![base.clone(); 8];
        others[0].feed = "fee".into();
        others[1].actor = "dada".into();
        others[2].sequence = 8;
        others[3].predecessor = None;
        others[4].predecessor.as_mut().unwrap().sequence = 5;
        others[5].predecessor.as_mut().unwrap().hash = Some(Hash::of(b""));
        others[6].timestamp_ms += 1;
        others[7].payload = Payload::Bytes(b"hellp".to_vec());
        for other in others {
            assert_ne!(other.hash("space"), base.hash("space"), "{other:?}");
        }
        assert_ne!(base.hash("spac"), base.hash("space"));
        let mut signed = base.clone();
        signed.signature = Some([1; 64]);
        assert_eq!(signed.hash("space"), base.hash("space"));
    }

    #[test]
    fn a_purged_block_keeps_its_hash() {
        let mut purged = block();
        purged.payload = purged.payload.purged();
        assert_eq!(purged.hash("space"), block().hash("space"));
        assert_eq!(purged.payload.size(), 0);
    }

    #[test]
    fn a_hash_reads_back_from_its_text_and_nothing_else_does() {
        let hash = Hash::of(b"x");
        assert_eq!(Hash::from_hex(&hash.to_string()), Some(hash));
        assert_eq!(Hash::from_hex("zz"), None);
        assert_eq!(Hash::from_hex(&"+1".repeat(32)), None);
        assert_eq!(Hash::from_hex(&"é".repeat(32)), None);
    }

    #[test]
    fn a_head_depends_on_every_block_before_it() {
        let (a, b) = (Hash::of(b"a"), Hash::of(b"b"));
        let start = Head::default();
        assert_ne!(start.then(&a).then(&b), start.then(&b).then(&a));
    }
}
