//! The health of one stage that runs on a thread or a task of its own.
//!
//! In:    each failure of the stage, and each success after one.
//! Out:   a condition that holds from the first failure until the next success.
//! Never: a stage that ended by a panic and is not reported.

use std::sync::Arc;

use super::Status;
use crate::condition::Condition;

/// What a stage reports of itself.
#[derive(Debug)]
pub struct Health {
    status: Arc<Status>,
    /// The stage's name, first in every detail.
    stage: String,
    /// What holds while the stage fails, unless it names another condition.
    condition: Condition,
    raised: Option<Condition>,
}

impl Health {
    pub fn new(status: &Arc<Status>, condition: Condition, stage: impl Into<String>) -> Self {
        Self {
            status: Arc::clone(status),
            stage: stage.into(),
            condition,
            raised: None,
        }
    }

    /// It failed.
    pub fn fails(&mut self, cause: impl std::fmt::Display) {
        self.fails_as(self.condition, cause);
    }

    /// It failed, and this is what that means for the process.
    pub fn fails_as(&mut self, condition: Condition, cause: impl std::fmt::Display) {
        if self.raised != Some(condition) {
            self.works();
        }
        let detail = format!("{}: {cause}", self.stage);
        self.status.raise(condition, &self.stage, detail);
        self.raised = Some(condition);
    }

    /// It went on.
    pub fn works(&mut self) {
        if let Some(condition) = self.raised.take() {
            self.status.clear(condition, &self.stage);
        }
    }
}

impl Drop for Health {
    /// A stage that panics has ended, and nobody else would notice.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let ended = "it ended by a panic, see the log; restart the process";
            self.fails(ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Writing;

    /// Codes and details of what holds.
    fn held(status: &Status) -> Vec<(Condition, String)> {
        let problems = status.problems(0, &Writing::default());
        let pair = |one: crate::condition::Problem| (one.condition, one.detail);
        problems.into_iter().map(pair).collect()
    }

    #[test]
    fn two_stages_fail_and_go_on_each_by_itself() {
        let status = Arc::new(Status::new(crate::clock::Clock::at(0)));
        let failing = Condition::ConsumerFailing;
        let mut search = Health::new(&status, failing, "search");
        let mut log = Health::new(&status, failing, "log");
        search.fails("full");
        log.fails("locked");
        log.fails("gone");
        let both = [(failing, "log: gone"), (failing, "search: full")];
        assert_eq!(held(&status), both.map(|(one, text)| (one, text.into())));
        log.works();
        assert_eq!(held(&status), [(failing, "search: full".into())]);
        search.fails_as(Condition::TimelinesStuck, "worse");
        let worse = (Condition::TimelinesStuck, "search: worse".to_owned());
        assert_eq!(held(&status), [worse]);
        search.works();
        assert_eq!(held(&status), []);
    }

    #[test]
    fn a_stage_that_panics_is_reported() {
        let status = Arc::new(Status::new(crate::clock::Clock::at(0)));
        let health = Health::new(&status, Condition::TimelinesStuck, "timelines");
        let stage = std::thread::spawn(move || {
            let _health = health;
            panic!("on purpose");
        });
        assert!(stage.join().is_err());
        let conditions: Vec<Condition> = held(&status).into_iter().map(|(one, _)| one).collect();
        assert_eq!(conditions, [Condition::TimelinesStuck]);
    }
}
