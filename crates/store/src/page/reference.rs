//! References: what a record refers to, and what refers to it.
//!
//! A reference lives as long as the record that holds it; what it names may be
//! gone or never have come. The table of references is by the hash of what is
//! named, so a record found there is asked whether it names the very text.

use decide::ids::{RecordId, hash};
use decide::rows::Reference as ReferenceRow;
use decide::value::{Cell as _, Damaged};

use super::budget::{Budget, larger};
use super::record::{Texts, records_at, row, stored_at};
use super::row::Row;
use super::visibility::is_visible;
use crate::error::StoreError;
use crate::port::{Range, Snapshot, Stored};

/// Which records refer to a URI, the last stored first.
#[derive(Debug, Clone, Copy)]
pub struct ReferrerQuery<'q> {
    pub uri: &'q str,
    /// Only references at this path.
    pub path: Option<&'q str>,
    /// The last record and path of the page before.
    pub before: Option<&'q (RecordId, String)>,
    pub budget: Budget<'q>,
}

/// A record that refers to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Referrer {
    pub row: Row,
    pub path: String,
}

/// Records that refer to a URI.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Referrers {
    pub found: Vec<Referrer>,
    /// Where the next page begins; `None` only when everything was seen.
    pub next: Option<(RecordId, String)>,
}

/// Something that a record refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    pub path: String,
    pub uri: String,
    /// The record there, if it is here, live and visible.
    pub row: Option<Row>,
}

/// A record's links: (path, target), in the order of their paths.
pub(super) fn links(stored: &Stored) -> Result<Vec<(String, String)>, StoreError> {
    let text = stored.record.links.as_deref();
    text.map_or_else(|| Ok(Vec::new()), serde_json::from_str)
        .map_err(|_| {
            StoreError::Damaged(Damaged {
                table: "record",
                column: "links",
            })
        })
}

/// Above every path.
const LAST_PATH: &str = "\u{10ffff}";

/// Rows of records that may name a text, the last stored first.
pub(super) fn naming(text: &str, from: Option<(RecordId, bool)>, max: usize) -> Range {
    Range {
        index: "reference_by_target",
        after: from.map(|(id, _)| id.to_value()).into_iter().collect(),
        inclusive: from.is_some_and(|(_, inclusive)| inclusive),
        descending: true,
        max,
        ..Range::of::<ReferenceRow>(vec![hash(text).to_value()])
    }
}

/// Visible records that refer to a URI. Two round trips for each chunk, and one for names.
pub fn referrers(
    snapshot: &dyn Snapshot,
    query: &ReferrerQuery<'_>,
) -> Result<Referrers, StoreError> {
    let budget = query.budget.plain();
    let mut from = query.before.map(|(id, _)| (*id, true));
    let mut chunk = budget.limit.saturating_add(1);
    let mut found: Vec<(Stored, String)> = Vec::new();
    let (mut next, mut looked, mut bytes) = (None, 0, 0);
    'pages: loop {
        budget.check()?;
        let mut rows = snapshot.range(&[naming(query.uri, from, chunk)])?;
        let rows = rows.pop().map(|rows| rows.typed::<ReferenceRow>());
        let rows = rows.transpose()?.unwrap_or_default();
        let is_last = rows.len() < chunk;
        let mut ids: Vec<RecordId> = rows.into_iter().map(|row| row.record).collect();
        ids.dedup();
        from = ids.last().map(|id| (*id, false)).or(from);
        for stored in records_of(snapshot, &ids)? {
            let id = stored.record.id;
            // The last record of the page before is not looked at for the first time.
            looked += usize::from(query.before.is_none_or(|before| id < before.0));
            if is_visible(&stored) {
                for path in paths(query, &stored)? {
                    if found.len() >= budget.limit
                        || (!found.is_empty() && bytes >= budget.bytes_max)
                    {
                        next = found
                            .last()
                            .map(|(last, path)| (last.record.id, path.clone()));
                        break 'pages;
                    }
                    bytes += stored.record.body.as_ref().map_or(0, String::len);
                    found.push((stored.clone(), path));
                }
            }
            if looked >= budget.scan_max {
                next = Some((id, LAST_PATH.to_owned()));
                break 'pages;
            }
        }
        if is_last {
            break;
        }
        chunk = larger(chunk);
    }
    let (stored, at): (Vec<Stored>, Vec<String>) = found.into_iter().unzip();
    let texts = Texts::of(snapshot, &stored)?;
    let each = stored.into_iter().zip(at);
    let found = each.filter_map(|(stored, path)| {
        let row = row(texts.uri(&stored.record)?, stored);
        Some(Referrer { row, path })
    });
    Ok(Referrers {
        found: found.collect(),
        next,
    })
}

fn records_of(snapshot: &dyn Snapshot, ids: &[RecordId]) -> Result<Vec<Stored>, StoreError> {
    match ids.is_empty() {
        true => Ok(Vec::new()),
        false => Ok(snapshot.records(ids)?.into_iter().flatten().collect()),
    }
}

/// The paths at which a record names the URI that are on this page.
fn paths(query: &ReferrerQuery<'_>, stored: &Stored) -> Result<Vec<String>, StoreError> {
    let links = links(stored)?.into_iter();
    let named = links.filter(|(path, target)| {
        target == query.uri && query.path.is_none_or(|wanted| wanted == path)
    });
    let id = stored.record.id;
    let paths = named.map(|(path, _)| path);
    let new = paths.filter(|path| {
        query
            .before
            .is_none_or(|before| id < before.0 || *path > before.1)
    });
    Ok(new.collect())
}

/// What the visible record at a URI refers to, after a path and URI; `None` if there is no such
/// record. Four round trips.
pub fn references(
    snapshot: &dyn Snapshot,
    uri: &str,
    after: Option<&(String, String)>,
    budget: &Budget<'_>,
) -> Result<Option<Vec<Reference>>, StoreError> {
    let stored = stored_at(snapshot, &[uri])?.remove(uri);
    let Some(stored) = stored.filter(is_visible) else {
        return Ok(None);
    };
    let links = links(&stored)?.into_iter();
    let links = links.filter(|link| after.is_none_or(|after| link > after));
    let links: Vec<(String, String)> = links.take(budget.limit).collect();
    let uris: Vec<&str> = links.iter().map(|(_, uri)| uri.as_str()).collect();
    let records = records_at(snapshot, &uris)?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    for (path, uri) in links {
        let row = records.get(&uri).cloned();
        bytes += row.as_ref().map_or(0, Row::bytes) + path.len() + uri.len();
        found.push(Reference { path, uri, row });
        if bytes >= budget.bytes_max {
            break;
        }
    }
    Ok(Some(found))
}
