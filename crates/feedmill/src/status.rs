//! What the process is doing and what is wrong with it, at any moment.
//!
//! In:    facts that stages write: an event, a commit, a lost connection, a
//!        measurement of the store.
//! Out:   lag, depth, readiness and every [`Problem`], computed when asked from
//!        those facts and the clock.
//! Never: a number that stays good because the stage that would change it is
//!        stuck; a wait for the store.

// The numbers as metrics.
pub mod gauges;
// Whether one stage goes on.
pub mod health;
// What an ingesting process says to others.
pub mod heartbeat;
// All sources at a moment.
pub mod ingestion;
// Our clock and the events' times.
pub mod offset;
// One source.
pub mod source;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use replicate::log::Log;
use tokio::sync::watch;

use crate::clock::{Clock, Micros};
use crate::condition::{Condition, Problem};
use crate::store::queue::Depth;
use crate::store::skew::WrongClock;
use crate::store::{Phase, StoreError, Waiting, Writing};
use heartbeat::{Heartbeat, Ingester, Named, Progress};
use ingestion::{Ingestion, Report};
pub use source::{SourceState, StreamKind};

/// Seconds of history behind the event rate.
const RATE_SECONDS: i64 = 10;

const SECOND_US: Micros = 1_000_000;
/// The write lock is waited for so long before somebody is warned.
const LOCKED_US_MAX: Micros = 2 * SECOND_US;
/// A batch may take so long to become durable.
const STALLED_US_MAX: Micros = 5 * SECOND_US;
/// A transaction may be open for so long.
const TRANSACTION_US_MAX: Micros = 5 * SECOND_US;
/// A source may be without a connection for so long.
const DISCONNECTED_US_MAX: Micros = 5 * SECOND_US;
/// A measurement of the store may be so old.
const MEASURED_US_MAX: Micros = 10 * SECOND_US;
/// Events may be so old when they become durable.
const LAG_US_MAX: Micros = 60 * SECOND_US;
/// Bytes that must be free on the store's disk.
const FREE_BYTES_MIN: u64 = 64 << 20;

/// What the housekeeping thread measured last.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// When the store last answered; `None` before the first time.
    pub at_us: Option<Micros>,
    /// Why it did not answer since.
    pub error: Option<String>,
    pub waiting: Waiting,
    pub queues: Vec<Depth>,
    /// Records of merged feeds beyond their limit.
    pub unmerged: i64,
    /// Bytes free on the store's disk, and since when they are too few.
    pub free_bytes: Option<u64>,
    pub short_since_us: Option<Micros>,
    /// A clock under which records were stored and that was wrong.
    pub wrong_clock: Option<WrongClock>,
}

/// Facts that stages write.
#[derive(Debug)]
pub struct Status {
    clock: Clock,
    started_us: Micros,
    sources: Mutex<Vec<Arc<SourceState>>>,
    /// The process that ingests, where this one only serves what another ingests.
    ingester: Mutex<Option<Ingester>>,
    /// Where this process answers.
    address: OnceLock<SocketAddr>,
    /// The log of this process, if it has one.
    log: OnceLock<Log>,
    /// By condition and by the stage that it holds for: since when, and the detail.
    raised: Mutex<BTreeMap<(Condition, String), (Micros, String)>>,
    measured: Mutex<Measured>,
    /// Repositories being fetched, and fetched.
    pub resyncing: AtomicI64,
    pub resynced: AtomicU64,
    /// Accounts marked for a resync by this process: a hint to look for them.
    pub marked: watch::Sender<u64>,
    /// Marked accounts that were repaired or given up: a hint to those who wait for one.
    pub settled: watch::Sender<u64>,
    /// Accounts seen in lists, and those of them that were never heard of.
    pub listed: AtomicU64,
    pub adopted: AtomicU64,
    /// A list is being read.
    pub listing: AtomicBool,
    recent: Mutex<VecDeque<(Micros, u64)>>,
}

impl Default for Status {
    fn default() -> Self {
        Self::new(Clock::Wall)
    }
}

impl Status {
    /// A process that starts now.
    pub fn new(clock: Clock) -> Self {
        Self {
            started_us: clock.now_us(),
            clock,
            sources: Mutex::default(),
            ingester: Mutex::default(),
            address: OnceLock::new(),
            log: OnceLock::new(),
            raised: Mutex::default(),
            measured: Mutex::default(),
            resyncing: AtomicI64::default(),
            resynced: AtomicU64::default(),
            marked: watch::Sender::default(),
            settled: watch::Sender::default(),
            listed: AtomicU64::default(),
            adopted: AtomicU64::default(),
            listing: AtomicBool::default(),
            recent: Mutex::default(),
        }
    }

    /// This process has a log.
    pub fn set_log(&self, log: Log) {
        drop(self.log.set(log));
    }

