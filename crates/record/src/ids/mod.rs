//! Identifiers of accounts, lexicons and records.
//!
//! In:    any text.
//! Out:   a type for each syntax ([`Did`], [`Handle`], [`Nsid`],
//!        [`RecordKey`], [`AtUri`]), or a [`SyntaxError`].
//! Never: normalisation. Two identifiers are equal if their bytes are.
//!
//! Every type also has `is_valid`, which checks borrowed text without an
//! allocation: the validator calls it for every string.

mod aturi;
mod did;
mod handle;
mod nsid;
mod rkey;

pub use aturi::{AtUri, UriParts};
pub use did::Did;
pub use handle::Handle;
pub use nsid::Nsid;
pub use rkey::RecordKey;

/// The text does not have the format with this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {0}")]
pub struct SyntaxError(pub &'static str);

/// Whether `text` is an `at-identifier`: a DID or a handle.
pub fn is_at_identifier(text: &str) -> bool {
    if text.starts_with("did:") {
        Did::is_valid(text)
    } else {
        Handle::is_valid(text)
    }
}

/// Classes of bytes, looked up in one table.
mod class {
    pub(super) const LOWER: u8 = 1;
    pub(super) const ALPHA: u8 = 2;
    pub(super) const DIGIT: u8 = 4;
    pub(super) const HYPHEN: u8 = 8;
    /// `.` `_` `:`, which are allowed in DIDs and record keys.
    pub(super) const PUNCTUATION: u8 = 16;
    pub(super) const PERCENT: u8 = 32;
    pub(super) const TILDE: u8 = 64;

    const TABLE: [u8; 256] = table();

    const fn table() -> [u8; 256] {
        let mut table = [0u8; 256];
        let mut byte = 0u8;
        loop {
            let class = match byte {
                b'a'..=b'z' => LOWER | ALPHA,
                b'A'..=b'Z' => ALPHA,
                b'0'..=b'9' => DIGIT,
                b'-' => HYPHEN,
                b'.' | b'_' | b':' => PUNCTUATION,
                b'%' => PERCENT,
                b'~' => TILDE,
                _ => 0,
            };
            let (_, tail) = table.split_at_mut(byte as usize);
            if let Some(slot) = tail.first_mut() {
                *slot = class;
            }
            if byte == u8::MAX {
                return table;
            }
            byte += 1;
        }
    }

    /// The classes of one byte; the lookup cannot miss.
    pub(super) fn of(byte: u8) -> u8 {
        TABLE.get(usize::from(byte)).copied().unwrap_or(0)
    }

    /// Whether every byte is in one of `classes`. Nearly all text is valid, so
    /// there is no early exit, which would cost a branch for every byte.
    pub(super) fn all(bytes: &[u8], classes: u8) -> bool {
        bytes
            .iter()
            .fold(true, |good, &byte| good & (of(byte) & classes != 0))
    }

    /// A part of a domain name: 1 to 63 letters, digits and inner hyphens.
    pub(super) fn is_label(label: &[u8]) -> bool {
        label.len() <= 63
            && all(label, ALPHA | DIGIT | HYPHEN)
            && label.first().is_some_and(|&byte| byte != b'-')
            && label.last().is_some_and(|&byte| byte != b'-')
    }
}

/// The functions of all identifier types.
macro_rules! identifier {
    ($type:ident, $format:literal) => {
        impl $type {
            /// Checks `text` and copies it.
            pub fn parse(text: &str) -> Result<Self, $crate::ids::SyntaxError> {
                if Self::is_valid(text) {
                    Ok(Self(text.into()))
                } else {
                    Err($crate::ids::SyntaxError($format))
                }
            }

            /// The text, unchanged.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::ids::SyntaxError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::parse(text)
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        // Equality, order and hash are those of the text, so a map with such
        // keys accepts borrowed text for a look-up.
        impl std::borrow::Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                Self::parse(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}
use identifier;
