//! Decentralised identifiers, such as `did:plc:7iza6de2dwap2sbkpav7c6c6`.
//!
//! Only the syntax is checked, for any method; the resolver decides which methods
//! it supports.

use super::class;

/// Bytes in a DID.
const DID_BYTES_MAX: usize = 2048;

/// An account of the network, or any other DID.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Did(Box<str>);

super::identifier!(Did, "did");

impl Did {
    /// Whether `text` is a DID.
    pub fn is_valid(text: &str) -> bool {
        let Some((method, id)) = text
            .strip_prefix("did:")
            .and_then(|rest| rest.split_once(':'))
        else {
            return false;
        };
        text.len() <= DID_BYTES_MAX
            && !method.is_empty()
            && class::all(method.as_bytes(), class::LOWER)
            && class::all(
                id.as_bytes(),
                class::ALPHA | class::DIGIT | class::HYPHEN | class::PUNCTUATION | class::PERCENT,
            )
            && id
                .as_bytes()
                .last()
                .is_some_and(|byte| !matches!(byte, b':' | b'%'))
    }
}
