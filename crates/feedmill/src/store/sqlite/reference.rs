//! References looked up: forward by record, backward by what they name.
//!
//! A reference lives as long as the record that holds it; what it names may
//! be gone or never have come, and then it dangles.

use rusqlite::types::Type;
use rusqlite::{Connection, Error, OptionalExtension, params};

use super::names::hash;
use super::read::{ROW, ROW_FROM, VISIBLE, record, to_row};
use crate::store::reference::{Reference, Referrer, ReferrerQuery};

/// A path in a record, and what it names there.
pub(super) type Link = (String, String);

/// A record's links as they are stored with it, in the order of their paths.
pub(super) fn to_text(links: &[Link]) -> Result<Option<String>, Error> {
    if links.is_empty() {
        return Ok(None);
    }
    serde_json::to_string(links)
        .map(Some)
        .map_err(|error| Error::ToSqlConversionFailure(error.into()))
}

/// The opposite of [`to_text`].
pub(super) fn from_text(text: Option<&str>) -> Result<Vec<Link>, Error> {
    text.map_or_else(
        || Ok(Vec::new()),
        |text| {
            serde_json::from_str(text)
                .map_err(|error| Error::FromSqlConversionFailure(0, Type::Text, error.into()))
        },
    )
}

/// The links of the record of this number.
pub(super) fn links(connection: &Connection, record: i64) -> Result<Vec<Link>, Error> {
    let text: Option<Option<String>> = connection
        .prepare_cached("SELECT links FROM record WHERE id = ?1")?
        .query_row([record], |row| row.get(0))
        .optional()?;
    from_text(text.flatten().as_deref())
}

/// The paths at which links name a URI.
pub(super) fn paths_to<'a>(
    links: &'a [Link],
    uri: &'a str,
    path: Option<&'a str>,
) -> impl Iterator<Item = &'a str> {
    links
        .iter()
        .filter(move |(at, target)| target == uri && path.is_none_or(|path| path == at))
        .map(|(at, _)| at.as_str())
}

/// Visible records that refer to a URI.
pub(super) fn referrers(
    connection: &Connection,
    query: &ReferrerQuery,
) -> Result<Vec<Referrer>, Error> {
    let (before, after_path) = match &query.before {
        Some((record, path)) => (*record, path.as_str()),
        None => (i64::MAX, ""),
    };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {ROW}, r.links FROM reference f CROSS JOIN {ROW_FROM}
         WHERE f.target = ?1 AND f.record <= ?2 AND r.id = f.record AND {VISIBLE} ORDER BY f.record DESC"
    ))?;
    let mut rows = statement.query(params![hash(&query.uri), before])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let links = from_text(row.get_ref(7)?.as_str_or_null()?)?;
        let referrer = to_row(row)?;
        let left = query.limit.saturating_sub(found.len());
        let paths = paths_to(&links, &query.uri, query.path.as_deref())
            .filter(|path| referrer.id < before || *path > after_path);
        found.extend(paths.take(left).map(|path| Referrer {
            row: referrer.clone(),
            path: path.to_owned(),
        }));
        if found.len() >= query.limit {
            break;
        }
    }
    Ok(found)
}

/// What a visible record refers to, after (path, URI); `None` if there is no such record.
pub(super) fn references(
    connection: &Connection,
    uri: &str,
    after: Option<&Link>,
    limit: usize,
) -> Result<Option<Vec<Reference>>, Error> {
    let Some(from) = record(connection, uri)? else {
        return Ok(None);
    };
    let links = links(connection, from.id)?.into_iter();
    links
        .filter(|link| after.is_none_or(|after| link > after))
        .take(limit)
        .map(|(path, uri)| {
            let row = record(connection, &uri)?;
            Ok(Reference { path, uri, row })
        })
        .collect::<Result<_, _>>()
        .map(Some)
}
