//! The few fields of a message that decide whether the rest is read.
//!
//! In:    the bytes of one message.
//! Out:   its type, seq, DID, revision, and the paths of its operations.
//! Never: a check of the other fields, which may still be invalid.
//!
//! Most commits are of collections that are not wanted. Canonical order puts
//! `ops`, `rev`, `seq` and `repo` before everything large, so reading them
//! needs a few hundred bytes of a frame of five thousand.

use crate::cbor::Reader;
use crate::tid::Tid;

use super::FrameError;
use super::parse::{Header, header};

/// The type of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Commit,
    Sync,
    Identity,
    Account,
    Info,
    Error,
    Unknown,
}

/// The first fields of a message.
#[derive(Debug, Clone, Copy)]
pub struct Peek<'a> {
    pub kind: Kind,
    pub seq: Option<i64>,
    /// The account; `repo` of a commit, `did` of all others.
    pub did: Option<&'a str>,
    pub rev: Option<Tid>,
    /// The bytes of a commit's operations.
    ops: Option<Reader<'a>>,
}

impl<'a> Peek<'a> {
    /// The paths of a commit's operations; none for other kinds.
    pub fn paths(&self) -> Paths<'a> {
        let mut reader = self.ops.unwrap_or(Reader::new(&[]));
        // The head was read once before, by `skip`.
        let left = reader.list().unwrap_or(0);
        Paths { reader, left }
    }
}

/// Reads the first fields of a message.
pub fn peek(bytes: &[u8]) -> Result<Peek<'_>, FrameError> {
    let mut reader = Reader::new(bytes);
    let kind = match header(&mut reader)? {
        Header::Message("#commit") => Kind::Commit,
        Header::Message("#sync") => Kind::Sync,
        Header::Message("#identity") => Kind::Identity,
        Header::Message("#account") => Kind::Account,
        Header::Message("#info") => Kind::Info,
        Header::Message(_) | Header::Unknown => Kind::Unknown,
        Header::Error => Kind::Error,
    };
    let mut seen = Peek {
        kind,
        seq: None,
        did: None,
        rev: None,
        ops: None,
    };
    match kind {
        Kind::Commit => read_until(&mut reader, &mut seen, "repo", 4)?,
        Kind::Sync => read_until(&mut reader, &mut seen, "did", 3)?,
        Kind::Identity | Kind::Account => read_until(&mut reader, &mut seen, "did", 2)?,
        Kind::Info | Kind::Error | Kind::Unknown => {}
    }
    Ok(seen)
}

/// Reads fields until `wanted` of them have been found.
fn read_until<'a>(
    reader: &mut Reader<'a>,
    seen: &mut Peek<'a>,
    account: &str,
    wanted: usize,
) -> Result<(), FrameError> {
    let mut found = 0;
    let mut fields = reader.map()?;
    while found < wanted
        && let Some(key) = fields.key(reader)?
    {
        found += 1;
        match key {
            "seq" => seen.seq = Some(reader.int()?),
            "rev" => {
                let rev = Tid::parse(reader.text()?);
                seen.rev =
                    Some(rev.map_err(|_| FrameError::Malformed("the revision is not a TID"))?);
            }
            "ops" if seen.kind == Kind::Commit => {
                seen.ops = Some(*reader);
                reader.skip()?;
            }
            key if key == account => seen.did = Some(reader.text()?),
            _ => {
                found -= 1;
                reader.skip()?;
            }
        }
    }
    if found < wanted {
        return Err(FrameError::Malformed(
            "an event without seq, account, rev or ops",
        ));
    }
    Ok(())
}

/// The paths of a commit's operations, read on demand.
#[derive(Debug, Clone)]
pub struct Paths<'a> {
    reader: Reader<'a>,
    left: u64,
}

impl<'a> Paths<'a> {
    fn step(&mut self) -> Result<Option<&'a str>, FrameError> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        let mut path = None;
        let mut fields = self.reader.map()?;
        while let Some(key) = fields.key(&mut self.reader)? {
            match key {
                "path" => path = Some(self.reader.text()?),
                _ => self.reader.skip()?,
            }
        }
        path.map(Some)
            .ok_or(FrameError::Malformed("an operation without path"))
    }
}

impl<'a> Iterator for Paths<'a> {
    type Item = Result<&'a str, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            self.left = 0;
        }
        step.transpose()
    }
}
