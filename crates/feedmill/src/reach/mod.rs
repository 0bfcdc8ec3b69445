//! Reach: to whom this process talks.
//!
//! In:    addresses that strangers name: in DID documents, handles, redirects.
//! Out:   answers to requests ([`fetch::Fetcher`]) and connections, of public addresses only.
//! Never: a connection to a private address because a stranger's name resolves
//!        to it. The address is judged after resolution, at every connect and
//!        every redirect: a name that is public when it is looked at can be
//!        private when it is connected to.
//!
//! What the operator names in the configuration (the plc directory, a relay,
//! a webhook) he may put where he likes; such requests say so.
//! Where a proxy is set in the environment it resolves names itself, and is
//! trusted to guard its own network.

// Which addresses are public.
mod address;
// Fetched repositories, on disk until they are opened.
pub mod archive;
// A request and its answer.
mod ask;
// Every request to a host that somebody else named.
pub mod fetch;
// Sizes, times, speeds and slots of the fetcher.
pub(crate) mod limits;
// Names to addresses and texts.
pub mod names;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::net::TcpStream;

use crate::config::Config;
use address::is_public;
use ask::REDIRECTS_MAX;
use fetch::Url;
use names::Names;

/// Why an address is not asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    #[error("{0:?} is not an http or https address")]
    Address(String),
    #[error("{0:?} is not asked without TLS; set identity.allow_private for a network of your own")]
    Plain(String),
    #[error("{0:?} is on a private address; set identity.allow_private for a network of your own")]
    Private(String),
    #[error("more than {REDIRECTS_MAX} redirects")]
    Redirects,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("not asked")]
    Forbidden(#[from] Forbidden),
    #[error("no connection")]
    Failed(#[from] std::io::Error),
}

/// The guard over everything that strangers name.
#[derive(Debug, Clone)]
pub struct Reach {
    allow_private: bool,
    names: Arc<Names>,
}

impl Default for Reach {
    /// Public addresses only, by the system's names.
    fn default() -> Self {
        Self {
            allow_private: false,
            names: Arc::new(Names::new(None)),
        }
    }
}

impl Reach {
    /// The guard of a configuration.
    pub fn new(config: &Config) -> Self {
        let boxed = config.intake.did_web_url.is_some() || is_here(&config.intake.plc_url);
        Self {
            allow_private: config.identity.allow_private.unwrap_or(boxed),
            names: Arc::new(Names::new(config.identity.dns_server.as_deref())),
        }
    }

    /// Whether private addresses are as good as public ones.
    pub fn allows_private(&self) -> bool {
        self.allow_private
    }

    /// Names to addresses and texts.
    fn names(&self) -> &Names {
        &self.names
    }

    /// A connection to a host that a stranger named, for what is not HTTP; or that the operator did.
    async fn connect(&self, url: &str, named: bool) -> Result<TcpStream, ConnectError> {
        let forbidden = || Forbidden::Address(url.to_owned());
        let parsed = Url::parse(url).map_err(|_| forbidden())?;
        if !named {
            self.judge(&parsed)?;
        }
        let (Some(host), Some(port)) = (parsed.host_str(), parsed.port_or_known_default()) else {
            return Err(forbidden().into());
        };
        let mut good = self.good(host.trim_matches(['[', ']']), named).await?;
        for address in &mut good {
            address.set_port(port);
        }
        Ok(TcpStream::connect(good.as_slice()).await?)
    }

    /// The addresses of a host to which one may connect.
    async fn good(&self, host: &str, named: bool) -> Result<Vec<SocketAddr>, ConnectError> {
        let mut good = match host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, 0)],
            // Strangers choose how slow their names are, so no thread waits for these.
            Err(_) if named || self.allow_private => self.names.addresses(host).await?,
            Err(_) => self.names.public_addresses(host).await?,
        };
        good.retain(|address| named || self.allow_private || is_public(address.ip()));
        match good.is_empty() {
            true => Err(Forbidden::Private(host.to_owned()).into()),
            false => Ok(good),
        }
    }

    /// Whether an address may be asked, as far as it tells by itself.
    pub fn permit(&self, url: &str) -> Result<(), Forbidden> {
        match Url::parse(url) {
            Ok(url) => self.judge(&url),
            Err(_) => Err(Forbidden::Address(url.to_owned())),
        }
    }

    /// The same for an address that is parsed already.
    fn judge(&self, url: &Url) -> Result<(), Forbidden> {
        let host = match (url.scheme(), url.host_str()) {
            ("http" | "https", Some(host)) => host,
            _ => return Err(Forbidden::Address(url.to_string())),
        };
        if self.allow_private {
            return Ok(());
        }
        if url.scheme() == "http" {
            return Err(Forbidden::Plain(url.to_string()));
        }
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>() {
            Ok(address) if !is_public(address) => Err(Forbidden::Private(url.to_string())),
            _ => Ok(()),
        }
    }
}

/// Whether an address is on this machine by its own words.
fn is_here(url: &str) -> bool {
    let Some(host) = Url::parse(url).ok().and_then(|url| {
        let host = url.host_str()?;
        Some(host.trim_matches(['[', ']']).to_owned())
    }) else {
        return false;
    };
    let address = host.parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Gives the process its one provider of TLS; a second call finds it there.
pub fn provide_tls() {
    drop(rustls::crypto::ring::default_provider().install_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(extra: &str) -> Reach {
        let text = format!("namespace = \"com.example\"\n{extra}");
        Reach::new(&Config::parse(&text).unwrap())
    }

    #[test]
    fn addresses_that_tell_they_are_private_are_not_asked() {
        let reach = reach("");
        for url in [
            "https://127.0.0.1/",
            "https://127.1/",
            "https://0x7f000001/",
            "https://2130706433/",
            "https://10.0.0.1:8443/x",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://169.254.169.254/latest",
            "http://example.com/",
            "ftp://example.com/",
            "file:///etc/passwd",
            "nonsense",
        ] {
            assert!(reach.permit(url).is_err(), "{url}");
        }
        for url in [
            "https://example.com/",
            "https://1.1.1.1/",
            "https://example.com:8443/",
        ] {
            assert_eq!(reach.permit(url), Ok(()), "{url}");
        }
    }

    #[test]
    fn a_network_in_a_box_is_allowed_unless_the_operator_says_otherwise() {
        let local = "[intake]\nplc_url = \"http://localhost:2582\"\n";
        assert!(reach(local).allows_private());
        assert!(!reach(&format!("{local}[identity]\nallow_private = false\n")).allows_private());
        assert!(!reach("").allows_private());
        assert!(reach("[identity]\nallow_private = true\n").allows_private());
    }
}
