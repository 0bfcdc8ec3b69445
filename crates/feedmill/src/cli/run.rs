//! `feedmill run`, `ingest` and `serve`.

use std::path::PathBuf;

use clap::Args;

use super::{Ending, say};
use crate::clock::Clock;
use crate::config::Config;
use crate::river::{River, Role, Start};

/// Arguments of the three.
#[derive(Debug, Args)]
pub(super) struct Run {
    /// Configuration file (feedmill init writes one)
    file: PathBuf,
    /// Listen on this port instead of the file's
    #[arg(long, env = "PORT")]
    port: Option<u16>,
    /// Use this store instead of the file's, e.g. sqlite://feedmill.db
    #[arg(long, env = "DATABASE_URL")]
    database_url: Option<String>,
    /// Ask this plc directory instead of the file's
    #[arg(long, env = "PLC_URL")]
    plc_url: Option<String>,
}

impl Run {
    pub(super) fn run(self, role: Role) -> Result<(), Ending> {
        super::log("info");
        let config = self.config()?;
        super::runtime()?.block_on(async move {
            let start = Start {
                role,
                clock: Clock::Wall,
                lexicons: &[],
            };
            let river = River::start(&config, start).await?;
            if let Some(address) = river.address {
                say(&format!("serving on http://{address}/"));
            }
            until_asked_to_stop().await;
            river.stop().await;
            Ok(())
        })
    }

    fn config(&self) -> Result<Config, Ending> {
        let mut config = Config::load(&self.file)?;
        if let Some(port) = self.port {
            let mut address: std::net::SocketAddr = config.serve.bind.parse()?;
            address.set_port(port);
            config.serve.bind = address.to_string();
        }
        if let Some(url) = &self.database_url {
            config.store.url.clone_from(url);
        }
        if let Some(url) = &self.plc_url {
            config.intake.plc_url.clone_from(url);
        }
        Ok(config)
    }
}

/// Waits for Ctrl-C or a termination signal.
pub(super) async fn until_asked_to_stop() {
    let interrupt = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        let Ok(mut terminate) =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        else {
            drop(interrupt.await);
            return;
        };
        tokio::select! {
            _ = interrupt => {}
            _ = terminate.recv() => {}
        }
    }
    #[cfg(not(unix))]
    drop(interrupt.await);
}
