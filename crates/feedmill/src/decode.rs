//! Decoding: from a frame's bytes to checked work.
//!
//! In:    one message of a firehose.
//! Out:   an [`Item`] for the store, or a word for the source.
//! Never: a panic, whatever the bytes; a commit believed whose blocks do not
//!        hash to their names; a collection decoded that nobody wants.

// Messages of Jetstream.
pub mod jetstream;
// Blocks of a peer's log.
pub mod log;
// The number of a message that cannot be read whole.
mod number;
// Messages of Tap.
pub mod tap;
// Signatures, and whether a commit follows from the one before.
mod proof;

use std::sync::Arc;

use bytes::Bytes;
use record::car::{Car, CarError, CarLimits};
use record::cid::Cid;
use record::commit::Commit as RepoCommit;
use record::datetime;
use record::event::{
    AccountEvent, Action, CommitEvent, Frame, FrameLimits, IdentityEvent, SyncEvent,
};
use record::key::PublicKey;

use number::Found;

use crate::check::{Checker, Claim, bytes_for_inspection, chain};
use crate::clock::Micros;
use crate::config::{Intake, Verify};
use crate::store::AccountStatus;
use crate::store::batch::{Chain, Commit, DeadLetter, Item, Op, Verdict};

/// Opens frames.
#[derive(Debug, Clone)]
pub struct Decoder {
    checker: Arc<Checker>,
    limits: FrameLimits,
    verify: Verify,
}

/// Opens the messages of one kind of stream.
#[derive(Debug, Clone)]
pub enum Opener {
    Firehose(Decoder),
    Jetstream(jetstream::JetstreamDecoder),
    Log(log::LogDecoder),
    Tap(tap::TapDecoder),
}

impl Opener {
    /// Opens one message that came over the connection opened at `line_us`.
    pub fn open(&mut self, message: &Bytes, line_us: Micros) -> Opened {
        match self {
            Self::Firehose(decoder) => decoder.open(message),
            Self::Jetstream(decoder) => decoder.open(message),
            Self::Log(decoder) => decoder.open(message),
            Self::Tap(decoder) => decoder.open(message, line_us),
        }
    }
}

impl Opener {
    /// A message that ended the process again and again: kept, and not opened.
    pub fn accused(&self, message: &[u8], ends: u64) -> Opened {
        let peek = record::event::peek(message).ok();
        let did = peek.and_then(|peek| peek.did).unwrap_or_default();
        let letter = DeadLetter {
            did: did.to_owned(),
            stage: "crash".into(),
            message: format!(
                "the process ended {ends} times while this message alone was worked on; it was not opened again"
            ),
            raw: bytes_for_inspection(message),
            ..DeadLetter::default()
        };
        match self {
            Self::Firehose(_) => unopened(peek.and_then(|peek| peek.seq), letter),
            Self::Jetstream(_) => unopened(Found::of(message).place(), letter),
            Self::Tap(_) => tap::unopened(Found::of(message).id, letter),
            Self::Log(_) => Opened::Unopened(letter),
        }
    }
}

/// A message that is not opened, at its place in the stream if that is known.
fn unopened(seq: Option<i64>, letter: DeadLetter) -> Opened {
    match seq {
        Some(seq) => Opened::Item {
            seq,
            item: Item::Unopened(letter),
            time_us: None,
        },
        None => Opened::Unopened(letter),
    }
}

/// What a frame turned out to be.
#[derive(Debug)]
pub enum Opened {
    /// Work, at its place in the stream.
    Item {
        seq: i64,
        item: Item,
        time_us: Option<Micros>,
    },
    /// Work of one message, which is acknowledged by its number.
    Items { seq: i64, items: Vec<Item> },
    /// A frame that cannot be opened; the stream's place is unknown.
    Unopened(DeadLetter),
    /// A word from the server: `OutdatedCursor` and the like.
    Info { name: String, message: String },
    /// The server ends the stream: `FutureCursor`, `ConsumerTooSlow`.
    Ended { error: String, message: String },
    /// An event kind that is new to us.
    Unknown { kind: String },
}

