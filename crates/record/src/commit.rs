//! The signed commit: an account's statement of its repo's current state.
//!
//! In:    a commit block; or the fields of one and a key to sign it.
//! Out:   a [`Commit`], its block, and whether a key signed it.
//! Never: another version than 3; a missing or an unknown field; a
//!        signature that is not 64 bytes.
//!
//! The signature covers the block without the field `sig`. Strict CBOR has one
//! encoding, so encoding the other five fields again gives the signed bytes.

use std::borrow::Cow;

use crate::cbor::{CborError, Reader, Writer};
use crate::cid::Cid;
use crate::key::{KeyError, PublicKey, SigningKey};
use crate::tid::Tid;

const VERSION: i64 = 3;

/// A signed commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit<'a> {
    /// The account of the repo. The syntax of the DID is not checked here.
    pub did: Cow<'a, str>,
    /// The revision, which increases with every commit.
    pub rev: Tid,
    /// Root of the tree of records.
    pub data: Cid,
    /// The previous commit; hosts no longer set it.
    pub prev: Option<Cid>,
    /// The signature of the other fields.
    pub sig: [u8; 64],
}

/// Why a block is not a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// Not strict CBOR, or a field of another type.
    #[error("commit block")]
    Block(#[from] CborError),

    /// CBOR, but not a commit of version 3.
    #[error("not a commit of version 3: {0}")]
    Malformed(&'static str),
}

impl<'a> Commit<'a> {
    /// Signs a commit.
    pub fn sign(did: impl Into<Cow<'a, str>>, rev: Tid, data: Cid, key: &SigningKey) -> Self {
        let mut commit = Self {
            did: did.into(),
            rev,
            data,
            prev: None,
            sig: [0; 64],
        };
        commit.sig = key.sign(&commit.write(false));
        commit
    }

    /// The commit's block.
    pub fn to_block(&self) -> Vec<u8> {
        self.write(true)
    }

    fn write(&self, signed: bool) -> Vec<u8> {
        let mut writer = Writer::with_capacity(256);
        writer.map(if signed { 6 } else { 5 });
        writer.text("did").text(&self.did);
        let rev = self.rev.to_text();
        writer
            .text("rev")
            .text(std::str::from_utf8(&rev).expect("a tid is ASCII"));
        if signed {
            writer.text("sig").bytes(&self.sig);
        }
        writer.text("data").link(&self.data);
        writer.text("prev").link_or_null(self.prev.as_ref());
        writer.text("version").int(VERSION);
        writer.into_bytes()
    }

    /// Reads a commit block.
    pub fn parse(block: &'a [u8]) -> Result<Self, CommitError> {
        let mut reader = Reader::new(block);
        let (mut did, mut rev, mut sig) = (None, None, None);
        let (mut data, mut prev, mut version) = (None, None, None);
        let mut fields = reader.map()?;
        while let Some(key) = fields.key(&mut reader)? {
            match key {
                "did" => did = Some(reader.text()?),
                "rev" => rev = Some(reader.text()?),
                "sig" => sig = Some(reader.bytes()?),
                "data" => data = Some(reader.link()?),
                "prev" => prev = Some(reader.link_or_null()?),
                "version" => version = Some(reader.int()?),
                _ => return Err(CommitError::Malformed("an unknown field")),
            }
        }
        if !reader.rest().is_empty() {
            return Err(CommitError::Malformed("bytes after the commit"));
        }
        if version != Some(VERSION) {
            return Err(CommitError::Malformed("another version"));
        }
        let missing = CommitError::Malformed("a field is missing");
        let rev = Tid::parse(rev.ok_or(missing)?)
            .map_err(|_| CommitError::Malformed("rev is not a tid"))?;
        let sig = <[u8; 64]>::try_from(sig.ok_or(missing)?)
            .map_err(|_| CommitError::Malformed("a signature that is not 64 bytes"))?;
        Ok(Self {
            did: Cow::Borrowed(did.ok_or(missing)?),
            rev,
            data: data.ok_or(missing)?,
            prev: prev.ok_or(missing)?,
            sig,
        })
    }

    /// Whether `key` signed this commit.
    pub fn verify(&self, key: &PublicKey) -> Result<(), KeyError> {
        key.verify(&self.write(false), &self.sig)
    }

    /// The same commit, owning what it borrowed.
    pub fn into_owned(self) -> Commit<'static> {
        Commit {
            did: Cow::Owned(self.did.into_owned()),
            ..self
        }
    }
}
