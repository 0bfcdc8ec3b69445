//! Serving: the server, and what it is made of.
//!
//! In:    the configuration, the environment's secrets, and the stages that answers come from.
//! Out:   a server behind the address that is open already; other limits and tokens at a reload.

use std::sync::Arc;

use tracing::info;

use super::opening::Door;
use super::{River, Start, StartError};
use crate::condition::Condition;
use crate::config::Config;
use crate::fanout::Fanout;
use crate::identity::Resolver;
use crate::labels::{Labels, Listener};
use crate::search::SearchIndex;
use crate::secret::Secrets;
use crate::serve::Server;
use crate::serve::admin::Admin;
use crate::serve::direct::Direct;
use crate::serve::front::Front;
use crate::serve::generator::Generator;
use crate::serve::notify::Notifier;
use crate::serve::starting::Finished;

impl River {
    /// Starts the server.
    pub(super) async fn serve(
        &mut self,
        config: &Config,
        start: &Start<'_>,
        (fanout, search): (Option<Arc<Fanout>>, Option<Arc<SearchIndex>>),
        door: Door,
    ) -> Result<(), StartError> {
        let secrets = Secrets::read()?;
        let direct = Direct::new(config, &self.plan, &self.store, start.lexicons, &secrets)?;
        let measured = fanout.clone();
        let mut server = Server::new(
            config,
            Arc::clone(&self.plan),
            Arc::clone(&self.store),
            fanout,
            Arc::clone(&self.status),
            start.clock.clone(),
        );
        server.admin = Some(Admin::new(secrets.admin, Arc::clone(&self.checker)));
        server.live = self.live.clone();
        server.search = search;
        server.labels = Labels::open(config)?;
        server.direct = direct;
        let resolver = Arc::new(Resolver::with(config, Arc::clone(&self.fetcher)));
        server.resolver = Some(Arc::clone(&resolver));
        server.generator = Generator::new(config, Arc::clone(&resolver));
        server.notifier = Notifier::new(
            config,
            Arc::clone(&resolver),
            Arc::clone(&self.checker),
            secrets.notify,
        );
        self.listen(config, server.labels.as_ref(), &resolver);
        server.handles = config.identity.handles.then_some(resolver);
        let server = Arc::new(server);
        self.answering = Some(Arc::clone(&server));
        let mut front = Front::new(server, config.serve.body_bytes_max);
        if let Some(file) = &config.log.file {
            front = front.beside(self.log(file, config, start).await?);
        }
        self.accept(door, Finished::Feeds(front), measured);
        info!(address = ?self.address, "serving");
        Ok(())
    }

    /// Puts the limits of another configuration and other tokens in force; returns why a token
    /// stays as it was.
    pub fn reload(&self, config: &Config, secrets: &Secrets) -> Option<&'static str> {
        self.answering.as_ref()?.reload(&config.serve, secrets)
    }

    /// Listens to labelers.
    fn listen(&mut self, config: &Config, labels: Option<&Arc<Labels>>, resolver: &Arc<Resolver>) {
        for source in &config.labels.sources {
            let Some(labels) = labels else {
                return;
            };
            let listener = Listener {
                source: source.clone(),
                labels: Arc::clone(labels),
                resolver: Arc::clone(resolver),
                intake: config.intake.clone(),
                health: self.health(Condition::LabelsFailing, &source.did),
            };
            let listening = listener.run(self.stop_sources.subscribe());
            self.sources.push(tokio::spawn(listening));
        }
    }
}
