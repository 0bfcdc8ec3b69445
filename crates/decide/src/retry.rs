//! Retry policy: when a record that could not be applied is tried again.
//!
//! In:    why it stopped, and how often it was tried.
//! Out:   a pause, or `None`: it becomes a dead letter.
//! Never: an attempt without an end; a decision that depends on a clock.

use crate::ids::Micros;

const SECOND_US: Micros = 1_000_000;

/// Pauses before a parked record is looked at again. Its missing record may arrive any time
/// before; that wakes it at once.
const PARKED_PAUSES_US: [Micros; 3] = [SECOND_US, 4 * SECOND_US, 16 * SECOND_US];

/// The pause before a parked record is tried again, after `attempts` attempts.
pub fn parked_pause_us(attempts: i64) -> Option<Micros> {
    let attempts = usize::try_from(attempts).ok()?;
    PARKED_PAUSES_US.get(attempts).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parked_record_is_tried_after_1_4_and_16_seconds() {
        let pauses: Vec<_> = (0..4).map(parked_pause_us).collect();
        let seconds = [Some(1), Some(4), Some(16), None];
        assert_eq!(pauses, seconds.map(|it| it.map(|it| it * SECOND_US)));
    }
}
