//! Digests: what a text of any length is known by.
//!
//! In:    texts that strangers choose: DIDs, tokens and their numbers.
//! Out:   16 bytes, the same for the same texts.
//! Never: two texts with one digest: that takes 2^64 attempts at SHA-256, whoever chooses them.
//!
//! Tables of what strangers name have these as keys, so that their bytes follow from their number of entries.

use sha2::{Digest as _, Sha256};

/// 16 bytes of SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 16]);

impl Digest {
    /// The digest of one text.
    pub fn of(text: &str) -> Self {
        Self::of_all(&[text])
    }

    /// The digest of several texts in this order; where one ends and the next begins matters.
    pub fn of_all(texts: &[&str]) -> Self {
        let mut digest = Sha256::new();
        for text in texts {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text.as_bytes());
        }
        let mut short = [0; 16];
        let whole = digest.finalize();
        short
            .iter_mut()
            .zip(whole)
            .for_each(|(to, from)| *to = from);
        Self(short)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_text_ends_matters() {
        let one = Digest::of_all(&["ab", "c"]);
        assert_eq!(one, Digest::of_all(&["ab", "c"]));
        assert_ne!(one, Digest::of_all(&["a", "bc"]));
        assert_ne!(one, Digest::of("abc"));
    }
}
