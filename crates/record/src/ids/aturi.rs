//! AT URIs: `at://authority`, `at://authority/collection` or
//! `at://authority/collection/rkey`.
//!
//! The strict form of the lexicon's `at-uri` format: no query, no fragment,
//! no trailing slash. Its length needs no limit of its own: the limits of its
//! parts add up to less than the 8 KiB that the network allows.

use super::{Did, Nsid, RecordKey, SyntaxError, is_at_identifier};

/// A checked AT URI.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AtUri(Box<str>);

super::identifier!(AtUri, "at-uri");

/// The parts of an AT URI, borrowed from its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UriParts<'a> {
    /// The authority: a DID or a handle.
    pub authority: &'a str,
    /// The NSID, if the URI has one.
    pub collection: Option<&'a str>,
    /// The record key, if the URI has one; then it has a collection too.
    pub rkey: Option<&'a str>,
}

impl<'a> UriParts<'a> {
    /// Splits and checks `text` without copying it.
    pub fn parse(text: &'a str) -> Result<Self, SyntaxError> {
        let parts = Self::split(text).ok_or(SyntaxError("at-uri"))?;
        let good = is_at_identifier(parts.authority)
            && parts.collection.is_none_or(Nsid::is_valid)
            && parts.rkey.is_none_or(RecordKey::is_valid);
        if good {
            Ok(parts)
        } else {
            Err(SyntaxError("at-uri"))
        }
    }

    /// A third slash becomes part of the record key, whose check refuses it.
    fn split(text: &'a str) -> Option<Self> {
        let rest = text.strip_prefix("at://")?;
        let Some((authority, path)) = rest.split_once('/') else {
            return Some(Self {
                authority: rest,
                collection: None,
                rkey: None,
            });
        };
        let (collection, rkey) = match path.split_once('/') {
            Some((collection, rkey)) => (collection, Some(rkey)),
            None => (path, None),
        };
        Some(Self {
            authority,
            collection: Some(collection),
            rkey,
        })
    }
}

impl AtUri {
    /// Whether `text` is an AT URI.
    pub fn is_valid(text: &str) -> bool {
        UriParts::parse(text).is_ok()
    }

    /// The URI of one record. Its parts are checked already.
    pub fn of_record(did: &Did, collection: &Nsid, rkey: &RecordKey) -> Self {
        Self(format!("at://{did}/{collection}/{rkey}").into())
    }

    /// All parts at once.
    pub fn parts(&self) -> UriParts<'_> {
        UriParts::split(&self.0).expect("the URI was checked when it was made")
    }

    /// The DID or handle.
    pub fn authority(&self) -> &str {
        self.parts().authority
    }

    /// The collection, if the URI names one.
    pub fn collection(&self) -> Option<&str> {
        self.parts().collection
    }

    /// The record key, if the URI names a record.
    pub fn rkey(&self) -> Option<&str> {
        self.parts().rkey
    }
}
