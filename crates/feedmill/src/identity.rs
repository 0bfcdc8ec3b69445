//! Identity: where an account lives.
//!
//! In:    a DID.
//! Out:   the address of its host, from its DID document.
//! Never: a request without a time limit; a cache without a size.

use std::time::Duration;

use quick_cache::sync::Cache;
use serde::Deserialize;

/// Documents kept, and for how long.
const CACHED_MAX: usize = 10_000;
const FRESH: Duration = Duration::from_secs(3600);
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why an account's host is not known.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Try again later.
    #[error("cannot fetch the DID document")]
    Unreachable(#[from] reqwest::Error),
    /// The DID is of a kind that cannot be resolved, or its document names no host.
    #[error("{0}")]
    Unresolvable(&'static str),
}

/// Gives the process its one provider of TLS; a second call finds it there.
pub fn provide_tls() {
    drop(rustls::crypto::ring::default_provider().install_default());
}

/// Resolves DIDs.
#[derive(Debug)]
pub struct Resolver {
    client: reqwest::Client,
    plc_url: String,
    did_web_url: Option<String>,
    hosts: Cache<String, (std::time::Instant, String)>,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    service: Vec<Service>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Service {
    id: String,
    service_endpoint: serde_json::Value,
}

impl Resolver {
    /// A resolver that asks the directory at `plc_url`, and hosts themselves
    /// for did:web unless `did_web_url` stands in for all of them.
    pub fn new(plc_url: &str, did_web_url: Option<&str>) -> Result<Self, IdentityError> {
        provide_tls();
        Ok(Self {
            client: reqwest::Client::builder()
                .timeout(TIMEOUT)
                .redirect(reqwest::redirect::Policy::limited(3))
                .build()?,
            plc_url: plc_url.trim_end_matches('/').to_owned(),
            did_web_url: did_web_url.map(|url| url.trim_end_matches('/').to_owned()),
            hosts: Cache::new(CACHED_MAX),
        })
    }

    /// The client for requests to hosts.
    pub fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// The address of an account's host.
    pub async fn host(&self, did: &str) -> Result<String, IdentityError> {
        if let Some((at, host)) = self.hosts.get(did)
            && at.elapsed() < FRESH
        {
            return Ok(host);
        }
        let request = if did.starts_with("did:plc:") {
            self.client.get(format!("{}/{did}", self.plc_url))
        } else if let Some(name) = did.strip_prefix("did:web:") {
            let (host, address) =
                web_address(name).ok_or(IdentityError::Unresolvable("not a did:web of a host"))?;
            match &self.did_web_url {
                Some(url) => self
                    .client
                    .get(format!("{url}/.well-known/did.json"))
                    .header("host", host),
                None => self.client.get(address),
            }
        } else {
            return Err(IdentityError::Unresolvable(
                "only did:plc and did:web can be resolved",
            ));
        };
        let document: Document = request.send().await?.error_for_status()?.json().await?;
        let host = document
            .service
            .iter()
            .find(|service| service.id.ends_with("#atproto_pds"))
            .and_then(|service| service.service_endpoint.as_str())
            .ok_or(IdentityError::Unresolvable(
                "the DID document names no host",
            ))?
            .trim_end_matches('/')
            .to_owned();
        self.hosts
            .insert(did.to_owned(), (std::time::Instant::now(), host.clone()));
        Ok(host)
    }

    /// Forgets an account's host, so that the next question goes to the directory.
    pub fn forget(&self, did: &str) {
        self.hosts.remove(did);
    }
}

/// The host of a did:web and where it keeps its document; one on this machine is asked without TLS.
fn web_address(name: &str) -> Option<(String, String)> {
    let host = name.replace("%3A", ":").replace("%3a", ":");
    if host.contains('/') || host.is_empty() {
        return None;
    }
    let bare = host.split(':').next().unwrap_or_default();
    let scheme = if bare == "localhost" { "http" } else { "https" };
    let address = format!("{scheme}://{host}/.well-known/did.json");
    Some((host, address))
}
