//! Record keys: the last part of a record's URI.

use super::class;

/// Bytes in a record key.
const RKEY_BYTES_MAX: usize = 512;

/// The key of a record within its collection.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey(Box<str>);

super::identifier!(RecordKey, "record-key");

impl RecordKey {
    /// Whether `text` is a record key.
    pub fn is_valid(text: &str) -> bool {
        !matches!(text, "" | "." | "..")
            && text.len() <= RKEY_BYTES_MAX
            && class::all(
                text.as_bytes(),
                class::ALPHA | class::DIGIT | class::HYPHEN | class::PUNCTUATION | class::TILDE,
            )
    }
}
