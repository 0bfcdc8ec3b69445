//! Jetstream: how its two versions are asked, and how its messages are unpacked.
//!
//! In:    an address, a cursor, the collections wanted; then messages.
//! Out:   JSON text, whether it came plain or packed.
//! Never: a message unpacked further than a byte beyond the frame limit; a dictionary guessed.
//!
//! Version 1 counts microseconds and clamps a cursor below its window without
//! a word. Version 2 counts operations, refuses such a cursor, and reads
//! numbers from 10¹⁵ on as microseconds: that is how all it has is asked for.

use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_tungstenite::tungstenite::Bytes;

use crate::host::Cause;
use crate::reach::fetch::{Ask, FetchError, Fetcher};

/// The method of version 2.
const VERSION_2: &str = "network.bsky.jetstream.subscribeEvents";
const DICTIONARY: &str = "network.bsky.jetstream.getZstdDictionary";
/// Collections a Jetstream lets a client name; with more, it is asked for all.
const COLLECTIONS_MAX: usize = 100;
/// Cursors of version 2 from here on are microseconds; this one lies before any window.
const MICROSECONDS_FROM: i64 = 1_000_000_000_000_000;
/// Largest dictionary accepted.
const DICTIONARY_BYTES_MAX: usize = 8 << 20;
/// Bytes, as a power of two, that unpacking the beginning of a large message may look back.
const WINDOW_LOG_MAX: u32 = 23;

/// What is asked of a Jetstream.
#[derive(Debug, Clone)]
pub struct Jetstream {
    /// NSIDs wanted.
    pub collections: Vec<String>,
    /// Messages come packed.
    pub compress: bool,
    /// The dictionary of version 1: a file or an http address.
    pub dictionary: Option<PathBuf>,
    /// Fetches dictionaries.
    pub fetcher: Arc<Fetcher>,
}

/// Why packed messages cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum DictionaryError {
    /// Try again later.
    #[error("cannot fetch the dictionary")]
    Unreachable(#[from] FetchError),
    /// Correct `dictionary` in the configuration.
    #[error("cannot read the dictionary {path}")]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// What was fetched is no dictionary.
    #[error("{0}")]
    Unusable(&'static str),
}

/// Unpacks messages.
pub(super) struct Unpacker {
    id: u32,
    inner: zstd::bulk::Decompressor<'static>,
    dictionary: Vec<u8>,
    bytes_max: usize,
}

impl std::fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unpacker")
            .field("dictionary", &self.id)
            .finish_non_exhaustive()
    }
}

impl Unpacker {
    fn new(dictionary: &[u8], bytes_max: usize) -> Result<Self, DictionaryError> {
        let id = dictionary
            .get(4..8)
            .and_then(|id| id.try_into().ok())
            .map(u32::from_le_bytes)
            .ok_or(DictionaryError::Unusable("the dictionary is too short"))?;
        let inner = zstd::bulk::Decompressor::with_dictionary(dictionary)
            .map_err(|_| DictionaryError::Unusable("zstd does not accept the dictionary"))?;
        Ok(Self {
            id,
            inner,
            dictionary: dictionary.to_vec(),
            bytes_max,
        })
    }

    /// The text of a message, or its beginning if it is too large or was cut off; what cannot be
    /// unpacked goes on as it came, and is refused by itself.
    pub(super) fn unpack(&mut self, message: Bytes) -> Bytes {
        match self.inner.decompress(&message, self.bytes_max) {
            Ok(text) => text.into(),
            Err(_) => self.beginning(&message).unwrap_or(message),
        }
    }

    /// As much as can be unpacked, up to a byte more than the limit.
    fn beginning(&self, message: &[u8]) -> Option<Bytes> {
        let decoder = zstd::stream::read::Decoder::with_dictionary(message, &self.dictionary);
        let mut decoder = decoder.ok()?;
        decoder.window_log_max(WINDOW_LOG_MAX).ok()?;
        let mut text = Vec::new();
        let read = decoder
            .take(self.bytes_max as u64 + 1)
            .read_to_end(&mut text);
        // A message that was cut off ends in an error behind its beginning.
        drop(read);
        (!text.is_empty()).then(|| text.into())
    }
}

/// Whether an address is one of version 2.
fn is_version_2(url: &str) -> bool {
    url.contains(VERSION_2)
}

