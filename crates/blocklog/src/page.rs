//! A page: one look at a space in read order.
//!
//! In:    which blocks, where to go on, how much at most.
//! Out:   blocks, and a place to go on from that skips nothing.
//! Never: a position behind which a block can still appear.
//!
//! An authority gives positions one after the other, so what it shows is final.
//! A replica learns them out of step: its own block may be acknowledged at 45
//! while 41 to 44 are still to be pulled. Behind the point up to which all of a
//! replica's lanes have pulled, everything is provisional: readers who only want
//! what is final never see it, others see it again on their next walk.

use crate::block::{Head, Held};
use crate::cursor::Epoch;
use crate::order::PendingKey;

/// Which blocks of a space a reader wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All.
    Space,
    /// Those of the feeds in one namespace.
    Namespace(String),
    /// Those of these feeds; unknown ones are empty.
    Feeds(Vec<String>),
}

/// Where a reader goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// Positions above this.
    pub after: u64,
    /// And then what is provisional?
    pub pending: PendingStart,
}

/// Whether a page goes on into what is provisional: first positions that are
/// known ahead of others, then the blocks without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PendingStart {
    /// No.
    Excluded,
    /// Yes, all of it.
    All,
    /// Yes, behind this position.
    Ahead(u64),
    /// Yes, behind this block without a position.
    After(PendingKey),
}

/// How much a page may hold. It holds at least one block if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageMax {
    /// Blocks.
    pub blocks: usize,
    /// Payload bytes.
    pub bytes: usize,
}

/// One page, read at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// In read order.
    pub blocks: Vec<Held>,
    /// More of the selection follows at once.
    pub has_more: bool,
    /// Where to go on. Every final block of the selection above the asked
    /// position and up to `next.after` is in this page.
    pub next: Start,
    /// The head at `next.after`.
    pub head: Head,
    /// The space's epoch.
    pub epoch: Epoch,
    /// The highest final position.
    pub position_max: u64,
    /// Feeds of the selection that lost blocks above the asked position, and up
    /// to where.
    pub evicted: Vec<(String, u64)>,
    /// What was evicted up to this position is not remembered any more.
    pub forgotten: u64,
}

/// A page being filled by a store.
#[derive(Debug)]
pub struct Gather {
    blocks: Vec<Held>,
    left: PageMax,
    has_more: bool,
}

impl Gather {
    /// An empty page.
    #[must_use]
    pub fn new(max: PageMax) -> Self {
        Self {
            blocks: Vec::new(),
            left: max,
            has_more: false,
        }
    }

    /// How many blocks it is worth to look up next: one more than fit, so that
    /// the page knows whether more follow.
    #[must_use]
    pub fn wanted(&self) -> usize {
        if self.has_more {
            0
        } else {
            self.left.blocks.saturating_add(1)
        }
    }

    /// Offer the next block in order; `false` if it did not fit any more.
    pub fn offer(&mut self, held: Held) -> bool {
        let size = held.block.payload.size();
        let fits = self.left.blocks > 0 && (self.blocks.is_empty() || size <= self.left.bytes);
        if self.has_more || !fits {
            self.has_more = true;
            return false;
        }
        self.left.blocks -= 1;
        self.left.bytes = self.left.bytes.saturating_sub(size);
        self.blocks.push(held);
        true
    }

    /// Whether a block was turned away.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.has_more
    }

    /// The blocks alone.
    #[must_use]
    pub fn into_blocks(self) -> Vec<Held> {
        self.blocks
    }

    /// The blocks, whether more follow, and where to go on for a reader who
    /// began at `start` in a log that is final up to `settled`.
    #[must_use]
    pub fn finish(self, start: &Start, settled: u64) -> (Vec<Held>, bool, Start) {
        let end = settled.max(start.after);
        let all = match start.pending {
            PendingStart::Excluded => PendingStart::Excluded,
            _ => PendingStart::All,
        };
        let next = match self.blocks.last() {
            Some(last) if self.has_more => match last.position {
                Some(position) if position <= end => Start {
                    after: position,
                    pending: all,
                },
                Some(position) => Start {
                    after: end,
                    pending: PendingStart::Ahead(position),
                },
                None => Start {
                    after: end,
                    pending: PendingStart::After(PendingKey::from(&last.block.key())),
                },
            },
            _ => Start {
                after: end,
                pending: all,
            },
        };
        (self.blocks, self.has_more, next)
    }
}
