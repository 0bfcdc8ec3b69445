//! URIs in sixteen bytes: what breaks a tie between records of one time.
//!
//! In:    the URI of a record.
//! Out:   a [`Packed`] that compares and prints exactly like the text.
//! Never: an approximate order; a hash has the wrong one.
//!
//! Nearly all URIs of one author in one collection differ only in a record
//! key, and nearly all record keys are TIDs: 13 letters of a 32-letter alphabet
//! in alphabetical order, which is a 64-bit number. So the text before the key
//! is kept once and counted, the key is a number, and the odd key that is no
//! TID is kept as text, counted as well.

use crate::column::Column;
use crate::shards::{Quick, Shards};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

const TID_LETTERS: &[u8; 32] = b"234567abcdefghijklmnopqrstuvwxyz";
const TID_LEN: usize = 13;

/// One URI, as numbers that [`Uris`] can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Packed {
    /// Everything up to and including the last slash.
    pub(crate) prefix: u32,
    /// The record key: a TID's number, or the number of a kept text.
    pub(crate) tail: u64,
    /// Whether `tail` is a TID.
    pub(crate) tid: bool,
}

/// The number of a TID, if `key` is one.
fn tid_number(key: &str) -> Option<u64> {
    if key.len() != TID_LEN {
        return None;
    }
    let mut number = 0u128;
    for letter in key.bytes() {
        let digit = match letter {
            b'2'..=b'7' => letter - b'2',
            b'a'..=b'z' => letter - b'a' + 6,
            _ => return None,
        };
        number = number << 5 | u128::from(digit);
    }
    u64::try_from(number).ok()
}

/// Every two letters, by the ten bits they stand for.
#[expect(
    clippy::indexing_slicing,
    reason = "worked out by the compiler, which refuses what is out of bounds"
)]
const PAIRS: [[u8; 2]; 1024] = {
    let mut pairs = [[0; 2]; 1024];
    let mut at = 0;
    while at < pairs.len() {
        pairs[at] = [TID_LETTERS[at >> 5], TID_LETTERS[at & 31]];
        at += 1;
    }
    pairs
};

/// The 13 letters of a TID, two at a time from behind.
fn tid_letters(number: u64) -> [u8; TID_LEN] {
    let mut letters = [b'2'; TID_LEN];
    let mut rest = number;
    for places in letters.rchunks_mut(2) {
        let [first, second] = PAIRS
            .get((rest & 1023) as usize)
            .copied()
            .unwrap_or_default();
        match places {
            [one, other] => (*one, *other) = (first, second),
            [one] => *one = second,
            _ => {}
        }
        rest >>= 10;
    }
    letters
}

/// Bytes of a text that lie in its cache line; a prefix of the public network has 57.
const SHORT_MAX: usize = 59;

/// A text, counted; in one cache line unless it is long.
#[derive(Debug, Clone)]
#[repr(align(64))]
struct Kept {
    /// Uses; 0 if the place is free.
    count: u32,
    /// Bytes in `short`; one more than it holds if the text is in [`Texts::long`].
    length: u8,
    short: [u8; SHORT_MAX],
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            count: 0,
            length: 0,
            short: [0; SHORT_MAX],
        }
    }
}

/// Texts kept once and counted.
#[derive(Debug, Default)]
struct Texts {
    kept: Column<Kept>,
    /// Texts that do not fit their line.
    long: HashMap<u32, Box<str>, Quick>,
    /// Numbers by hash.
    numbers: Shards<u32>,
    /// Numbers of texts whose hash another has; practically none.
    twins: HashMap<Box<str>, u32>,
    hasher: RandomState,
    free: Vec<u32>,
    next: u32,
}

impl Texts {
    fn find(&self, hash: u64, text: &str) -> Option<u32> {
        let number = *self.numbers.get(hash)?;
        if self.is(number, text) {
            return Some(number);
        }
        self.twins.get(text).copied()
    }

