//! Limits that a reload changes while requests are answered.
//!
//! In:    the `[serve]` section, at start and at every reload.
//! Out:   numbers that are read for each request.
//! Never: a limit changed for a request that is under way.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::config;

/// The keys whose values a reload takes over.
pub const KEYS: &[&str] = &[
    "serve.requests_max",
    "serve.timeout_s",
    "serve.response_bytes_max",
    "serve.rate_max",
    "serve.account_rate_max",
    "serve.rate_s",
];

/// Takes over those values, and leaves the others as they are.
pub fn take_over(held: &mut config::Serve, new: &config::Serve) {
    held.requests_max = new.requests_max;
    held.timeout_s = new.timeout_s;
    held.response_bytes_max = new.response_bytes_max;
    held.rate_max = new.rate_max;
    held.account_rate_max = new.account_rate_max;
    held.rate_s = new.rate_s;
}

/// The limits in force.
#[derive(Debug, Default)]
pub struct Limits {
    requests_max: AtomicUsize,
    timeout_s: AtomicU64,
    response_bytes_max: AtomicUsize,
    rate_max: AtomicU32,
    account_rate_max: AtomicU32,
    rate_s: AtomicU32,
}

impl Limits {
    pub fn new(settings: &config::Serve) -> Self {
        let limits = Self::default();
        limits.set(settings);
        limits
    }

    /// Puts other limits in force.
    pub fn set(&self, settings: &config::Serve) {
        let order = Ordering::Relaxed; // each is read by itself
        self.requests_max.store(settings.requests_max, order);
        self.timeout_s.store(settings.timeout_s, order);
        self.response_bytes_max
            .store(settings.response_bytes_max, order);
        self.rate_max.store(settings.rate_max, order);
        self.account_rate_max
            .store(settings.account_rate_max, order);
        self.rate_s.store(settings.rate_s, order);
    }

    pub(super) fn requests_max(&self) -> usize {
        self.requests_max.load(Ordering::Relaxed)
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s.load(Ordering::Relaxed))
    }

    pub(super) fn response_bytes_max(&self) -> usize {
        self.response_bytes_max.load(Ordering::Relaxed)
    }

    pub(super) fn rate_max(&self) -> u32 {
        self.rate_max.load(Ordering::Relaxed)
    }

    pub(super) fn account_rate_max(&self) -> u32 {
        self.account_rate_max.load(Ordering::Relaxed)
    }

    pub(super) fn rate_s(&self) -> u32 {
        self.rate_s.load(Ordering::Relaxed)
    }
}
