//! The string formats of the lexicon language.
//!
//! Each format is checked by its own module; only the check of a CID in any base,
//! with any codec and hash, is here.

use crate::ids::{AtUri, Did, Handle, Nsid, RecordKey, is_at_identifier};
use crate::tid::Tid;
use crate::{datetime, language, uri};

/// Bytes in the text of a CID.
const CID_BYTES_MAX: usize = 256;
/// Every CID with a secure hash is longer.
const CID_BYTES_MIN: usize = 8;

/// A string format of the lexicon language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    AtIdentifier,
    AtUri,
    Cid,
    Datetime,
    Did,
    Handle,
    Language,
    Nsid,
    RecordKey,
    Tid,
    Uri,
}

impl Format {
    /// Every format there is.
    pub const ALL: [Format; 11] = [
        Format::AtIdentifier,
        Format::AtUri,
        Format::Cid,
        Format::Datetime,
        Format::Did,
        Format::Handle,
        Format::Language,
        Format::Nsid,
        Format::RecordKey,
        Format::Tid,
        Format::Uri,
    ];

    /// The name in lexicon documents.
    pub fn name(self) -> &'static str {
        match self {
            Format::AtIdentifier => "at-identifier",
            Format::AtUri => "at-uri",
            Format::Cid => "cid",
            Format::Datetime => "datetime",
            Format::Did => "did",
            Format::Handle => "handle",
            Format::Language => "language",
            Format::Nsid => "nsid",
            Format::RecordKey => "record-key",
            Format::Tid => "tid",
            Format::Uri => "uri",
        }
    }

    /// The format with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Whether `text` has this format.
    pub fn accepts(self, text: &str) -> bool {
        match self {
            Format::AtIdentifier => is_at_identifier(text),
            Format::AtUri => AtUri::is_valid(text),
            Format::Cid => is_cid(text),
            Format::Datetime => datetime::is_valid(text),
            Format::Did => Did::is_valid(text),
            Format::Handle => Handle::is_valid(text),
            Format::Language => language::is_valid(text),
            Format::Nsid => Nsid::is_valid(text),
            Format::RecordKey => RecordKey::is_valid(text),
            Format::Tid => Tid::parse(text).is_ok(),
            Format::Uri => uri::is_valid(text),
        }
    }
}

/// A CID in text may use any base, codec and hash, so only its characters are
/// checked. `Qm…` is version 0, which the network never used. Base 32, which all
/// real ones use, must have the characters of base 32 and encode whole bytes.
fn is_cid(text: &str) -> bool {
    if !(CID_BYTES_MIN..=CID_BYTES_MAX).contains(&text.len()) || text.starts_with("Qm") {
        return false;
    }
    match text.strip_prefix('b') {
        Some(digits) => {
            matches!(digits.len() % 8, 0 | 2 | 4 | 5 | 7)
                // No early exit, so that the compiler can use vector instructions.
                && digits.bytes().fold(true, |good, byte| {
                    good & (byte.is_ascii_lowercase() | (b'2'..=b'7').contains(&byte))
                })
        }
        None => text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'=')),
    }
}
