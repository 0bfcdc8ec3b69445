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

use crate::ahead::ask;
use crate::column::Column;
use crate::shards::Shards;
use sdd::{AtomicOwned, Guard, Owned, Tag};
use std::cmp::Ordering as Order;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

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
/// Words of a cache line.
const WORDS: usize = 8;
/// Where the uses stand in the first word, behind the length.
const USES_SHIFT: u32 = 8;
const USES: u64 = (u32::MAX as u64) << USES_SHIFT;
/// Bytes before the text.
const HEAD: usize = 5;

/// A text in one cache line, unless it is long: its length, how often it is used, then its bytes.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Kept([AtomicU64; WORDS]);

impl Kept {
    /// Uses; 0 if the place is free.
    fn uses(&self) -> u32 {
        let [head, ..] = &self.0;
        ((head.load(Ordering::Relaxed) & USES) >> USES_SHIFT) as u32
    }

    /// Writes down how often it is used. For the one writer.
    fn set_uses(&self, uses: u32) {
        let [head, ..] = &self.0;
        let rest = head.load(Ordering::Relaxed) & !USES;
        head.store(rest | u64::from(uses) << USES_SHIFT, Ordering::Relaxed);
    }

    /// Holds `text`, used once; false if it is too long, and then says so.
    fn set(&self, text: &str) -> bool {
        let mut bytes = [0; WORDS * 8];
        let fits = text.len() <= SHORT_MAX;
        let [length, uses, _, _, _, short @ ..] = &mut bytes;
        (*length, *uses) = (text.len().min(SHORT_MAX + 1) as u8, 1);
        if let Some(short) = short.get_mut(..text.len()) {
            short.copy_from_slice(text.as_bytes());
        }
        for (word, bytes) in self.0.iter().zip(bytes.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        fits
    }

    /// Hands over the text, if it is here.
    #[inline]
    fn read<T>(&self, take: impl FnOnce(Option<&[u8]>) -> T) -> T {
        let mut bytes = [0; WORDS * 8];
        for (word, bytes) in self.0.iter().zip(bytes.as_chunks_mut::<8>().0) {
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
        let (head, short) = bytes.split_at(HEAD);
        let length = head.first().copied().unwrap_or_default();
        take(short.get(..usize::from(length)))
    }
}

/// Texts kept once, by number.
#[derive(Debug, Default)]
struct Texts {
    kept: Column<Kept>,
    /// Those that do not fit their line.
    long: Column<AtomicOwned<String>>,
}

impl Texts {
    /// Hands over a text; none if the number was never used.
    #[inline]
    fn read<T>(&self, number: u32, take: impl FnOnce(&[u8]) -> T) -> T {
        let Some(kept) = self.kept.get(number) else {
            return take(&[]);
        };
        kept.read(|short| match short {
            Some(short) => take(short),
            None => {
                let guard = Guard::new();
                let long = self.long.get(number);
                let long = long.and_then(|long| long.load(Ordering::Acquire, &guard).as_ref());
                take(long.map_or(&[], |long| long.as_bytes()))
            }
        })
    }

    /// A word of a text, to have it at hand.
    #[inline]
    fn touch(&self, number: u32) -> u64 {
        let word = self.kept.get(number).and_then(|kept| kept.0.first());
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }
}

/// What the one writer knows of texts.
#[derive(Debug, Default)]
struct TextsWriter {
    /// Numbers by hash.
    numbers: Shards<u32>,
    /// Numbers of texts whose hash another has; practically none.
    twins: HashMap<Box<str>, u32>,
    hasher: RandomState,
    free: Vec<u32>,
    next: u32,
    /// Bytes of texts that do not fit their line.
    long_bytes: usize,
}

/// What a text takes: its line, and its number in a table that is half empty.
const TEXT_BYTES: usize = size_of::<Kept>() + 2 * (size_of::<(u64, u32)>() + 1);
/// What a long one takes besides its bytes: where it is found, its length, two counts beside it.
const LONG_BYTES: usize = 48;

impl TextsWriter {
    fn bytes(&self) -> usize {
        (self.next as usize - self.free.len()) * TEXT_BYTES + self.long_bytes
    }

    fn find(&self, texts: &Texts, hash: u64, text: &str) -> Option<u32> {
        let number = *self.numbers.get(hash)?;
        if Self::is(texts, number, text) {
            return Some(number);
        }
        self.twins.get(text).copied()
    }

    fn keep(&mut self, texts: &Texts, text: &str) -> u32 {
        let hash = self.hasher.hash_one(text);
        if let Some(number) = self.find(texts, hash, text) {
            let kept = texts.kept.slot(number);
            kept.set_uses(kept.uses() + 1);
            return number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        if !texts.kept.slot(number).set(text) {
            self.long_bytes += text.len() + LONG_BYTES;
            let long = Owned::new(text.to_owned());
            let place = texts.long.slot(number);
            drop(place.swap((Some(long), Tag::None), Ordering::Release));
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
    fn is(texts: &Texts, number: u32, text: &str) -> bool {
        texts.kept.get(number).is_some_and(|kept| kept.uses() > 0)
            && texts.read(number, |kept| kept == text.as_bytes())
    }

    /// Counts one more use of `number` if that is what `text` is.
    fn keep_same(texts: &Texts, number: u32, text: &str) -> bool {
        if !Self::is(texts, number, text) {
            return false;
        }
        let kept = texts.kept.slot(number);
        kept.set_uses(kept.uses() + 1);
        true
    }

    fn drop_one(&mut self, texts: &Texts, number: u32) {
        let Some(kept) = texts.kept.get(number) else {
            return;
        };
        let uses = kept.uses().saturating_sub(1);
        kept.set_uses(uses);
        if uses > 0 {
            return;
        }
        let text = texts.read(number, |kept| String::from_utf8_lossy(kept).into_owned());
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
        if text.len() > SHORT_MAX {
            self.long_bytes -= text.len() + LONG_BYTES;
        }
        if let Some(long) = texts.long.get(number) {
            drop(long.swap((None, Tag::None), Ordering::Release));
        }
        self.free.push(number);
    }
}

/// The texts behind [`Packed`] URIs.
#[derive(Debug, Default)]
pub(crate) struct Uris {
    prefixes: Texts,
    keys: Texts,
}

impl Uris {
    pub(crate) fn text(&self, packed: Packed) -> String {
        let mut text = Vec::new();
        self.push(packed, &mut text);
        // Its parts are cut from texts at slashes, so it is one.
        String::from_utf8(text).unwrap_or_default()
    }

    /// Appends the text.
    pub(crate) fn push(&self, packed: Packed, text: &mut Vec<u8>) {
        self.prefixes
            .read(packed.prefix, |prefix| text.extend_from_slice(prefix));
        if packed.tid {
            text.extend_from_slice(&tid_letters(packed.tail));
        } else {
            self.keys
                .read(packed.tail as u32, |key| text.extend_from_slice(key));
        }
    }

    /// Asks for some of the text of a prefix.
    #[inline]
    pub(crate) fn ask(&self, prefix: u32) {
        ask(self.prefixes.kept.get(prefix));
    }

    /// Some of the text of a prefix, to have it at hand.
    #[inline]
    pub(crate) fn touch(&self, prefix: u32) -> u32 {
        self.prefixes.touch(prefix) as u32
    }

    /// Compares as the texts would, byte by byte.
    pub(crate) fn compare(&self, one: Packed, other: Packed) -> Order {
        if one.prefix == other.prefix && one.tid && other.tid {
            return one.tail.cmp(&other.tail);
        }
        if one == other {
            return Order::Equal;
        }
        self.text(one).cmp(&self.text(other))
    }
}

/// What the one writer knows of [`Uris`].
#[derive(Debug, Default)]
pub(crate) struct UrisWriter {
    prefixes: TextsWriter,
    keys: TextsWriter,
}

impl UrisWriter {
    /// Packs a URI. `like` is the prefix of one that may well begin the same,
    /// which is quicker to see than to look up.
    pub(crate) fn pack(&mut self, uris: &Uris, uri: &str, like: Option<u32>) -> Packed {
        let cut = uri.rfind('/').map_or(0, |slash| slash + 1);
        let (prefix, key) = uri.split_at_checked(cut).unwrap_or(("", uri));
        let prefix = match like {
            Some(like) if TextsWriter::keep_same(&uris.prefixes, like, prefix) => like,
            _ => self.prefixes.keep(&uris.prefixes, prefix),
        };
        match tid_number(key) {
            Some(tail) => Packed {
                prefix,
                tail,
                tid: true,
            },
            None => Packed {
                prefix,
                tail: u64::from(self.keys.keep(&uris.keys, key)),
                tid: false,
            },
        }
    }

    /// Memory of all texts.
    pub(crate) fn bytes(&self) -> usize {
        self.prefixes.bytes() + self.keys.bytes()
    }

    /// Forgets one use of `packed`.
    pub(crate) fn release(&mut self, uris: &Uris, packed: Packed) {
        self.prefixes.drop_one(&uris.prefixes, packed.prefix);
        if !packed.tid {
            self.keys.drop_one(&uris.keys, packed.tail as u32);
        }
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
        let (uris, mut writer) = (Uris::default(), UrisWriter::default());
        let pack = |text: &&str| writer.pack(&uris, text, None);
        let packed: Vec<_> = texts.iter().map(pack).collect();
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
        let (kept, mut writer) = (Texts::default(), TextsWriter::default());
        let numbers: Vec<u32> = texts.iter().map(|text| writer.keep(&kept, text)).collect();
        for (text, &number) in texts.iter().zip(&numbers) {
            assert!(kept.read(number, |kept| kept == text.as_bytes()));
            assert_eq!(writer.keep(&kept, text), number);
            assert!(TextsWriter::keep_same(&kept, number, text));
            assert!(!TextsWriter::keep_same(&kept, number, "other"));
        }
        for &number in numbers.iter().chain(&numbers).chain(&numbers) {
            writer.drop_one(&kept, number);
        }
        assert_eq!(writer.free.len(), texts.len());
        let long = |&number: &u32| {
            kept.long
                .get(number)
                .is_some_and(|it| !it.is_null(Ordering::Relaxed))
        };
        assert!(!numbers.iter().any(long));
        assert!(
            !TextsWriter::keep_same(&kept, 5, &texts[5]),
            "nobody uses it"
        );
        assert_eq!(size_of::<Kept>(), 64);
    }

    #[test]
    fn texts_with_one_hash_are_told_apart() {
        let (kept, mut writer) = (Texts::default(), TextsWriter::default());
        let one = writer.keep(&kept, "one");
        // The same hash by force: the place of "two" is taken by "one".
        let hash = writer.hasher.hash_one("two");
        writer.numbers.insert(hash, one);
        let two = writer.keep(&kept, "two");
        assert_ne!(one, two);
        assert_eq!(writer.keep(&kept, "two"), two);
        assert!(kept.read(one, |kept| kept == b"one"));
        assert!(kept.read(two, |kept| kept == b"two"));
        writer.drop_one(&kept, two);
        writer.drop_one(&kept, two);
        assert!(writer.twins.is_empty());
        assert_eq!(writer.keep(&kept, "one"), one);
    }

    #[test]
    fn a_text_no_longer_used_is_forgotten() {
        let (uris, mut writer) = (Uris::default(), UrisWriter::default());
        let one = writer.pack(&uris, "at://a/b/self", None);
        let two = writer.pack(&uris, "at://a/b/self", Some(one.prefix));
        writer.release(&uris, one);
        assert_eq!(uris.text(two), "at://a/b/self");
        writer.release(&uris, two);
        assert_eq!(writer.prefixes.free.len(), 1);
        assert_eq!(writer.keys.free.len(), 1);
        let hash = writer.prefixes.hasher.hash_one("at://a/b/");
        assert!(writer.prefixes.numbers.get(hash).is_none());
    }
}
