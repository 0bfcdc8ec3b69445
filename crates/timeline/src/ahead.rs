//! Fetching ahead: memory that is asked for together comes together.
//!
//! In:    things that will be needed soon, or a word of each.
//! Out:   nothing; the things are on their way, or at hand.
//! Never: a change; an effect on any answer.
//!
//! Things that lie anywhere in memory cost one wait that way, instead of one each. Who goes on with
//! something else meanwhile asks; who needs all of them now fetches: a load whose value nobody waits
//! for lets the next one begin.

use std::hint::black_box;
use std::ops::BitXor;

/// Asks for the first cache line of a thing, and waits for nothing. Only x86 can be asked without
/// unsafe code; elsewhere the thing is waited for when it is needed.
#[inline]
pub(crate) fn ask<T>(thing: Option<&T>) {
    if let Some(thing) = thing {
        #[cfg(target_arch = "x86_64")]
        safe_arch::prefetch_t0(thing);
        #[cfg(not(target_arch = "x86_64"))]
        let _ = thing;
    }
}

/// Has the things these words are of at hand. There must be no branch between two words: taken
/// wrongly, it would throw away what was begun behind it.
#[inline]
pub fn fetch<W: BitXor<Output = W> + Default>(words: impl Iterator<Item = W>) {
    black_box(words.fold(W::default(), |seen, word| seen ^ word));
}
