//! Jetstream's messages: from JSON text to checked work.
//!
//! In:    one message of version 1 or version 2, unpacked.
//! Out:   the same [`Opened`] that a firehose frame gives, without a chain.
//! Never: a panic, whatever the text; a record kept that does not hash to the
//!        name it came with.
//!
//! One message is one operation, so a commit of many comes as many commits of
//! one revision. There is no chain: what a Jetstream did not send is lost
//! without a sign, and the status says so.

use record::cid::Cid;
use record::datetime;
use record::tid::Tid;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::number::Found;
use super::{Decoder, Opened, unopened};
use crate::check::{Claim, chain};
use crate::config::Verify;
use crate::store::AccountStatus;
use crate::store::batch::{Commit, DeadLetter, Item, Op, Verdict};

/// Bytes of a faulty message kept with its dead letter.
const RAW_BYTES_MAX: usize = 100_000;

/// An event of either version. Version 2 wraps it as `payload`, names its kind
/// in `$type` and has a commit's fields beside the others.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    payload: Option<Box<Event<'a>>>,
    #[serde(rename = "$type")]
    kind_2: Option<String>,
    kind: Option<String>,
    did: Option<String>,
    time_us: Option<i64>,
    seq: Option<i64>,
    time: Option<String>,
    #[serde(borrow)]
    commit: Option<Operation<'a>>,
    identity: Option<Identity>,
    account: Option<Account>,
    sync: Option<Sync>,
    name: Option<String>,
    message: Option<String>,
    rev: Option<String>,
    operation: Option<String>,
    collection: Option<String>,
    rkey: Option<String>,
    #[serde(borrow)]
    record: Option<&'a RawValue>,
    cid: Option<String>,
}

#[derive(Deserialize)]
struct Operation<'a> {
    rev: Option<String>,
    operation: Option<String>,
    collection: Option<String>,
    rkey: Option<String>,
    #[serde(borrow)]
    record: Option<&'a RawValue>,
    cid: Option<String>,
}

#[derive(Deserialize)]
struct Identity {
    handle: Option<String>,
    time: Option<String>,
}

#[derive(Deserialize)]
struct Account {
    active: bool,
    status: Option<String>,
    time: Option<String>,
}

#[derive(Deserialize)]
struct Sync {
    rev: String,
}

