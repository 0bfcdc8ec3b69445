//! `feedmill dead`: dead letters, on the store directly.

use std::sync::Arc;

use clap::{Args, Subcommand};

use super::kept::Kept;
use super::{Ending, say};
use crate::check::Checker;
use crate::clock::Clock;
use crate::config::Config;
use crate::dead::job::{Job, Progress, State};
use crate::dead::{self, ReplayError};
use crate::store::{Fate, LetterQuery, SharedStore};

/// Dead letters between two lines about how far a replay of many is.
const PROGRESS_EVERY: u64 = 100;

/// What to do with dead letters.
#[derive(Debug, Subcommand)]
pub(super) enum Dead {
    /// List dead letters, newest first, one JSON line each
    List {
        #[command(flatten)]
        kept: Kept,
        #[command(flatten)]
        filter: Filter,
        /// At most this many
        #[arg(long, default_value_t = 50)]
        limit: usize,
        /// Only those before this number
        #[arg(long)]
        before: Option<i64>,
    },
    /// Show one dead letter with its record
    Show {
        #[command(flatten)]
        kept: Kept,
        /// The letter's number
        id: i64,
    },
    /// Check dead letters' records again and apply those that pass
    Replay {
        #[command(flatten)]
        kept: Kept,
        /// Numbers of letters; none with --all
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        ids: Vec<i64>,
        /// Every letter of the filter
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        filter: Filter,
    },
    /// Forget dead letters
    Discard {
        #[command(flatten)]
        kept: Kept,
        /// Numbers of letters
        #[arg(required = true)]
        ids: Vec<i64>,
    },
}

/// Which letters.
#[derive(Debug, Args)]
pub(super) struct Filter {
    /// Only of this collection
    #[arg(long)]
    collection: Option<String>,
    /// Only of this stage: frame, crash, decode, verify, size, lexicon, rule, dependency, retryable
    #[arg(long)]
    stage: Option<String>,
    /// Only of this account
    #[arg(long)]
    did: Option<String>,
    /// Only buried at this time or later, e.g. 2026-01-31T00:00:00Z
    #[arg(long)]
    since: Option<String>,
    /// Only buried before this time
    #[arg(long)]
    until: Option<String>,
}

impl Filter {
    fn query(self, before: Option<i64>, limit: usize) -> Result<LetterQuery, Ending> {
        let moment = |text: Option<String>| match text {
            None => Ok(None),
            Some(text) => record::datetime::parse_us(&text)
                .map(Some)
                .ok_or_else(|| Ending::from(format!("{text:?} is not a time"))),
        };
        Ok(LetterQuery {
            collection: self.collection,
            stage: self.stage,
            did: self.did,
            since_us: moment(self.since)?,
            until_us: moment(self.until)?,
            before,
            limit,
        })
    }
}

/// An opened store with the checks of its configuration.
struct Desk {
    store: SharedStore,
    config: Config,
}

impl Desk {
    fn open(kept: &Kept) -> Result<Self, Ending> {
        let (store, config) = kept.open()?;
        Ok(Self { store, config })
    }

    fn checker(&self) -> Result<Checker, Ending> {
        let plan = Arc::clone(self.store.plan());
        Ok(Checker::new(&self.config, plan, &[])?)
    }
}

impl Desk {
    /// Replays all of a filter, says how far it is on the error stream, and stops when asked to.
    fn replay_all(&self, checker: &Checker, query: &LetterQuery) -> Result<(), Ending> {
        let job = Arc::new(Job::new(&Clock::Wall));
        let asked = Arc::clone(&job);
        let signals = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        signals.spawn(async move {
            super::run::until_asked_to_stop().await;
            asked.stop();
        });
        let mut watch = |progress: &Progress| {
            if progress.done.is_multiple_of(PROGRESS_EVERY) {
                eprintln!("{} of {}", progress.done, progress.total);
            }
        };
        let done = job.run(&*self.store, checker, &Clock::Wall, query, &mut watch);
        signals.shutdown_background();
        let (done_of, total) = (done.done, done.total);
        say(&format!(
            "{} settled, {} parked, {} buried again, {} without a record",
            done.settled, done.parked, done.buried, done.skipped
        ));
        match done.state {
            State::Failed(cause) => Err(format!("{done_of} of {total} were tried: {cause}").into()),
            State::Stopped => {
                say(&format!("stopped: {done_of} of {total} were tried"));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Dead {
    pub(super) fn run(self) -> Result<(), Ending> {
        let now_us = Clock::Wall.now_us();
        match self {
            Self::List {
                kept,
                filter,
                limit,
                before,
            } => {
                let desk = Desk::open(&kept)?;
                for letter in desk.store.letters(&filter.query(before, limit)?)? {
                    say(&dead::entry(&letter).to_string());
                }
            }
            Self::Show { kept, id } => {
                let letter = Desk::open(&kept)?.store.letter(id)?;
                let letter = letter.ok_or(ReplayError::Gone(id))?;
                say(&serde_json::to_string_pretty(&dead::entry(&letter))?);
            }
            Self::Replay {
                kept,
                ids,
                all,
                filter,
            } => {
                let desk = Desk::open(&kept)?;
                let checker = desk.checker()?;
                if all {
                    return desk.replay_all(&checker, &filter.query(None, 0)?);
                }
                for id in ids {
                    let done = dead::replay(&*desk.store, &checker, now_us, id)?;
                    say(&match &done.letter {
                        Some(letter) => format!(
                            "{id} {}: {}: {}",
                            done.fate.word(),
                            letter.stage,
                            letter.message
                        ),
                        None => format!("{id} {}", done.fate.word()),
                    });
                }
            }
            Self::Discard { kept, ids } => {
                let desk = Desk::open(&kept)?;
                for id in ids {
                    match desk.store.discard(now_us, id)? {
                        Fate::Gone => return Err(ReplayError::Gone(id).into()),
                        fate => say(&format!("{id} {}", fate.word())),
                    }
                }
            }
        }
        Ok(())
    }
}
