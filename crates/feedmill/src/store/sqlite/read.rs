//! Single records and pages of a collection.

use rusqlite::{Connection, Error, OptionalExtension, Row as SqlRow, params};

use super::apply::LIVE;
use super::derive::Ids;
use super::names::{find_collection, find_key, hash};
use super::pick::{Gate, Pick};
use super::shelf::Shelf;
use super::sieve::passes;
use super::tip;
use crate::store::account::AccountState;
use crate::store::page::{ListQuery, Page, Position, Row};
use crate::store::plan::Plan;
use crate::store::{AccountStatus, Accounting, Counts};

/// The columns a [`Row`] is made of; `r`, `k`, `c` are record, key and collection.
pub(super) const ROW: &str = "r.id, k.text, c.nsid, r.rkey, r.cid, r.time, r.body";
/// Their tables, with the author's account. A record is found by number, by hash or by its place in a
/// lane, never by author or collection: the signs keep the planner from it.
pub(super) const ROW_FROM: &str =
    "record r JOIN key k ON k.id = +r.author JOIN collection c ON c.id = +r.collection
     LEFT JOIN account a ON a.key = r.author";
/// Live, and its author visible (visible statuses are even).
pub(super) const VISIBLE: &str = "r.state = 0 AND coalesce(a.status, 0) % 2 = 0";

pub(super) fn to_row(row: &SqlRow<'_>) -> Result<Row, Error> {
    let (did, collection, rkey): (String, String, String) = (row.get(1)?, row.get(2)?, row.get(3)?);
    let cid: Option<Vec<u8>> = row.get(4)?;
    Ok(Row {
        id: row.get(0)?,
        uri: format!("at://{did}/{collection}/{rkey}"),
        did,
        collection,
        rkey,
        cid: cid
            .and_then(|bytes| record::cid::Cid::from_bytes(&bytes).ok())
            .map(|cid| cid.to_string()),
        time_us: row.get(5)?,
        body: row.get(6)?,
    })
}

pub(super) fn split(uri: &str) -> Option<(&str, &str, &str)> {
    let mut parts = uri.strip_prefix("at://")?.splitn(3, '/');
    Some((parts.next()?, parts.next()?, parts.next()?))
}

pub(super) fn record(connection: &Connection, uri: &str) -> Result<Option<Row>, Error> {
    let Some((did, nsid, rkey)) = split(uri) else {
        return Ok(None);
    };
    connection
        .prepare_cached(&format!(
            "SELECT {ROW} FROM {ROW_FROM} WHERE r.hash = ?1 AND r.rkey = ?2 AND k.text = ?3 AND c.nsid = ?4 AND {VISIBLE}"
        ))?
        .query_row(params![hash(uri), rkey, did, nsid], to_row)
        .optional()
}

/// The body of the live record at `uri`, whether its author is visible or not.
pub(super) fn live(connection: &Connection, uri: &str) -> Result<Option<String>, Error> {
    let Some((did, nsid, rkey)) = split(uri) else {
        return Ok(None);
    };
    connection
        .prepare_cached(
            "SELECT r.body FROM record r JOIN key k ON k.id = +r.author JOIN collection c ON c.id = +r.collection
             WHERE r.hash = ?1 AND r.rkey = ?2 AND k.text = ?3 AND c.nsid = ?4 AND r.state = 0",
        )?
        .query_row(params![hash(uri), rkey, did, nsid], |row| row.get(0))
        .optional()
}

/// The tables of a [`Row`] whose author may be hidden.
const KEPT_FROM: &str =
    "record r JOIN key k ON k.id = +r.author JOIN collection c ON c.id = +r.collection";

pub(super) fn kept(connection: &Connection, ids: &[i64]) -> Result<Vec<Row>, Error> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {ROW} FROM {KEPT_FROM} WHERE r.id = ?1 AND r.state = 0"
    ))?;
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        found.extend(statement.query_row([id], to_row).optional()?);
    }
    Ok(found)
}

pub(super) fn kept_after(
    connection: &Connection,
    after: i64,
    limit: usize,
) -> Result<Vec<Row>, Error> {
    connection
        .prepare_cached(&format!(
            "SELECT {ROW} FROM {KEPT_FROM} WHERE r.id > ?1 AND r.state = 0 ORDER BY r.id LIMIT ?2"
        ))?
        .query_map(params![after, limit as i64], to_row)?
        .collect()
}

