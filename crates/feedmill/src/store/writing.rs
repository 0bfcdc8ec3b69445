//! What the writer of a store is doing, known without asking the database.
//!
//! In:    what the writer notes of each batch: handed over, begun, durable, failed; damage that
//!        readers meet.
//! Out:   a copy of it, at once, however long the database takes.
//! Never: a wait for the database.
//!
//! Times are those of the batches, so whoever hands a batch over says when.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::StoreError;
use crate::clock::Micros;

/// What the writer's thread is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    #[default]
    Idle,
    /// Waits for the write lock.
    Locking,
    /// Is within a transaction.
    Applying,
    /// Waits for the transaction to become durable.
    Committing,
}

/// Failures in a row.
#[derive(Debug, Clone)]
pub struct Failing {
    /// When the first of them was handed over.
    pub since_us: Micros,
    /// The last error.
    pub cause: StoreError,
}

/// What the writer is doing now.
#[derive(Debug, Clone, Default)]
pub struct Writing {
    pub phase: Phase,
    /// When the newest batch of the transaction under way was handed over.
    pub phase_since_us: Micros,
    /// When the oldest batch that is not answered yet was handed over.
    pub waiting_since_us: Option<Micros>,
    /// Batches that are not answered yet.
    pub waiting: usize,
    /// Why nothing can be written, while nothing can.
    pub failing: Option<Failing>,
    /// The time of the last batch that became durable.
    pub committed_us: Option<Micros>,
    /// Damage that somebody met, also who only reads; it does not pass.
    pub damage: Option<String>,
}

/// The place where the writer notes it.
#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    writing: Writing,
    /// Batches handed over and not answered, by number: their times.
    waiting: BTreeMap<u64, Micros>,
    next: u64,
}

impl Notes {
    /// A batch is handed over; returns its number.
    pub(super) fn handed_over(&self, now_us: Micros) -> u64 {
        let mut noted = self.0.lock();
        noted.next += 1;
        let number = noted.next;
        noted.waiting.insert(number, now_us);
        number
    }

    /// A batch is answered.
    pub(super) fn answered(&self, number: u64) {
        self.0.lock().waiting.remove(&number);
    }

    /// The writer goes on to another phase of a transaction.
    pub(super) fn phase(&self, phase: Phase, now_us: Micros) {
        let mut noted = self.0.lock();
        noted.writing.phase = phase;
        noted.writing.phase_since_us = now_us;
    }

    /// A transaction ended.
    pub(super) fn ended(&self, now_us: Micros, failure: Option<&StoreError>) {
        let mut noted = self.0.lock();
        let writing = &mut noted.writing;
        writing.phase = Phase::Idle;
        match failure {
            None => {
                writing.failing = None;
                writing.committed_us = writing.committed_us.max(Some(now_us));
            }
            Some(StoreError::Stale(_)) => {} // the batch is at fault, not the store
            Some(cause) => {
                let since_us = writing.failing.as_ref().map_or(now_us, |it| it.since_us);
                let cause = cause.clone();
                writing.failing = Some(Failing { since_us, cause });
            }
        }
    }

    /// Somebody met damage; the first word of it is kept.
    pub(super) fn damaged(&self, cause: &StoreError) {
        let mut noted = self.0.lock();
        noted
            .writing
            .damage
            .get_or_insert_with(|| cause.to_string());
    }

    /// A copy.
    pub(super) fn read(&self) -> Writing {
        let noted = self.0.lock();
        Writing {
            waiting_since_us: noted.waiting.values().min().copied(),
            waiting: noted.waiting.len(),
            ..noted.writing.clone()
        }
    }
}
