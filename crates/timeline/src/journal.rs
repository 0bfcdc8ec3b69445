//! The journal: what the writer is changing, so that a page can tell whether
//! that concerns it.
//!
//! In:    a word of each change before it is made, and one when it is whole.
//! Out:   whether anything that concerns a page changed while it was made.
//! Never: a writer that waits for a page; a page that shows half of a change.
//!
//! Pages are made while the writer writes, from memory that may change under
//! them. A page notes where the journal stood, looks at what it needs, and at
//! its end reads what was entered since. If that names a key it follows, or
//! itself, what it saw may be of no instant at all and it begins anew; else it
//! is the page of the moment at which it asked. Most changes concern few.

use crate::sync::{AtomicU64, Ordering, fence};

/// Changes that can be told apart; a page that takes longer than these begins anew. Few where
/// tests are run, so that entries are written over.
const ENTRIES: usize = if cfg!(loom) {
    1 << 1
} else if cfg!(debug_assertions) {
    1 << 6
} else {
    1 << 12
};

/// What is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Records under this key.
    Key(u32),
    /// What this reader follows or hides.
    Reader(u32),
    /// What anybody may see.
    All,
}

const READER: u64 = 1 << 32;
const ALL: u64 = 1 << 33;

impl Change {
    fn pack(self) -> u64 {
        match self {
            Self::Key(key) => u64::from(key),
            Self::Reader(reader) => READER | u64::from(reader),
            Self::All => ALL,
        }
    }

    fn unpack(word: u64) -> Self {
        match word {
            word if word & ALL != 0 => Self::All,
            word if word & READER != 0 => Self::Reader(word as u32),
            word => Self::Key(word as u32),
        }
    }
}

/// The changes of one feed, the latest of them by name.
#[derive(Debug)]
pub(crate) struct Journal {
    entries: Box<[AtomicU64]>,
    /// Changes begun.
    begun: AtomicU64,
    /// Changes that are whole: all that was begun up to here.
    whole: AtomicU64,
}

impl Default for Journal {
    fn default() -> Self {
        Self {
            entries: (0..ENTRIES).map(|_| AtomicU64::new(0)).collect(),
            begun: AtomicU64::new(0),
            whole: AtomicU64::new(0),
        }
    }
}

impl Journal {
    fn entry(&self, at: u64) -> Option<&AtomicU64> {
        self.entries.get(at as usize % ENTRIES)
    }

    /// A change begins; it is not whole before [`Journal::close`]. For the one writer.
    pub(crate) fn open(&self, change: Change) {
        let at = self.begun.load(Ordering::Relaxed);
        if let Some(entry) = self.entry(at) {
            entry.store(change.pack(), Ordering::Relaxed);
        }
        self.begun.store(at + 1, Ordering::Release);
        // Whoever sees any of what is written from here on sees the entry as well.
        fence(Ordering::Release);
    }

    /// All that was begun is whole.
    pub(crate) fn close(&self) {
        let begun = self.begun.load(Ordering::Relaxed);
        self.whole.store(begun, Ordering::Release);
    }

    /// Where a page begins: what is whole by now it sees wholly.
    pub(crate) fn stands(&self) -> u64 {
        self.whole.load(Ordering::Acquire)
    }

    /// Whether nothing that `concerns` a page was under way since the journal stood at `since`.
    pub(crate) fn is_quiet(&self, since: u64, concerns: impl Fn(Change) -> bool) -> bool {
        // What the page saw was written before what is read here.
        fence(Ordering::Acquire);
        let begun = self.begun.load(Ordering::Acquire);
        if begun == since {
            return true;
        }
        let fits = |begun: u64| begun.wrapping_sub(since) < ENTRIES as u64;
        if !fits(begun) {
            return false;
        }
        let mut entries = (since..begun).filter_map(|at| self.entry(at));
        let concerned =
            entries.any(|entry| concerns(Change::unpack(entry.load(Ordering::Relaxed))));
        // Entries may be written over while they are read.
        fence(Ordering::Acquire);
        !concerned && fits(self.begun.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_key(wanted: u32) -> impl Fn(Change) -> bool {
        move |change| change == Change::Key(wanted)
    }

    #[test]
    fn a_change_is_seen_by_whom_it_concerns_until_it_is_whole() {
        let journal = Journal::default();
        let before = journal.stands();
        assert!(journal.is_quiet(before, |_| true));
        journal.open(Change::Key(7));
        assert!(!journal.is_quiet(before, is_key(7)));
        assert!(journal.is_quiet(before, is_key(8)));
        let amid = journal.stands();
        assert!(!journal.is_quiet(amid, is_key(7)), "it is not whole");
        journal.close();
        assert!(!journal.is_quiet(amid, is_key(7)), "it was not whole then");
        assert!(journal.is_quiet(journal.stands(), |_| true));
    }

    #[test]
    fn changes_of_each_kind_are_told_apart() {
        for change in [Change::Key(u32::MAX), Change::Reader(3), Change::All] {
            assert_eq!(Change::unpack(change.pack()), change);
        }
    }

    #[test]
    fn what_lies_too_far_back_is_not_called_quiet() {
        let journal = Journal::default();
        let before = journal.stands();
        for key in 0..ENTRIES as u32 {
            journal.open(Change::Key(key));
            journal.close();
        }
        assert!(!journal.is_quiet(before, |_| false));
        assert!(journal.is_quiet(before + 1, |_| false));
    }
}
