//! Changes: which readers' follows moved lately.
//!
//! In:    a note for each change of a reader's follows or hides.
//! Out:   whether follows loaded at some position still hold now.
//! Never: a yes for follows that a later change has overtaken.
//!
//! The caller loads a cold reader's follows from the store at one position of
//! the outbox; the engine stands at another. A page made of both would be of
//! no instant at all. So the engine remembers recent changes and says whether
//! one of them lies in between. What it no longer remembers counts as changed.

use crate::shards::Quick;
use std::collections::{HashMap, VecDeque};

/// Changes that room is made for at once.
const ROOM_MAX: usize = 1 << 18;

/// The latest changes of readers in one feed.
#[derive(Debug)]
pub(crate) struct Changes {
    log: VecDeque<(u64, u32)>,
    latest: HashMap<u32, u64, Quick>,
    /// Everything at or before this position is forgotten.
    forgotten: u64,
    changes_max: usize,
}

impl Changes {
    pub(crate) fn new(changes_max: usize) -> Self {
        let changes_max = changes_max.max(1);
        // They will be full, and memory that moves as it grows is made anew each time.
        let room = changes_max.min(ROOM_MAX) + 1;
        Self {
            log: VecDeque::with_capacity(room),
            latest: HashMap::with_capacity_and_hasher(room, Quick),
            forgotten: 0,
            changes_max,
        }
    }

    /// Nothing is known of changes up to `position`.
    pub(crate) fn forget(&mut self, position: u64) {
        self.forgotten = self.forgotten.max(position);
    }

    pub(crate) fn note(&mut self, position: u64, reader: u32) {
        if self.latest.insert(reader, position) == Some(position) {
            return;
        }
        self.log.push_back((position, reader));
        if self.log.len() > self.changes_max
            && let Some((position, reader)) = self.log.pop_front()
        {
            self.forgotten = self.forgotten.max(position);
            if self.latest.get(&reader) == Some(&position) {
                self.latest.remove(&reader);
            }
        }
    }

    /// Whether what was loaded as of `position` is what holds now.
    pub(crate) fn holds(&self, reader: u32, position: u64) -> bool {
        position >= self.forgotten
            && self
                .latest
                .get(&reader)
                .is_none_or(|&latest| latest <= position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_loaded_before_a_change_do_not_hold() {
        let mut changes = Changes::new(2);
        changes.note(5, 1);
        assert!(!changes.holds(1, 4));
        assert!(changes.holds(1, 5));
        assert!(changes.holds(2, 0));
        changes.note(6, 2);
        changes.note(7, 3);
        assert!(
            !changes.holds(9, 4),
            "position 5 is forgotten, so 4 is too old to judge"
        );
        assert!(changes.holds(1, 5));
    }
}
