//! Group commit: appends in flight share one transaction and one fsync.
//!
//! In:    jobs, from any number of threads.
//! Out:   the outcome of each job, once the transaction that holds it is durable.
//! Never: a job that waits for others to arrive; an outcome before the commit; a refused job
//!        that undoes its neighbours; more jobs or bytes in one transaction than the limits.
//!
//! A job that finds nobody at work makes its thread the leader. The leader takes the writer's
//! lock, runs every job that waits by then, commits once, reports, and goes on until no job
//! waits. So a single append commits at once, and what arrives during a commit is the next
//! group. Each job of a group has a savepoint, which undoes a job that fails and no other.

use super::connection::{self, WAL_BYTES_MAX};
use super::moment::Moment;
use super::remembered::Remembered;
use super::tail::Tail;
use super::{SqliteLog, Writer, passing};
use crate::metrics as names;
use blocklog::store::StoreError;
use metrics::{counter, gauge};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, mpsc};
use tokio::sync::oneshot;

/// Jobs in one transaction.
const GROUP_JOBS_MAX: usize = 1024;

/// Bytes of the jobs in one transaction, unless a single one has more.
const GROUP_BYTES_MAX: usize = 16 << 20;

/// Bytes of all jobs that wait.
const WAITING_BYTES_MAX: usize = 128 << 20;

/// Something to be done in the transaction of a group.
trait Job: Send {
    /// Do it; false if it is to be undone.
    fn run(&mut self, moment: &Moment<'_>, known: &mut Remembered) -> bool;

    /// The transaction is durable, or it failed and nothing of the job is left.
    fn report(self: Box<Self>, committed: Result<(), &StoreError>);
}

/// A job made of two functions: what to do, and whom to report to.
struct Work<F, R, T, E> {
    work: Option<F>,
    report: R,
    outcome: Option<Result<T, E>>,
}

impl<F, R, T, E> Job for Work<F, R, T, E>
where
    F: FnOnce(&Moment<'_>, &mut Remembered) -> Result<T, E> + Send,
    R: FnOnce(Result<T, E>) + Send,
    T: Send,
    E: From<StoreError> + Send,
{
    fn run(&mut self, moment: &Moment<'_>, known: &mut Remembered) -> bool {
        let outcome = self.work.take().map(|work| work(moment, known));
        let succeeded = matches!(outcome, Some(Ok(_)));
        self.outcome = outcome;
        succeeded
    }

    fn report(self: Box<Self>, committed: Result<(), &StoreError>) {
        let failed = |error: &StoreError| StoreError::Passing(error.to_string().into());
        let outcome = match (self.outcome, committed) {
            // What was refused was refused, whatever became of the others.
            (Some(Err(error)), _) => Err(error),
            (Some(Ok(done)), Ok(())) => Ok(done),
            (_, Err(error)) => Err(failed(error).into()),
            (None, Ok(())) => Err(StoreError::Passing("the job was not run".into()).into()),
        };
        (self.report)(outcome);
    }
}

/// The jobs that wait for the next transaction.
#[derive(Default)]
pub(super) struct Group {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(usize, Box<dyn Job>)>,
    bytes: usize,
    is_led: bool,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} jobs wait", self.waiting())
    }
}

impl Group {
    /// How many jobs wait.
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Let a job wait. Whether the caller must lead now; `None` if too many bytes wait.
    fn push(&self, bytes: usize, job: Box<dyn Job>) -> Option<bool> {
        let mut state = self.state.lock();
        if state.bytes.saturating_add(bytes) > WAITING_BYTES_MAX {
            return None;
        }
        state.bytes += bytes;
        state.waiting.push_back((bytes, job));
        let must_lead = !state.is_led;
        state.is_led = true;
        Some(must_lead)
    }

    /// The jobs of the next transaction. If there are none, nobody leads any more.
    fn take(&self) -> Vec<Box<dyn Job>> {
        let mut state = self.state.lock();
        let (mut jobs, mut taken) = (Vec::new(), 0_usize);
        while let Some((bytes, _)) = state.waiting.front()
            && jobs.len() < GROUP_JOBS_MAX
            && (jobs.is_empty() || taken.saturating_add(*bytes) <= GROUP_BYTES_MAX)
            && let Some((bytes, job)) = state.waiting.pop_front()
        {
            taken = taken.saturating_add(bytes);
            state.bytes = state.bytes.saturating_sub(bytes);
            jobs.push(job);
        }
        state.is_led = !jobs.is_empty();
        jobs
    }

    /// Give up: who waits learns that nobody answers.
    fn abandon(&self) {
        let abandoned = std::mem::take(&mut *self.state.lock());
        drop(abandoned);
    }
}

/// Leads; if a job panics, those that wait must not wait for ever.
struct Lead<'a>(Option<&'a Group>);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            group.abandon();
        }
    }
}

