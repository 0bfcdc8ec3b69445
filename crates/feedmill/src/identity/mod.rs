//! Identity: where an account lives, and with which key it signs.
//!
//! In:    a DID, a handle, an NSID.
//! Out:   the address of its host and its signing key, from its DID document;
//!        the DID behind a handle; the published lexicon of a name.
//! Never: a request that does not go through the [`Fetcher`]; a cache without a
//!        size in bytes; of a document more than the fields we need.

// From handles to accounts.
mod handle;
// What is remembered, and how much memory that takes.
mod known;
// From names to published lexicons.
mod lexicon;

use std::sync::Arc;
use std::time::Duration;

use record::key::PublicKey;
use serde::Deserialize;

use self::known::{Documents, Known};
use crate::clock::Clock;
use crate::config::Config;
use crate::host::Cause;
use crate::reach::fetch::{Ask, FetchError, Fetcher, Reply};
use crate::reach::{Forbidden, Reach};

pub use crate::reach::provide_tls;

/// Bytes of the largest address and of the largest handle that are kept of a document.
const ADDRESS_BYTES_MAX: usize = 2048;
const HANDLE_BYTES_MAX: usize = 253;

/// Why an account's host or key is not known.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Try again later.
    #[error("cannot fetch the DID document")]
    Unreachable(#[source] FetchError),
    /// Try again later: as much is asked as may be, or who is asked wants a pause.
    #[error("cannot be asked before {} ms", .0.as_millis())]
    Later(Duration),
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

impl From<FetchError> for IdentityError {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Forbidden(why) => Self::Forbidden(why),
            FetchError::Later(pause) => Self::Later(pause),
            error => Self::Unreachable(error),
        }
    }
}

impl IdentityError {
    /// What a caller is told, who must not learn our addresses or where names lead in our network.
    pub fn in_public(&self) -> &'static str {
        match self {
            Self::Unreachable(error) => error.in_public(),
            Self::Later(_) | Self::Silent => "it cannot be asked now; try again",
            Self::Missing => "there is no such DID",
            Self::Forbidden(_) => "the host is not one that is asked",
            Self::Unresolvable(why) => why,
        }
    }

    /// Whether asking again in a moment cannot end differently.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Missing | Self::Forbidden(_) | Self::Unresolvable(_) => true,
            Self::Unreachable(_) | Self::Later(_) | Self::Silent => false,
        }
    }
}

/// Resolves DIDs.
#[derive(Debug)]
pub struct Resolver {
    fetcher: Arc<Fetcher>,
    plc_url: String,
    did_web_url: Option<String>,
    has_dns: bool,
    documents: Documents,
    handles: handle::Handles,
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
            handle: handle
                .filter(|handle| handle.len() <= HANDLE_BYTES_MAX)
                .map(str::to_owned),
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
        if url.len() > ADDRESS_BYTES_MAX {
            return None;
        }
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
    /// The resolver of a configuration, with a fetcher of its own.
    pub fn new(config: &Config) -> Result<Self, IdentityError> {
        let fetcher = Fetcher::new(config, Clock::Wall)?;
        Ok(Self::with(config, Arc::new(fetcher)))
    }

    /// The resolver of a configuration: it asks its directory, and hosts themselves
    /// for did:web unless `did_web_url` stands in for all of them.
    pub fn with(config: &Config, fetcher: Arc<Fetcher>) -> Self {
        let trimmed = |url: &str| url.trim_end_matches('/').to_owned();
        let intake = &config.intake;
        Self {
            fetcher,
            plc_url: trimmed(&intake.plc_url),
            did_web_url: intake.did_web_url.as_deref().map(trimmed),
            has_dns: config.identity.dns_server.is_some(),
            documents: Documents::default(),
            handles: handle::Handles::new(config.identity.handles_max),
        }
    }

    /// What may be asked.
    pub fn reach(&self) -> &Reach {
        self.fetcher.reach()
    }

    /// Who asks.
    pub fn fetcher(&self) -> &Arc<Fetcher> {
        &self.fetcher
    }

    /// The address of an account's host.
    pub async fn host(&self, did: &str) -> Result<String, IdentityError> {
        self.host_for(did, Cause::Identity).await
    }

    /// The same, asked for another cause.
    pub async fn host_for(&self, did: &str, cause: Cause) -> Result<String, IdentityError> {
        let named = self.named(did, cause).await?;
        let host = named.host.ok_or(IdentityError::Unresolvable(
            "the DID document names no host",
        ))?;
        self.reach().permit(&host)?;
        Ok(host)
    }

