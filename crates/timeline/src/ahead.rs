//! Fetching ahead: memory that is asked for together comes together.
//!
//! In:    a word of each thing that will be needed soon.
//! Out:   nothing; the things are at hand.
//! Never: a change; a branch between two words, which would end the fetching.
//!
//! A load whose value nobody waits for lets the next one begin. Things that lie
//! anywhere in memory cost one wait that way, instead of one each.

use std::hint::black_box;
use std::ops::BitXor;

/// Has the things these words are of at hand.
#[inline]
pub fn fetch<W: BitXor<Output = W> + Default>(words: impl Iterator<Item = W>) {
    black_box(words.fold(W::default(), |seen, word| seen ^ word));
}
