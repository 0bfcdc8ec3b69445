//! Identity: where an account lives, and with which key it signs.
//!
//! In:    a DID, a handle, an NSID.
//! Out:   the address of its host and its signing key, from its DID document;
//!        the DID behind a handle; the published lexicon of a name.
//! Never: a request without a time limit, or to an address that [`Reach`] does
//!        not permit; an answer or a cache without a size.

// From handles to accounts.
mod handle;
// From names to published lexicons.
mod lexicon;

use std::time::Duration;

use quick_cache::sync::Cache;
use record::key::PublicKey;
use serde::Deserialize;

use crate::config::Config;
use crate::reach::names::NamesError;
use crate::reach::{Forbidden, Reach};

pub use crate::reach::provide_tls;

/// Documents kept, and for how long.
const CACHED_MAX: usize = 10_000;
const FRESH: Duration = Duration::from_secs(3600);
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the largest DID document or lexicon read, and of the largest file of a handle.
const DOCUMENT_BYTES_MAX: usize = 1_000_000;
const BODY_BYTES_MAX: usize = 2048;

/// Why an account's host or key is not known.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Try again later.
    #[error("cannot fetch the DID document")]
    Unreachable(#[from] reqwest::Error),
    /// Try again later.
    #[error("cannot ask for a name")]
    Nameless(#[from] NamesError),
    /// Try again later: it was asked a moment ago.
    #[error("it did not answer a moment ago")]
    Silent,
    /// Nobody is registered under it, or not yet.
    #[error("there is no such DID")]
    Missing,
    /// It is where we do not go.
    #[error("not asked")]
    Forbidden(#[from] Forbidden),
    /// The DID is of a kind that cannot be resolved, or its document does not name what is asked.
    #[error("{0}")]
    Unresolvable(&'static str),
}

impl IdentityError {
    /// Whether asking again in a moment cannot end differently.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Missing | Self::Forbidden(_) | Self::Unresolvable(_) => true,
            Self::Unreachable(_) | Self::Nameless(_) | Self::Silent => false,
        }
    }
}

/// Resolves DIDs.
#[derive(Debug)]
pub struct Resolver {
    reach: Reach,
    /// For hosts that strangers name.
    client: reqwest::Client,
    /// For hosts that the operator names.
    named_client: reqwest::Client,
    plc_url: String,
    did_web_url: Option<String>,
    has_dns: bool,
    known: Cache<String, (std::time::Instant, Named)>,
    handles: Cache<String, (std::time::Instant, handle::Known)>,
}

/// What a DID document names.
#[derive(Debug, Clone)]
struct Named {
    host: Option<String>,
    key: Option<PublicKey>,
    handle: Option<String>,
    labeler: LabelerPlace,
}

/// Where a labeler's stream is, and the key its labels are signed with.
#[derive(Debug, Clone, Default)]
pub struct LabelerPlace {
    pub endpoint: Option<String>,
    pub key: Option<PublicKey>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    id: String,
    #[serde(default)]
    also_known_as: Vec<String>,
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
    /// Reads the document of a DID; one of another DID is not believed, whoever serves it.
    fn read(did: &str, body: &[u8]) -> Result<Self, IdentityError> {
        let document: Self = serde_json::from_slice(body)
            .map_err(|_| IdentityError::Unresolvable("what is there is no DID document"))?;
        match document.id == did {
            true => Ok(document),
            false => Err(IdentityError::Unresolvable(
                "the DID document there is another DID's",
            )),
        }
    }

    /// The host and the key; both forms of identifier are met, `#atproto` and `did:…#atproto`.
    fn named(&self) -> Named {
        let mut names = self.also_known_as.iter();
        let handle = names.find_map(|name| name.strip_prefix("at://"));
        Named {
            host: self.endpoint("#atproto_pds"),
            key: self.key("#atproto"),
            handle: handle.map(str::to_owned),
            labeler: LabelerPlace {
                endpoint: self.endpoint("#atproto_labeler"),
                key: self.key("#atproto_label"),
            },
        }
    }

    fn endpoint(&self, id: &str) -> Option<String> {
        let mut services = self.service.iter();
        let service = services.find(|service| service.id.ends_with(id))?;
        let url = service.service_endpoint.as_str()?;
        Some(url.trim_end_matches('/').to_owned())
    }

    fn key(&self, id: &str) -> Option<PublicKey> {
        let mut methods = self.verification_method.iter();
        let method = methods.find(|method| method.id.ends_with(id))?;
        let multibase = method.public_key_multibase.as_deref()?;
        PublicKey::from_verification_method(&method.kind, multibase).ok()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Service {
    id: String,
    service_endpoint: serde_json::Value,
}

impl Resolver {
    /// The resolver of a configuration: it asks its directory, and hosts themselves
    /// for did:web unless `did_web_url` stands in for all of them.
    pub fn new(config: &Config) -> Result<Self, IdentityError> {
        let reach = Reach::new(config);
        let intake = &config.intake;
        let mut named = vec![intake.plc_url.as_str()];
        named.extend(intake.did_web_url.as_deref());
        named.extend(intake.backfill.as_deref());
        let trimmed = |url: &str| url.trim_end_matches('/').to_owned();
        Ok(Self {
            client: reach.client(TIMEOUT)?,
            named_client: reach.named_client(TIMEOUT, &named)?,
            plc_url: trimmed(&intake.plc_url),
            did_web_url: intake.did_web_url.as_deref().map(trimmed),
            has_dns: config.identity.dns_server.is_some(),
            known: Cache::new(CACHED_MAX),
            handles: Cache::new(CACHED_MAX),
            reach,
        })
    }

    /// What may be asked.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }

    /// The client for requests to hosts that the operator named.
    pub fn named_client(&self) -> &reqwest::Client {
        &self.named_client
    }

    /// The client for requests to hosts that DID documents name; [`Resolver::host`] judged them.
    pub fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// The address of an account's host.
    pub async fn host(&self, did: &str) -> Result<String, IdentityError> {
        let named = self.named(did).await?;
        let host = named.host.ok_or(IdentityError::Unresolvable(
            "the DID document names no host",
        ))?;
        self.reach.permit(&host)?;
        Ok(host)
    }

    /// The key with which an account signs its commits.
    pub async fn key(&self, did: &str) -> Result<PublicKey, IdentityError> {
        let named = self.named(did).await?;
        named.key.ok_or(IdentityError::Unresolvable(
            "the DID document names no key for commits",
        ))
    }

    /// Where an account that is a labeler speaks, and its key for labels.
    pub async fn labeler(&self, did: &str) -> Result<LabelerPlace, IdentityError> {
        // A changed key must not stop the stream for as long as documents are remembered.
        self.forget(did);
        let place = self.named(did).await?.labeler;
        if let Some(endpoint) = &place.endpoint {
            self.reach.permit(endpoint)?;
        }
        Ok(place)
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
            self.named_client.get(format!("{}/{did}", self.plc_url))
        } else if let Some(name) = did.strip_prefix("did:web:") {
            let (host, address) =
                web_address(name).ok_or(IdentityError::Unresolvable("not a did:web of a host"))?;
            match &self.did_web_url {
                Some(url) => self
                    .named_client
                    .get(format!("{url}/.well-known/did.json"))
                    .header("host", host),
                None => {
                    self.reach.permit(&address)?;
                    self.client.get(address)
                }
            }
        } else {
            return Err(IdentityError::Unresolvable(
                "only did:plc and did:web can be resolved",
            ));
        };
        let response = request.send().await?;
        if matches!(response.status().as_u16(), 404 | 410) {
            return Err(IdentityError::Missing);
        }
        let body = limited(response.error_for_status()?, DOCUMENT_BYTES_MAX).await?;
        let document = Document::read(did, &body)?;
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

/// The body of an answer, if it is no larger than `bytes_max`.
async fn limited(
    mut response: reqwest::Response,
    bytes_max: usize,
) -> Result<Vec<u8>, IdentityError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > bytes_max {
            return Err(IdentityError::Unresolvable("the answer is too large"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
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
        let text = format!("{{\"id\":\"did:plc:a\",\"verificationMethod\":[{method}]}}");
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

    #[test]
    fn a_document_of_another_did_is_not_believed() {
        let body = br#"{"id":"did:web:a.example"}"#;
        assert!(Document::read("did:web:a.example", body).is_ok());
        assert!(Document::read("did:web:b.example", body).is_err());
    }
}
