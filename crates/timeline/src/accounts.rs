//! Accounts that are hidden from everybody.
//!
//! In:    takedowns and their ends.
//! Out:   whether an account is hidden, at the price of one look at most.
//! Never: a writer that waits for who asks.

use crate::column::Bits;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The hidden accounts.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    hidden: Bits,
    count: AtomicUsize,
}

impl Accounts {
    #[inline]
    pub(crate) fn is_hidden(&self, account: u32) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.hidden.contains(account)
    }

    /// Hides an account or shows it again. For the one writer.
    pub(crate) fn set(&self, account: u32, hidden: bool) {
        if self.hidden.set(account, hidden) {
            let count = self.count.load(Ordering::Relaxed);
            let count = if hidden { count + 1 } else { count - 1 };
            self.count.store(count, Ordering::Relaxed);
        }
    }
}
