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
use crate::shards::TextShards;
use std::cmp::Ordering;
use std::sync::Arc;

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

/// The 13 letters of a TID.
fn tid_letters(number: u64) -> [u8; TID_LEN] {
    let mut letters = [b'2'; TID_LEN];
    let mut rest = number;
    for place in letters.iter_mut().rev() {
        *place = TID_LETTERS
            .get((rest & 31) as usize)
            .copied()
            .unwrap_or(b'2');
        rest >>= 5;
    }
    letters
}

/// Texts kept once and counted.
#[derive(Debug, Default)]
struct Texts {
    numbers: TextShards<u32>,
    kept: Column<Option<(Arc<str>, u32)>>,
    free: Vec<u32>,
    next: u32,
}

impl Texts {
    fn keep(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            if let Some(Some((_, count))) = self.kept.get_mut(number) {
                *count += 1;
            }
            return number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        let text: Arc<str> = Arc::from(text);
        *self.kept.slot(number) = Some((Arc::clone(&text), 1));
        self.numbers.insert(text, number);
        number
    }

    /// Counts one more use of `number` if that is what `text` is.
    fn keep_same(&mut self, number: u32, text: &str) -> bool {
        match self.kept.get_mut(number) {
            Some(Some((kept, count))) if **kept == *text => {
                *count += 1;
                true
            }
            _ => false,
        }
    }

    fn drop_one(&mut self, number: u32) {
        let Some(place) = self.kept.get_mut(number) else {
            return;
        };
        let Some((text, count)) = place else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            let text = Arc::clone(text);
            *place = None;
            self.numbers.remove(&*text);
            self.free.push(number);
        }
    }

    fn text(&self, number: u32) -> &str {
        match self.kept.get(number) {
            Some(Some((text, _))) => text,
            _ => "",
        }
    }
}

/// The texts behind [`Packed`] URIs.
#[derive(Debug, Default)]
pub(crate) struct Uris {
    prefixes: Texts,
    keys: Texts,
}

impl Uris {
    /// Packs a URI. `like` is one that may well begin the same, which is
    /// quicker to see than to look up.
    pub(crate) fn pack(&mut self, uri: &str, like: Option<Packed>) -> Packed {
        let cut = uri.rfind('/').map_or(0, |slash| slash + 1);
        let (prefix, key) = uri.split_at_checked(cut).unwrap_or(("", uri));
        let prefix = match like {
            Some(like) if self.prefixes.keep_same(like.prefix, prefix) => like.prefix,
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
        let mut text = self.prefixes.text(packed.prefix).to_owned();
        if packed.tid {
            text.extend(
                tid_letters(packed.tail)
                    .iter()
                    .map(|&letter| letter as char),
            );
        } else {
            text.push_str(self.keys.text(packed.tail as u32));
        }
        text
    }

    /// The last byte before the record key.
    pub(crate) fn prefix_end(&self, packed: Packed) -> u32 {
        let text = self.prefixes.text(packed.prefix);
        text.as_bytes().last().copied().map_or(0, u32::from)
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
    fn a_text_no_longer_used_is_forgotten() {
        let mut uris = Uris::default();
        let one = uris.pack("at://a/b/self", None);
        let two = uris.pack("at://a/b/self", Some(one));
        uris.release(one);
        assert_eq!(uris.text(two), "at://a/b/self");
        uris.release(two);
        assert_eq!(uris.prefixes.free.len(), 1);
        assert_eq!(uris.keys.free.len(), 1);
        assert!(uris.prefixes.numbers.get("at://a/b/").is_none());
    }
}