/// Why a message cannot be used.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("not a message of Jetstream")]
    Json(#[from] serde_json::Error),
    #[error("not text")]
    Text(#[from] std::str::Utf8Error),
    #[error("larger than the limit of {0} bytes")]
    Large(usize),
    #[error("the message lacks {0}")]
    Lacks(&'static str),
    #[error("the revision is not one")]
    Rev(#[from] record::tid::TidError),
}

/// Opens messages of Jetstream.
#[derive(Debug, Clone)]
pub struct JetstreamDecoder {
    decoder: Decoder,
}

impl JetstreamDecoder {
    /// Opens messages with the limits and checks of `decoder`.
    pub fn new(decoder: Decoder) -> Self {
        Self { decoder }
    }

    /// Whether records of this collection are kept.
    pub(super) fn wants(&self, nsid: &str) -> bool {
        self.decoder.checker.wants(nsid)
    }

    /// Opens one message.
    pub fn open(&self, message: &[u8]) -> Opened {
        match self.parse(message) {
            Ok(opened) => opened,
            Err(fault) => {
                let letter = letter(message, "frame", &chain(&fault));
                unopened(Found::of(message).place(), letter)
            }
        }
    }

    fn parse(&self, message: &[u8]) -> Result<Opened, Fault> {
        let bytes_max = self.decoder.limits.frame_bytes_max;
        if message.len() > bytes_max {
            return Err(Fault::Large(bytes_max));
        }
        let text = std::str::from_utf8(message)?;
        let outer: Event<'_> = serde_json::from_str(text)?;
        let event = match outer.payload {
            Some(payload) => *payload,
            None => outer,
        };
        let kind_2 = event
            .kind_2
            .as_deref()
            .and_then(|kind| kind.rsplit('#').next());
        let kind = event
            .kind
            .as_deref()
            .or(kind_2)
            .ok_or(Fault::Lacks("kind"))?;
        if kind == "info" {
            return Ok(word(&event));
        }
        let told_us = event.time.as_deref().and_then(datetime::parse_us);
        let time_us = event.time_us.or(told_us);
        let seq = event
            .seq
            .or(event.time_us)
            .ok_or(Fault::Lacks("its number"))?;
        let did = event.did.clone().ok_or(Fault::Lacks("did"))?;
        let item = match kind {
            "commit" => self.operation(did, event, message)?,
            "identity" => {
                let body = event.identity.ok_or(Fault::Lacks("identity"))?;
                Item::Identity {
                    did,
                    handle: body.handle,
                    time_us: moment(body.time.as_deref(), time_us, seq),
                }
            }
            "account" => {
                let body = event.account.ok_or(Fault::Lacks("account"))?;
                Item::Account {
                    did,
                    status: AccountStatus::of(body.active, body.status.as_deref()),
                    time_us: moment(body.time.as_deref(), time_us, seq),
                }
            }
            "sync" => Item::Sync {
                did,
                rev: Tid::parse(&event.sync.ok_or(Fault::Lacks("sync"))?.rev)?.bits(),
                data: None,
            },
            other => {
                return Ok(Opened::Unknown {
                    kind: other.to_owned(),
                });
            }
        };
        Ok(Opened::Item { seq, item, time_us })
    }

    fn operation(&self, did: String, event: Event<'_>, message: &[u8]) -> Result<Item, Fault> {
        let told = event.commit.unwrap_or(Operation {
            rev: event.rev,
            operation: event.operation,
            collection: event.collection,
            rkey: event.rkey,
            record: event.record,
            cid: event.cid,
        });
        let rev = Tid::parse(&told.rev.ok_or(Fault::Lacks("rev"))?)?.bits();
        let collection = told.collection.ok_or(Fault::Lacks("collection"))?;
        let rkey = told.rkey.ok_or(Fault::Lacks("rkey"))?;
        if !self.decoder.checker.wants(&collection) {
            return Ok(Item::Filtered(1));
        }
        let claim = Claim {
            did: &did,
            collection: &collection,
            rkey: &rkey,
            rev,
        };
        let verdict = match (told.operation.as_deref(), told.record) {
            (Some("delete"), _) => Verdict::Delete,
            (Some("create" | "update"), Some(record)) => {
                let cid = told.cid.as_deref().and_then(|cid| Cid::parse(cid).ok());
                match self.record(claim, cid, record.get()) {
                    Some(verdict) => verdict,
                    None => {
                        // Its host has the truth: the letter names the account, and so it is fetched.
                        let cause = "the record does not hash to the name it came with";
                        let verify = letter(message, "verify", cause);
                        return Ok(Item::Unopened(DeadLetter {
                            did,
                            collection,
                            rkey,
                            rev,
                            ..verify
                        }));
                    }
                }
            }
            (Some("create" | "update"), None) => return Err(Fault::Lacks("record")),
            _ => return Err(Fault::Lacks("an operation that is known")),
        };
        let op = Op {
            collection,
            rkey,
            verdict,
        };
        Ok(Item::Commit(Commit {
            did,
            rev,
            chain: None,
            filtered: 0,
            ops: vec![op],
            frame: Default::default(),
            seq: 0,
            was_held: false,
            live: true,
        }))
    }

    /// Checks a record in the form in which it was signed, so that size, text
    /// and name are those of the firehose; `None` if the name is not its own.
    pub(super) fn record(&self, claim: Claim<'_>, cid: Option<Cid>, text: &str) -> Option<Verdict> {
        let checker = &self.decoder.checker;
        let Ok(value) = record::json::from_json(text) else {
            return Some(checker.json(claim, cid, text));
        };
        let block = record::cbor::encode(&value);
        let own = Cid::of_cbor(&block);
        let named = cid.unwrap_or(own);
        if named != own && self.decoder.verify != Verify::Off {
            return None;
        }
        Some(checker.cbor(claim, named, &block))
    }
}

/// A word from the server. A cursor from the future makes version 2 begin at
/// its newest event, with everything before it unread: that is an end for us.
fn word(event: &Event<'_>) -> Opened {
    let name = event.name.clone().unwrap_or_default();
    let message = event.message.clone().unwrap_or_default();
    if name == "FutureCursor" {
        return Opened::Ended {
            error: name,
            message,
        };
    }
    Opened::Info { name, message }
}

/// When it happened: by its own word, by the stream's, or at least in the stream's order.
fn moment(own: Option<&str>, stream_us: Option<i64>, seq: i64) -> i64 {
    own.and_then(datetime::parse_us)
        .or(stream_us)
        .unwrap_or(seq)
}

pub(super) fn letter(message: &[u8], stage: &str, cause: &str) -> DeadLetter {
    let kept = message.get(..RAW_BYTES_MAX).unwrap_or(message);
    DeadLetter {
        stage: stage.into(),
        message: cause.to_owned(),
        raw: String::from_utf8_lossy(kept).into_owned(),
        ..DeadLetter::default()
    }
}
