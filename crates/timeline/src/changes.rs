//! Changes: when readers' follows moved last.
//!
//! In:    a note for each change of a reader's follows or hides.
//! Out:   whether follows loaded at some position still hold now.
//! Never: a yes for follows that a later change has overtaken.
//!
//! The caller loads a cold reader's follows from the store at one position of
//! the outbox; the engine stands at another. A page made of both would be of
//! no instant at all. So the engine notes where readers changed last. Many
//! readers share a place; a change of one of them counts for all.

use crate::shards::Quick;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

/// The latest changes of readers in one feed.
#[derive(Debug)]
pub(crate) struct Changes {
    /// The latest position of a change, place by place.
    latest: Box<[AtomicU64]>,
}

impl Changes {
    /// Of what came up to `position` nothing is known.
    pub(crate) fn new(places: usize, position: u64) -> Self {
        let places = places.max(1).next_power_of_two();
        Self {
            latest: (0..places).map(|_| AtomicU64::new(position)).collect(),
        }
    }

    fn place(&self, reader: u32) -> Option<&AtomicU64> {
        let hash = Quick.hash_one(reader) >> 32;
        self.latest.get(hash as usize & (self.latest.len() - 1))
    }

    /// A reader changes. For the one writer.
    pub(crate) fn note(&self, position: u64, reader: u32) {
        if let Some(latest) = self.place(reader) {
            latest.store(position, Ordering::Release);
        }
    }

    /// Whether what was loaded as of `position` is what holds now.
    pub(crate) fn holds(&self, reader: u32, position: u64) -> bool {
        let latest = self.place(reader);
        latest.is_some_and(|latest| latest.load(Ordering::Acquire) <= position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_loaded_before_a_change_do_not_hold() {
        let changes = Changes::new(1 << 10, 3);
        assert!(!changes.holds(1, 2), "nothing is known of what came before");
        assert!(changes.holds(1, 3));
        changes.note(5, 1);
        assert!(!changes.holds(1, 4));
        assert!(changes.holds(1, 5));
        let others = (2..100).filter(|&reader| changes.holds(reader, 4));
        assert!(others.count() > 90, "few share its place");
    }
}