/// Why a commit is not believed.
#[derive(Debug, thiserror::Error)]
enum Doubt {
    #[error("blocks")]
    Blocks(#[from] CarError),
    #[error("commit block")]
    Commit(#[from] record::commit::CommitError),
    #[error("inductive proof")]
    Proof(#[from] record::mst::MstError),
    #[error("{0}")]
    Contradiction(&'static str),
}

impl Decoder {
    /// A decoder with the limits of a configuration.
    pub fn new(checker: Arc<Checker>, intake: &Intake) -> Self {
        Self {
            checker,
            limits: FrameLimits {
                frame_bytes_max: intake.frame_bytes_max,
                ..FrameLimits::default()
            },
            verify: intake.verify,
        }
    }

    /// The checks behind it.
    pub fn checker(&self) -> &Arc<Checker> {
        &self.checker
    }

    /// Opens one frame.
    pub fn open(&self, frame: &Bytes) -> Opened {
        let parsed = match Frame::parse_with(frame, &self.limits) {
            Ok(parsed) => parsed,
            Err(error) => return self.unreadable(frame, &error),
        };
        let item = |seq, time: &str, item| Opened::Item {
            seq,
            item,
            time_us: datetime::parse_us(time),
        };
        match parsed {
            Frame::Commit(event) => item(event.seq, event.time, self.commit(&event, frame)),
            Frame::Sync(event) => item(event.seq, event.time, sync(&event)),
            Frame::Identity(event) => item(event.seq, event.time, identity(&event)),
            Frame::Account(event) => item(event.seq, event.time, account(&event)),
            Frame::Info(info) => Opened::Info {
                name: info.name.to_owned(),
                message: info.message.unwrap_or_default().to_owned(),
            },
            Frame::Error { error, message } => Opened::Ended {
                error: error.to_owned(),
                message: message.unwrap_or_default().to_owned(),
            },
            Frame::Unknown { kind } => Opened::Unknown {
                kind: kind.to_owned(),
            },
        }
    }

    /// A frame that cannot be read; a peek may still tell whose it was.
    fn unreadable(&self, frame: &[u8], error: &record::event::FrameError) -> Opened {
        let peek = record::event::peek(frame).ok();
        let seq = peek.as_ref().and_then(|peek| peek.seq);
        let letter = DeadLetter {
            did: peek
                .and_then(|peek| peek.did)
                .unwrap_or_default()
                .to_owned(),
            stage: "frame".into(),
            message: chain(error),
            raw: bytes_for_inspection(frame),
            ..DeadLetter::default()
        };
        unopened(seq, letter)
    }

    fn commit(&self, event: &CommitEvent<'_>, frame: &Bytes) -> Item {
        if event.too_big && event.ops.is_empty() {
            return Item::Sync {
                did: event.repo.to_owned(),
                rev: event.rev.bits(),
                data: None,
            };
        }
        let wanted = event.ops.iter().filter(|op| self.wants(op.path)).count();
        let mut commit = Commit {
            did: event.repo.to_owned(),
            rev: event.rev.bits(),
            seq: event.seq,
            chain: Some(Chain {
                since: event.since.map(record::tid::Tid::bits),
                prev_data: event.prev_data,
                data: None,
            }),
            filtered: (event.ops.len() - wanted) as u64,
            ops: Vec::with_capacity(wanted),
            frame: Bytes::new(),
            was_held: false,
            live: true,
        };
        if wanted == 0 && self.verify != Verify::Full {
            return Item::Commit(commit);
        }
        if wanted > 0 {
            commit.frame = frame.clone();
        }
        match self.believe(event, &mut commit) {
            Ok(()) => Item::Commit(commit),
            Err(doubt) => Item::Unopened(DeadLetter {
                did: event.repo.to_owned(),
                rev: event.rev.bits(),
                stage: "verify".into(),
                message: chain(&doubt),
                raw: bytes_for_inspection(frame),
                ..DeadLetter::default()
            }),
        }
    }

    fn wants(&self, path: &str) -> bool {
        path.split_once('/')
            .is_some_and(|(nsid, _)| self.checker.wants(nsid))
    }

    /// Reads the blocks and the wanted records, believing as little as configured.
    fn believe(&self, event: &CommitEvent<'_>, commit: &mut Commit) -> Result<(), Doubt> {
        let car = Car::read(event.blocks, CarLimits::COMMIT, self.verify != Verify::Off)?;
        if car.root() != Some(event.commit) {
            return Err(Doubt::Contradiction("the archive's root is not the commit"));
        }
        let block = car
            .get(&event.commit)
            .ok_or(Doubt::Contradiction("the commit block is missing"))?;
        let signed = RepoCommit::parse(block)?;
        if signed.did != event.repo || signed.rev != event.rev {
            return Err(Doubt::Contradiction(
                "the signed commit is not the one announced",
            ));
        }
        if let Some(chain) = &mut commit.chain {
            chain.data = Some(signed.data);
        }
        if self.verify == Verify::Full {
            proof::inductive(event, &car, signed.data)?;
        }
        for op in &event.ops {
            let Some((nsid, rkey)) = op
                .path
                .split_once('/')
                .filter(|(nsid, _)| self.checker.wants(nsid))
            else {
                continue;
            };
            let verdict = match (op.action, op.cid) {
                (Action::Delete, _) => Verdict::Delete,
                (_, Some(cid)) => {
                    let block = car
                        .get(&cid)
                        .ok_or(Doubt::Contradiction("a record's block is missing"))?;
                    let claim = Claim {
                        did: event.repo,
                        collection: nsid,
                        rkey,
                        rev: event.rev.bits(),
                    };
                    self.checker.cbor(claim, cid, block)
                }
                (_, None) => return Err(Doubt::Contradiction("an operation names no record")),
            };
            commit.ops.push(Op {
                collection: nsid.to_owned(),
                rkey: rkey.to_owned(),
                verdict,
            });
        }
        Ok(())
    }

    /// Opens a frame that was held for a resync.
    pub fn reopen(&self, frame: Vec<u8>) -> Option<Commit> {
        match self.open(&frame.into()) {
            Opened::Item {
                item: Item::Commit(commit),
                ..
            } => Some(Commit {
                was_held: true,
                live: false,
                ..commit
            }),
            _ => None,
        }
    }

    /// Whether signatures are asked for.
    pub fn asks_for_signatures(&self) -> bool {
        self.verify == Verify::Full
    }

    /// Whether the commit in a `#commit` or `#sync` frame is signed with `key`.
    /// A frame that cannot be read so far is not denied here: opening it tells why.
    pub fn is_signed_by(&self, frame: &[u8], key: &PublicKey) -> bool {
        proof::is_signed_by(frame, &self.limits, key)
    }

    /// The wanted records of a whole repository, signed with `key` where one is given; the archive
    /// and all that is made of it take `memory_bytes_max` at most.
    pub fn repository(
        &self,
        did: &str,
        bytes: &[u8],
        key: Option<&PublicKey>,
        memory_bytes_max: usize,
    ) -> Result<Repository, RepositoryError> {
        let room = memory_bytes_max.saturating_sub(bytes.len());
        let limits = CarLimits {
            blocks_max: CarLimits::REPO.blocks_max.min(room / BLOCK_BYTES),
            ..CarLimits::REPO
        };
        let car = Car::read(bytes, limits, true).map_err(|error| match error {
            CarError::TooBig(_) => RepositoryError::Swollen(memory_bytes_max),
            error => error.into(),
        })?;
        let root = car
            .root()
            .ok_or(RepositoryError::Contradiction("the archive has no root"))?;
        let block = car.get(&root).ok_or(RepositoryError::Contradiction(
            "the commit block is missing",
        ))?;
        let commit = RepoCommit::parse(block)?;
        if commit.did != did {
            return Err(RepositoryError::Contradiction(
                "the repository is somebody else's",
            ));
        }
        if let Some(key) = key {
            commit.verify(key).map_err(RepositoryError::Signature)?;
        }
        let rev = commit.rev.bits();
        let mut ops = Vec::new();
        // A tree may name one large block under many paths, and JSON may be many times as long as CBOR.
        let mut taken = car.blocks().len().saturating_mul(BLOCK_BYTES);
        for entry in record::mst::walk(&car, commit.data, RECORDS_MAX) {
            let (path, cid) = entry?;
            let Some((nsid, rkey)) = path
                .split_once('/')
                .filter(|(nsid, _)| self.checker.wants(nsid))
            else {
                continue;
            };
            let block = car.get(&cid).ok_or(RepositoryError::Contradiction(
                "a record's block is missing",
            ))?;
            let claim = Claim {
                did,
                collection: nsid,
                rkey,
                rev,
            };
            let op = Op {
                collection: nsid.to_owned(),
                rkey: rkey.to_owned(),
                verdict: self.checker.cbor(claim, cid, block),
            };
            taken = taken.saturating_add(op.bytes());
            if taken > room {
                return Err(RepositoryError::Swollen(memory_bytes_max));
            }
            ops.push(op);
        }
        Ok(Repository {
            rev,
            data: commit.data,
            ops,
        })
    }
}

/// Records of one repository.
const RECORDS_MAX: usize = 10_000_000;
/// What a block takes in memory beside its own bytes, while an archive is indexed.
const BLOCK_BYTES: usize = 96;

/// A repository as it was fetched.
#[derive(Debug)]
pub struct Repository {
    pub rev: u64,
    pub data: Cid,
    pub ops: Vec<Op>,
}

/// Why a fetched repository is not believed.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    #[error("archive")]
    Archive(#[from] CarError),
    #[error("commit block")]
    Commit(#[from] record::commit::CommitError),
    #[error("tree")]
    Tree(#[from] record::mst::MstError),
    #[error("signature")]
    Signature(#[source] record::key::KeyError),
    #[error("{0}")]
    Contradiction(&'static str),
    #[error(
        "it takes more than {0} bytes of memory; raise intake.repo_memory_bytes_max to take it"
    )]
    Swollen(usize),
}

fn sync(event: &SyncEvent<'_>) -> Item {
    let root = Car::read(event.blocks, CarLimits::COMMIT, true)
        .ok()
        .and_then(|car| {
            let block = car.get(&car.root()?)?;
            Some(RepoCommit::parse(block).ok()?.data)
        });
    Item::Sync {
        did: event.did.to_owned(),
        rev: event.rev.bits(),
        data: root,
    }
}

fn identity(event: &IdentityEvent<'_>) -> Item {
    Item::Identity {
        did: event.did.to_owned(),
        handle: event.handle.map(str::to_owned),
        time_us: datetime::parse_us(event.time).unwrap_or(event.seq),
    }
}

fn account(event: &AccountEvent<'_>) -> Item {
    Item::Account {
        did: event.did.to_owned(),
        status: AccountStatus::of(event.active, event.status),
        // Without a readable time the sequence number still orders one source's events.
        time_us: datetime::parse_us(event.time).unwrap_or(event.seq),
    }
}
