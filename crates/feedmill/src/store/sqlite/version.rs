//! Newest versions of records, and how accounts stand: what is handed on to others.

use rusqlite::{Connection, Error, OptionalExtension, Row as SqlRow, params};

use super::names::{find_key, hash};
use super::read::{ROW_FROM, split};
use super::tip;
use crate::store::AccountStatus;
use crate::store::version::{Content, Standing, Version};

/// The columns a [`Version`] is made of, from [`ROW_FROM`].
const VERSION: &str = "r.id, k.text, c.nsid, r.rkey, r.rev, r.seen, coalesce(a.status, 0) % 2 = 0, r.state = 0, r.cid, r.body";

fn to_version(row: &SqlRow<'_>) -> Result<(i64, Version), Error> {
    let (did, collection, rkey): (String, String, String) = (row.get(1)?, row.get(2)?, row.get(3)?);
    let content = match row.get(7)? {
        false => None,
        true => {
            let cid: Option<Vec<u8>> = row.get(8)?;
            Some(Content {
                cid: cid
                    .and_then(|bytes| record::cid::Cid::from_bytes(&bytes).ok())
                    .map(|cid| cid.to_string()),
                body: row.get(9)?,
            })
        }
    };
    let version = Version {
        uri: format!("at://{did}/{collection}/{rkey}"),
        did,
        collection,
        rkey,
        rev: row.get::<_, i64>(4)?.cast_unsigned(),
        seen_us: row.get(5)?,
        visible: row.get(6)?,
        content,
    };
    Ok((row.get(0)?, version))
}

/// What stands at each URI, in the order asked; `None` where nothing ever did, or all trace is gone.
pub(super) fn versions(
    connection: &Connection,
    uris: &[&str],
) -> Result<Vec<Option<Version>>, Error> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {VERSION} FROM {ROW_FROM} WHERE r.hash = ?1 AND r.rkey = ?2 AND k.text = ?3 AND c.nsid = ?4"
    ))?;
    let mut found = Vec::with_capacity(uris.len());
    for uri in uris {
        let version = match split(uri) {
            None => None,
            Some((did, nsid, rkey)) => statement
                .query_row(params![hash(uri), rkey, did, nsid], to_version)
                .optional()?,
        };
        found.push(version.map(|(_, version)| version));
    }
    Ok(found)
}

/// Every record by its number, behind `after`.
pub(super) fn versions_after(
    connection: &Connection,
    after: i64,
    limit: usize,
) -> Result<Vec<(i64, Version)>, Error> {
    connection
        .prepare_cached(&format!(
            "SELECT {VERSION} FROM {ROW_FROM} WHERE r.id > ?1 ORDER BY r.id LIMIT ?2"
        ))?
        .query_map(params![after, limit as i64], to_version)?
        .collect()
}

const STANDING: &str =
    "SELECT a.key, k.text, a.status, a.status_us FROM account a JOIN key k ON k.id = a.key";

fn to_standing(connection: &Connection, row: &SqlRow<'_>) -> Result<Standing, Error> {
    let key = row.get(0)?;
    Ok(Standing {
        key,
        did: row.get(1)?,
        status: AccountStatus::from_code(row.get(2)?),
        since_us: row.get(3)?,
        rev: tip::find(connection, key)?.rev,
    })
}

pub(super) fn standing(connection: &Connection, did: &str) -> Result<Option<Standing>, Error> {
    let Some(key) = find_key(connection, did)? else {
        return Ok(None);
    };
    connection
        .prepare_cached(&format!("{STANDING} WHERE a.key = ?1"))?
        .query_row([key], |row| to_standing(connection, row))
        .optional()
}

/// Accounts whose status was ever told, by number, behind `after`.
pub(super) fn standings(
    connection: &Connection,
    after: i64,
    limit: usize,
) -> Result<Vec<Standing>, Error> {
    connection
        .prepare_cached(&format!(
            "{STANDING} WHERE a.key > ?1 AND a.status_us > 0 ORDER BY a.key LIMIT ?2"
        ))?
        .query_map(params![after, limit as i64], |row| {
            to_standing(connection, row)
        })?
        .collect()
}
