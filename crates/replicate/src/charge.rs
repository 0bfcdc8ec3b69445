//! Charge: what a request costs its sender.
//!
//! In:    a function of the process that counts what each client asks.
//! Out:   nothing where the client may go on; else how long it must wait.
//! Never: a message of a WebSocket that costs less than a request of its own.
//!
//! The process puts a [`Charge`] into the extensions of each request. Where there is none,
//! nobody is limited.

use std::fmt;
use std::sync::Arc;

/// Takes from the share of whoever sent a request. Clones take from the same share.
#[derive(Clone)]
pub struct Charge(Arc<dyn Fn(u32) -> Result<(), u64> + Send + Sync>);

impl Charge {
    /// A charge by the process's own count: it takes the cost, and fails with the
    /// milliseconds to wait.
    #[must_use]
    pub fn from_fn(take: impl Fn(u32) -> Result<(), u64> + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    /// Take `cost` from the share.
    ///
    /// # Errors
    /// The milliseconds to wait, if it is used up.
    pub fn take(&self, cost: u32) -> Result<(), u64> {
        (self.0)(cost)
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Charge")
    }
}
