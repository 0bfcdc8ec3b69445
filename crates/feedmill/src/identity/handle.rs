//! Handles: from a name that people type to the account behind it.
//!
//! In:    a handle.
//! Out:   the DID that its domain names, by DNS or by HTTPS, if that DID's
//!        document names the handle too.
//! Never: a handle believed because one side claims it; a cache without a size.

use std::time::{Duration, Instant};

use super::{BODY_BYTES_MAX, IdentityError, Resolver, limited};

/// How long an answer is good; a refusal for less, so that a new handle is soon known.
const FRESH: Duration = Duration::from_secs(3600);
const REFUSED: Duration = Duration::from_secs(60);
/// How long somebody who did not answer is left alone.
const SILENT: Duration = Duration::from_secs(15);

/// Top-level domains under which nobody can prove anything to the world.
const RESERVED: [&str; 9] = [
    "alt",
    "arpa",
    "example",
    "internal",
    "invalid",
    "local",
    "localhost",
    "onion",
    "test",
];

/// What is known of a handle.
#[derive(Debug, Clone)]
pub(super) enum Known {
    Did(String),
    Nobody,
    /// Nobody could be asked.
    Silent,
}

impl Resolver {
    /// The account behind a handle; `None` if there is none that says so itself.
    pub async fn did_of(&self, handle: &str) -> Result<Option<String>, IdentityError> {
        let handle = handle.to_ascii_lowercase();
        if let Some((at, known)) = self.handles.get(&handle) {
            let (good, answer) = match known {
                Known::Did(did) => (FRESH, Ok(Some(did))),
                Known::Nobody => (REFUSED, Ok(None)),
                Known::Silent => (SILENT, Err(IdentityError::Silent)),
            };
            if at.elapsed() < good {
                return answer;
            }
        }
        let found = self.proved(&handle).await;
        let known = match &found {
            Ok(Some(did)) => Known::Did(did.clone()),
            Ok(None) => Known::Nobody,
            Err(_) => Known::Silent,
        };
        self.handles.insert(handle, (Instant::now(), known));
        found
    }

    async fn proved(&self, handle: &str) -> Result<Option<String>, IdentityError> {
        match self.claimed(handle).await? {
            Some(did) if self.claims_back(&did, handle).await? => Ok(Some(did)),
            _ => Ok(None),
        }
    }

    /// The DID that the handle's domain names: DNS first, as the network's rules have it.
    async fn claimed(&self, handle: &str) -> Result<Option<String>, IdentityError> {
        let top = handle.rsplit('.').next().unwrap_or_default();
        if !self.reach.allows_private() && RESERVED.contains(&top) {
            return Ok(None);
        }
        // In a box one server stands in for all hosts, and there is no DNS unless one is named.
        let by_dns = match &self.did_web_url {
            Some(_) if !self.has_dns => Ok(Vec::new()),
            _ => {
                self.reach
                    .names()
                    .texts(&format!("_atproto.{handle}"))
                    .await
            }
        };
        let found: Vec<&str> = by_dns
            .as_deref()
            .unwrap_or_default()
            .iter()
            .filter_map(|text| text.strip_prefix("did="))
            .collect();
        match found.as_slice() {
            [did] => return Ok(valid(did)),
            [_, _, ..] => return Ok(None), // two answers are no answer
            [] => {}
        }
        self.by_https(handle).await
    }

    async fn by_https(&self, handle: &str) -> Result<Option<String>, IdentityError> {
        let path = "/.well-known/atproto-did";
        let request = match &self.did_web_url {
            Some(url) => self
                .named_client
                .get(format!("{url}{path}"))
                .header("host", handle),
            None => self.client.get(format!("https://{handle}{path}")),
        };
        let response = request.send().await?;
        if !response.status().is_success() {
            return Ok(None);
        }
        let body = limited(response, BODY_BYTES_MAX).await?;
        let text = String::from_utf8_lossy(&body);
        Ok(valid(text.trim()))
    }

    /// Whether the account's own document names the handle.
    async fn claims_back(&self, did: &str, handle: &str) -> Result<bool, IdentityError> {
        let named = match self.named(did).await {
            Ok(named) => named,
            Err(
                IdentityError::Unresolvable(_)
                | IdentityError::Missing
                | IdentityError::Forbidden(_),
            ) => return Ok(false),
            Err(error) => return Err(error),
        };
        let own = named.handle.map(|own| own.to_ascii_lowercase());
        Ok(own.as_deref() == Some(handle))
    }
}

fn valid(did: &str) -> Option<String> {
    record::ids::Did::is_valid(did).then(|| did.to_owned())
}