    /// The log of this process.
    pub fn log(&self) -> Option<&Log> {
        self.log.get()
    }

    /// A condition holds for a stage from now on, until it is cleared. Raised again, it only changes
    /// its detail.
    pub fn raise(&self, condition: Condition, stage: &str, detail: impl Into<String>) {
        let now_us = self.clock.now_us();
        let mut raised = self.raised.lock();
        let (_, known) = raised
            .entry((condition, stage.to_owned()))
            .or_insert_with(|| (now_us, String::new()));
        *known = detail.into();
    }

    /// A condition does not hold for a stage any more.
    pub fn clear(&self, condition: Condition, stage: &str) {
        self.raised.lock().remove(&(condition, stage.to_owned()));
    }

    /// A source that will be read.
    pub fn add_source(&self, name: &str, kind: StreamKind) -> Arc<SourceState> {
        let source = Arc::new(SourceState::new(name, kind, self.clock.clone()));
        self.sources.lock().push(Arc::clone(&source));
        source
    }

    /// The source of this name, added if it is new.
    pub fn source(&self, name: &str) -> Arc<SourceState> {
        let known = self.sources().into_iter().find(|known| known.name == name);
        known.unwrap_or_else(|| self.add_source(name, StreamKind::default()))
    }

    /// All sources that this process reads.
    pub fn sources(&self) -> Vec<Arc<SourceState>> {
        self.sources.lock().clone()
    }

    /// The last measurement.
    pub fn measured(&self) -> Measured {
        self.measured.lock().clone()
    }

    /// A new measurement.
    pub fn measure(&self, measured: Measured) {
        *self.measured.lock() = measured;
    }

    /// `units` became durable.
    pub fn count_rate(&self, now_us: Micros, units: u64) {
        let mut recent = self.recent.lock();
        recent.push_back((now_us, units));
        while recent.len() > 10_000
            || recent
                .front()
                .is_some_and(|(at, _)| *at < now_us - RATE_SECONDS * SECOND_US)
        {
            recent.pop_front();
        }
    }

    /// Units per second over the last seconds.
    pub fn rate(&self, now_us: Micros) -> f64 {
        if let Some(ingester) = self.ingester() {
            let present = ingester.is_present(now_us);
            let said = ingester.said.filter(|_| present);
            return said.map_or(0.0, |said| said.rate);
        }
        let recent = self.recent.lock();
        let fresh = recent
            .iter()
            .filter(|(at, _)| *at >= now_us - RATE_SECONDS * SECOND_US);
        let units: u64 = fresh.map(|(_, units)| units).sum();
        units as f64 / RATE_SECONDS as f64
    }

    /// Another process is to ingest; this one only serves.
    pub fn expect_ingester(&self) {
        *self.ingester.lock() = Some(Ingester::awaited(self.started_us));
    }

    /// The process that ingests, where it is another.
    pub fn ingester(&self) -> Option<Ingester> {
        self.ingester.lock().clone()
    }

    /// The report of the process that ingests, as it was found in the store.
    pub fn set_ingester(&self, at_us: Micros, report: &str) {
        *self.ingester.lock() = Some(Ingester::parse(at_us, report));
    }

    /// This process answers there.
    pub fn set_address(&self, address: SocketAddr) {
        // A process answers at one address; the first stays.
        self.address.get_or_init(|| address);
    }

    /// Repairs and lists of accounts.
    pub fn progress(&self) -> Progress {
        if let Some(ingester) = self.ingester() {
            return ingester.said.unwrap_or_default().progress;
        }
        Progress {
            listing: self.listing.load(Ordering::Relaxed),
            listed: self.listed.load(Ordering::Relaxed),
            adopted: self.adopted.load(Ordering::Relaxed),
            resyncing: self.resyncing.load(Ordering::Relaxed),
            resynced: self.resynced.load(Ordering::Relaxed),
        }
    }

    /// How far our clock is off, where the events of a source disagree with it.
    pub fn clock_off_us(&self) -> Option<Micros> {
        let offsets = |source: Arc<SourceState>| source.facts().offsets;
        let mut sources = self.sources().into_iter().map(offsets);
        sources.find_map(|it| Some(it.disagrees()?.1))
    }

    /// What this process says of itself to others on its store.
    pub fn heartbeat(&self, now_us: Micros, writing: &Writing) -> Heartbeat {
        self.notice_damage(writing);
        let mut problems = self.raised_problems();
        problems.retain(|problem| problem.condition.is_of_store());
        problems.extend(store_problem(now_us, writing));
        problems.extend(self.measured_problems(now_us));
        Heartbeat {
            started_us: self.started_us,
            address: self.address.get().map(ToString::to_string),
            stopped: false,
            rate: self.rate(now_us),
            sources: self.named_sources(now_us),
            progress: self.progress(),
            problems,
        }
    }

