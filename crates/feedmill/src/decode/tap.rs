//! Tap's messages: from JSON text to checked work.
//!
//! In:    one message, and when the connection it came over was opened: a Tap does
//!        not say when something happened.
//! Out:   the same [`Opened`] that a firehose frame gives, without a chain.
//! Never: a panic, whatever the text; a message that has a number and cannot be
//!        acknowledged because its body is wrong.

use record::cid::Cid;
use record::tid::Tid;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::jetstream::{JetstreamDecoder, letter};
use super::number::Found;
use super::{Decoder, Opened};
use crate::check::{Claim, chain};
use crate::clock::Micros;
use crate::store::AccountStatus;
use crate::store::batch::{Commit, DeadLetter, Item, Op, Verdict};

/// What every message has. The bodies are read afterwards, so that a wrong one has its number.
#[derive(Deserialize)]
struct Envelope<'a> {
    id: i64,
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    record: Option<&'a RawValue>,
    /// Called `user` by earlier versions.
    #[serde(borrow, alias = "user")]
    identity: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Told<'a> {
    live: bool,
    did: String,
    rev: String,
    collection: String,
    rkey: String,
    action: String,
    cid: Option<String>,
    #[serde(borrow)]
    record: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Identity {
    did: String,
    #[serde(default)]
    handle: String,
    #[serde(alias = "isActive")]
    is_active: bool,
    status: Option<String>,
}

/// Why a message cannot be used.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("not a message of Tap")]
    Json(#[from] serde_json::Error),
    #[error("larger than the limit of {0} bytes")]
    Large(usize),
    #[error("the message lacks {0}")]
    Lacks(&'static str),
    #[error("the revision is not one")]
    Rev(#[from] record::tid::TidError),
}

/// Opens messages of Tap.
#[derive(Debug, Clone)]
pub struct TapDecoder {
    records: JetstreamDecoder,
    bytes_max: usize,
    numbers: Numbers,
}

/// One connection's numbers as a clock.
///
/// Standings of an account may come in any order, and those told before come
/// again from a Tap that was killed; their numbers alone say which is newer. A
/// Tap counts its messages one by one and tells far fewer than a million in a
/// second. So a clock that goes on by a microsecond with each number is never
/// ahead of the time, and the next connection's begins after it.
#[derive(Debug, Clone, Copy, Default)]
struct Numbers {
    line_us: Micros,
    first: i64,
}

impl Numbers {
    fn time_us(&mut self, line_us: Micros, number: i64) -> Micros {
        if self.line_us != line_us {
            *self = Self {
                line_us,
                first: number,
            };
        }
        line_us.saturating_add(number.saturating_sub(self.first))
    }
}

impl TapDecoder {
    /// Opens messages with the limits and checks of `decoder`.
    pub fn new(decoder: Decoder) -> Self {
        Self {
            bytes_max: decoder.limits.frame_bytes_max,
            records: JetstreamDecoder::new(decoder),
            numbers: Numbers::default(),
        }
    }

    /// Opens one message that came over the connection opened at `line_us`.
    pub fn open(&mut self, message: &[u8], line_us: Micros) -> Opened {
        let refused = |fault| {
            let letter = letter(message, "frame", &chain(&fault));
            unopened(Found::of(message).id, letter)
        };
        if message.len() > self.bytes_max {
            return refused(Fault::Large(self.bytes_max));
        }
        let envelope: Envelope<'_> = match serde_json::from_slice(message) {
            Ok(envelope) => envelope,
            Err(error) => return refused(Fault::Json(error)),
        };
        let seq = envelope.id;
        let time_us = self.numbers.time_us(line_us, seq);
        let opened = match (envelope.kind.as_str(), envelope.record, envelope.identity) {
            ("record", Some(body), _) => self.record(body.get(), message).map(|item| vec![item]),
            ("identity" | "user", _, Some(body)) => identity(body.get(), time_us),
            ("record" | "identity" | "user", _, _) => Err(Fault::Lacks("its body")),
            _ => Ok(vec![Item::Filtered(1)]),
        };
        match opened {
            Ok(items) => Opened::Items { seq, items },
            Err(fault) => {
                let letter = letter(message, "frame", &chain(&fault));
                unopened(Some(seq), letter)
            }
        }
    }

    fn record(&self, body: &str, message: &[u8]) -> Result<Item, Fault> {
        let told: Told<'_> = serde_json::from_str(body)?;
        let rev = Tid::parse(&told.rev)?.bits();
        if !self.records.wants(&told.collection) {
            return Ok(Item::Filtered(1));
        }
        let claim = Claim {
            did: &told.did,
            collection: &told.collection,
            rkey: &told.rkey,
            rev,
        };
        let verdict = match (told.action.as_str(), told.record) {
            ("delete", _) => Verdict::Delete,
            ("create" | "update", Some(record)) => {
                let cid = told.cid.as_deref().and_then(|cid| Cid::parse(cid).ok());
                match self.records.record(claim, cid, record.get()) {
                    Some(verdict) => verdict,
                    None => {
                        let cause = "the record does not hash to the name it came with";
                        return Ok(Item::Unopened(DeadLetter {
                            did: told.did,
                            collection: told.collection,
                            rkey: told.rkey,
                            rev,
                            ..letter(message, "verify", cause)
                        }));
                    }
                }
            }
            ("create" | "update", None) => return Err(Fault::Lacks("record")),
            _ => return Err(Fault::Lacks("an action that is known")),
        };
        Ok(Item::Commit(Commit {
            did: told.did,
            rev,
            chain: None,
            filtered: 0,
            ops: vec![Op {
                collection: told.collection,
                rkey: told.rkey,
                verdict,
            }],
            frame: Default::default(),
            seq: 0,
            was_held: false,
            live: told.live,
        }))
    }
}

/// A handle, and a standing.
fn identity(body: &str, time_us: Micros) -> Result<Vec<Item>, Fault> {
    let told: Identity = serde_json::from_str(body)?;
    let standing = Item::Account {
        did: told.did.clone(),
        status: AccountStatus::of(told.is_active, told.status.as_deref()),
        time_us,
    };
    let named = (!told.handle.is_empty()).then_some(Item::Identity {
        did: told.did,
        handle: Some(told.handle),
        time_us,
    });
    Ok(std::iter::once(standing).chain(named).collect())
}

/// A message that is not opened; with its number it is acknowledged, and does not come again.
pub(super) fn unopened(seq: Option<i64>, letter: DeadLetter) -> Opened {
    match seq {
        Some(seq) => Opened::Items {
            seq,
            items: vec![Item::Unopened(letter)],
        },
        None => Opened::Unopened(letter),
    }
}
