//! The store of a configuration as it is, for verbs beside a running server.

use std::path::PathBuf;

use clap::Args;

use super::Ending;
use crate::config::Config;
use crate::store::{self, SharedStore};

/// Which store.
#[derive(Debug, Args)]
pub(super) struct Kept {
    /// Configuration file
    file: PathBuf,
    /// Use this store instead of the file's, e.g. sqlite://feedmill.db
    #[arg(long, env = "DATABASE_URL")]
    database_url: Option<String>,
}

impl Kept {
    /// Opens it, and changes nothing.
    pub(super) fn open(&self) -> Result<(SharedStore, Config), Ending> {
        super::log("warn");
        let mut config = Config::load(&self.file)?;
        if let Some(url) = &self.database_url {
            config.store.url.clone_from(url);
            config.recheck()?;
        }
        Ok((store::attach(&config)?, config))
    }
}
