//! Which records may be seen: live ones of visible accounts, by authors whom the reader does not
//! hide.

use std::collections::HashSet;

use decide::account::Status;
use decide::derived::Placed;
use decide::ids::{IndexId, KeyId};
use decide::value::Damaged;
use decide::version::State;

use crate::error::StoreError;
use crate::port::Stored;

/// Whether a record is live and its account visible.
pub(super) fn is_visible(stored: &Stored) -> bool {
    State::from_code(stored.record.state) == State::Live
        && Status::from_code(stored.status).visible()
}

/// What was derived from a record.
pub(super) fn placed(stored: &Stored) -> Result<Placed, StoreError> {
    Placed::from_column(stored.record.placed.as_deref()).map_err(|_| {
        StoreError::Damaged(Damaged {
            table: "record",
            column: "placed",
        })
    })
}

/// Whether a reader who hides these keys hides whoever wrote a record. An app's records are all in
/// one account, and each names who wrote it.
pub(super) fn is_muted(hidden: &HashSet<KeyId>, stored: &Stored) -> Result<bool, StoreError> {
    if hidden.is_empty() {
        return Ok(false);
    }
    let text = stored.record.placed.as_deref().unwrap_or_default();
    let writer = match text.contains("\"person\"") {
        true => placed(stored)?.person,
        false => None,
    };
    Ok(hidden.contains(&writer.unwrap_or(stored.record.author)))
}

/// Under which keys of an index a record must be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Under<'u> {
    Any,
    One(KeyId),
    OneOf(&'u HashSet<KeyId>),
}

impl Under<'_> {
    /// Whether a record is in an index under such a key.
    pub(super) fn holds(self, index: IndexId, placed: &Placed) -> bool {
        let entries = placed.entries.iter();
        let mut entries = entries.filter(|(other, _)| *other == index);
        entries.any(|(_, keys)| match self {
            Self::Any => true,
            Self::One(key) => keys.contains(&key),
            Self::OneOf(wanted) => keys.iter().any(|key| wanted.contains(key)),
        })
    }
}