/// Visible records by their numbers, in this order, until they are as many bytes as a page may have.
pub(super) fn rows(connection: &Connection, ids: &[i64]) -> Result<Vec<Row>, Error> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {ROW} FROM {ROW_FROM} WHERE r.id = ?1 AND {VISIBLE}"
    ))?;
    let mut page = Page::default();
    page.rows.reserve(ids.len());
    for id in ids {
        if let Some(row) = statement.query_row([id], to_row).optional()? {
            page.push(row);
        }
        if page.is_full(usize::MAX) {
            break;
        }
    }
    Ok(page.rows)
}

/// The newest handle of an account.
pub(super) fn handle(connection: &Connection, did: &str) -> Result<Option<String>, Error> {
    let Some(key) = find_key(connection, did)? else {
        return Ok(None);
    };
    let handle = connection
        .prepare_cached("SELECT handle FROM account WHERE key = ?1")?
        .query_row([key], |row| row.get(0))
        .optional()?;
    Ok(handle.flatten())
}

pub(super) fn position(connection: &Connection, uri: &str) -> Result<Option<Position>, Error> {
    let Some((did, nsid, rkey)) = split(uri) else {
        return Ok(None);
    };
    let (Some(author), Some(collection)) = (
        find_key(connection, did)?,
        find_collection(connection, nsid)?,
    ) else {
        return Ok(None);
    };
    let time = connection
        .prepare_cached("SELECT time FROM record WHERE hash = ?1 AND author = ?2 AND collection = ?3 AND rkey = ?4")?
        .query_row(params![hash(uri), author, collection, rkey], |row| row.get(0))
        .optional()?;
    Ok(time.map(|time_us| Position {
        time_us,
        uri: uri.to_owned(),
    }))
}

/// The part of a URI that sorts within one collection.
pub(super) fn tail(uri: &str) -> String {
    split(uri).map_or_else(String::new, |(did, _, rkey)| format!("{did}/{rkey}"))
}

/// The URI behind a tail. In a lane of several collections (its `nsid` is empty) the tail names its own.
pub(super) fn uri(nsid: &str, tail: &str) -> String {
    match tail.split_once('/') {
        Some((did, rkey)) if !nsid.is_empty() => format!("at://{did}/{nsid}/{rkey}"),
        _ => format!("at://{tail}"),
    }
}

/// Rows looked at together where filters may let few of them through.
const FILTER_CHUNK: usize = 500;

pub(super) fn list(
    connection: &Connection,
    plan: &Plan,
    ids: &Ids,
    query: &ListQuery,
) -> Result<Page, Error> {
    let Some(&lane) = ids.lanes.get(query.lane.0) else {
        return Ok(Page::default());
    };
    let key = match &query.did {
        Some(did) => match find_key(connection, did)? {
            Some(key) => Some(key),
            None => return Ok(Page::default()),
        },
        None => None,
    };
    if let Some(planned) = plan.lanes.get(query.lane.0) {
        let pick = Pick {
            connection,
            nsid: &planned.nsid,
            lane,
            gate: key.map_or(Gate::All, Gate::Key),
            lens: &query.lens,
            ids,
            plan,
            before: query.before.as_ref(),
            limit: query.limit,
            scan_max: query.scan_max,
        };
        let walk = |scan_max| scan(connection, ids, lane, key, query, scan_max);
        if let Some(page) = pick.page(&walk)? {
            return Ok(page);
        }
    }
    scan(connection, ids, lane, key, query, query.scan_max)
}

/// Walks the lane, and holds each record against the filters.
fn scan(
    connection: &Connection,
    ids: &Ids,
    lane: i64,
    key: Option<i64>,
    query: &ListQuery,
    scan_max: usize,
) -> Result<Page, Error> {
    let mut before = query.before.clone();
    let mut page = Page::default();
    let mut looked = 0;
    loop {
        // One more than asked tells whether there is more.
        let chunk = match query.lens.is_plain() {
            true => query.limit + 1,
            false => FILTER_CHUNK,
        };
        let (rows, ended) = rows_below(connection, lane, key, before.as_ref(), chunk)?;
        for row in rows {
            before = Some(row.position());
            looked += 1;
            if !passes(connection, ids, &query.lens, &row)? {
                continue;
            }
            if page.is_full(query.limit) {
                return Ok(page.ended());
            }
            page.push(row);
        }
        if ended || looked >= scan_max {
            return Ok(Page {
                next: before.filter(|_| !ended),
                ..page
            });
        }
    }
}

