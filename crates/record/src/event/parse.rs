//! From the bytes of one message to a [`Frame`].

use crate::cbor::{CborError, Reader};
use crate::cid::Cid;
use crate::tid::Tid;

use super::{
    AccountEvent, Action, CommitEvent, Frame, FrameError, FrameLimits, IdentityEvent, InfoEvent,
    RepoOp, SyncEvent,
};

/// Operations allocated before any has been read; most commits have one.
const PREALLOCATED_MAX: u64 = 4;

/// The first of a message's two objects.
pub(super) enum Header<'a> {
    /// `{op: 1, t: …}`
    Message(&'a str),
    /// `{op: -1}`
    Error,
    /// Another `op`, which is skipped.
    Unknown,
}

/// Reads the header; the payload comes next.
pub(super) fn header<'a>(reader: &mut Reader<'a>) -> Result<Header<'a>, FrameError> {
    let (mut op, mut kind) = (None, None);
    let mut fields = reader.map()?;
    while let Some(key) = fields.key(reader)? {
        match key {
            "t" => kind = Some(reader.text()?),
            "op" => op = Some(reader.int()?),
            _ => reader.skip()?,
        }
    }
    match (op, kind) {
        (Some(1), Some(kind)) => Ok(Header::Message(kind)),
        (Some(1), None) => Err(FrameError::Malformed("a message without its type")),
        (Some(-1), _) => Ok(Header::Error),
        (Some(_), _) => Ok(Header::Unknown),
        (None, _) => Err(FrameError::Malformed("a header without op")),
    }
}

pub(super) fn frame<'a>(bytes: &'a [u8], limits: &FrameLimits) -> Result<Frame<'a>, FrameError> {
    if bytes.len() > limits.frame_bytes_max {
        return Err(FrameError::TooBig("frame_bytes_max"));
    }
    let mut reader = Reader::new(bytes);
    let frame = match header(&mut reader)? {
        Header::Error => error(&mut reader)?,
        Header::Unknown => unknown(&mut reader, "")?,
        Header::Message("#commit") => Frame::Commit(commit(&mut reader, limits)?),
        Header::Message("#sync") => Frame::Sync(sync(&mut reader, limits)?),
        Header::Message("#identity") => Frame::Identity(identity(&mut reader)?),
        Header::Message("#account") => Frame::Account(account(&mut reader)?),
        Header::Message("#info") => Frame::Info(info(&mut reader)?),
        Header::Message(kind) => unknown(&mut reader, kind)?,
    };
    if !reader.rest().is_empty() {
        return Err(FrameError::Malformed("bytes after the payload"));
    }
    Ok(frame)
}

fn unknown<'a>(reader: &mut Reader<'a>, kind: &'a str) -> Result<Frame<'a>, FrameError> {
    reader.skip()?;
    Ok(Frame::Unknown { kind })
}

/// Reads a map and calls `take` for each field, which returns whether it read
/// the value; unknown fields are skipped, since the protocol may grow.
fn each_field<'a>(
    reader: &mut Reader<'a>,
    mut take: impl FnMut(&'a str, &mut Reader<'a>) -> Result<bool, FrameError>,
) -> Result<(), FrameError> {
    let mut fields = reader.map()?;
    while let Some(key) = fields.key(reader)? {
        if !take(key, reader)? {
            reader.skip()?;
        }
    }
    Ok(())
}

fn need<T>(field: Option<T>, name: &'static str) -> Result<T, FrameError> {
    field.ok_or(FrameError::Malformed(name))
}

fn text_or_null<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a str>, CborError> {
    if reader.null() {
        return Ok(None);
    }
    reader.text().map(Some)
}

fn tid(reader: &mut Reader<'_>) -> Result<Tid, FrameError> {
    Tid::parse(reader.text()?).map_err(|_| FrameError::Malformed("the revision is not a TID"))
}

fn tid_or_null(reader: &mut Reader<'_>) -> Result<Option<Tid>, FrameError> {
    if reader.null() {
        return Ok(None);
    }
    tid(reader).map(Some)
}

fn archive<'a>(
    reader: &mut Reader<'a>,
    bytes_max: usize,
    name: &'static str,
) -> Result<&'a [u8], FrameError> {
    let bytes = reader.bytes()?;
    if bytes.len() > bytes_max {
        return Err(FrameError::TooBig(name));
    }
    Ok(bytes)
}

