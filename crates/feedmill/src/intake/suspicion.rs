//! Suspicion: which frame ended the process, found by halving.
//!
//! In:    the batch in whose midst the process before this one ended.
//! Out:   how many frames the next batches may have, and at last the one frame at fault.
//! Never: a frame accused that was not worked on alone, `ALONE_MAX` times in a row, each
//!        time ending the process; a larger batch before all that are suspected have passed.
//!
//! The frames behind the durable cursor come again at the next start. Half of
//! those that were worked on are tried first; if the process ends again, half of
//! that half, and so on. So among n frames the one at fault is found after about
//! log2(n) more ends.

use crate::store::attempt::{ALONE_MAX, Mark, hash};

/// What is suspected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Suspicion {
    /// Frames that have yet to pass.
    left: u64,
    /// Frames of one batch until then.
    limit: u64,
    /// The one frame that was worked on alone, and how often.
    alone: Option<(u64, u64)>,
}

impl Suspicion {
    /// What to suspect after a process ended in the midst of a batch.
    pub(super) fn of(found: Option<Mark>) -> Self {
        match found {
            None => Self::default(),
            Some(mark) if mark.frames == 1 => Self {
                left: 1,
                limit: 1,
                alone: Some((mark.first, mark.tries)),
            },
            Some(mark) => Self {
                left: mark.frames,
                limit: mark.frames / 2,
                alone: None,
            },
        }
    }

    /// Whether the next batch may hold the frame at fault.
    pub(super) fn is_active(&self) -> bool {
        self.left > 0
    }

    /// Frames that one batch may have, where `usual` is the limit without suspicion.
    pub(super) fn batch_max(&self, usual: usize) -> usize {
        match self.left {
            0 => usual,
            _ => usual.min(usize::try_from(self.limit).unwrap_or(usize::MAX)),
        }
    }

    /// The mark of a batch of so many frames that begins with this one.
    pub(super) fn mark(&self, frames: usize, first: u64) -> Mark {
        let tries = match self.alone {
            Some((alone, tries)) if frames == 1 && alone == first => tries + 1,
            _ => 1,
        };
        Mark {
            frames: frames as u64,
            first,
            tries,
        }
    }

    /// Whether this frame is the one at fault.
    pub(super) fn accuses(&self, frame: &[u8]) -> bool {
        self.alone
            .is_some_and(|(first, tries)| tries >= ALONE_MAX && first == hash(frame))
    }

    /// So many frames passed.
    pub(super) fn passed(&mut self, frames: usize) {
        self.left = self.left.saturating_sub(frames as u64);
        if self.left == 0 {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One life of a process that reads `frames` from `cursor` on and ends where it meets one of
    /// `poison`; returns the mark it leaves, if it ends, and what it accused.
    fn live(
        found: Option<Mark>,
        cursor: &mut u64,
        frames: u64,
        poison: &[u64],
        usual: usize,
    ) -> (Option<Mark>, Vec<u64>) {
        let mut suspicion = Suspicion::of(found);
        let mut accused = Vec::new();
        while *cursor < frames {
            let rest = usize::try_from(frames - *cursor).unwrap();
            let size = suspicion.batch_max(usual).min(rest);
            let batch = *cursor..*cursor + size as u64;
            if suspicion.accuses(&batch.start.to_le_bytes()) {
                assert_eq!(size, 1);
                accused.push(batch.start);
            } else if poison.iter().any(|frame| batch.contains(frame)) {
                let first = hash(&batch.start.to_le_bytes());
                return (Some(suspicion.mark(size, first)), accused);
            }
            suspicion.passed(size);
            *cursor = batch.end;
        }
        (None, accused)
    }

    /// Lives until all is read; how often the process ended, and what was accused.
    fn lives(frames: u64, poison: &[u64], usual: usize) -> (u32, Vec<u64>) {
        let (mut found, mut cursor, mut ends, mut accused) = (None, 0, 0, Vec::new());
        loop {
            let (mark, more) = live(found, &mut cursor, frames, poison, usual);
            accused.extend(more);
            found = mark;
            if found.is_none() {
                return (ends, accused);
            }
            ends += 1;
            assert!(ends < 1000, "never found");
        }
    }

    #[test]
    fn the_frame_at_fault_is_found_wherever_it_is_and_no_other() {
        for poison in 0..300 {
            let (ends, accused) = lives(300, &[poison], 128);
            assert_eq!(accused, [poison]);
            // One end with the whole batch, one for each halving, and those alone.
            assert!(ends <= 1 + 7 + 3, "{ends} for {poison}");
        }
    }

    #[test]
    fn several_frames_at_fault_are_found_one_after_the_other() {
        let (_, accused) = lives(300, &[3, 4, 250], 100);
        assert_eq!(accused, [3, 4, 250]);
    }

    #[test]
    fn a_frame_that_was_there_when_somebody_pulled_the_plug_is_not_accused() {
        let frame = |n: u64| n.to_le_bytes();
        let mark = Mark {
            frames: 1,
            first: hash(&frame(5)),
            tries: 1,
        };
        let suspicion = Suspicion::of(Some(mark));
        assert!(!suspicion.accuses(&frame(5)));
        assert_eq!(suspicion.mark(1, hash(&frame(5))).tries, 2);
        let another = suspicion.mark(1, hash(&frame(6)));
        assert_eq!(another.tries, 1, "another frame begins anew");
    }
}
