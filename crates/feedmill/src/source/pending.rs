//! Pending bytes: frames between the socket and their commit, bounded.
//!
//! In:    the size of a frame that was read.
//! Out:   a reservation that travels with the frame and ends with it.
//! Never: more reserved than `pending_bytes_max`, but for one frame that is
//!        larger than that by itself, and then it is alone.
//!
//! A source reserves before it hands a frame on and reads the next one, so a
//! store that stalls costs this much memory, and then the network waits.

use std::sync::Arc;

use metrics::{Gauge, gauge};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics as names;

/// What the frames of one source may take.
#[derive(Debug, Clone)]
pub struct Pending {
    free: Arc<Semaphore>,
    bytes_max: u32,
    reserved: Gauge,
}

/// What one frame takes; given back when the last copy is dropped.
#[derive(Debug, Clone, Default)]
pub struct Reserved(#[allow(dead_code)] Option<Arc<Taken>>); // held for its end alone

#[derive(Debug)]
struct Taken {
    bytes: u32,
    gauge: Gauge,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.gauge.decrement(f64::from(self.bytes));
    }
}

impl Pending {
    pub fn new(bytes_max: usize) -> Self {
        let bytes_max = u32::try_from(bytes_max).unwrap_or(u32::MAX).max(1);
        Self {
            free: Arc::new(Semaphore::new(bytes_max as usize)),
            bytes_max,
            reserved: gauge!(names::QUEUE_BYTES, "queue" => "intake"),
        }
    }

    /// Waits until a frame of this size may go on.
    pub async fn reserve(&self, bytes: usize) -> Reserved {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let bytes = bytes.clamp(1, self.bytes_max);
        let permit = Arc::clone(&self.free).acquire_many_owned(bytes).await;
        let taken = permit.ok().map(|permit| {
            self.reserved.increment(f64::from(bytes));
            Arc::new(Taken {
                bytes,
                gauge: self.reserved.clone(),
                _permit: permit,
            })
        });
        Reserved(taken)
    }

    /// Bytes reserved now.
    pub fn bytes(&self) -> usize {
        (self.bytes_max as usize).saturating_sub(self.free.available_permits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[test]
    fn frames_wait_for_those_before_them() {
        let pending = Pending::new(100);
        let first = pending.reserve(70).now_or_never().unwrap();
        let copy = first.clone();
        assert!(pending.reserve(31).now_or_never().is_none());
        let small = pending.reserve(30).now_or_never().unwrap();
        assert_eq!(pending.bytes(), 100);
        drop(first);
        assert_eq!(pending.bytes(), 100, "a copy holds it");
        drop((copy, small));
        assert_eq!(pending.bytes(), 0);
        let huge = pending.reserve(1_000_000).now_or_never().unwrap();
        assert!(pending.reserve(1).now_or_never().is_none(), "it is alone");
        drop(huge);
        assert_eq!(pending.bytes(), 0);
    }
}