fn commit<'a>(
    reader: &mut Reader<'a>,
    limits: &FrameLimits,
) -> Result<CommitEvent<'a>, FrameError> {
    let (mut seq, mut repo, mut commit, mut rev) = (None, None, None, None);
    let (mut since, mut blocks, mut operations, mut time) = (None, None, None, None);
    let (mut prev_data, mut too_big, mut rebase) = (None, false, false);
    each_field(reader, |key, reader| {
        match key {
            "ops" => operations = Some(ops(reader, limits)?),
            "rev" => rev = Some(tid(reader)?),
            "seq" => seq = Some(reader.int()?),
            "repo" => repo = Some(reader.text()?),
            "time" => time = Some(reader.text()?),
            "since" => since = tid_or_null(reader)?,
            "blocks" => {
                blocks = Some(archive(
                    reader,
                    limits.blocks_bytes_max,
                    "blocks_bytes_max",
                )?);
            }
            "commit" => commit = Some(reader.link()?),
            "rebase" => rebase = reader.bool()?,
            "tooBig" => too_big = reader.bool()?,
            "prevData" => prev_data = reader.link_or_null()?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(CommitEvent {
        seq: need(seq, "a commit without seq")?,
        repo: need(repo, "a commit without repo")?,
        commit: need(commit, "a commit without its cid")?,
        rev: need(rev, "a commit without rev")?,
        since,
        blocks: need(blocks, "a commit without blocks")?,
        ops: need(operations, "a commit without ops")?,
        prev_data,
        time: need(time, "a commit without time")?,
        too_big,
        rebase,
    })
}

fn ops<'a>(reader: &mut Reader<'a>, limits: &FrameLimits) -> Result<Vec<RepoOp<'a>>, FrameError> {
    let count = reader.list()?;
    if count > limits.ops_max as u64 {
        return Err(FrameError::TooBig("ops_max"));
    }
    let mut ops = Vec::with_capacity(count.min(PREALLOCATED_MAX) as usize);
    for _ in 0..count {
        ops.push(op(reader)?);
    }
    Ok(ops)
}

fn op<'a>(reader: &mut Reader<'a>) -> Result<RepoOp<'a>, FrameError> {
    let (mut action, mut path) = (None, None);
    let (mut cid, mut prev): (Option<Cid>, Option<Cid>) = (None, None);
    each_field(reader, |key, reader| {
        match key {
            "cid" => cid = reader.link_or_null()?,
            "path" => path = Some(reader.text()?),
            "prev" => prev = reader.link_or_null()?,
            "action" => action = Some(reader.text()?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let action = match (need(action, "an operation without action")?, cid) {
        ("create", Some(_)) => Action::Create,
        ("update", Some(_)) => Action::Update,
        ("delete", None) => Action::Delete,
        _ => return Err(FrameError::Malformed("an action that does not fit its cid")),
    };
    if action == Action::Create && prev.is_some() {
        return Err(FrameError::Malformed("a create with a previous record"));
    }
    Ok(RepoOp {
        action,
        path: need(path, "an operation without path")?,
        cid,
        prev,
    })
}

fn sync<'a>(reader: &mut Reader<'a>, limits: &FrameLimits) -> Result<SyncEvent<'a>, FrameError> {
    let (mut seq, mut did, mut rev, mut blocks, mut time) = (None, None, None, None, None);
    each_field(reader, |key, reader| {
        match key {
            "did" => did = Some(reader.text()?),
            "rev" => rev = Some(tid(reader)?),
            "seq" => seq = Some(reader.int()?),
            "time" => time = Some(reader.text()?),
            "blocks" => {
                let bytes_max = limits.sync_blocks_bytes_max;
                blocks = Some(archive(reader, bytes_max, "sync_blocks_bytes_max")?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(SyncEvent {
        seq: need(seq, "a sync without seq")?,
        did: need(did, "a sync without did")?,
        rev: need(rev, "a sync without rev")?,
        blocks: need(blocks, "a sync without blocks")?,
        time: need(time, "a sync without time")?,
    })
}

fn identity<'a>(reader: &mut Reader<'a>) -> Result<IdentityEvent<'a>, FrameError> {
    let (mut seq, mut did, mut handle, mut time) = (None, None, None, None);
    each_field(reader, |key, reader| {
        match key {
            "did" => did = Some(reader.text()?),
            "seq" => seq = Some(reader.int()?),
            "time" => time = Some(reader.text()?),
            "handle" => handle = text_or_null(reader)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(IdentityEvent {
        seq: need(seq, "an identity without seq")?,
        did: need(did, "an identity without did")?,
        handle,
        time: need(time, "an identity without time")?,
    })
}

fn account<'a>(reader: &mut Reader<'a>) -> Result<AccountEvent<'a>, FrameError> {
    let (mut seq, mut did, mut active, mut status, mut time) = (None, None, None, None, None);
    each_field(reader, |key, reader| {
        match key {
            "did" => did = Some(reader.text()?),
            "seq" => seq = Some(reader.int()?),
            "time" => time = Some(reader.text()?),
            "active" => active = Some(reader.bool()?),
            "status" => status = text_or_null(reader)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(AccountEvent {
        seq: need(seq, "an account without seq")?,
        did: need(did, "an account without did")?,
        active: need(active, "an account without active")?,
        status,
        time: need(time, "an account without time")?,
    })
}

fn info<'a>(reader: &mut Reader<'a>) -> Result<InfoEvent<'a>, FrameError> {
    let (mut name, mut message) = (None, None);
    each_field(reader, |key, reader| {
        match key {
            "name" => name = Some(reader.text()?),
            "message" => message = text_or_null(reader)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(InfoEvent {
        name: need(name, "an info without name")?,
        message,
    })
}

fn error<'a>(reader: &mut Reader<'a>) -> Result<Frame<'a>, FrameError> {
    let (mut error, mut message) = (None, None);
    each_field(reader, |key, reader| {
        match key {
            "error" => error = Some(reader.text()?),
            "message" => message = text_or_null(reader)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(Frame::Error {
        error: need(error, "an error without its name")?,
        message,
    })
}
