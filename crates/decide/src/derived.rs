//! What follows from one record alone: the keys it is published under, whom it
//! follows, what it is merged with, what it is sorted by.
//!
//! In:    what the checks worked out, in names ([`Derived`]).
//! Out:   the same in numbers ([`Placed`]), kept with the record, so that its rows can be
//!        removed without knowing the configuration under which they were made.
//! Never: anything that depends on another record.

use serde::{Deserialize, Serialize};

use crate::ids::{FollowId, IndexId, KeyId, SortId};

/// What a field gives a record to be sorted by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SortKey {
    /// The record has no such field; it comes last.
    Missing,
    Number(i64),
    Text(String),
}

/// What one record derives, in names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Derived {
    /// Feed indexes it is in, with its keys there.
    pub entries: Vec<(IndexId, Vec<String>)>,
    /// The person who wrote it, where that is not its account.
    pub person: Option<String>,
    /// Keys it follows.
    pub follows: Vec<(FollowId, String)>,
    /// Groups it is part of, one for each merged index.
    pub parts: Vec<Part>,
    /// Where it is in sort indexes.
    pub sorts: Vec<(SortId, SortKey)>,
}

/// What a record brings to a group of a merged index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub index: IndexId,
    /// Who wrote it.
    pub author: String,
    /// What it is about; `None`: itself.
    pub thing: Option<String>,
    pub keys: Vec<String>,
    /// What it adds to the group.
    pub adds: Vec<String>,
}

/// What one record derived, in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Placed {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<(IndexId, Vec<KeyId>)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub person: Option<KeyId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub follows: Vec<(FollowId, KeyId)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PlacedPart>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sorts: Vec<(SortId, SortKey)>,
}

/// A [`Part`] in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedPart {
    pub index: IndexId,
    pub author: KeyId,
    pub thing: Option<String>,
    pub keys: Vec<KeyId>,
    pub adds: Vec<String>,
}

impl Placed {
    /// The column in which it is kept; nothing for the many records that derive nothing.
    pub fn to_column(&self) -> Option<String> {
        if *self == Self::default() {
            return None;
        }
        Some(serde_json::to_string(self).expect("plain data is always JSON"))
    }

    /// What a column holds; a text that is not ours is the engine's damage.
    pub fn from_column(text: Option<&str>) -> Result<Self, serde_json::Error> {
        text.map_or_else(|| Ok(Self::default()), serde_json::from_str)
    }
}

/// Key numbers as bytes, eight each.
pub fn pack(keys: &[KeyId]) -> Vec<u8> {
    keys.iter().flat_map(|key| key.0.to_le_bytes()).collect()
}

/// The key numbers in packed bytes; `None` if that is not what the bytes are.
pub fn unpack(bytes: &[u8]) -> Option<Vec<KeyId>> {
    let (keys, rest) = bytes.as_chunks();
    let keys = keys.iter().map(|chunk| KeyId(i64::from_le_bytes(*chunk)));
    rest.is_empty().then(|| keys.collect())
}
