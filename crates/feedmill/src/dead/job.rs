//! A replay of many dead letters: a job that shows how far it is and can be stopped.
//!
//! In:    a filter.
//! Out:   [`Progress`], at any time and from any thread.
//! Never: a dead letter tried twice by one job; work after it was told to stop,
//!        but for the one that is being tried.
//!
//! Each dead letter is a transaction of its own, so a job that is stopped, or
//! whose process ends, leaves nothing half done.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{ReplayError, replay};
use crate::check::Checker;
use crate::clock::{Clock, Micros};
use crate::store::{Desk, Fate, LetterQuery};

/// Dead letters read at a time.
const PAGE_MAX: usize = 100;

/// What a job does now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum State {
    #[default]
    Running,
    Done,
    Stopped,
    /// The store could not answer; what was not tried is as it was.
    Failed(String),
}

impl State {
    fn word(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Stopped => "stopped",
            Self::Failed(_) => "failed",
        }
    }
}

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    pub state: State,
    /// Dead letters that matched when it began.
    pub total: u64,
    /// Dead letters tried so far: the sum of what follows.
    pub done: u64,
    /// Their records are stored, or something newer is.
    pub settled: u64,
    /// Their records now wait for others.
    pub parked: u64,
    /// Refused again.
    pub buried: u64,
    /// They hold no record that can be checked again, or were gone already.
    pub skipped: u64,
    pub started_us: Micros,
    pub ended_us: Option<Micros>,
}

impl Progress {
    /// As the API shows it.
    pub fn json(&self) -> Value {
        let mut shown = json!({
            "state": self.state.word(),
            "total": self.total,
            "done": self.done,
            "settled": self.settled,
            "parked": self.parked,
            "buried": self.buried,
            "skipped": self.skipped,
            "startedAt": record::datetime::format_us(self.started_us),
        });
        if let (Some(at_us), Some(fields)) = (self.ended_us, shown.as_object_mut()) {
            fields.insert("endedAt".into(), record::datetime::format_us(at_us).into());
        }
        if let (State::Failed(cause), Some(fields)) = (&self.state, shown.as_object_mut()) {
            fields.insert("message".into(), cause.clone().into());
        }
        shown
    }

    fn count(&mut self, tried: &Result<Fate, ReplayError>) {
        self.done += 1;
        let counter = match tried {
            Ok(Fate::Parked) => &mut self.parked,
            Ok(Fate::Buried) => &mut self.buried,
            Ok(_) => &mut self.settled,
            Err(_) => &mut self.skipped,
        };
        *counter += 1;
    }
}

/// One replay of many.
#[derive(Debug)]
pub struct Job {
    progress: Mutex<Progress>,
    stop: AtomicBool,
}

impl Job {
    /// A job that begins now.
    pub fn new(clock: &Clock) -> Self {
        let progress = Progress {
            started_us: clock.now_us(),
            ..Progress::default()
        };
        Self {
            progress: Mutex::new(progress),
            stop: AtomicBool::new(false),
        }
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        self.progress.lock().clone()
    }

    /// Ends it after the dead letter that is being tried.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Tries every dead letter of a filter once, newest first; those refused meanwhile are not among
    /// them. `watch` is called after each.
    pub fn run(
        &self,
        store: &dyn Desk,
        checker: &Checker,
        clock: &Clock,
        query: &LetterQuery,
        watch: &mut dyn FnMut(&Progress),
    ) -> Progress {
        let ended = self.each(store, checker, clock, query, watch);
        let mut progress = self.progress.lock();
        progress.state = ended.unwrap_or_else(|error| State::Failed(crate::check::chain(&error)));
        progress.ended_us = Some(clock.now_us());
        progress.clone()
    }

    fn each(
        &self,
        store: &dyn Desk,
        checker: &Checker,
        clock: &Clock,
        query: &LetterQuery,
        watch: &mut dyn FnMut(&Progress),
    ) -> Result<State, ReplayError> {
        let total = store.count_dead(query)?;
        self.progress.lock().total = total.max(0).cast_unsigned();
        let mut query = LetterQuery {
            limit: PAGE_MAX,
            ..query.clone()
        };
        loop {
            let letters = store.letters(&query)?;
            let Some(last) = letters.last() else {
                return Ok(State::Done);
            };
            query.before = Some(last.id);
            for letter in &letters {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(State::Stopped);
                }
                let tried = replay(store, checker, clock.now_us(), letter.id);
                let tried = tried.map(|replayed| replayed.fate);
                if let Err(error @ ReplayError::Store(_)) = tried {
                    return Err(error);
                }
                self.progress.lock().count(&tried);
                watch(&self.progress());
            }
        }
    }
}
