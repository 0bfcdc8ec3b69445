//! Content identifiers, in the only form AT Protocol allows: 36 bytes.
//!
//! In:    content to hash, or a CID as bytes or text.
//! Out:   a [`Cid`]: version 1, codec dag-cbor (0x71) or raw (0x55), SHA-256.
//! Never: another version, codec or hash; a CID that was not checked.

use std::fmt;
use std::sync::LazyLock;

use data_encoding::{Encoding, Specification};
use sha2::{Digest, Sha256};

/// Base 32 of RFC 4648 in lower case, without padding. Refuses other letters,
/// and spare bits at the end that are not zero.
static BASE32: LazyLock<Encoding> = LazyLock::new(|| {
    let mut base32 = Specification::new();
    base32.symbols.push_str("abcdefghijklmnopqrstuvwxyz234567");
    base32.encoding().expect("32 different letters")
});

/// A CIDv1 over SHA-256, stored as its 36 binary bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cid([u8; 36]);

/// Why something is not a CID of this network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a CIDv1 of dag-cbor or raw with SHA-256")]
pub struct CidError;

impl Cid {
    /// The CID of a DAG-CBOR block.
    pub fn of_cbor(bytes: &[u8]) -> Self {
        Self::of(0x71, bytes)
    }

    /// The CID of raw bytes, such as a blob.
    pub fn of_raw(bytes: &[u8]) -> Self {
        Self::of(0x55, bytes)
    }

    fn of(codec: u8, bytes: &[u8]) -> Self {
        let mut cid = [0u8; 36];
        let (head, tail) = cid.split_at_mut(4);
        head.copy_from_slice(&[1, codec, 0x12, 0x20]);
        tail.copy_from_slice(&Sha256::digest(bytes));
        Self(cid)
    }

    /// Reads the binary form; the slice must be exactly the CID.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CidError> {
        let cid: [u8; 36] = bytes.try_into().map_err(|_| CidError)?;
        match cid {
            [1, 0x71 | 0x55, 0x12, 0x20, ..] => Ok(Self(cid)),
            _ => Err(CidError),
        }
    }

    /// Reads the text form: `b` and base32 in lower case without padding.
    pub fn parse(text: &str) -> Result<Self, CidError> {
        let digits = text.strip_prefix('b').ok_or(CidError)?;
        if digits.len() != 58 {
            return Err(CidError);
        }
        let mut bytes = [0; 36];
        BASE32
            .decode_mut(digits.as_bytes(), &mut bytes)
            .map_err(|_| CidError)?;
        Self::from_bytes(&bytes)
    }

    /// The text form as ASCII bytes: `b` and 58 digits of base32.
    pub fn to_text(&self) -> [u8; 59] {
        let mut text = [b'b'; 59];
        if let Some((_, digits)) = text.split_first_mut() {
            BASE32.encode_mut(&self.0, digits);
        }
        text
    }

    /// The binary form.
    pub fn as_bytes(&self) -> &[u8; 36] {
        &self.0
    }

    /// True for a DAG-CBOR block, false for raw bytes.
    pub fn is_cbor(&self) -> bool {
        self.0.get(1) == Some(&0x71)
    }

    /// Whether `bytes` hash to this CID.
    pub fn names(&self, bytes: &[u8]) -> bool {
        self.0.get(4..) == Some(Sha256::digest(bytes).as_slice())
    }
}

impl fmt::Display for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.to_text();
        f.write_str(std::str::from_utf8(&text).expect("base32 is ASCII"))
    }
}

impl fmt::Debug for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