impl SqliteLog {
    /// Do something of about so many bytes in a transaction that is shared with others, and wait until it
    /// is durable. What `work` does before it fails is undone.
    pub(crate) async fn grouped<T, E>(
        self: &Arc<Self>,
        bytes: usize,
        work: impl FnOnce(&Moment<'_>, &mut Remembered) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let report = move |outcome| drop(sender.send(outcome));
        if self.submit(bytes, work, report)? {
            let log = Arc::clone(self);
            tokio::task::spawn_blocking(move || log.lead());
        }
        receiver.await.unwrap_or_else(|_| Err(abandoned().into()))
    }

    /// The same for a thread that may block.
    pub(crate) fn grouped_here<T, E>(
        &self,
        bytes: usize,
        work: impl FnOnce(&Moment<'_>, &mut Remembered) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel();
        let report = move |outcome| drop(sender.send(outcome));
        if self.submit(bytes, work, report)? {
            self.lead();
        }
        receiver.recv().unwrap_or_else(|_| Err(abandoned().into()))
    }

    /// Jobs that wait for a transaction.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.group.waiting()
    }

    /// Whether the caller must lead.
    fn submit<T: Send + 'static, E: From<StoreError> + Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce(&Moment<'_>, &mut Remembered) -> Result<T, E> + Send + 'static,
        report: impl FnOnce(Result<T, E>) + Send + 'static,
    ) -> Result<bool, E> {
        let job = Work {
            work: Some(work),
            report,
            outcome: None,
        };
        self.group
            .push(bytes, Box::new(job))
            .ok_or_else(|| StoreError::Passing("too many bytes wait to be appended".into()).into())
    }

    /// Empties the write-ahead log if it is too large, and grew since that was tried in vain.
    fn shorten(&self, writer: &mut Writer) {
        let wal = || {
            let mut path = self.path.clone().into_os_string();
            path.push("-wal");
            std::fs::metadata(path).map_or(0, |file| file.len())
        };
        let bytes = wal();
        gauge!(names::LOG_WAL_BYTES).set(bytes as f64);
        if bytes <= WAL_BYTES_MAX.max(writer.wal_tried) {
            return;
        }
        let emptied = connection::empty_wal(&writer.connection);
        let left = wal();
        gauge!(names::LOG_WAL_BYTES).set(left as f64);
        writer.wal_tried = match emptied {
            Ok(true) => 0,
            Ok(false) | Err(_) => left + WAL_BYTES_MAX / 8,
        };
    }

    /// Run the jobs that wait, group by group, until none waits. Blocks.
    fn lead(&self) {
        let mut lead = Lead(Some(&self.group));
        loop {
            // Jobs that arrive while another thread writes belong to this group.
            let mut writer = self.writer.lock();
            let mut jobs = self.group.take();
            if jobs.is_empty() {
                self.shorten(&mut writer);
                break;
            }
            let committed = self.transact_in(&mut writer, |moment, known| {
                run(&mut jobs, moment, known, &self.tail, self.at)
            });
            drop(writer);
            (self.at)("log.group.committed");
            counter!(names::LOG_COMMITS).increment(1);
            gauge!(names::LOG_WAITING).set(self.group.waiting() as f64);
            for job in jobs {
                let committed = match &committed {
                    Ok(()) | Err(Undone::Refused) => Ok(()),
                    Err(Undone::Store(error)) => Err(error),
                };
                job.report(committed);
            }
        }
        lead.0 = None;
    }
}

/// Why a group's transaction was undone.
enum Undone {
    /// Its only job was refused.
    Refused,
    /// The store failed.
    Store(StoreError),
}

impl From<StoreError> for Undone {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<rusqlite::Error> for Undone {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(passing(error))
    }
}

/// Run the jobs of a group, each so that it can be undone alone.
fn run(
    jobs: &mut [Box<dyn Job>],
    moment: &Moment<'_>,
    known: &mut Remembered,
    tail: &Tail,
    at: fn(&'static str),
) -> Result<(), Undone> {
    if let [job] = jobs {
        return match job.run(moment, known) {
            true => Ok(()),
            false => Err(Undone::Refused),
        };
    }
    for job in jobs {
        moment.prepare_cached("SAVEPOINT job")?.execute([])?;
        let attempt = tail.attempt();
        if job.run(moment, known) {
            attempt.keep();
        } else {
            drop(attempt);
            moment.prepare_cached("ROLLBACK TO job")?.execute([])?;
        }
        moment.prepare_cached("RELEASE job")?.execute([])?;
        at("log.group.job");
    }
    at("log.group.before");
    Ok(())
}

fn abandoned() -> StoreError {
    StoreError::Passing("the thread that appends is gone".into())
}
