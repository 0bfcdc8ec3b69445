//! Branches: what is drawn from the outbox behind a durable cursor of its own.
//!
//! In:    changes, in commit order.
//! Out:   whatever the branch keeps, and how far it is behind.
//! Never: a change skipped; a branch that delays another branch, or the intake.
//!
//! A branch that fails is tried again until it works, and meanwhile only falls
//! behind. One that falls behind what the outbox keeps starts anew from the
//! records. A new branch is one file that implements [`Branch`], and one line
//! in the river. Timelines in memory draw the same outbox in their own way
//! (`fanout`): they have no durable cursor.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tracing::{error, info, warn};

use crate::check;
use crate::metrics;
use crate::status::health::Health;
use crate::store::{Drawn, Outbox, SharedStore, StoreError};

/// Changes drawn at once.
const DRAW_MAX: usize = 1000;
/// The longest sleep without changes.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause after a failure; it doubles up to the second.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));

/// Why a branch did not go on. All of it passes or waits for an operator; nothing is skipped.
#[derive(Debug, thiserror::Error)]
pub enum BranchError {
    #[error("the store does not answer")]
    Store(#[from] StoreError),
    /// What the branch keeps its own things in: full, locked, gone, or unreachable.
    #[error("the branch's own keep does not answer: {0}")]
    Keep(String),
}

/// Something kept beside the records, made of them alone.
///
/// Two processes may run the same branch on the same keep: changes applied twice leave what they
/// left once, and a position never goes back.
pub trait Branch: Send + fmt::Debug {
    /// Its name in logs and metrics.
    fn name(&self) -> &'static str;

    /// The last change it holds; `None` if it holds nothing that fits the configuration.
    fn position(&self) -> Result<Option<i64>, BranchError>;

    /// Takes over the changes after `from`, each with its position, durable together with the
    /// position to go on from.
    ///
    /// A record may be newer in the store by now than it was at the change; to take it as it is
    /// now is right, because its later change is still to come and will leave it so.
    fn apply(&mut self, store: &dyn Outbox, from: i64, drawn: &Drawn) -> Result<(), BranchError>;

    /// Starts anew from the records as they are; returns the position it then stands at.
    ///
    /// Take the head of the outbox first and the records after it: what changed in between is
    /// drawn again, and leaves the same.
    fn rebuild(&mut self, store: &dyn Outbox) -> Result<i64, BranchError>;
}

/// What one step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There is more to draw.
    More,
    /// Nothing to draw after this position.
    Idle(i64),
}

/// Draws once.
pub fn step(branch: &mut dyn Branch, store: &dyn Outbox) -> Result<Step, BranchError> {
    let name = branch.name();
    let Some(position) = branch.position()? else {
        let position = branch.rebuild(store)?;
        info!(branch = name, position, "built from the records");
        return Ok(Step::More);
    };
    let head = store.head()?;
    let drawn = store.draw(position, DRAW_MAX)?;
    // A head before our position is another store under the same keep, or one brought back from a backup.
    if drawn.gone || head < position {
        warn!(
            branch = name,
            position,
            head,
            "what this branch holds does not continue in the outbox; it starts anew from the records"
        );
        ::metrics::counter!(metrics::BRANCH_REBUILDS, "branch" => name).increment(1);
        branch.rebuild(store)?;
        return Ok(Step::More);
    }
    if !drawn.changes.is_empty() {
        branch.apply(store, position, &drawn)?;
    }
    let behind = head.saturating_sub(drawn.position).max(0);
    ::metrics::gauge!(metrics::BRANCH_BEHIND, "branch" => name).set(behind as f64);
    Ok(match drawn.changes.len() >= DRAW_MAX {
        true => Step::More,
        false => Step::Idle(drawn.position),
    })
}

/// The thread of a branch: draws until told to stop.
pub fn run(
    mut branch: Box<dyn Branch>,
    store: &SharedStore,
    mut health: Health,
    stop: &AtomicBool,
) {
    let name = branch.name();
    let mut pause = PAUSE.0;
    let mut failing = false;
    let stopped = || stop.load(Ordering::Relaxed);
    while !stopped() {
        match step(&mut *branch, &**store) {
            Ok(done) => {
                if std::mem::take(&mut failing) {
                    info!(branch = name, "goes on");
                }
                health.works();
                pause = PAUSE.0;
                if let Step::Idle(position) = done {
                    store.wait(position, PATIENCE, &stopped);
                }
            }
            Err(cause) => {
                // Said once for each outage: the gauge tells how it goes on.
                if !std::mem::replace(&mut failing, true) {
                    error!(branch = name, %cause, "does not go on; it is tried again until it does");
                }
                health.fails(check::chain(&cause));
                ::metrics::counter!(metrics::BRANCH_FAILURES, "branch" => name).increment(1);
                store.wait(i64::MAX, pause, &stopped);
                pause = (pause * 2).min(PAUSE.1);
            }
        }
    }
}
