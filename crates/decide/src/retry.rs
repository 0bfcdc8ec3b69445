//! Retry policy: when work that could not be done is tried again.
//!
//! In:    how often it was tried.
//! Out:   a pause, or `None`: it is given up, and a record becomes a dead letter.
//! Never: an attempt without an end; a decision that depends on a clock.
//!
//! A store that is down is not among the reasons: it stops the intake, which
//! waits and uses up no attempt.

use crate::ids::Micros;

const SECOND_US: Micros = 1_000_000;

/// Pauses before a parked record is looked at again. Its missing record may arrive any time
/// before; that wakes it at once.
const PARKED_PAUSES_US: [Micros; 3] = [SECOND_US, 4 * SECOND_US, 16 * SECOND_US];

/// The first pause where the world is at fault; it doubles up to `RETRY_US_MAX`.
const RETRY_US: Micros = SECOND_US;
const RETRY_US_MAX: Micros = 60 * SECOND_US;
/// How often that is tried again.
const RETRIES_MAX: u32 = 5;

/// The pause before another attempt where the world is at fault, after `attempts` attempts that
/// failed before this one.
pub fn retry_pause_us(attempts: u32) -> Option<Micros> {
    let pause_us = RETRY_US.saturating_mul(1 << attempts.min(16));
    (attempts < RETRIES_MAX).then_some(pause_us.min(RETRY_US_MAX))
}

/// The pause before a parked record is tried again, after `attempts` attempts.
pub fn parked_pause_us(attempts: i64) -> Option<Micros> {
    let attempts = usize::try_from(attempts).ok()?;
    PARKED_PAUSES_US.get(attempts).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_world_is_at_fault_for_is_tried_five_times_with_doubling_pauses() {
        let pauses: Vec<_> = (0..6).map(retry_pause_us).collect();
        let seconds = [Some(1), Some(2), Some(4), Some(8), Some(16), None];
        assert_eq!(pauses, seconds.map(|it| it.map(|it| it * SECOND_US)));
    }

    #[test]
    fn a_parked_record_is_tried_after_1_4_and_16_seconds() {
        let pauses: Vec<_> = (0..4).map(parked_pause_us).collect();
        let seconds = [Some(1), Some(4), Some(16), None];
        assert_eq!(pauses, seconds.map(|it| it.map(|it| it * SECOND_US)));
    }
}
