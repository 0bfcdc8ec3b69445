//! Settling: what is done about a record that could not go on.
//!
//! In:    a [`Trouble`] and how often it was tried.
//! Out:   [`Next`]: wait that long, park it under what it lacks, or bury it.
//! Never: an attempt without an end; a decision that depends on a clock.
//!
//! One variant for each thing that is done, not for each place where it can
//! happen. A store that is down is not among them: it stops the intake, which
//! waits and uses up no attempt.

use crate::clock::Micros;

const SECOND_US: Micros = 1_000_000;

/// Pauses before a parked record is tried again; after the last it is buried.
pub const PARKED_PAUSES_US: [Micros; 3] = [SECOND_US, 4 * SECOND_US, 16 * SECOND_US];
/// The first pause of what the world is at fault for; it doubles up to `RETRY_US_MAX`.
const RETRY_US: Micros = SECOND_US;
const RETRY_US_MAX: Micros = 60 * SECOND_US;
/// How often that is tried again.
pub const RETRIES_MAX: u32 = 5;

/// Why a record stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The record is fine, the world is not.
    #[error("passing: {0}")]
    Passing(String),
    /// The record leans on another that is not here yet.
    #[error("waits for {0}")]
    Early(String),
    /// No later attempt can end differently.
    #[error("refused: {0}")]
    Refused(String),
}

/// What is done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Try again after this pause.
    Retry { pause_us: Micros },
    /// Wait under this key: released when it comes, tried again after the pause.
    Park { key: String, pause_us: Micros },
    /// Keep it as a dead letter of this stage.
    Bury { stage: &'static str },
}

impl Trouble {
    /// What to do after `attempt` attempts failed before this one.
    pub fn next(&self, attempt: u32) -> Next {
        match self {
            Self::Passing(_) if attempt < RETRIES_MAX => Next::Retry {
                pause_us: RETRY_US
                    .saturating_mul(1 << attempt.min(16))
                    .min(RETRY_US_MAX),
            },
            Self::Passing(_) => Next::Bury { stage: "retryable" },
            Self::Early(key) => match PARKED_PAUSES_US.get(attempt as usize) {
                Some(&pause_us) => Next::Park {
                    key: key.clone(),
                    pause_us,
                },
                None => Next::Bury {
                    stage: "dependency",
                },
            },
            Self::Refused(_) => Next::Bury { stage: "refused" },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(trouble: &Trouble, expected: &[Option<Micros>]) {
        for (attempt, expected) in (0..).zip(expected) {
            let pause = match trouble.next(attempt) {
                Next::Retry { pause_us } | Next::Park { pause_us, .. } => {
                    Some(pause_us / SECOND_US)
                }
                Next::Bury { .. } => None,
            };
            assert_eq!(pause, *expected, "attempt {attempt}");
        }
    }

    #[test]
    fn an_early_record_is_tried_after_1_4_and_16_seconds_and_then_buried() {
        let early = Trouble::Early("at://did:web:a.test/x.y.z/1".into());
        check(&early, &[Some(1), Some(4), Some(16), None]);
    }

    #[test]
    fn a_passing_trouble_is_tried_five_times_with_doubling_pauses() {
        let passing = Trouble::Passing("refused connection".into());
        check(
            &passing,
            &[Some(1), Some(2), Some(4), Some(8), Some(16), None],
        );
        assert_eq!(passing.next(5), Next::Bury { stage: "retryable" });
    }

    #[test]
    fn a_refused_record_is_never_tried_again() {
        check(&Trouble::Refused("no".into()), &[None]);
    }
}
