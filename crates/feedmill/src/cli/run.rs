//! `feedmill run`, `ingest` and `serve`.

use std::path::PathBuf;

use clap::Args;

use super::{Ending, say};
use crate::clock::Clock;
use crate::config::{Config, Source};
use crate::river::{River, Role, Start};

/// Arguments of the three.
#[derive(Debug, Args)]
#[command(after_help = SECRETS)]
pub(super) struct Run {
    /// Configuration file (feedmill init writes one)
    file: PathBuf,
    /// Listen on this port instead of the file's
    #[arg(long, env = "PORT")]
    port: Option<u16>,
    /// Use this store instead of the file's, e.g. sqlite://feedmill.db
    #[arg(long, env = "DATABASE_URL")]
    database_url: Option<String>,
    /// Keep timelines there instead of where the file says, e.g. redis://host
    #[arg(long, env = "REDIS_URL")]
    redis_url: Option<String>,
    /// Ask this plc directory instead of the file's
    #[arg(long, env = "PLC_URL")]
    plc_url: Option<String>,
    /// Read this relay instead of the file's sources, e.g. wss://relay.example; commas make a pool
    #[arg(long, env = "RELAY_URL")]
    relay_url: Option<String>,
    /// Read this Jetstream instead of the file's sources, e.g. wss://host/subscribe; commas make a pool
    #[arg(long, env = "JETSTREAM_URL")]
    jetstream_url: Option<String>,
    /// Where clients reach us, e.g. https://feeds.example
    #[arg(long, env = "PUBLIC_URL")]
    public_url: Option<String>,
}

/// What the environment alone may say; shown below the options.
pub(super) const SECRETS: &str = "Environment only:
  FEEDMILL_APP_TOKEN   token with which the app writes over the direct API
  FEEDMILL_ADMIN_TOKEN the operator's token, for /admin
  FEEDMILL_NOTIFY_TOKEN token of who may call notifyOfUpdate if serve.notify asks for it
  FEEDMILL_SECRET      key under which readers' tokens are made; the app token unless set
  RUST_LOG             what is logged, e.g. warn or feedmill=debug
  FEEDMILL_LOG_JSON    set to anything: log lines are JSON";

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
        if let Some(url) = &self.redis_url {
            config.timelines.url.clone_from(url);
        }
        if let Some(url) = &self.plc_url {
            config.intake.plc_url.clone_from(url);
        }
        if self.relay_url.is_some() || self.jetstream_url.is_some() {
            config.sources.clear();
            config
                .sources
                .extend(self.relay_url.as_deref().map(Source::firehose_at));
            config
                .sources
                .extend(self.jetstream_url.as_deref().map(Source::jetstream_at));
        }
        if let Some(url) = &self.public_url {
            config.serve.public_url = Some(url.clone());
        }
        // What the environment changed must make as much sense as the file did.
        config.recheck()?;
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