impl Jetstream {
    /// Where to connect to read from `cursor` on; it is inclusive, so its event comes again.
    pub(super) fn address(&self, url: &str, cursor: i64, unpacker: Option<&Unpacker>) -> String {
        let second = is_version_2(url);
        let cursor = if second && cursor <= 0 {
            MICROSECONDS_FROM
        } else {
            cursor
        };
        let mut address = format!("{}?cursor={cursor}", url.trim_end_matches(['/', '?']));
        let name = if second {
            "collections"
        } else {
            "wantedCollections"
        };
        if self.collections.len() <= COLLECTIONS_MAX {
            for nsid in &self.collections {
                address.push_str(&format!("&{name}={nsid}"));
            }
        }
        match unpacker {
            Some(unpacker) if second => {
                address.push_str(&format!("&zstdDictionary={}", unpacker.id))
            }
            Some(_) => address.push_str("&compress=true"),
            None => {}
        }
        address
    }

    /// The unpacker for a host's messages; `None` where they come plain.
    pub(super) async fn unpacker(
        &self,
        url: &str,
        bytes_max: usize,
    ) -> Result<Option<Unpacker>, DictionaryError> {
        if !self.compress {
            return Ok(None);
        }
        let bytes = if is_version_2(url) {
            let address = url.replacen("ws", "http", 1).replace(VERSION_2, DICTIONARY);
            self.fetch(&address).await?
        } else {
            let path = self.dictionary.clone().ok_or(DictionaryError::Unusable(
                "version 1 needs `dictionary` to unpack its messages",
            ))?;
            match path.to_str().filter(|text| text.starts_with("http")) {
                Some(address) => self.fetch(address).await?,
                None => tokio::task::spawn_blocking(move || {
                    std::fs::read(&path)
                        .map_err(|source| DictionaryError::Unreadable { path, source })
                })
                .await
                .map_err(|_| {
                    DictionaryError::Unusable("reading the dictionary was interrupted")
                })??,
            }
        };
        Unpacker::new(&bytes, bytes_max).map(Some)
    }

    async fn fetch(&self, address: &str) -> Result<Vec<u8>, DictionaryError> {
        let ask = Ask::new(Cause::Dictionary, address).named();
        let ask = ask.bytes_max(DICTIONARY_BYTES_MAX);
        Ok(self.fetcher.fetch(ask).await?.good()?.body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jetstream(collections: &[&str]) -> Jetstream {
        Jetstream {
            collections: collections.iter().map(|nsid| (*nsid).to_owned()).collect(),
            compress: false,
            dictionary: None,
            fetcher: Arc::new(Fetcher::of_operator(&[]).unwrap()),
        }
    }

    #[test]
    fn version_1_is_asked_for_the_wanted_collections() {
        let address = jetstream(&["a.b.c", "a.b.d"]).address("wss://host/subscribe", 7, None);
        assert_eq!(
            address,
            "wss://host/subscribe?cursor=7&wantedCollections=a.b.c&wantedCollections=a.b.d"
        );
    }

    #[test]
    fn version_2_is_asked_by_time_for_all_it_has() {
        let url = format!("wss://host/xrpc/{VERSION_2}");
        let address = jetstream(&["a.b.c"]).address(&url, 0, None);
        assert_eq!(
            address,
            format!("{url}?cursor=1000000000000000&collections=a.b.c")
        );
    }

    #[test]
    fn more_collections_than_may_be_named_are_filtered_here() {
        let many: Vec<String> = (0..101).map(|n| format!("a.b.c{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let address = jetstream(&many).address("wss://host/subscribe", 7, None);
        assert_eq!(address, "wss://host/subscribe?cursor=7");
    }

    #[test]
    fn a_message_that_cannot_be_unpacked_goes_on_as_it_came() {
        let samples: Vec<String> = (0..2000)
            .map(|n| format!("{{\"did\":\"did:plc:{n}\",\"kind\":\"commit\",\"time_us\":{n}}}"))
            .collect();
        let dictionary = zstd::dict::from_samples(&samples, 4096).unwrap();
        let mut unpacker = Unpacker::new(&dictionary, 1000).unwrap();
        let garbage = Bytes::from_static(b"garbage");
        assert_eq!(unpacker.unpack(garbage.clone()), garbage);
        let mut packer = zstd::bulk::Compressor::with_dictionary(3, &dictionary).unwrap();
        let packed = packer.compress(samples[7].as_bytes()).unwrap();
        assert_eq!(unpacker.unpack(packed.into()), samples[7].as_bytes());
        let bomb: Bytes = packer.compress(&[0u8; 10_000]).unwrap().into();
        assert_eq!(
            unpacker.unpack(bomb),
            [0; 1001][..],
            "a byte beyond the limit"
        );
    }
}
