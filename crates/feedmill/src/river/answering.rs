//! Where the process answers: feeds, or only its operator; and what it reports.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tracing::info;

use super::opening::Door;
use super::{River, Start};
use crate::fanout::Fanout;
use crate::heartbeat::Reporter;
use crate::serve::operator::Operator;
use crate::serve::starting::Finished;

/// How often samples of metrics are put together; until then each is kept.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

impl River {
    /// Starts reporting to other processes on the store, once all sources are known.
    pub(super) fn report(&mut self, start: &Start<'_>) {
        let reporter = Reporter::new(
            Arc::clone(&self.store),
            Arc::clone(&self.status),
            start.clock.clone(),
        );
        let reporting = reporter.run(self.stop_sources.subscribe());
        self.sources.push(tokio::spawn(reporting));
    }

    /// Answers the operator where nothing else is served.
    pub(super) fn answer_operator(&mut self, start: &Start<'_>, door: Door) {
        let operator = Operator {
            store: Arc::clone(&self.store),
            status: Arc::clone(&self.status),
            clock: start.clock.clone(),
            fanout: None,
        };
        self.accept(door, Finished::Operator(operator.router()), None);
        info!(address = ?self.address, "ingesting; the operator is answered");
    }

    /// Starts answering, and what measures beside it.
    pub(super) fn accept(&mut self, door: Door, answers: Finished, fanout: Option<Arc<Fanout>>) {
        let upkeep = upkeep(fanout, self.stop_sources.subscribe());
        self.sources.push(tokio::spawn(upkeep));
        door.starting.done(answers);
        self.server = Some(door.task);
    }
}

/// Puts samples of metrics together, and measures what would be too slow to measure when asked.
async fn upkeep(fanout: Option<Arc<Fanout>>, mut stop: watch::Receiver<bool>) {
    while tokio::time::timeout(UPKEEP_EVERY, stop.changed())
        .await
        .is_err()
    {
        crate::metrics::recorder().run_upkeep();
        if let Some(fanout) = fanout.clone() {
            // Where the store cannot be asked, the number of before stays.
            drop(tokio::task::spawn_blocking(move || fanout.tell_behind()).await);
        }
    }
}
