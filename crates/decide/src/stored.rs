//! What the columns of a record's row say.
//!
//! A column that is not what we wrote is damage, never nothing.

use crate::derived::Placed;
use crate::rows::Record;
use crate::table::damaged;
use crate::value::Damaged;
use crate::version::{State, Stored};

/// The version that a row holds.
pub(crate) fn of_row(row: &Record) -> Stored<'_> {
    Stored {
        rev: row.rev,
        state: State::from_code(row.state),
        cid: row.cid.as_deref(),
    }
}

/// The column of what a record refers to.
pub(crate) fn links_column(links: &[(String, String)]) -> Option<String> {
    (!links.is_empty()).then(|| serde_json::to_string(links).expect("plain data is always JSON"))
}

/// What a record refers to.
pub(crate) fn links_of(row: &Record) -> Result<Vec<(String, String)>, Damaged> {
    let Some(text) = row.links.as_deref() else {
        return Ok(Vec::new());
    };
    serde_json::from_str(text).map_err(|_| damaged::<Record>("links"))
}

/// What a record derived.
pub(crate) fn placed_of(row: &Record) -> Result<Placed, Damaged> {
    Placed::from_column(row.placed.as_deref()).map_err(|_| damaged::<Record>("placed"))
}

/// Whether a record names a text at a path.
pub(crate) fn names_text(row: &Record, path: &str, text: &str) -> Result<bool, Damaged> {
    let links = links_of(row)?;
    Ok(links
        .iter()
        .any(|(at, target)| at == path && target == text))
}