/// The next visible rows of a lane, or of one key in it, and whether they are the last.
fn rows_below(
    connection: &Connection,
    lane: i64,
    key: Option<i64>,
    before: Option<&Position>,
    limit: usize,
) -> Result<(Vec<Row>, bool), Error> {
    let (time, tail) = match before {
        Some(position) => (position.time_us, tail(&position.uri)),
        None => (i64::MAX, String::new()),
    };
    let shelf = Shelf::of(lane);
    let Shelf { recent, number, .. } = shelf;
    match key {
        Some(key) => {
            let stem = shelf.stem(connection, key)?;
            let below = (time, stem.below(&tail));
            visible_below(connection, shelf, key, below, limit)
        }
        None => {
            let mut statement = connection.prepare_cached(&format!(
                "SELECT {ROW} FROM {recent} p CROSS JOIN {ROW_FROM} WHERE p.lane = ?1 AND (p.time, p.tail) < (?2, ?3)
                 AND r.id = p.record AND {VISIBLE} ORDER BY p.time DESC, p.tail DESC LIMIT ?4"
            ))?;
            let rows = statement.query_map(params![number, time, tail, limit as i64], to_row)?;
            let mut page = Page::default();
            for row in rows {
                page.push(row?);
                if page.is_full(limit) {
                    return Ok((page.rows, false));
                }
            }
            Ok((page.rows, true))
        }
    }
}

/// The next visible rows under a key.
fn visible_below(
    connection: &Connection,
    shelf: Shelf,
    key: i64,
    (mut time, tie): (i64, &str),
    limit: usize,
) -> Result<(Vec<Row>, bool), Error> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {ROW} FROM {ROW_FROM} WHERE r.id = ?1 AND {VISIBLE}"
    ))?;
    let (mut tie, mut page) = (tie.to_owned(), Page::default());
    loop {
        let wanted = limit - page.rows.len();
        let placed = shelf.below(connection, key, (time, &tie), wanted)?;
        let ended = placed.len() < wanted;
        for placed in placed {
            if let Some(row) = statement.query_row([placed.record], to_row).optional()? {
                page.push(row);
            }
            if page.is_full(limit) {
                return Ok((page.rows, false));
            }
            (time, tie) = (placed.time, placed.tie);
        }
        if ended {
            return Ok((page.rows, true));
        }
    }
}

pub(super) fn accounting(
    connection: &Connection,
    source: Option<&str>,
) -> Result<Accounting, Error> {
    connection
        .prepare_cached(
            "SELECT sum(applied), sum(repeated), sum(superseded), sum(filtered), sum(pending), sum(parked), sum(held),
                sum(dead), sum(received) FROM source WHERE ?1 IS NULL OR name = ?1",
        )?
        .query_row([source], |row| {
            let count = |index| row.get::<_, Option<i64>>(index).map(Option::unwrap_or_default);
            Ok(Accounting {
                applied: count(0)?,
                repeated: count(1)?,
                superseded: count(2)?,
                filtered: count(3)?,
                pending: count(4)?,
                parked: count(5)?,
                held: count(6)?,
                dead: count(7)?,
                received: count(8)?,
            })
        })
}

pub(super) fn account(connection: &Connection, did: &str) -> Result<Option<AccountState>, Error> {
    let Some(key) = find_key(connection, did)? else {
        return Ok(None);
    };
    connection
        .prepare_cached("SELECT status, repair, doubt FROM account WHERE key = ?1")?
        .query_row([key], |row| {
            Ok(AccountState {
                status: AccountStatus::from_code(row.get(0)?),
                rev: tip::find(connection, key)?.rev,
                broken: row.get::<_, i64>(1)? != super::accounts::IN_STEP,
                doubtful: row.get(2)?,
            })
        })
        .optional()
}

pub(super) fn counts(connection: &Connection) -> Result<Counts, Error> {
    let mut size = connection.prepare_cached("SELECT rows FROM size WHERE name = ?1")?;
    let mut count = |table: &str| size.query_row([table], |row| row.get(0));
    Ok(Counts {
        records: connection
            .prepare_cached("SELECT nsid, live FROM collection ORDER BY nsid")?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?,
        accounts: count("account")?,
        dead: count("dead")?,
        held: count("held")?,
        unmerged: count("unmerged")?,
    })
}

const _: () = assert!(LIVE == 0); // VISIBLE spells it out for the query planner
