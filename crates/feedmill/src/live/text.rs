//! Texts of entries, made once for the many who are told of one.
//!
//! In:    an entry, and its text when somebody has made it.
//! Out:   the same text, while it is remembered; whoever finds none makes it anew.
//! Never: more bytes than were allowed.

use bytes::Bytes;
use metrics::{Gauge, gauge};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::view::Entry;
use crate::metrics as names;

/// JSON, shared; `None` if the entry was gone or hidden when it was made.
pub type Text = Option<Bytes>;

/// About how long a text is; only a hint.
const TEXT_BYTES: usize = 1_000;

/// The feed, the record, and the change that brought it.
type Key = (usize, i64, i64);

#[derive(Debug, Clone)]
struct ByBytes;

impl Weighter<Key, Text> for ByBytes {
    fn weight(&self, _: &Key, text: &Text) -> u64 {
        let bytes = size_of::<(Key, Text)>() + text.as_ref().map_or(0, Bytes::len);
        bytes as u64
    }
}

#[derive(Debug)]
pub(super) struct Texts(Cache<Key, Text, ByBytes>, Gauge);

impl Texts {
    pub(super) fn new(bytes_max: usize) -> Self {
        let texts = bytes_max / TEXT_BYTES;
        let bytes = gauge!(names::CACHE_BYTES, "cache" => "texts");
        Self(
            Cache::with_weighter(texts, bytes_max as u64, ByBytes),
            bytes,
        )
    }

    pub(super) fn get(&self, entry: &Entry) -> Option<Text> {
        self.0.get(&key(entry)?)
    }

    pub(super) fn put(&self, entry: &Entry, text: Text) {
        if let Some(key) = key(entry) {
            self.0.insert(key, text);
            self.1.set(self.0.weight() as f64);
        }
    }
}

/// `None` of an entry that one reader alone is told of.
fn key(entry: &Entry) -> Option<Key> {
    Some((entry.feed, entry.record, entry.shared_at?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_any_size_never_exceed_what_is_allowed() {
        let texts = Texts::new(100_000);
        for record in 0..500 {
            let entry = Entry {
                feed: 0,
                record,
                time_us: 0,
                uri: String::new(),
                shared_at: Some(record),
            };
            texts.put(&entry, Some(vec![b'x'; 50_000].into()));
            assert!(texts.0.weight() <= 100_000, "{}", texts.0.weight());
        }
    }
}
