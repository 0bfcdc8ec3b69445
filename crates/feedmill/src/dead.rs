//! Dead letters: as people see them, and tried again.
//!
//! In:    a dead letter's number, or a filter.
//! Out:   its entry as JSON; its record through today's checks, into the store.
//! Never: a letter that leaves before its record has a place.
//!
//! The API, the command line and the page use this one way, so that a replay
//! is the same wherever it is asked for.

// Many of them, tried again one after the other.
pub mod job;

use base64::Engine as _;
use record::cid::Cid;
use serde_json::{Value, json};

use crate::check::{Checker, Claim};
use crate::clock::Micros;
use crate::store::batch::{DeadLetter, Verdict};
use crate::store::{Desk, Fate, StoreError};

/// Why a dead letter cannot be replayed. Sorted by what the caller does.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// There is none of this number (any more).
    #[error("there is no dead letter {0}")]
    Gone(i64),
    /// It holds no record of a collection that is kept; its account was fetched whole instead.
    #[error("dead letter {id} of stage {stage} holds no record that can be checked again")]
    NoRecord { id: i64, stage: String },
    #[error("store")]
    Store(#[from] StoreError),
}

/// What became of one that was tried again.
#[derive(Debug, Clone)]
pub struct Replayed {
    pub fate: Fate,
    /// The dead letter with today's reason, if it was refused again.
    pub letter: Option<DeadLetter>,
}

/// Where it stopped and why, in the published shape.
pub fn reason(letter: &DeadLetter) -> Value {
    let mut reason = json!({
        "stage": letter.stage,
        "message": letter.message,
        "path": letter.path,
        "expected": letter.expected,
        "received": letter.received,
    });
    if let (false, Some(reason)) = (letter.rule.is_empty(), reason.as_object_mut()) {
        reason.insert("rule".into(), letter.rule.clone().into());
    }
    reason
}

/// A dead letter in the published shape.
pub fn entry(letter: &DeadLetter) -> Value {
    let raw = serde_json::from_str(&letter.raw).unwrap_or_else(|_| json!(letter.raw));
    json!({
        "id": letter.id.to_string(),
        "collection": letter.collection,
        "rkey": letter.rkey,
        "did": letter.did,
        "cid": (!letter.cid.is_empty()).then_some(&letter.cid),
        "error": reason(letter),
        "rawRecord": raw,
        "firehoseCursor": (letter.cursor != 0).then_some(letter.cursor),
        "timestamp": record::datetime::format_us(letter.time_us),
        "arrivals": letter.arrivals,
        "replayedAt": letter.replayed_us.map(record::datetime::format_us),
    })
}

/// What today's checks say of a letter's record; `None` if it holds none that is kept.
pub fn verdict(checker: &Checker, letter: &DeadLetter) -> Option<Verdict> {
    let whole = !letter.did.is_empty() && !letter.rkey.is_empty();
    if !whole || letter.raw.is_empty() || !checker.wants(&letter.collection) {
        return None;
    }
    let claim = Claim {
        did: &letter.did,
        collection: &letter.collection,
        rkey: &letter.rkey,
        rev: letter.rev,
    };
    let cid = Cid::parse(&letter.cid).ok();
    if letter.raw.starts_with('{') {
        return Some(checker.json(claim, cid, &letter.raw));
    }
    let block = base64::engine::general_purpose::STANDARD
        .decode(&letter.raw)
        .ok()?;
    Some(checker.cbor(claim, cid?, &block))
}

/// Replays one letter.
pub fn replay(
    store: &dyn Desk,
    checker: &Checker,
    now_us: Micros,
    id: i64,
) -> Result<Replayed, ReplayError> {
    let letter = store.letter(id)?.ok_or(ReplayError::Gone(id))?;
    let verdict = verdict(checker, &letter).ok_or_else(|| ReplayError::NoRecord {
        id,
        stage: letter.stage.clone(),
    })?;
    match store.replay(now_us, id, verdict)? {
        Fate::Gone => Err(ReplayError::Gone(id)),
        fate @ Fate::Buried => Ok(Replayed {
            fate,
            letter: store.letter(id)?,
        }),
        fate => Ok(Replayed { fate, letter: None }),
    }
}
