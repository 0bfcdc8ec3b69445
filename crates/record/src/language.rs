//! The `language` string format: a BCP 47 tag, such as `pt-BR`.
//!
//! The grammar of RFC 5646 section 2.1, with two rules of the network: a primary
//! language is two or three lower-case letters, and no variant or extension
//! may occur twice. Whether a subtag is registered is not looked up.
//!
//! The crates for such tags (oxilangtag, language-tags) accept a repeated
//! variant or extension and any letter case, so half of this would remain, and
//! they take 1.6 and 2.6 times as long for a tag such as `pt-BR`.

/// Bytes in a tag; the grammar itself has no limit.
const TAG_BYTES_MAX: usize = 128;

/// Tags that are older than the grammar and do not follow it.
const IRREGULAR: [&str; 17] = [
    "en-GB-oed",
    "i-ami",
    "i-bnn",
    "i-default",
    "i-enochian",
    "i-hak",
    "i-klingon",
    "i-lux",
    "i-mingo",
    "i-navajo",
    "i-pwn",
    "i-tao",
    "i-tay",
    "i-tsu",
    "sgn-BE-FR",
    "sgn-BE-NL",
    "sgn-CH-DE",
];

/// Whether `text` is a language tag.
pub fn is_valid(text: &str) -> bool {
    // Nearly every tag on the network is two letters.
    if let [first, second] = text.as_bytes() {
        return first.is_ascii_lowercase() && second.is_ascii_lowercase();
    }
    if text.len() > TAG_BYTES_MAX {
        return false;
    }
    if IRREGULAR.contains(&text) {
        return true;
    }
    let mut subtags = Subtags {
        rest: text.split('-').peekable(),
    };
    let primary = subtags.take_if(|tag| {
        matches!(tag.len(), 2 | 3) && tag.bytes().all(|byte| byte.is_ascii_lowercase())
    });
    if primary.is_some() && !subtags.language() {
        return false;
    }
    // Without a primary language, only a private-use tag is valid.
    let private = subtags.private();
    private.unwrap_or(primary.is_some()) && subtags.rest.next().is_none()
}

struct Subtags<'a> {
    rest: std::iter::Peekable<std::str::Split<'a, char>>,
}

impl<'a> Subtags<'a> {
    fn take_if(&mut self, fits: impl Fn(&str) -> bool) -> Option<&'a str> {
        self.rest.next_if(|tag| fits(tag))
    }

    /// Everything between the primary language and the private-use part.
    fn language(&mut self) -> bool {
        for _ in 0..3 {
            if self
                .take_if(|tag| tag.len() == 3 && is_alpha(tag))
                .is_none()
            {
                break;
            }
        }
        self.take_if(|tag| tag.len() == 4 && is_alpha(tag));
        self.take_if(is_region);
        let mut seen = Vec::new();
        while let Some(variant) = self.take_if(is_variant) {
            if seen.contains(&variant.to_ascii_lowercase()) {
                return false;
            }
            seen.push(variant.to_ascii_lowercase());
        }
        seen.clear();
        while let Some(singleton) = self.take_if(is_singleton) {
            if seen.contains(&singleton.to_ascii_lowercase()) || !self.one_or_more(2) {
                return false;
            }
            seen.push(singleton.to_ascii_lowercase());
        }
        true
    }

    /// `x-…`: `None` if absent, else whether it is well-formed.
    fn private(&mut self) -> Option<bool> {
        self.take_if(|tag| tag.eq_ignore_ascii_case("x"))?;
        Some(self.one_or_more(1))
    }

    /// One or more subtags of at least `bytes_min` letters or digits.
    fn one_or_more(&mut self, bytes_min: usize) -> bool {
        let mut any = false;
        while self
            .take_if(|tag| (bytes_min..=8).contains(&tag.len()) && is_alphanumeric(tag))
            .is_some()
        {
            any = true;
        }
        any
    }
}

fn is_alpha(tag: &str) -> bool {
    tag.bytes().all(|byte| byte.is_ascii_alphabetic())
}

fn is_alphanumeric(tag: &str) -> bool {
    tag.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn is_region(tag: &str) -> bool {
    (tag.len() == 2 && is_alpha(tag))
        || (tag.len() == 3 && tag.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_variant(tag: &str) -> bool {
    let begins_with_digit = tag.starts_with(|first: char| first.is_ascii_digit());
    is_alphanumeric(tag) && ((5..=8).contains(&tag.len()) || (tag.len() == 4 && begins_with_digit))
}

fn is_singleton(tag: &str) -> bool {
    tag.len() == 1 && is_alphanumeric(tag) && !tag.eq_ignore_ascii_case("x")
}
