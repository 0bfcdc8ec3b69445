//! What a record must pass to be shown, beyond being there.

use rusqlite::{Connection, Error};

use super::derive::Ids;
use super::tally::{count, name_by};
use crate::store::page::{Lens, Row};
use crate::store::{budget, filter};

/// Whether a record passes all filters of a lens.
pub(super) fn passes(
    connection: &Connection,
    ids: &Ids,
    lens: &Lens,
    row: &Row,
) -> Result<bool, Error> {
    for wanted in &lens.counts {
        let name = name_by(wanted.by, &row.did, &row.uri);
        if count(connection, ids, wanted.lane, &name)? < wanted.min {
            return Ok(false);
        }
    }
    if !lens.filters.is_empty() {
        budget::filtered(row.body.len());
    }
    Ok(filter::admit(&lens.filters, &row.body))
}