    fn keep(&mut self, text: &str) -> u32 {
        let hash = self.hasher.hash_one(text);
        if let Some(number) = self.find(hash, text) {
            if let Some(kept) = self.kept.get_mut(number) {
                kept.count += 1;
            }
            return number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        let kept = self.kept.slot(number);
        kept.count = 1;
        if let Some(short) = kept.short.get_mut(..text.len()) {
            short.copy_from_slice(text.as_bytes());
            kept.length = text.len() as u8;
        } else {
            kept.length = SHORT_MAX as u8 + 1;
            self.long.insert(number, Box::from(text));
        }
        if self.numbers.get(hash).is_some() {
            self.twins.insert(Box::from(text), number);
        } else {
            self.numbers.insert(hash, number);
        }
        number
    }

    /// Whether `number` is in use and stands for `text`.
    #[inline]
    fn is(&self, number: u32, text: &str) -> bool {
        let kept = self.kept.get(number);
        kept.is_some_and(|kept| kept.count > 0 && self.bytes(number, kept) == text.as_bytes())
    }

    #[inline]
    fn bytes<'a>(&'a self, number: u32, kept: &'a Kept) -> &'a [u8] {
        match kept.short.get(..usize::from(kept.length)) {
            Some(short) => short,
            None => self.long.get(&number).map_or(&[], |long| long.as_bytes()),
        }
    }

    /// Counts one more use of `number` if that is what `text` is.
    fn keep_same(&mut self, number: u32, text: &str) -> bool {
        if !self.is(number, text) {
            return false;
        }
        if let Some(kept) = self.kept.get_mut(number) {
            kept.count += 1;
        }
        true
    }

    fn drop_one(&mut self, number: u32) {
        let Some(kept) = self.kept.get_mut(number) else {
            return;
        };
        kept.count = kept.count.saturating_sub(1);
        if kept.count > 0 {
            return;
        }
        let text = self.text(number).to_owned();
        let hash = self.hasher.hash_one(text.as_str());
        if self.numbers.get(hash) == Some(&number) {
            self.numbers.remove(hash);
            // A twin, if there is one, is found by its hash from now on.
            let twin = self
                .twins
                .extract_if(|twin, _| self.hasher.hash_one(&**twin) == hash);
            if let Some((_, twin)) = twin.take(1).next() {
                self.numbers.insert(hash, twin);
            }
        } else {
            self.twins.remove(text.as_str());
        }
        self.long.remove(&number);
        self.free.push(number);
    }

    #[inline]
    fn bytes_of(&self, number: u32) -> &[u8] {
        let kept = self.kept.get(number);
        kept.map_or(&[], |kept| self.bytes(number, kept))
    }

    fn text(&self, number: u32) -> &str {
        std::str::from_utf8(self.bytes_of(number)).unwrap_or("")
    }
}

/// The texts behind [`Packed`] URIs.
#[derive(Debug, Default)]
pub(crate) struct Uris {
    prefixes: Texts,
    keys: Texts,
}

impl Uris {
    /// Packs a URI. `like` is the prefix of one that may well begin the same,
    /// which is quicker to see than to look up.
    pub(crate) fn pack(&mut self, uri: &str, like: Option<u32>) -> Packed {
        let cut = uri.rfind('/').map_or(0, |slash| slash + 1);
        let (prefix, key) = uri.split_at_checked(cut).unwrap_or(("", uri));
        let prefix = match like {
            Some(like) if self.prefixes.keep_same(like, prefix) => like,
            _ => self.prefixes.keep(prefix),
        };
        match tid_number(key) {
            Some(tail) => Packed {
                prefix,
                tail,
                tid: true,
            },
            None => Packed {
                prefix,
                tail: u64::from(self.keys.keep(key)),
                tid: false,
            },
        }
    }

    /// Forgets one use of `packed`.
    pub(crate) fn release(&mut self, packed: Packed) {
        self.prefixes.drop_one(packed.prefix);
        if !packed.tid {
            self.keys.drop_one(packed.tail as u32);
        }
    }

    pub(crate) fn text(&self, packed: Packed) -> String {
        let mut text = Vec::new();
        self.push(packed, &mut text);
        // Its parts are cut from texts at slashes, so it is one.
        String::from_utf8(text).unwrap_or_default()
    }

    /// Appends the text.
    pub(crate) fn push(&self, packed: Packed, text: &mut Vec<u8>) {
        text.extend_from_slice(self.prefixes.bytes_of(packed.prefix));
        if packed.tid {
            text.extend_from_slice(&tid_letters(packed.tail));
        } else {
            text.extend_from_slice(self.keys.bytes_of(packed.tail as u32));
        }
    }

