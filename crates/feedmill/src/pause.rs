//! How long to wait before connecting again: doubling pauses with jitter, and
//! a breaker that lets one probe through a minute once a host looks dead.

use std::time::Duration;

/// Failures in a row after which the breaker opens.
const FAILURES_MAX: u32 = 10;
/// Pause while the breaker is open, before the next probe.
const HALF_OPEN_AFTER: Duration = Duration::from_secs(60);
/// Share of a pause by which it varies, so that replicas do not return together.
const JITTER: f64 = 0.25;

/// Pauses of one source.
#[derive(Debug, Clone)]
pub struct Pauses {
    first: Duration,
    max: Duration,
    failures: u32,
}

impl Pauses {
    /// Pauses from `first`, doubling up to `max`.
    pub fn new(first: Duration, max: Duration) -> Self {
        Self {
            first,
            max,
            failures: 0,
        }
    }

    /// A connection delivered something: begin anew.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// The pause after one more failure; `chance` in 0..1 is the caller's randomness.
    pub fn next(&mut self, chance: f64) -> Duration {
        let doublings = self.failures.min(16);
        self.failures += 1;
        let pause = if self.failures > FAILURES_MAX {
            HALF_OPEN_AFTER
        } else {
            self.first.saturating_mul(1 << doublings).min(self.max)
        };
        pause.mul_f64(1.0 - JITTER + 2.0 * JITTER * chance.clamp(0.0, 1.0))
    }
}

/// Randomness for jitter.
pub fn chance() -> f64 {
    let mut bytes = [0u8; 4];
    match getrandom::fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX),
        Err(_) => 0.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_then_the_breaker_opens() {
        let mut pauses = Pauses::new(Duration::from_millis(500), Duration::from_secs(30));
        let middle: Vec<u128> = (0..11).map(|_| pauses.next(0.5).as_millis()).collect();
        assert_eq!(
            middle,
            [
                500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000, 30000, 60000
            ]
        );
        pauses.reset();
        assert_eq!(pauses.next(0.5).as_millis(), 500);
    }

    #[test]
    fn jitter_is_a_quarter_either_way() {
        let mut pauses = Pauses::new(Duration::from_millis(1000), Duration::from_secs(30));
        assert_eq!(pauses.clone().next(0.0).as_millis(), 750);
        assert_eq!(pauses.next(1.0).as_millis(), 1250);
    }
}
