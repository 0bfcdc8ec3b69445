//! Reuse: whether a number that a page holds may stand for another record by now.
//!
//! In:    a word when a number becomes free, and one before it is given again.
//! Out:   whether all numbers that were in a list when the page began are still of the same
//!        records.
//! Never: a page that waits, or a writer that waits for a page.
//!
//! Numbers are given again in the order in which they became free. So it is enough to count: if by
//! the end of a page no more were given again than were free at its beginning, then none of those
//! is among the numbers it met, because a free number is in no list.

use crate::sync::{AtomicU64, Ordering, fence};

/// Counts of the numbers of one index.
#[derive(Debug, Default)]
pub(crate) struct Reuse {
    freed: AtomicU64,
    given_again: AtomicU64,
}

impl Reuse {
    /// A number is in no list any more. For the one writer.
    pub(crate) fn freed(&self) {
        let freed = self.freed.load(Ordering::Relaxed);
        // Who sees the count sees the lists without the number.
        self.freed.store(freed + 1, Ordering::Release);
    }

    /// The number that is free longest is about to be written over. For the one writer.
    pub(crate) fn gives_again(&self) {
        let given_again = self.given_again.load(Ordering::Relaxed);
        self.given_again.store(given_again + 1, Ordering::Relaxed);
        // Who sees any of what is written from here on sees the count as well.
        fence(Ordering::Release);
    }

    /// Where a page begins, before it looks at any list.
    pub(crate) fn begin(&self) -> u64 {
        self.freed.load(Ordering::Acquire)
    }

    /// Whether every number the page met since stands for the same record.
    pub(crate) fn is_still(&self, began: u64) -> bool {
        fence(Ordering::Acquire);
        self.given_again.load(Ordering::Relaxed) <= began
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_that_became_free_meanwhile_disturb_a_page() {
        let reuse = Reuse::default();
        reuse.freed();
        let began = reuse.begin();
        reuse.freed();
        reuse.gives_again();
        assert!(reuse.is_still(began), "it was free before");
        reuse.gives_again();
        assert!(!reuse.is_still(began), "a list may have held it");
        assert!(reuse.is_still(reuse.begin()));
    }
}
