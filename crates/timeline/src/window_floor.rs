//! The floor of a window: records up to this time are not in memory.
//!
//! In:    a new floor, before the records that it leaves out are removed.
//! Out:   for any page, a floor that lies at or above every record it may have missed.
//! Never: a floor that sinks.

use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicI64, fence};

/// The floor of one window.
#[derive(Debug)]
pub(crate) struct WindowFloor(AtomicI64);

impl Default for WindowFloor {
    /// Nothing is left out.
    fn default() -> Self {
        Self(AtomicI64::new(i64::MIN))
    }
}

impl WindowFloor {
    /// The window is complete for times after this one.
    pub(crate) fn now_us(&self) -> i64 {
        self.0.load(Acquire)
    }

    /// The same at the end of a page: a record that the page missed because it was removed is not
    /// later than this.
    pub(crate) fn at_end_us(&self) -> i64 {
        fence(Acquire);
        self.0.load(Relaxed)
    }

    /// Raises the floor, before anything up to it is removed. For the one writer.
    pub(crate) fn raise(&self, floor_us: i64) {
        self.0.store(floor_us.max(self.now_us()), Release);
        // Whoever misses a record that is removed from here on sees this floor.
        fence(Release);
    }
}
