//! Events of `com.atproto.sync.subscribeRepos`, one per WebSocket message.
//!
//! In:    the bytes of one message.
//! Out:   a [`Frame`] that borrows them; or, for the filter, a [`Peek`] with the
//!        few fields that decide whether to read the rest.
//! Never: an unknown type of event treated as an error, since the protocol may
//!        grow; a list or byte string beyond its limit.
//!
//! Not checked here: the syntax of DIDs, handles, paths and times, and the
//! hashes of blocks. Other modules check those, and an event must be readable
//! before its faults can be reported.

use crate::cbor::CborError;
use crate::cid::Cid;
use crate::tid::Tid;

mod encode;
mod parse;
mod peek;

pub use peek::{Kind, Paths, Peek, peek};

/// Bytes of one message.
pub const FRAME_BYTES_MAX: usize = 5_000_000;
/// Bytes of a commit's archive.
pub const BLOCKS_BYTES_MAX: usize = 2_000_000;
/// Bytes of one record block.
pub const RECORD_BYTES_MAX: usize = 1_000_000;
/// Operations of one commit.
pub const OPS_MAX: usize = 200;
/// Bytes of a `#sync` event's archive.
pub const SYNC_BLOCKS_BYTES_MAX: usize = 10_000;

/// The limits of one message. The defaults are the protocol's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLimits {
    pub frame_bytes_max: usize,
    pub blocks_bytes_max: usize,
    pub ops_max: usize,
    pub sync_blocks_bytes_max: usize,
}

impl Default for FrameLimits {
    fn default() -> Self {
        Self {
            frame_bytes_max: FRAME_BYTES_MAX,
            blocks_bytes_max: BLOCKS_BYTES_MAX,
            ops_max: OPS_MAX,
            sync_blocks_bytes_max: SYNC_BLOCKS_BYTES_MAX,
        }
    }
}

/// Why a message cannot be read as an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not strict CBOR, or a field of another type.
    #[error("event frame")]
    Cbor(#[from] CborError),

    /// CBOR, but not the event it claims to be.
    #[error("not an event: {0}")]
    Malformed(&'static str),

    /// Beyond a limit, which is named.
    #[error("event over its limit: {0}")]
    TooBig(&'static str),
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame<'a> {
    Commit(CommitEvent<'a>),
    Sync(SyncEvent<'a>),
    Identity(IdentityEvent<'a>),
    Account(AccountEvent<'a>),
    Info(InfoEvent<'a>),
    /// The stream ends after this frame.
    Error {
        error: &'a str,
        message: Option<&'a str>,
    },
    /// A type unknown to this version: skip it.
    Unknown {
        kind: &'a str,
    },
}

/// How a commit changed a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Create,
    Update,
    Delete,
}

/// One operation of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepoOp<'a> {
    pub action: Action,
    /// `collection/rkey`.
    pub path: &'a str,
    /// The CID of the record; `None` for a delete.
    pub cid: Option<Cid>,
    /// The previous CID; `None` for a create, and from hosts before Sync 1.1.
    pub prev: Option<Cid>,
}

/// `#commit`: a repo has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitEvent<'a> {
    pub seq: i64,
    /// The DID of the repo.
    pub repo: &'a str,
    /// The CID of the commit, the first root of the archive.
    pub commit: Cid,
    pub rev: Tid,
    /// The previous revision.
    pub since: Option<Tid>,
    /// A CAR of the commit, the records and the proof.
    pub blocks: &'a [u8],
    pub ops: Vec<RepoOp<'a>>,
    /// The previous root of the tree; `None` for the first commit of a repo.
    pub prev_data: Option<Cid>,
    pub time: &'a str,
    /// Required by the protocol, without meaning since Sync 1.1.
    pub too_big: bool,
    pub rebase: bool,
}

/// `#sync`: the current state of a repo, whatever was sent before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncEvent<'a> {
    pub seq: i64,
    pub did: &'a str,
    pub rev: Tid,
    /// A CAR of the commit block alone.
    pub blocks: &'a [u8],
    pub time: &'a str,
}

/// `#identity`: the account's DID document may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityEvent<'a> {
    pub seq: i64,
    pub did: &'a str,
    pub handle: Option<&'a str>,
    pub time: &'a str,
}

/// `#account`: the account's status at the sending host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountEvent<'a> {
    pub seq: i64,
    pub did: &'a str,
    pub active: bool,
    pub status: Option<&'a str>,
    pub time: &'a str,
}

/// `#info`: a notice from the host, such as `OutdatedCursor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InfoEvent<'a> {
    pub name: &'a str,
    pub message: Option<&'a str>,
}

impl<'a> Frame<'a> {
    /// Reads one message with the protocol's limits.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FrameError> {
        parse::frame(bytes, &FrameLimits::default())
    }

    /// Reads one message with limits of the caller.
    pub fn parse_with(bytes: &'a [u8], limits: &FrameLimits) -> Result<Self, FrameError> {
        parse::frame(bytes, limits)
    }

    /// The message of this event, as a host sends it.
    pub fn to_bytes(&self) -> Vec<u8> {
        encode::frame(self)
    }

    /// The event's sequence number; info and error frames have none.
    pub fn seq(&self) -> Option<i64> {
        match self {
            Frame::Commit(event) => Some(event.seq),
            Frame::Sync(event) => Some(event.seq),
            Frame::Identity(event) => Some(event.seq),
            Frame::Account(event) => Some(event.seq),
            Frame::Info(_) | Frame::Error { .. } | Frame::Unknown { .. } => None,
        }
    }

    /// The account it is about.
    pub fn did(&self) -> Option<&'a str> {
        match self {
            Frame::Commit(event) => Some(event.repo),
            Frame::Sync(event) => Some(event.did),
            Frame::Identity(event) => Some(event.did),
            Frame::Account(event) => Some(event.did),
            Frame::Info(_) | Frame::Error { .. } | Frame::Unknown { .. } => None,
        }
    }
}
