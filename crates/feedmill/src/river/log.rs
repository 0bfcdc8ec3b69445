//! The log's part of the wiring.
//!
//! In:    `[log]` of the configuration, and the tokens of the environment.
//! Out:   the paths of the log; tasks that publish, replicate and clean up.
//! Never: a log that serves without the tokens that its configuration names.

use std::path::Path;
use std::sync::Arc;

use replicate::access::Keys;
use replicate::keeper;
use replicate::log::Log;
use replicate::peer::{Peer, PeerSettings};
use replicate::sqlite::SqliteLog;
use replicate::time::Time;

use super::{River, Start, StartError, blocking};
use crate::config::Config;
use crate::crash;
use crate::publish::Publisher;

impl River {
    /// Opens the log, publishes in it, and looks after it; its paths join the server's.
    pub(super) async fn log(
        &mut self,
        file: &Path,
        config: &Config,
        start: &Start<'_>,
    ) -> Result<axum::Router, StartError> {
        let path = file.to_owned();
        let opened = blocking(move || SqliteLog::open(&path)).await?;
        let store = Arc::new(opened.map_err(StartError::Log)?.watched(crash::point));
        let clock = start.clock.clone();
        let time = Time::from_fn(move || u64::try_from(clock.now_us() / 1000).unwrap_or(0));
        let keys = Keys::from_environment(&config.log).map_err(StartError::LogToken)?;
        let log = Log::new(store, config.log.clone(), keys, time);
        self.status.set_log(log.clone());
        if let Some(space) = &config.log.publish {
            let publisher = Publisher::new(log.clone(), space, start.clock.clone());
            self.branch(Box::new(publisher.map_err(StartError::Log)?))?;
        }
        self.replicate(&log, config)?;
        let keeper = keeper::run(log.clone(), self.stop_sources.subscribe());
        self.sources.push(tokio::spawn(keeper));
        Ok(replicate::router(log))
    }

    /// Keeps replicas of the spaces of other logs.
    fn replicate(&mut self, log: &Log, config: &Config) -> Result<(), StartError> {
        for setting in &config.log.replicate {
            let Some((url, space)) = setting.place() else {
                continue; // the configuration was checked
            };
            let token = match &setting.token_env {
                None => None,
                Some(name) => {
                    let found = std::env::var(name).ok().filter(|token| !token.is_empty());
                    Some(found.ok_or_else(|| StartError::LogToken(name.clone()))?)
                }
            };
            let settings = PeerSettings {
                url,
                space,
                lanes: setting.lanes(),
                token,
            };
            let peer = Peer::new(log.clone(), settings).map_err(StartError::Replica)?;
            let stop = self.stop_sources.subscribe();
            self.sources.push(tokio::spawn(peer.run(stop)));
        }
        Ok(())
    }
}
