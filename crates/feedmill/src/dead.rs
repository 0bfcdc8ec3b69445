//! Dead letters: as people see them, and tried again.
//!
//! In:    a dead letter's number, or a filter.
//! Out:   its entry as JSON; its record through today's checks, into the store.
//! Never: a letter that leaves before its record has a place.
//!
//! The API, the command line and the page use this one way, so that a replay
//! is the same wherever it is asked for.

use base64::Engine as _;
use record::cid::Cid;
use serde_json::{Value, json};

use crate::check::{Checker, Claim};
use crate::clock::Micros;
use crate::store::batch::{DeadLetter, Verdict};
use crate::store::{Desk, Fate, LetterQuery, StoreError};

/// Letters read at a time when all are replayed.
const PAGE_MAX: usize = 100;

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

/// What became of letters that were replayed together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Letters whose record is stored, or something newer is.
    pub settled: usize,
    /// Letters whose record now waits for another.
    pub parked: usize,
    /// Letters that were refused again.
    pub buried: usize,
    /// Letters that hold no record.
    pub skipped: usize,
}

/// A dead letter in the published shape.
pub fn entry(letter: &DeadLetter) -> Value {
    let mut error = json!({
        "stage": letter.stage,
        "message": letter.message,
        "path": letter.path,
        "expected": letter.expected,
        "received": letter.received,
    });
    if let (false, Some(error)) = (letter.rule.is_empty(), error.as_object_mut()) {
        error.insert("rule".into(), letter.rule.clone().into());
    }
    let raw = serde_json::from_str(&letter.raw).unwrap_or_else(|_| json!(letter.raw));
    json!({
        "id": letter.id.to_string(),
        "collection": letter.collection,
        "rkey": letter.rkey,
        "did": letter.did,
        "cid": (!letter.cid.is_empty()).then_some(&letter.cid),
        "error": error,
        "rawRecord": raw,
        "firehoseCursor": letter.cursor,
        "timestamp": record::datetime::format_us(letter.time_us),
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
) -> Result<Fate, ReplayError> {
    let letter = store.letter(id)?.ok_or(ReplayError::Gone(id))?;
    let verdict = verdict(checker, &letter).ok_or_else(|| ReplayError::NoRecord {
        id,
        stage: letter.stage.clone(),
    })?;
    match store.replay(now_us, id, verdict)? {
        Fate::Gone => Err(ReplayError::Gone(id)),
        fate => Ok(fate),
    }
}

/// Replays every letter of a filter once, newest first; letters buried meanwhile are not among them.
pub fn replay_all(
    store: &dyn Desk,
    checker: &Checker,
    now_us: Micros,
    query: &LetterQuery,
) -> Result<Replayed, ReplayError> {
    let mut replayed = Replayed::default();
    let mut query = LetterQuery {
        limit: PAGE_MAX,
        ..query.clone()
    };
    loop {
        let letters = store.letters(&query)?;
        let Some(last) = letters.last() else {
            return Ok(replayed);
        };
        query.before = Some(last.id);
        for letter in &letters {
            match replay(store, checker, now_us, letter.id) {
                Ok(Fate::Parked) => replayed.parked += 1,
                Ok(Fate::Buried) => replayed.buried += 1,
                Ok(_) => replayed.settled += 1,
                Err(ReplayError::Gone(_) | ReplayError::NoRecord { .. }) => replayed.skipped += 1,
                Err(error) => return Err(error),
            }
        }
    }
}
