//! `feedmill run`, `ingest` and `serve`.

use std::path::PathBuf;

use clap::Args;
use tracing::{error, info, warn};

use super::{Ending, say};
use crate::clock::Clock;
use crate::config::{Config, Overrides, reload};
use crate::river::{River, Role, Start};
use crate::secret::Secrets;
use crate::serve::limits;

/// What is logged unless the file says otherwise.
const LOGGED: &str = "info";
/// The key that says it.
const LOGGING: &str = "logging";

/// Arguments of the three.
#[derive(Debug, Args)]
#[command(after_help = SECRETS)]
pub(super) struct Run {
    /// Configuration file (feedmill init writes one)
    file: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
}

/// What the environment alone may say; shown below the options.
pub(super) const SECRETS: &str = "Environment only (or NAME_FILE with the path of a file that holds it, which SIGHUP reads again):
  FEEDMILL_APP_TOKEN   token with which the app writes over the direct API
  FEEDMILL_ADMIN_TOKEN the operator's token, for /admin
  FEEDMILL_NOTIFY_TOKEN token of who may call notifyOfUpdate if serve.notify asks for it
  FEEDMILL_SECRET      key under which readers' tokens are made; the app token unless set
  RUST_LOG             what is logged, e.g. warn or feedmill=debug
  FEEDMILL_LOG_JSON    set to anything: log lines are JSON";

impl Run {
    pub(super) fn run(self, role: Role) -> Result<(), Ending> {
        super::log(LOGGED);
        let mut config = Config::load_with(&self.file, &self.overrides)?;
        if let Some(logging) = &config.logging {
            super::relog(logging);
        }
        super::runtime()?.block_on(async move {
            let start = Start {
                role,
                clock: Clock::Wall,
                lexicons: &[],
            };
            let mut stop = Signals::listen()?;
            let river = tokio::select! {
                river = River::start(&config, start) => river?,
                () = stop.stopped() => return Ok(()), // while it waited on standby
            };
            match (river.address, role) {
                (Some(address), Role::Ingest) => say(&format!("status on http://{address}/status")),
                (Some(address), _) => say(&format!("serving on http://{address}/")),
                (None, _) => {}
            }
            while let Asked::Reload = stop.asked().await {
                self.reload(&river, &mut config);
            }
            river.stop().await;
            Ok(())
        })
    }

    /// Puts in force what can be changed in a running process, and says what cannot.
    fn reload(&self, river: &River, config: &mut Config) {
        let loaded = Config::load_with(&self.file, &self.overrides);
        let (new, secrets) = match (loaded, Secrets::read()) {
            (Ok(new), Ok(secrets)) => (new, secrets),
            (Err(error), _) => return refuse(&error),
            (_, Err(error)) => return refuse(&error),
        };
        let changed = reload::changed(config, &new);
        let is_live = |key: &String| key == LOGGING || limits::KEYS.contains(&key.as_str());
        let (live, later): (Vec<_>, Vec<_>) = changed.into_iter().partition(is_live);
        // What needs a restart stays as it is, so that it is named again next time.
        config.logging.clone_from(&new.logging);
        limits::take_over(&mut config.serve, &new.serve);
        if let Some(cause) = river.reload(config, &secrets) {
            warn!(cause, "a token was not reloaded");
        }
        let logging = config.logging.as_deref().unwrap_or(LOGGED);
        if live.iter().any(|key| key == LOGGING) && !super::relog(logging) {
            warn!("RUST_LOG is set and counts more than `logging`");
        }
        info!(
            keys = live.join(", "),
            "reloaded; tokens were read again from their files"
        );
        if !later.is_empty() {
            let keys = later.join(", ");
            warn!(
                keys,
                "changed in the file, and not reloaded: restart the process for these"
            );
        }
    }
}

fn refuse(error: &dyn std::error::Error) {
    let error = crate::check::chain(error);
    error!(error, "not reloaded; what was in force before still is");
}

/// Waits for Ctrl-C or a termination signal.
pub(super) async fn until_asked_to_stop() {
    match Signals::listen() {
        Ok(mut signals) => signals.stopped().await,
        Err(error) => {
            super::complain(&error);
            std::future::pending().await
        }
    }
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Stop,
    Reload,
}

/// Signals from now on: one that comes before anybody waits is not lost.
#[derive(Debug)]
struct Signals {
    #[cfg(unix)]
    signals: [tokio::signal::unix::Signal; 3],
}

impl Signals {
    #[cfg(unix)]
    fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let signals = [
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ];
        Ok(Self { signals })
    }

    #[cfg(unix)]
    async fn asked(&mut self) -> Asked {
        let [interrupt, terminate, hangup] = &mut self.signals;
        tokio::select! {
            _ = interrupt.recv() => Asked::Stop,
            _ = terminate.recv() => Asked::Stop,
            _ = hangup.recv() => Asked::Reload,
        }
    }

    #[cfg(not(unix))]
    fn listen() -> std::io::Result<Self> {
        Ok(Self {})
    }

    #[cfg(not(unix))]
    async fn asked(&mut self) -> Asked {
        drop(tokio::signal::ctrl_c().await);
        Asked::Stop
    }

    /// Waits until asked to stop.
    async fn stopped(&mut self) {
        while self.asked().await == Asked::Reload {}
    }
}
