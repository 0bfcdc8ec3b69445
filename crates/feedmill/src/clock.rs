//! The clock, as an argument.
//!
//! Nothing in the river asks the machine for the time: a stage is stepped
//! with the time as a number, and only the rim holds a [`Clock`]. Tests hold
//! one they can set.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since 1970.
pub type Micros = i64;

/// Where the time comes from.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The machine.
    Wall,
    /// A number that the owner sets.
    Set(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that stands still until it is set.
    pub fn at(us: Micros) -> Self {
        Self::Set(Arc::new(AtomicI64::new(us)))
    }

    /// Moves a clock that can be set; the machine's is left alone.
    pub fn set(&self, us: Micros) {
        if let Self::Set(now) = self {
            now.store(us, Ordering::SeqCst);
        }
    }

    /// Now.
    pub fn now_us(&self) -> Micros {
        match self {
            Self::Wall => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |past| past.as_micros() as i64),
            Self::Set(now) => now.load(Ordering::SeqCst),
        }
    }
}
