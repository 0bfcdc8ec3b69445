//! Names: to addresses, and to the texts that DNS holds for them.
//!
//! Addresses of hosts that the operator named come from the system, as for any
//! program, unless a server is named in the configuration. Addresses of hosts
//! that strangers named, and texts, always come from DNS.

use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

use hickory_resolver::config::{NameServerConfigGroup, ResolverConfig, ResolverOpts};
use hickory_resolver::name_server::TokioConnectionProvider;
use hickory_resolver::{ResolveError, Resolver, TokioResolver};

/// Seconds for one question, and how often it is asked.
const TIMEOUT: Duration = Duration::from_secs(2);
const ATTEMPTS_MAX: usize = 2;
/// Answers kept by the resolver.
const ANSWERS_MAX: usize = 1024;

/// Why a name has no answer now.
#[derive(Debug, thiserror::Error)]
#[error("dns")]
pub struct NamesError(#[from] ResolveError);

/// Resolves names.
#[derive(Debug)]
pub struct Names {
    server: Option<SocketAddr>,
    resolver: OnceLock<TokioResolver>,
}

impl Names {
    /// The system's names, or those of one server.
    pub fn new(server: Option<&str>) -> Self {
        Self {
            server: server.and_then(|server| server.parse().ok()),
            resolver: OnceLock::new(),
        }
    }

    fn resolver(&self) -> &TokioResolver {
        self.resolver.get_or_init(|| {
            let (config, mut options) = match self.server {
                Some(server) => (of_server(server), ResolverOpts::default()),
                // A machine without a resolver's configuration has no DNS either.
                None => hickory_resolver::system_conf::read_system_conf()
                    .unwrap_or((ResolverConfig::new(), ResolverOpts::default())),
            };
            options.timeout = TIMEOUT;
            options.attempts = ATTEMPTS_MAX;
            options.cache_size = ANSWERS_MAX;
            Resolver::builder_with_config(config, TokioConnectionProvider::default())
                .with_options(options)
                .build()
        })
    }

    /// The addresses of a host.
    pub async fn addresses(&self, host: &str) -> Result<Vec<SocketAddr>, std::io::Error> {
        if self.server.is_none() {
            return Ok(tokio::net::lookup_host((host, 0)).await?.collect());
        }
        self.public_addresses(host).await
    }

    /// The addresses that DNS has for a host. No thread waits meanwhile, as one does for the system.
    pub async fn public_addresses(&self, host: &str) -> Result<Vec<SocketAddr>, std::io::Error> {
        let found = self.resolver().lookup_ip(absolute(host)).await;
        let found = found.map_err(std::io::Error::other)?;
        let with_port = |address: IpAddr| SocketAddr::new(address, 0);
        Ok(found.iter().map(with_port).collect())
    }

    /// The texts of a name; none where it has none.
    pub async fn texts(&self, name: &str) -> Result<Vec<String>, NamesError> {
        match self.resolver().txt_lookup(absolute(name)).await {
            Ok(found) => Ok(found.iter().map(ToString::to_string).collect()),
            Err(error) if error.is_no_records_found() || error.is_nx_domain() => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }
}

fn of_server(server: SocketAddr) -> ResolverConfig {
    let group = NameServerConfigGroup::from_ips_clear(&[server.ip()], server.port(), true);
    ResolverConfig::from_parts(None, Vec::new(), group)
}

/// With a point at its end, so that no search list is tried.
fn absolute(name: &str) -> String {
    format!("{}.", name.trim_end_matches('.'))
}
