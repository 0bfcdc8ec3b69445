//! What is remembered of DID documents: few fields, bounded in bytes and in time.
//!
//! In:    DIDs, and what their documents name.
//! Out:   the same for `FRESH`; that there is no document for `REFUSED`.
//! Never: more bytes than `BYTES_MAX`; a document as it came.

use std::time::{Duration, Instant};

use metrics::gauge;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use xxhash_rust::xxh3::xxh3_64;

use super::Named;
use crate::metrics as names;

/// Documents expected, and bytes of them kept.
const DOCUMENTS: usize = 10_000;
const BYTES_MAX: u64 = 16 << 20;
/// How long a document is good; that there is none is believed for less, so that a new account is soon known.
const FRESH: Duration = Duration::from_secs(3600);
const REFUSED: Duration = Duration::from_secs(60);
/// How long whoever did not answer is left alone when tokens name it, and how many of these are remembered.
const SILENT: Duration = Duration::from_secs(15);
/// How long a document that was fetched again because of a bad token is not.
const REFRESHED: Duration = Duration::from_secs(60);
const MOMENTS_MAX: usize = 20_000;
/// Bytes of an entry beside its texts.
const ENTRY_BYTES: usize = 256;

/// What is known of a DID.
#[derive(Debug)]
pub(super) enum Known {
    /// Its document, and how old that is.
    Named(Box<Named>, Duration),
    /// There is no document.
    Missing,
    Unknown,
}

type Entry = (Instant, Option<Named>);

#[derive(Debug, Clone)]
struct Bytes;

impl Weighter<String, Entry> for Bytes {
    fn weight(&self, did: &String, (_, named): &Entry) -> u64 {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let named = named.as_ref().map_or(0, |named| {
            length(&named.host) + length(&named.handle) + length(&named.labeler.endpoint)
        });
        (ENTRY_BYTES + did.len() + named) as u64
    }
}

/// What is remembered.
#[derive(Debug)]
pub(super) struct Documents {
    known: Cache<String, Entry, Bytes>,
    /// When whoever was asked did not answer, and when a document was fetched anew, by hashes of DIDs.
    silent: Cache<u64, Instant>,
    refreshed: Cache<u64, Instant>,
}

impl Default for Documents {
    fn default() -> Self {
        Self {
            known: Cache::with_weighter(DOCUMENTS, BYTES_MAX, Bytes),
            silent: Cache::new(MOMENTS_MAX),
            refreshed: Cache::new(MOMENTS_MAX),
        }
    }
}

impl Documents {
    pub(super) fn get(&self, did: &str) -> Known {
        let Some((at, named)) = self.known.get(did) else {
            return Known::Unknown;
        };
        let age = at.elapsed();
        match named {
            Some(named) if age < FRESH => Known::Named(Box::new(named), age),
            None if age < REFUSED => Known::Missing,
            _ => Known::Unknown,
        }
    }

    pub(super) fn put(&self, did: &str, named: Option<Named>) {
        self.known.insert(did.to_owned(), (Instant::now(), named));
        gauge!(names::IDENTITY_BYTES, "kind" => "documents").set(self.bytes() as f64);
    }

    pub(super) fn forget(&self, did: &str) {
        self.known.remove(did);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.known.weight()
    }

    /// Notes that whoever was asked for a document did not answer.
    pub(super) fn is_silent(&self, did: &str) {
        self.silent.insert(xxh3_64(did.as_bytes()), Instant::now());
    }

    pub(super) fn was_silent(&self, did: &str) -> bool {
        let silent = self.silent.get(&xxh3_64(did.as_bytes()));
        silent.is_some_and(|at| at.elapsed() < SILENT)
    }

    /// Whether a document may be fetched anew; if so, that is noted.
    pub(super) fn may_refresh(&self, did: &str) -> bool {
        let did = xxh3_64(did.as_bytes());
        let last = self.refreshed.get(&did);
        if last.is_some_and(|at| at.elapsed() < REFRESHED) {
            return false;
        }
        self.refreshed.insert(did, Instant::now());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::LabelerPlace;
    use super::*;

    #[test]
    fn documents_are_bounded_in_bytes_and_not_only_in_number() {
        let documents = Documents::default();
        for number in 0..20_000 {
            let named = Named {
                host: Some(format!("https://{}.example", "a".repeat(2000))),
                key: None,
                handle: Some("b".repeat(253)),
                labeler: LabelerPlace::default(),
            };
            documents.put(&format!("did:plc:{number}"), Some(named));
        }
        assert!(documents.bytes() <= BYTES_MAX);
        assert!(documents.known.len() > 1000);
    }
}