    /// The key with which an account signs its commits.
    pub async fn key(&self, did: &str) -> Result<PublicKey, IdentityError> {
        key_in(self.named(did, Cause::Identity).await?)
    }

    /// The key of the account that a token names, and whether it was fetched just now.
    pub async fn token_key(&self, did: &str) -> Result<(PublicKey, bool), IdentityError> {
        match self.documents.get(did) {
            Known::Named(named, _) => Ok((key_in(*named)?, false)),
            Known::Missing => Err(IdentityError::Missing),
            Known::Unknown if self.documents.was_silent(did) => Err(IdentityError::Silent),
            Known::Unknown => {
                let asked = self.ask(did, Cause::Token).await;
                if asked.is_err() && !matches!(asked, Err(IdentityError::Later(_))) {
                    self.documents.is_silent(did);
                }
                Ok((key_in(asked?)?, true))
            }
        }
    }

    /// The same key, fetched anew because a signature does not fit it; `None` if that was done within
    /// the last minute: whoever sends bad tokens must not decide how often a directory is asked.
    pub async fn token_key_anew(&self, did: &str) -> Result<Option<PublicKey>, IdentityError> {
        match self.documents.may_refresh(did) {
            true => Ok(Some(key_in(self.ask(did, Cause::Token).await?)?)),
            false => Ok(None),
        }
    }

    /// Where an account that is a labeler speaks, and its key for labels.
    pub async fn labeler(&self, did: &str) -> Result<LabelerPlace, IdentityError> {
        // A changed key must not stop the stream for as long as documents are remembered.
        self.forget(did);
        let place = self.named(did, Cause::Identity).await?.labeler;
        if let Some(endpoint) = &place.endpoint {
            self.reach().permit(endpoint)?;
        }
        Ok(place)
    }

    /// The key, if it is known without asking anybody, and for how long it has been.
    pub fn known_key(&self, did: &str) -> Option<(PublicKey, Duration)> {
        match self.documents.get(did) {
            Known::Named(named, age) => named.key.map(|key| (key, age)),
            Known::Missing | Known::Unknown => None,
        }
    }

    async fn named(&self, did: &str, cause: Cause) -> Result<Named, IdentityError> {
        match self.documents.get(did) {
            Known::Named(named, _) => Ok(*named),
            Known::Missing => Err(IdentityError::Missing),
            Known::Unknown => self.ask(did, cause).await,
        }
    }

    /// Asks for a document, and remembers what it names; that there is none, too.
    async fn ask(&self, did: &str, cause: Cause) -> Result<Named, IdentityError> {
        let reply = self.document(did, cause).await?;
        if matches!(reply.status, 404 | 410) {
            self.documents.put(did, None);
            return Err(IdentityError::Missing);
        }
        let named = Document::read(did, &reply.good()?.body)?.named();
        self.documents.put(did, Some(named.clone()));
        Ok(named)
    }

    async fn document(&self, did: &str, cause: Cause) -> Result<Reply, IdentityError> {
        if did.starts_with("did:plc:") {
            let address = format!("{}/{did}", self.plc_url);
            let ask = Ask::new(cause, &address).named();
            return Ok(self.fetcher.fetch(ask).await?);
        }
        let Some(name) = did.strip_prefix("did:web:") else {
            return Err(IdentityError::Unresolvable(
                "only did:plc and did:web can be resolved",
            ));
        };
        let (host, address) =
            web_address(name).ok_or(IdentityError::Unresolvable("not a did:web of a host"))?;
        let Some(url) = &self.did_web_url else {
            return Ok(self.fetcher.fetch(Ask::new(cause, &address)).await?);
        };
        let address = format!("{url}/.well-known/did.json");
        let ask = Ask::new(cause, &address).named().of_host(&host);
        Ok(self.fetcher.fetch(ask).await?)
    }

    /// Forgets what is known of an account, so that the next question goes to the directory.
    pub fn forget(&self, did: &str) {
        self.documents.forget(did);
    }

    /// Bytes that documents and handles take.
    pub fn cached_bytes(&self) -> u64 {
        self.documents.bytes() + self.handles.bytes()
    }
}

fn key_in(named: Named) -> Result<PublicKey, IdentityError> {
    named.key.ok_or(IdentityError::Unresolvable(
        "the DID document names no key for commits",
    ))
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