    /// The sources of whichever process ingests.
    fn named_sources(&self, now_us: Micros) -> Vec<Named> {
        match self.ingester() {
            Some(ingester) => ingester.sources(now_us),
            None => self.sources().iter().map(|one| Named::of(one)).collect(),
        }
    }

    /// All sources as they are at `now_us`.
    pub fn ingestion(&self, now_us: Micros) -> Ingestion {
        let sources = self.named_sources(now_us).into_iter();
        Ingestion {
            sources: sources.map(|one| Report::new(one, now_us)).collect(),
        }
    }

    /// Seconds that we are behind: the age of what is not durable yet.
    pub fn lag_seconds(&self, now_us: Micros) -> f64 {
        self.ingestion(now_us).lag_us() as f64 / 1e6
    }

    /// Everything that is wrong at `now_us`, worst first.
    pub fn problems(&self, now_us: Micros, writing: &Writing) -> Vec<Problem> {
        self.notice_damage(writing);
        let mut found: Vec<Problem> = self.raised_problems();
        found.extend(store_problem(now_us, writing));
        found.extend(self.measured_problems(now_us));
        let ingester = self.ingester();
        let silent = ingester.as_ref().is_some_and(|it| !it.is_present(now_us));
        // What an ingester that is gone last said of its sources is no news.
        if !silent {
            for source in self.named_sources(now_us) {
                found.extend(source_problems(now_us, &source));
            }
        }
        for problem in ingester.iter().flat_map(|it| it.problems(now_us)) {
            if found.iter().all(|one| one.condition != problem.condition) {
                found.push(problem);
            }
        }
        found.extend(self.behind_problem(now_us));
        let rank = |problem: &Problem| {
            let all = Condition::ALL.iter();
            all.take_while(|one| **one != problem.condition).count()
        };
        found.sort_by_key(rank);
        found
    }

    /// The store has no clock: its damage holds since somebody asked first.
    fn notice_damage(&self, writing: &Writing) {
        if let Some(cause) = &writing.damage {
            self.raise(Condition::StoreDamaged, "store", cause.clone());
        }
    }

    fn raised_problems(&self) -> Vec<Problem> {
        let raised = self.raised.lock();
        let raised = raised.iter();
        let problems = raised.map(|((condition, _), (since_us, detail))| Problem {
            condition: *condition,
            since_us: *since_us,
            detail: detail.clone(),
        });
        problems.collect()
    }

    fn measured_problems(&self, now_us: Micros) -> Vec<Problem> {
        let measured = self.measured();
        let mut found = Vec::new();
        let last_us = measured.at_us.unwrap_or(self.started_us);
        if now_us - last_us > MEASURED_US_MAX {
            found.push(Problem {
                condition: Condition::MeasurementsStale,
                since_us: last_us,
                detail: match measured.error {
                    Some(error) => {
                        format!("last measured {} s ago: {error}", seconds(now_us - last_us))
                    }
                    None => format!("last measured {} s ago", seconds(now_us - last_us)),
                },
            });
        }
        if let (Some(free), Some(since_us)) = (measured.free_bytes, measured.short_since_us) {
            found.push(Problem {
                condition: Condition::DiskFull,
                since_us,
                detail: format!("{} MiB are free on the store's disk", free >> 20),
            });
        }
        found.extend(measured.wrong_clock.map(|wrong| Problem {
            condition: Condition::RecordsMisdated,
            since_us: wrong.at_us,
            detail: format!("our clock was {} the events", offset(wrong.off_us)),
        }));
        found
    }

    fn behind_problem(&self, now_us: Micros) -> Option<Problem> {
        let lag_us = self.ingestion(now_us).lag_us();
        (lag_us > LAG_US_MAX).then(|| Problem {
            condition: Condition::Behind,
            since_us: now_us - lag_us,
            detail: format!("{} s behind", seconds(lag_us)),
        })
    }
}

/// How far our clock is ahead, in words.
fn offset(off_us: Micros) -> String {
    let way = if off_us > 0 { "ahead of" } else { "behind" };
    format!("{} s {way}", seconds(off_us.abs()))
}

fn seconds(us: Micros) -> i64 {
    us / SECOND_US
}

