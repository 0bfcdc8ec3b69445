//! Identity: where an account lives, and with which key it signs.
//!
//! In:    a DID.
//! Out:   the address of its host and its signing key, from its DID document.
//! Never: a request without a time limit; a cache without a size.

use std::time::Duration;

use quick_cache::sync::Cache;
use record::key::PublicKey;
use serde::Deserialize;

/// Documents kept, and for how long.
const CACHED_MAX: usize = 10_000;
const FRESH: Duration = Duration::from_secs(3600);
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why an account's host or key is not known.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Try again later.
    #[error("cannot fetch the DID document")]
    Unreachable(#[from] reqwest::Error),
    /// The DID is of a kind that cannot be resolved, or its document does not name what is asked.
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
    known: Cache<String, (std::time::Instant, Named)>,
}

/// What a DID document names.
#[derive(Debug, Clone)]
struct Named {
    host: Option<String>,
    key: Option<PublicKey>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(default)]
    service: Vec<Service>,
    #[serde(default)]
    verification_method: Vec<Method>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Method {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    public_key_multibase: Option<String>,
}

impl Document {
    /// The host and the key; both forms of identifier are met, `#atproto` and `did:…#atproto`.
    fn named(&self) -> Named {
        let host = self
            .service
            .iter()
            .find(|service| service.id.ends_with("#atproto_pds"))
            .and_then(|service| service.service_endpoint.as_str())
            .map(|url| url.trim_end_matches('/').to_owned());
        let key = self
            .verification_method
            .iter()
            .find(|method| method.id.ends_with("#atproto"))
            .and_then(|method| {
                let multibase = method.public_key_multibase.as_deref()?;
                PublicKey::from_verification_method(&method.kind, multibase).ok()
            });
        Named { host, key }
    }
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
            known: Cache::new(CACHED_MAX),
        })
    }

    /// The client for requests to hosts.
    pub fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// The address of an account's host.
    pub async fn host(&self, did: &str) -> Result<String, IdentityError> {
        let named = self.named(did).await?;
        named.host.ok_or(IdentityError::Unresolvable(
            "the DID document names no host",
        ))
    }

    /// The key with which an account signs its commits.
    pub async fn key(&self, did: &str) -> Result<PublicKey, IdentityError> {
        let named = self.named(did).await?;
        named.key.ok_or(IdentityError::Unresolvable(
            "the DID document names no key for commits",
        ))
    }

    /// The key, if it is known without asking anybody, and for how long it has been.
    pub fn known_key(&self, did: &str) -> Option<(PublicKey, Duration)> {
        let (at, named) = self.known.get(did)?;
        let age = at.elapsed();
        named.key.filter(|_| age < FRESH).map(|key| (key, age))
    }

    async fn named(&self, did: &str) -> Result<Named, IdentityError> {
        if let Some((at, named)) = self.known.get(did)
            && at.elapsed() < FRESH
        {
            return Ok(named);
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
        let response = request.send().await?;
        if matches!(response.status().as_u16(), 404 | 410) {
            return Err(IdentityError::Unresolvable("there is no such DID"));
        }
        let document: Document = response.error_for_status()?.json().await?;
        let named = document.named();
        self.known
            .insert(did.to_owned(), (std::time::Instant::now(), named.clone()));
        Ok(named)
    }

    /// Forgets what is known of an account, so that the next question goes to the directory.
    pub fn forget(&self, did: &str) {
        self.known.remove(did);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn key_in(method: &str) -> Option<PublicKey> {
        let text = format!("{{\"verificationMethod\":[{method}]}}");
        let document: Document = serde_json::from_str(&text).unwrap();
        document.named().key
    }

    /// What the public directory serves, and what the reference directory of version 0.0.1 serves.
    #[test]
    fn keys_are_read_in_the_current_and_in_the_legacy_form() {
        let key = record::key::SigningKey::k256([7; 32]).unwrap().public();
        let current = format!(
            "{{\"id\":\"did:plc:a#atproto\",\"type\":\"Multikey\",\"publicKeyMultibase\":\"{}\"}}",
            key.to_multikey()
        );
        assert_eq!(key_in(&current).unwrap().to_multikey(), key.to_multikey());
        let legacy = r##"{"id":"#atproto","type":"EcdsaSecp256k1VerificationKey2019","publicKeyMultibase":"z25z9DTpsiYYJKGsWmSPJK2NFN8PcJtZig12K59UgW7q5t"}"##;
        let key = "did:key:zQ3shqwJEJyMBsBXCWyCBpUBMqxcon9oHB7mCvx4sSpMdLJwc";
        assert_eq!(key_in(legacy).unwrap().to_did_key(), key);
    }

    #[test]
    fn a_key_for_another_purpose_is_not_the_key() {
        let key = record::key::SigningKey::k256([7; 32]).unwrap().public();
        let other = format!(
            "{{\"id\":\"did:plc:a#atproto_label\",\"type\":\"Multikey\",\"publicKeyMultibase\":\"{}\"}}",
            key.to_multikey()
        );
        assert!(key_in(&other).is_none());
    }
}
