//! References looked up: forward by record, backward by what they name.
//!
//! A reference lives as long as the record that holds it; what it names may
//! be gone or never have come, and then it dangles.

use rusqlite::{Connection, Error, params};

use super::names::hash;
use super::read::{ROW, ROW_FROM, VISIBLE, record, to_row};
use crate::store::reference::{Reference, Referrer, ReferrerQuery};

/// References of one record at most.
const PLACES: i64 = 1 << 20;

/// The first and the last number that a record's references may have.
pub(super) fn places(record: i64) -> [i64; 2] {
    let first = record.saturating_mul(PLACES);
    [first, first.saturating_add(PLACES - 1)]
}

/// Visible records that refer to a URI.
pub(super) fn referrers(
    connection: &Connection,
    query: &ReferrerQuery,
) -> Result<Vec<Referrer>, Error> {
    let (before, path) = match &query.before {
        Some((record, path)) => (*record, path.as_str()),
        None => (i64::MAX, ""),
    };
    let [_, last] = places(before);
    connection
        .prepare_cached(&format!(
            "SELECT {ROW}, p.text FROM reference f CROSS JOIN path p ON p.id = f.path CROSS JOIN {ROW_FROM}
             WHERE f.target = ?1 AND f.id <= ?7 AND f.uri = ?2 AND (?3 IS NULL OR p.text = ?3)
             AND (f.record < ?4 OR (f.record = ?4 AND p.text > ?5)) AND r.id = f.record AND {VISIBLE}
             ORDER BY f.id DESC LIMIT ?6"
        ))?
        .query_map(
            params![
                hash(&query.uri), query.uri, query.path, before, path, query.limit as i64, last
            ],
            |row| {
                Ok(Referrer {
                    row: to_row(row)?,
                    path: row.get(7)?,
                })
            },
        )?
        .collect()
}

/// What a visible record refers to, after (path, URI); `None` if there is no such record.
pub(super) fn references(
    connection: &Connection,
    uri: &str,
    after: Option<&(String, String)>,
    limit: usize,
) -> Result<Option<Vec<Reference>>, Error> {
    let Some(from) = record(connection, uri)? else {
        return Ok(None);
    };
    let [first, last] = places(from.id);
    let (path, target) = after.map_or(("", ""), |(path, uri)| (path, uri));
    let found: Vec<(String, String)> = connection
        .prepare_cached(
            "SELECT p.text, f.uri FROM reference f JOIN path p ON p.id = f.path
             WHERE f.id BETWEEN ?1 AND ?5 AND (p.text, f.uri) > (?2, ?3) ORDER BY f.id DESC LIMIT ?4",
        )?
        .query_map(params![first, path, target, limit as i64, last], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?
        .collect::<Result<_, _>>()?;
    let mut references = Vec::with_capacity(found.len());
    for (path, uri) in found {
        let row = record(connection, &uri)?;
        references.push(Reference { path, uri, row });
    }
    Ok(Some(references))
}
