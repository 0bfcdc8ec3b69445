//! Rate: how much may be appended to a space per second.
//!
//! In:    a space, a number of blocks, the time.
//! Out:   go on, or how long to wait.
//! Never: memory for every space that was ever named.

use parking_lot::Mutex;
use std::collections::HashMap;

/// Spaces whose pace is remembered at once.
const SPACES_MAX: usize = 10_000;

/// A bucket per space that fills with time and is emptied by blocks.
#[derive(Debug)]
pub struct Rate {
    per_second: u64,
    /// What was taken, in thousandths of a block, and when that was true.
    taken: Mutex<HashMap<String, (u64, u64)>>,
}

impl Rate {
    /// Let `per_second` blocks through, twice as many at once.
    #[must_use]
    pub fn new(per_second: u64) -> Self {
        Self {
            per_second: per_second.max(1),
            taken: Mutex::default(),
        }
    }

    /// Take `blocks` from the bucket of `space`.
    ///
    /// # Errors
    /// The milliseconds to wait, if it is empty.
    pub fn take(&self, space: &str, blocks: u64, now_ms: u64) -> Result<(), u64> {
        let mut spaces = self.taken.lock();
        if spaces.len() >= SPACES_MAX && !spaces.contains_key(space) {
            spaces.clear();
        }
        let (taken, then_ms) = spaces.entry(space.to_owned()).or_insert((0, now_ms));
        let back = now_ms
            .saturating_sub(*then_ms)
            .saturating_mul(self.per_second);
        *taken = taken.saturating_sub(back);
        *then_ms = now_ms;
        let room = self.per_second.saturating_mul(2000);
        if *taken >= room {
            return Err((*taken - room) / self.per_second + 1);
        }
        *taken = taken.saturating_add(blocks.saturating_mul(1000));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_a_flood_waits() {
        let rate = Rate::new(10);
        assert_eq!(rate.take("s", 15, 0), Ok(()));
        assert_eq!(rate.take("s", 15, 0), Ok(()), "a batch is never cut");
        let wait = rate.take("s", 1, 0).unwrap_err();
        assert!((1000..=1001).contains(&wait), "{wait}");
        assert_eq!(rate.take("other", 1, 0), Ok(()));
        assert_eq!(rate.take("s", 1, wait), Ok(()));
    }
}
