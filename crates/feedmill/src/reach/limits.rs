//! Limits of the fetcher: sizes, times, speeds, and how many requests of a cause run at once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::ask::Ask;
use super::fetch::FetchError;
use crate::config::{Config, Intake};
use crate::host::{Bucket, Cause, Hosts};

/// DID documents asked for at once because of tokens, and requests that wait for that. All other
/// requests for tokens are refused at once, so that bad tokens hold no slot of the server. The
/// operator's directory and strangers' hosts each have as many, so that slow hosts of did:web keep
/// nobody else waiting.
const TOKENS_AT_ONCE_MAX: usize = 16;
const TOKENS_WAITING_MAX: usize = 64;
/// Longest wait for a request of such a cause; a whole notification needs more of them than one
/// second has. Requests for tokens do not wait: they would hold the slots of honest callers.
const PROVOKED_WAIT_MAX: Duration = Duration::from_secs(2);
/// How long a request that finds no room is asked to wait.
const FULL: Duration = Duration::from_secs(1);

/// Sizes and times, as the configuration has them.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    host_max: usize,
    host_rate_max: u32,
    plc_url: String,
    plc_rate_max: u32,
    /// Requests of one cause in a second, over all hosts together, where callers decide how many.
    pub(super) provoked_rate_max: u32,
    pub(super) repo_bytes_max: usize,
    pub(super) repo_memory_bytes_max: usize,
    pub(super) repo_disk_bytes_max: u64,
    pub(super) repo_time_max: Duration,
    /// Where archives are written.
    pub(super) folder: PathBuf,
    speed_bytes_min: u64,
    speed_window: Duration,
}

impl Limits {
    pub(super) fn of(config: &Config) -> Self {
        let file = config.store.url.strip_prefix("sqlite://").map(Path::new);
        let folder = file.and_then(Path::parent);
        let here = |folder: &Path| match folder.as_os_str().is_empty() {
            true => PathBuf::from("."),
            false => folder.to_owned(),
        };
        let folder = folder.map_or_else(std::env::temp_dir, here);
        Self {
            folder,
            provoked_rate_max: config.identity.provoked_rate_max,
            ..Self::from(&config.intake)
        }
    }

    /// Hosts that are asked within these limits.
    pub(super) fn hosts(&self) -> Hosts {
        Hosts::new(self.host_max, self.host_rate_max)
            .with_directory(&self.plc_url, self.plc_rate_max)
    }
}

impl From<&Intake> for Limits {
    fn from(intake: &Intake) -> Self {
        Self {
            host_max: intake.host_max,
            host_rate_max: intake.host_rate_max,
            plc_url: intake.plc_url.clone(),
            plc_rate_max: intake.plc_rate_max,
            provoked_rate_max: crate::config::Identity::default().provoked_rate_max,
            repo_bytes_max: intake.repo_bytes_max,
            repo_memory_bytes_max: intake.repo_memory_bytes_max,
            repo_disk_bytes_max: intake.repo_disk_bytes_max,
            repo_time_max: Duration::from_secs(intake.repo_s_max),
            folder: std::env::temp_dir(),
            speed_bytes_min: intake.speed_bytes_min,
            speed_window: Duration::from_secs(intake.speed_s),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::from(&Intake::default())
    }
}

/// When a request must be over.
#[derive(Debug)]
pub(super) struct Deadline {
    at: tokio::time::Instant,
}

impl Deadline {
    pub(super) fn after(time: Duration) -> Self {
        Self {
            at: tokio::time::Instant::now() + time,
        }
    }

    /// Moves it by a time that counts for nobody.
    pub(super) fn move_by(&mut self, time: Duration) {
        self.at += time;
    }

    /// What comes of some work, unless that takes too long.
    pub(super) async fn hold<T>(&self, work: impl Future<Output = T>) -> Result<T, FetchError> {
        let done = tokio::time::timeout_at(self.at, work).await;
        done.map_err(|_| FetchError::TooSlow)
    }
}

/// Whether an answer comes fast enough, averaged over a window.
#[derive(Debug)]
pub(super) struct Speed {
    bytes_min: u64,
    window: Duration,
    begun: Instant,
    came: u64,
}

impl Speed {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            bytes_min: limits
                .speed_bytes_min
                .saturating_mul(limits.speed_window.as_secs()),
            window: limits.speed_window,
            begun: Instant::now(),
            came: 0,
        }
    }

    /// How long to wait for anything at all.
    pub(super) fn patience(&self) -> Duration {
        self.window
    }

    /// Whether it is fast enough with these bytes.
    pub(super) fn is_enough(&mut self, bytes: usize, now: Instant) -> bool {
        self.came = self.came.saturating_add(bytes as u64);
        if now.saturating_duration_since(self.begun) < self.window {
            return true;
        }
        let enough = self.came >= self.bytes_min;
        (self.begun, self.came) = (now, 0);
        enough
    }
}

/// Documents that are asked for because of tokens.
#[derive(Debug)]
struct Tokens {
    running: Arc<Semaphore>,
    waiting: AtomicUsize,
}

