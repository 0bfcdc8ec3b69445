//! Versions: whether a value changed while it was read (a seqlock's counter).
//!
//! In:    changes by one writer.
//! Out:   for any reader, whether all it read since a version is of one state.
//! Never: a writer or a reader that waits.
//!
//! The version is odd while a change is made. The release fence orders the odd version before the
//! change, and the reader's acquire fence orders what it read before its second look at the version:
//! whoever read any part of a change sees another version.
//!
//! Versions have 32 bits, so that they do not come round beside one page, see `witness.rs`.

use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicU32, fence};

/// The version of something that one writer changes.
#[derive(Debug, Default)]
pub(crate) struct Version(AtomicU32);

impl Version {
    /// The version before anything is read.
    #[inline]
    pub(crate) fn now(&self) -> u32 {
        self.0.load(Acquire)
    }

    /// Whether no change was under way at that version, nor was made since.
    #[inline]
    pub(crate) fn is_still(&self, version: u32) -> bool {
        fence(Acquire);
        version.is_multiple_of(2) && self.0.load(Relaxed) == version
    }

    /// Makes a change that readers must notice. For the one writer.
    pub(crate) fn change<T>(&self, change: impl FnOnce() -> T) -> T {
        let version = self.0.load(Relaxed);
        self.0.store(version.wrapping_add(1), Relaxed);
        fence(Release);
        let outcome = change();
        self.0.store(version.wrapping_add(2), Release);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_in_the_midst_of_a_change_is_not_believed() {
        let version = Version::default();
        let before = version.now();
        assert!(version.is_still(before));
        version.change(|| {
            assert!(!version.is_still(before));
            assert!(!version.is_still(version.now()));
        });
        assert!(!version.is_still(before));
        assert!(version.is_still(version.now()));
    }

    /// A fan-out of late records is a change for each of them.
    #[test]
    fn a_version_does_not_come_round_after_many_changes() {
        let version = Version::default();
        let before = version.now();
        for _ in 0..1 << 16 {
            version.change(|| {});
            assert!(!version.is_still(before));
        }
    }
}
