//! The store of a configuration as it is, for verbs beside a running server.

use std::path::PathBuf;

use clap::Args;

use super::Ending;
use crate::config::{Config, Overrides};
use crate::store::{self, SharedStore};

/// Which store.
#[derive(Debug, Args)]
pub(super) struct Kept {
    /// Configuration file
    file: PathBuf,
    /// Use this store instead of the file's, e.g. sqlite://feedmill.db
    #[arg(long, env = "DATABASE_URL")]
    database_url: Option<String>,
    /// Where clients reach us, as the server was told
    #[arg(long, env = "PUBLIC_URL")]
    public_url: Option<String>,
}

impl Kept {
    /// Opens it, and changes nothing.
    pub(super) fn open(&self) -> Result<(SharedStore, Config), Ending> {
        let config = self.config()?;
        Ok((store::attach(&config)?, config))
    }

    /// The configuration that names it.
    pub(super) fn config(&self) -> Result<Config, Ending> {
        super::log("warn");
        let config = Config::load_with(
            &self.file,
            &Overrides {
                database_url: self.database_url.clone(),
                ..Overrides::reached_at(self.public_url.as_deref())
            },
        )?;
        Ok(config)
    }
}