    /// Some of the text of a prefix, to have it at hand.
    #[inline]
    pub(crate) fn touch(&self, prefix: u32) -> u32 {
        self.prefixes.kept.get(prefix).map_or(0, |kept| kept.count)
    }

    /// Compares as the texts would, byte by byte.
    pub(crate) fn compare(&self, one: Packed, other: Packed) -> Ordering {
        if one.prefix == other.prefix && one.tid && other.tid {
            return one.tail.cmp(&other.tail);
        }
        if one == other {
            return Ordering::Equal;
        }
        self.text(one).cmp(&self.text(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_uris_print_and_compare_like_their_texts() {
        let texts = [
            "at://did:plc:a/app.bsky.feed.post/3kabcdefghijk",
            "at://did:plc:a/app.bsky.feed.post/3kabcdefghijz",
            "at://did:plc:a/app.bsky.feed.post/3kabcdefghij",
            "at://did:plc:a/app.bsky.feed.post/self",
            "at://did:plc:a/app.bsky.feed.postgate/2222222222222",
            "at://did:plc:ab/app.bsky.feed.post/jzzzzzzzzzzzz",
            "at://did:plc:ab/app.bsky.feed.post/kzzzzzzzzzzzz",
            "at://did:plc:ab/app.bsky.feed.post/zzzzzzzzzzzzz",
            "no slash",
            "",
            "/",
            "at://did:plc:a/app.bsky.feed.post/",
        ];
        let mut uris = Uris::default();
        let packed: Vec<_> = texts.iter().map(|text| uris.pack(text, None)).collect();
        for (one, text) in packed.iter().zip(texts) {
            assert_eq!(uris.text(*one), text);
            for (other, other_text) in packed.iter().zip(texts) {
                assert_eq!(
                    uris.compare(*one, *other),
                    text.cmp(other_text),
                    "{text} {other_text}"
                );
            }
        }
        assert!(!packed[6].tid, "65 bits are not a TID");
    }

    #[test]
    fn texts_of_any_length_are_told_apart_and_forgotten() {
        let texts: Vec<String> = (0..200).map(|length| "é".repeat(length)).collect();
        let mut kept = Texts::default();
        let numbers: Vec<u32> = texts.iter().map(|text| kept.keep(text)).collect();
        for (text, &number) in texts.iter().zip(&numbers) {
            assert_eq!(kept.text(number), text);
            assert_eq!(kept.keep(text), number);
            assert!(kept.keep_same(number, text));
            assert!(!kept.keep_same(number, "other"));
        }
        for &number in numbers.iter().chain(&numbers).chain(&numbers) {
            kept.drop_one(number);
        }
        assert_eq!(kept.free.len(), texts.len());
        assert!(kept.long.is_empty());
        assert!(!kept.keep_same(5, &texts[5]), "nobody uses it");
        assert_eq!(size_of::<Kept>(), 64);
    }

    #[test]
    fn texts_with_one_hash_are_told_apart() {
        let mut kept = Texts::default();
        let one = kept.keep("one");
        // The same hash by force: the place of "two" is taken by "one".
        let hash = kept.hasher.hash_one("two");
        kept.numbers.insert(hash, one);
        let two = kept.keep("two");
        assert_ne!(one, two);
        assert_eq!(kept.keep("two"), two);
        assert_eq!((kept.text(one), kept.text(two)), ("one", "two"));
        kept.drop_one(two);
        kept.drop_one(two);
        assert!(kept.twins.is_empty());
        assert_eq!(kept.keep("one"), one);
    }

    #[test]
    fn a_text_no_longer_used_is_forgotten() {
        let mut uris = Uris::default();
        let one = uris.pack("at://a/b/self", None);
        let two = uris.pack("at://a/b/self", Some(one.prefix));
        uris.release(one);
        assert_eq!(uris.text(two), "at://a/b/self");
        uris.release(two);
        assert_eq!(uris.prefixes.free.len(), 1);
        assert_eq!(uris.keys.free.len(), 1);
        let hash = uris.prefixes.hasher.hash_one("at://a/b/");
        assert!(uris.prefixes.numbers.get(hash).is_none());
    }
}
