//! References looked up: forward by record, backward by what they name.
//!
//! A reference lives as long as the record that holds it; what it names may
//! be gone or never have come, and then it dangles.

use rusqlite::types::Type;
use rusqlite::{Connection, Error, OptionalExtension};

use super::names::hash;
use super::pile::form::{NUMBER_BYTES, number_bytes, number_of, sorting};
use super::pile::{Added, Descent, Pile};
use super::read::{ROW, ROW_FROM, VISIBLE, record, to_row};
use crate::store::budget;
use crate::store::page::Row;
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

/// The entry of a record under what it names.
pub(super) fn entry(target: &str, record: i64) -> Vec<u8> {
    [&sorting(hash(target))[..], &number_bytes(record)].concat()
}

/// Numbers of records that may name a target, the newest first: whether they do, their links tell.
#[derive(Debug)]
pub(super) struct Naming<'a>(Descent<'a>);

impl<'a> Naming<'a> {
    /// From a record on; in a transaction with what it has `added`.
    pub(super) fn new(
        connection: &'a Connection,
        target: &str,
        from: Option<i64>,
        added: Option<&'a Added>,
    ) -> Result<Self, Error> {
        Self::of(connection, hash(target), from, added)
    }

    /// The same for the hash of a target.
    pub(super) fn of(
        connection: &'a Connection,
        target: i64,
        from: Option<i64>,
        added: Option<&'a Added>,
    ) -> Result<Self, Error> {
        let prefix = sorting(target);
        let last = match from.filter(|from| *from < RECORD_MAX) {
            Some(from) => number_bytes(from + 1),
            None => [u8::MAX; NUMBER_BYTES],
        };
        let bound = [&prefix[..], &last].concat();
        Descent::new(connection, Pile::Referred, &prefix, &bound, added).map(Self)
    }

    pub(super) fn next(&mut self) -> Result<Option<i64>, Error> {
        Ok(self.0.next(number_of)?.flatten())
    }
}

/// Numbers of records stay below this one.
const RECORD_MAX: i64 = (1 << (8 * NUMBER_BYTES)) - 1;

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
        "SELECT {ROW}, r.links FROM {ROW_FROM} WHERE r.id = ?1 AND {VISIBLE}"
    ))?;
    let mut naming = Naming::new(connection, &query.uri, Some(before), None)?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while let Some(record) = naming.next()? {
        let read = statement.query_row([record], |row| {
            let links = from_text(row.get_ref(7)?.as_str_or_null()?)?;
            Ok((links, to_row(row)?))
        });
        let Some((links, referrer)) = read.optional()? else {
            continue;
        };
        let paths = paths_to(&links, &query.uri, query.path.as_deref())
            .filter(|path| referrer.id < before || *path > after_path);
        for path in paths {
            bytes += referrer.bytes();
            found.push(Referrer {
                row: referrer.clone(),
                path: path.to_owned(),
            });
            if found.len() >= query.limit || budget::is_page_full(bytes) {
                return Ok(found);
            }
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
    let links = links.filter(|link| after.is_none_or(|after| link > after));
    let (mut found, mut bytes) = (Vec::new(), 0);
    for (path, uri) in links.take(limit) {
        let row = record(connection, &uri)?;
        bytes += row.as_ref().map_or(0, Row::bytes) + path.len() + uri.len();
        found.push(Reference { path, uri, row });
        if budget::is_page_full(bytes) {
            break;
        }
    }
    Ok(Some(found))
}