/// What is wrong with the store's writer; the nearest cause only.
fn store_problem(now_us: Micros, writing: &Writing) -> Option<Problem> {
    let problem = |condition, since_us, detail: String| {
        Some(Problem {
            condition,
            since_us,
            detail,
        })
    };
    if let Some(failing) = &writing.failing {
        let condition = match &failing.cause {
            StoreError::Locked(_) => Condition::StoreLocked,
            StoreError::Full(_) => Condition::DiskFull,
            StoreError::Passing(_) | StoreError::Stale(_) | StoreError::Ended => {
                Condition::StoreFailing
            }
            StoreError::Broken(_) => Condition::StoreDamaged,
        };
        return problem(condition, failing.since_us, failing.cause.to_string());
    }
    let since_us = writing.phase_since_us;
    let age_us = now_us - since_us;
    let age = seconds(age_us);
    match writing.phase {
        Phase::Locking if age_us > LOCKED_US_MAX => {
            let detail = format!("the write lock has been waited for for {age} s");
            return problem(Condition::StoreLocked, since_us, detail);
        }
        Phase::Applying if age_us > TRANSACTION_US_MAX => {
            let detail = format!("a transaction has been open for {age} s");
            return problem(Condition::LongTransaction, since_us, detail);
        }
        _ => {}
    }
    let since_us = writing.waiting_since_us?;
    let age_us = now_us - since_us;
    if age_us <= STALLED_US_MAX {
        return None;
    }
    let (waiting, age) = (writing.waiting, seconds(age_us));
    let detail = format!("{waiting} batches wait, the oldest for {age} s");
    problem(Condition::StoreStalled, since_us, detail)
}

fn source_problems(now_us: Micros, source: &Named) -> Vec<Problem> {
    let facts = &source.facts;
    let mut found = Vec::new();
    if !facts.connected && now_us - facts.since_us > DISCONNECTED_US_MAX {
        let cause = facts.error.as_deref().unwrap_or("no answer yet");
        found.push(Problem {
            condition: Condition::SourceDisconnected,
            since_us: facts.since_us,
            detail: format!(
                "{} has not been connected for {} s ({} attempts failed): {cause}",
                source.name,
                seconds(now_us - facts.since_us),
                facts.failures
            ),
        });
    }
    if let Some((since_us, off_us)) = facts.offsets.disagrees() {
        found.push(Problem {
            condition: Condition::ClockDisagrees,
            since_us,
            detail: format!(
                "our clock is {} the events of {}",
                offset(off_us),
                source.name
            ),
        });
    }
    found
}

/// Whether so few bytes are too few.
pub fn is_short(free_bytes: u64) -> bool {
    free_bytes < FREE_BYTES_MIN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::writing::Failing;

    const NOW: Micros = 1_790_000_000 * SECOND_US;

    /// A writer in a phase since `phase_s` seconds, whose oldest batch waits since `waiting_s`.
    fn writing(phase: Phase, phase_s: i64, waiting_s: i64) -> Writing {
        Writing {
            phase,
            phase_since_us: NOW - phase_s * SECOND_US,
            waiting_since_us: Some(NOW - waiting_s * SECOND_US),
            waiting: 1,
            ..Writing::default()
        }
    }

    fn failing(cause: StoreError) -> Writing {
        Writing {
            failing: Some(Failing {
                since_us: NOW,
                cause,
            }),
            ..Writing::default()
        }
    }

    #[track_caller]
    fn check(writing: &Writing, expected: Option<Condition>) {
        let status = Status::new(Clock::at(NOW));
        let problems = status.problems(NOW, writing);
        let found: Vec<Condition> = problems.iter().map(|one| one.condition).collect();
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn what_the_writer_is_stuck_in_is_named_after_a_while() {
        check(&Writing::default(), None);
        check(&writing(Phase::Locking, 2, 2), None);
        check(&writing(Phase::Locking, 3, 3), Some(Condition::StoreLocked));
        check(&writing(Phase::Applying, 5, 5), None);
        check(
            &writing(Phase::Applying, 6, 6),
            Some(Condition::LongTransaction),
        );
        check(&writing(Phase::Committing, 5, 5), None);
        check(
            &writing(Phase::Committing, 6, 6),
            Some(Condition::StoreStalled),
        );
        // Short transactions, but a queue that does not get shorter.
        check(
            &writing(Phase::Applying, 1, 6),
            Some(Condition::StoreStalled),
        );
    }

    #[test]
    fn why_writes_fail_is_named_at_once() {
        let text = || "why".to_owned();
        for (cause, condition) in [
            (StoreError::Locked(text()), Condition::StoreLocked),
            (StoreError::Full(text()), Condition::DiskFull),
            (StoreError::Passing(text()), Condition::StoreFailing),
            (StoreError::Broken(text()), Condition::StoreDamaged),
        ] {
            check(&failing(cause), Some(condition));
        }
    }

    #[test]
    fn a_disk_that_is_almost_full_is_a_reason_before_a_write_fails() {
        let status = Status::new(Clock::at(NOW));
        status.measure(Measured {
            at_us: Some(NOW),
            free_bytes: Some(FREE_BYTES_MIN - 1),
            short_since_us: Some(NOW),
            ..Measured::default()
        });
        let problems = status.problems(NOW, &Writing::default());
        assert_eq!(problems[0].condition, Condition::DiskFull);
        assert!(is_short(FREE_BYTES_MIN - 1) && !is_short(FREE_BYTES_MIN));
    }
}
