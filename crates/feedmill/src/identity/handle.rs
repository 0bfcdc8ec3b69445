//! Handles: from a name that people type to the account behind it.
//!
//! In:    a handle.
//! Out:   the DID that its domain names, by DNS or by HTTPS, if that DID's
//!        document names the handle too.
//! Never: a handle believed because one side claims it; a cache without a size;
//!        more handles being resolved than `handles_max`, or more requests that
//!        wait for that than twice as many: whoever is not admitted is told so
//!        at once, and holds nothing.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use metrics::gauge;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::sync::Semaphore;

use super::{IdentityError, Resolver};
use crate::host::Cause;
use crate::metrics as names;
use crate::reach::fetch::{Ask, FetchError};
use crate::reach::limits::Waiting;

/// How long an answer is good; a refusal for less, so that a new handle is soon known.
const FRESH: Duration = Duration::from_secs(3600);
const REFUSED: Duration = Duration::from_secs(60);
/// How long somebody who did not answer is left alone.
const SILENT: Duration = Duration::from_secs(15);
/// How long a handle may take, with all that is asked for it.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Bytes of the largest file of a handle.
const BODY_BYTES_MAX: usize = 2048;
/// Handles expected, and bytes of them kept.
const HANDLES: usize = 10_000;
const BYTES_MAX: u64 = 8 << 20;
const ENTRY_BYTES: usize = 128;

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
enum Known {
    Did(String),
    Nobody,
    /// Nobody could be asked.
    Silent,
}

type Entry = (Instant, Known);

#[derive(Debug, Clone)]
struct Bytes;

impl Weighter<String, Entry> for Bytes {
    fn weight(&self, handle: &String, (_, known): &Entry) -> u64 {
        let did = match known {
            Known::Did(did) => did.len(),
            Known::Nobody | Known::Silent => 0,
        };
        (ENTRY_BYTES + handle.len() + did) as u64
    }
}

/// Handles that are known, and how many are being resolved.
#[derive(Debug)]
pub(super) struct Handles {
    known: Cache<String, Entry, Bytes>,
    running: Arc<Semaphore>,
    waiting: AtomicUsize,
    waiting_max: usize,
}

impl Handles {
    pub(super) fn new(at_once_max: usize) -> Self {
        Self {
            known: Cache::with_weighter(HANDLES, BYTES_MAX, Bytes),
            running: Arc::new(Semaphore::new(at_once_max)),
            waiting: AtomicUsize::new(0),
            waiting_max: at_once_max.saturating_mul(2),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.known.weight()
    }

    fn get(&self, handle: &str) -> Option<Known> {
        let (at, known) = self.known.get(handle)?;
        let good = match known {
            Known::Did(_) => FRESH,
            Known::Nobody => REFUSED,
            Known::Silent => SILENT,
        };
        (at.elapsed() < good).then_some(known)
    }

    fn put(&self, handle: String, known: Known) {
        self.known.insert(handle, (Instant::now(), known));
        gauge!(names::IDENTITY_BYTES, "kind" => "handles").set(self.bytes() as f64);
    }
}

/// What is known of a handle without asking anybody: an account, nobody, or that it could not be asked.
fn answer(known: Known) -> Result<Option<String>, IdentityError> {
    match known {
        Known::Did(did) => Ok(Some(did)),
        Known::Nobody => Ok(None),
        Known::Silent => Err(IdentityError::Silent),
    }
}

impl Resolver {
    /// The account behind a handle; `None` if there is none that says so itself.
    pub async fn did_of(&self, handle: &str) -> Result<Option<String>, IdentityError> {
        let handle = handle.to_ascii_lowercase();
        if let Some(known) = self.handles.get(&handle) {
            return answer(known);
        }
        let waiting = Waiting::enter(&self.handles.waiting, self.handles.waiting_max)?;
        let _slot = self.handles.running.acquire().await;
        drop(waiting);
        // Whoever was before us may have asked for the same.
        if let Some(known) = self.handles.get(&handle) {
            return answer(known);
        }
        let proved = tokio::time::timeout(TIME_MAX, self.proved(&handle)).await;
        let found = proved.unwrap_or(Err(IdentityError::Unreachable(FetchError::TooSlow)));
        let known = match &found {
            Ok(Some(did)) => Known::Did(did.clone()),
            Ok(None) => Known::Nobody,
            // It was not asked.
            Err(IdentityError::Later(_)) => return found,
            Err(_) => Known::Silent,
        };
        self.handles.put(handle, known);
        found
    }

    /// The same, as far as it is known without asking anybody.
    pub fn known_did_of(&self, handle: &str) -> Option<Result<Option<String>, IdentityError>> {
        self.handles.get(handle).map(answer)
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
        if !self.reach().allows_private() && RESERVED.contains(&top) {
            return Ok(None);
        }
        // In a box one server stands in for all hosts, and there is no DNS unless one is named.
        let by_dns = match &self.did_web_url {
            Some(_) if !self.has_dns => Vec::new(),
            _ => {
                let name = format!("_atproto.{handle}");
                match self.fetcher.texts(Cause::Handle, &name).await {
                    Err(FetchError::Later(pause)) => return Err(IdentityError::Later(pause)),
                    texts => texts.unwrap_or_default(),
                }
            }
        };
        let found = by_dns.iter().filter_map(|text| text.strip_prefix("did="));
        match found.collect::<Vec<&str>>().as_slice() {
            [did] => return Ok(valid(did)),
            [_, _, ..] => return Ok(None), // two answers are no answer
            [] => {}
        }
        self.by_https(handle).await
    }

    async fn by_https(&self, handle: &str) -> Result<Option<String>, IdentityError> {
        let path = "/.well-known/atproto-did";
        let address = match &self.did_web_url {
            Some(url) => format!("{url}{path}"),
            None => format!("https://{handle}{path}"),
        };
        let ask = Ask::new(Cause::Handle, &address).bytes_max(BODY_BYTES_MAX);
        let ask = match &self.did_web_url {
            Some(_) => ask.named().of_host(handle),
            None => ask,
        };
        let reply = match self.fetcher.fetch(ask).await {
            // A page of another kind is there.
            Err(FetchError::TooLarge(_)) => return Ok(None),
            reply => reply?,
        };
        if !reply.is_success() {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&reply.body);
        Ok(valid(text.trim()))
    }

    /// Whether the account's own document names the handle.
    async fn claims_back(&self, did: &str, handle: &str) -> Result<bool, IdentityError> {
        let named = match self.named(did, Cause::Handle).await {
            Ok(named) => named,
            Err(error) if error.is_lasting() => return Ok(false),
            Err(error) => return Err(error),
        };
        let own = named.handle.map(|own| own.to_ascii_lowercase());
        Ok(own.as_deref() == Some(handle))
    }
}

fn valid(did: &str) -> Option<String> {
    record::ids::Did::is_valid(did).then(|| did.to_owned())
}
