//! What the command line and the environment say instead of the file.

use clap::Args;

use super::{Config, Source};

/// Values that replace the file's; the names are those that hosting platforms use.
#[derive(Debug, Clone, Default, Args)]
pub struct Overrides {
    /// Listen on this port instead of the file's
    #[arg(long, env = "PORT")]
    pub port: Option<u16>,
    /// Where `ingest` answers its operator, instead of the file's intake.bind, e.g. 127.0.0.1:8081
    #[arg(long, env = "INTAKE_BIND")]
    pub intake_bind: Option<String>,
    /// Use this store instead of the file's, e.g. sqlite://feedmill.db
    #[arg(long, env = "DATABASE_URL")]
    pub database_url: Option<String>,
    /// Keep timelines there instead of where the file says, e.g. redis://host
    #[arg(long, env = "REDIS_URL")]
    pub redis_url: Option<String>,
    /// Ask this plc directory instead of the file's
    #[arg(long, env = "PLC_URL")]
    pub plc_url: Option<String>,
    /// Read this relay instead of the file's sources, e.g. wss://relay.example; commas make a pool
    #[arg(long, env = "RELAY_URL")]
    pub relay_url: Option<String>,
    /// Read this Jetstream instead of the file's sources, e.g. wss://host/subscribe; commas make a pool
    #[arg(long, env = "JETSTREAM_URL")]
    pub jetstream_url: Option<String>,
    /// Where clients reach us, for example `https://feeds.example`
    #[arg(long, env = "PUBLIC_URL")]
    pub public_url: Option<String>,
}

impl Overrides {
    /// Only where clients reach us; for commands that serve nothing.
    pub fn reached_at(public_url: Option<&str>) -> Self {
        Self {
            public_url: public_url.map(str::to_owned),
            ..Self::default()
        }
    }

    /// Puts them in the place of what the file says.
    pub(super) fn apply(&self, config: &mut Config) {
        // An address that cannot be read is refused afterwards.
        if let Some(port) = self.port
            && let Ok(mut address) = config.serve.bind.parse::<std::net::SocketAddr>()
        {
            address.set_port(port);
            config.serve.bind = address.to_string();
        }
        if let Some(address) = &self.intake_bind {
            config.intake.bind.clone_from(address);
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
            let relay = self.relay_url.as_deref().map(Source::firehose_at);
            let jetstream = self.jetstream_url.as_deref().map(Source::jetstream_at);
            config.sources = relay.into_iter().chain(jetstream).collect();
        }
        if let Some(url) = &self.public_url {
            config.serve.public_url = Some(url.clone());
        }
    }

    /// The option and variable behind a key, if it was replaced.
    pub(super) fn name(&self, key: &str) -> Option<&'static str> {
        let (is_set, name) = match key {
            "store.url" => (self.database_url.is_some(), "--database-url (DATABASE_URL)"),
            "intake.bind" => (self.intake_bind.is_some(), "--intake-bind (INTAKE_BIND)"),
            "timelines.url" => (self.redis_url.is_some(), "--redis-url (REDIS_URL)"),
            "intake.plc_url" => (self.plc_url.is_some(), "--plc-url (PLC_URL)"),
            "serve.public_url" => (self.public_url.is_some(), "--public-url (PUBLIC_URL)"),
            source if source.starts_with("source.") && source.ends_with(".firehose") => {
                (self.relay_url.is_some(), "--relay-url (RELAY_URL)")
            }
            source if source.starts_with("source.") => (
                self.jetstream_url.is_some(),
                "--jetstream-url (JETSTREAM_URL)",
            ),
            _ => return None,
        };
        is_set.then_some(name)
    }
}