impl Default for Tokens {
    fn default() -> Self {
        Self {
            running: Arc::new(Semaphore::new(TOKENS_AT_ONCE_MAX)),
            waiting: AtomicUsize::new(0),
        }
    }
}

/// How many requests of a cause run at once, over all hosts, and how many there are in a second.
#[derive(Debug)]
pub(super) struct Slots {
    /// At the operator's directory, and at hosts that strangers named.
    directory_tokens: Tokens,
    stranger_tokens: Tokens,
    provoked: Mutex<[(Cause, Bucket); 3]>,
    provoked_each_s: f64,
}

impl Slots {
    pub(super) fn new(provoked_rate_max: u32) -> Self {
        let provoked_each_s = f64::from(provoked_rate_max);
        let full = |cause| (cause, Bucket::full(provoked_each_s, Instant::now()));
        Self {
            provoked_each_s,
            directory_tokens: Tokens::default(),
            stranger_tokens: Tokens::default(),
            provoked: Mutex::new([Cause::Token, Cause::Handle, Cause::Notify].map(full)),
        }
    }
}

impl Slots {
    /// Waits for a slot; those who ask for more than may wait are sent away. How many repositories,
    /// lists, handles and notifications there are at once is limited where they are asked for.
    pub(super) async fn enter(
        &self,
        ask: &Ask<'_>,
    ) -> Result<Option<OwnedSemaphorePermit>, FetchError> {
        self.take(ask.cause).await?;
        if ask.cause != Cause::Token {
            return Ok(None);
        }
        let tokens = match ask.is_of_operator() {
            true => &self.directory_tokens,
            false => &self.stranger_tokens,
        };
        let waiting = Waiting::enter(&tokens.waiting, TOKENS_WAITING_MAX)?;
        let slot = Arc::clone(&tokens.running).acquire_owned().await.ok();
        drop(waiting);
        Ok(slot)
    }

    /// Takes one of the requests that a cause has in a second, and waits for it a short time.
    pub(super) async fn take(&self, cause: Cause) -> Result<(), FetchError> {
        let patience = match cause {
            Cause::Token => Duration::ZERO,
            _ => PROVOKED_WAIT_MAX,
        };
        let begun = Instant::now();
        loop {
            match self.take_now(cause) {
                Ok(()) => return Ok(()),
                Err(wait) if begun.elapsed() + wait <= patience => tokio::time::sleep(wait).await,
                Err(wait) => return Err(FetchError::Later(wait)),
            }
        }
    }

    /// Takes one of them; or says after how long there is one.
    fn take_now(&self, cause: Cause) -> Result<(), Duration> {
        let mut provoked = self.provoked.lock();
        let Some((_, bucket)) = provoked.iter_mut().find(|(known, _)| *known == cause) else {
            return Ok(());
        };
        bucket.take(self.provoked_each_s, self.provoked_each_s, Instant::now())
    }
}

/// One of a bounded number that wait.
pub(crate) struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    pub(crate) fn enter(count: &'a AtomicUsize, max: usize) -> Result<Self, FetchError> {
        if count.fetch_add(1, Ordering::Relaxed) >= max {
            count.fetch_sub(1, Ordering::Relaxed);
            return Err(FetchError::Later(FULL));
        }
        Ok(Self(count))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_trickles_is_cut_off_at_the_end_of_a_window() {
        let mut speed = Speed::new(&Limits::default());
        let begun = speed.begun;
        let second = Duration::from_secs(1);
        for passed in 1..10 {
            assert!(speed.is_enough(1, begun + second * passed));
        }
        assert!(!speed.is_enough(1, begun + second * 10));
        // What makes up for it within the window is good.
        assert!(speed.is_enough(40_960, begun + second * 20));
        assert!(!speed.is_enough(40_959, begun + second * 30));
    }

    #[tokio::test]
    async fn tokens_beyond_those_that_may_wait_are_sent_away() {
        let slots = Slots::new(50);
        let stranger = Ask::new(Cause::Token, "https://slow.example/");
        let mut held = Vec::new();
        for _ in 0..TOKENS_AT_ONCE_MAX {
            held.push(slots.enter(&stranger).await.unwrap());
        }
        // Neither our own work nor tokens of the directory's accounts wait for strangers' hosts.
        let own = Ask::new(Cause::Identity, "https://slow.example/");
        assert!(slots.enter(&own).await.unwrap().is_none());
        let directory = Ask::new(Cause::Token, "https://plc.example/").named();
        assert!(slots.enter(&directory).await.unwrap().is_some());
        let refused = Waiting::enter(&slots.stranger_tokens.waiting, 0);
        assert!(matches!(refused.err(), Some(FetchError::Later(_))));
    }

    #[tokio::test]
    async fn waiting_for_our_own_limits_is_not_counted_as_the_hosts_time() {
        let mut deadline = Deadline::after(Duration::ZERO);
        let never = deadline.hold(std::future::pending::<()>()).await;
        assert!(matches!(never, Err(FetchError::TooSlow)));
        let before = deadline.at;
        deadline.move_by(Duration::from_secs(40));
        assert_eq!(deadline.at - before, Duration::from_secs(40));
        assert!(deadline.hold(tokio::task::yield_now()).await.is_ok());
    }
}
