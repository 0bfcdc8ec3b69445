//! `feedmill dead`: dead letters, on the store directly.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};

use super::{Ending, say};
use crate::check::Checker;
use crate::clock::Clock;
use crate::config::Config;
use crate::dead::{self, ReplayError};
use crate::store::{self, Fate, LetterQuery, SharedStore};

/// What to do with dead letters.
#[derive(Debug, Subcommand)]
pub(super) enum Dead {
    /// List dead letters, newest first, one JSON line each
    List {
        /// Configuration file
        file: PathBuf,
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
        /// Configuration file
        file: PathBuf,
        /// The letter's number
        id: i64,
    },
    /// Check dead letters' records again and apply those that pass
    Replay {
        /// Configuration file
        file: PathBuf,
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
        /// Configuration file
        file: PathBuf,
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
    /// Only of this stage: frame, decode, verify, size, lexicon, rule, dependency
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
    fn open(file: &Path) -> Result<Self, Ending> {
        super::log("warn");
        let config = Config::load(file)?;
        let store = store::open(&config)?;
        Ok(Self { store, config })
    }

    fn checker(&self) -> Result<Checker, Ending> {
        let plan = Arc::clone(self.store.plan());
        Ok(Checker::new(&self.config, plan, &[])?)
    }
}

impl Dead {
    pub(super) fn run(self) -> Result<(), Ending> {
        let now_us = Clock::Wall.now_us();
        match self {
            Self::List {
                file,
                filter,
                limit,
                before,
            } => {
                let desk = Desk::open(&file)?;
                for letter in desk.store.letters(&filter.query(before, limit)?)? {
                    say(&dead::entry(&letter).to_string());
                }
            }
            Self::Show { file, id } => {
                let letter = Desk::open(&file)?.store.letter(id)?;
                let letter = letter.ok_or(ReplayError::Gone(id))?;
                say(&serde_json::to_string_pretty(&dead::entry(&letter))?);
            }
            Self::Replay {
                file,
                ids,
                all,
                filter,
            } => {
                let desk = Desk::open(&file)?;
                let checker = desk.checker()?;
                if all {
                    let query = filter.query(None, 0)?;
                    let done = dead::replay_all(&*desk.store, &checker, now_us, &query)?;
                    say(&format!(
                        "{} settled, {} parked, {} buried again, {} without a record",
                        done.settled, done.parked, done.buried, done.skipped
                    ));
                }
                for id in ids {
                    let fate = dead::replay(&*desk.store, &checker, now_us, id)?;
                    say(&format!("{id} {}", fate.word()));
                }
            }
            Self::Discard { file, ids } => {
                let desk = Desk::open(&file)?;
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
