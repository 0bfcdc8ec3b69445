//! Signatures: an actor that is a key proves what it wrote.
//!
//! In:    a content hash and an actor id.
//! Out:   an Ed25519 signature, or whether one holds.
//! Never: a signature accepted for an actor that is not a key.
//!
//! An actor id that begins with `ed25519:` names a public key, in 64 lower-case
//! hexadecimal digits. Whoever claims such an actor must sign; everybody else
//! must not, so that one block has one form.

use crate::block::{Block, Hash};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use std::fmt;

/// How an actor id that is a public key begins.
const KEY_PREFIX: &str = "ed25519:";

/// Who writes a block, with the key if there is one.
#[derive(Clone)]
pub struct Author {
    actor: String,
    key: Option<SigningKey>,
}

impl fmt::Debug for Author {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Author").field(&self.actor).finish()
    }
}

impl Author {
    /// An author known by name only.
    #[must_use]
    pub fn named(actor: impl Into<String>) -> Self {
        Self {
            actor: actor.into(),
            key: None,
        }
    }

    /// An author who signs with the key made from `secret`.
    #[must_use]
    pub fn keyed(secret: &[u8; 32]) -> Self {
        let key = SigningKey::from_bytes(secret);
        let public =
            Hash::from_bytes(key.verifying_key().as_bytes()).expect("a public key has 32 bytes");
        Self {
            actor: format!("{KEY_PREFIX}{public}"),
            key: Some(key),
        }
    }

    /// The actor id.
    #[must_use]
    pub fn actor(&self) -> &str {
        &self.actor
    }

    /// The signature of a content hash; `None` for an author without a key.
    #[must_use]
    pub fn sign(&self, hash: &Hash) -> Option<[u8; 64]> {
        let key = self.key.as_ref()?;
        Some(key.sign(hash.bytes()).to_bytes())
    }
}

/// Why a block's signature does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureFault {
    /// The actor is a key and the block is not signed.
    #[error("the actor is a key and must sign")]
    Missing,
    /// The actor is no key, or not a valid one.
    #[error("the actor id is not a public key")]
    NotAKey,
    /// The signature is of another block or by another key.
    #[error("the signature does not match")]
    Wrong,
}

/// Whether the block's signature is what its actor id asks for.
///
/// # Errors
/// See [`SignatureFault`].
pub fn verify(block: &Block, hash: &Hash) -> Result<(), SignatureFault> {
    let Some(digits) = block.actor.strip_prefix(KEY_PREFIX) else {
        return match block.signature {
            None => Ok(()),
            Some(_) => Err(SignatureFault::NotAKey),
        };
    };
    let public = Hash::from_hex(digits)
        .filter(|public| public.to_string() == digits)
        .ok_or(SignatureFault::NotAKey)?;
    let key = VerifyingKey::from_bytes(public.bytes()).map_err(|_| SignatureFault::NotAKey)?;
    let signature = block.signature.ok_or(SignatureFault::Missing)?;
    key.verify_strict(hash.bytes(), &Signature::from_bytes(&signature))
        .map_err(|_| SignatureFault::Wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Payload;

    fn signed_by(author: &Author) -> Block {
        let mut block = Block {
            feed: "f".into(),
            actor: author.actor().into(),
            sequence: 1,
            predecessor: None,
            timestamp_ms: 0,
            payload: Payload::Bytes(vec![1]),
            signature: None,
        };
        block.signature = author.sign(&block.hash("s"));
        block
    }

    #[track_caller]
    fn check(block: &Block, expected: Result<(), SignatureFault>) {
        assert_eq!(verify(block, &block.hash("s")), expected);
    }

    #[test]
    fn a_key_signs_and_only_for_itself() {
        let mut block = signed_by(&Author::keyed(&[7; 32]));
        check(&block, Ok(()));
        let other = signed_by(&Author::keyed(&[8; 32]));
        block.signature = other.signature;
        check(&block, Err(SignatureFault::Wrong));
        block.signature = None;
        check(&block, Err(SignatureFault::Missing));
    }

    #[test]
    fn a_changed_payload_breaks_the_signature() {
        let mut block = signed_by(&Author::keyed(&[7; 32]));
        block.payload = Payload::Bytes(vec![2]);
        check(&block, Err(SignatureFault::Wrong));
    }

    #[test]
    fn a_name_needs_no_signature_and_may_not_carry_one() {
        let mut block = signed_by(&Author::named("ada"));
        check(&block, Ok(()));
        block.signature = Some([0; 64]);
        check(&block, Err(SignatureFault::NotAKey));
    }

    #[test]
    fn one_key_has_one_spelling() {
        let mut block = signed_by(&Author::keyed(&[7; 32]));
        block.actor = block.actor.to_uppercase().replace("ED25519", "ed25519");
        check(&block, Err(SignatureFault::NotAKey));
        block.actor = "ed25519:short".into();
        check(&block, Err(SignatureFault::NotAKey));
    }
}
