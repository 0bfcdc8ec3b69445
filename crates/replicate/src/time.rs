//! The time, as an argument.
//!
//! In:    a function that knows the time; the owner of the log passes it in.
//! Out:   Unix milliseconds.
//! Never: a call of the machine's clock anywhere else in this crate.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Where the time comes from. Clones read the same clock.
#[derive(Clone)]
pub struct Time(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Time {
    /// The machine's clock.
    #[must_use]
    pub fn wall() -> Self {
        Self::from_fn(|| {
            let past = SystemTime::now().duration_since(UNIX_EPOCH);
            past.map_or(0, |past| past.as_millis() as u64)
        })
    }

    /// A clock of the caller's, in Unix milliseconds.
    #[must_use]
    pub fn from_fn(now_ms: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now_ms))
    }

    /// Now, in Unix milliseconds.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        (self.0)()
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Time")
    }
}
