//! Rows derived from records: lanes and follows.
//!
//! A record's old rows are found by deriving its old body again, so nothing
//! else has to remember them.

use std::collections::BTreeMap;

use rusqlite::{Connection, Error, params};

use super::group::{self, Touch};
use super::memory::Memory;
use super::names::find_key;
use super::read::split;
use super::shelf::has_rows;
use crate::store::change::{Change, Published};
use crate::store::plan::{Derived, Plan};

/// Where one record's rows hang.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) record: i64,
    pub(super) author: i64,
    pub(super) did: &'a str,
    pub(super) rkey: &'a str,
    pub(super) time: i64,
}

impl Subject<'_> {
    pub(super) fn tail(&self) -> String {
        [self.did, "/", self.rkey].concat()
    }
}

/// Lane and source numbers of the plan, as this file knows them.
#[derive(Debug, Clone, Default)]
pub(super) struct Ids {
    /// Under which layout they hold.
    pub(super) layout: i64,
    pub(super) lanes: Vec<i64>,
    pub(super) sources: Vec<i64>,
    pub(super) ladders: Vec<i64>,
    /// For each feed, the layout under which a reader's history must have come.
    pub(super) needed: BTreeMap<String, i64>,
}

/// Derives a stored body again.
pub(super) fn of_body(plan: &Plan, nsid: &str, did: &str, body: &str) -> Derived {
    // What was stored was parsed once; a body that no longer parses derived nothing.
    record::json::from_json(body).map_or_else(
        |_| Derived::default(),
        |value| plan.derive(nsid, did, &value),
    )
}

/// The key of who wrote a stored record: of its account, unless an app wrote it for a person.
pub(super) fn writer(
    connection: &Connection,
    plan: &Plan,
    (uri, body): (&str, &str),
    account: i64,
) -> Result<i64, Error> {
    let (did, nsid, _) = split(uri).unwrap_or_default();
    if !plan.is_direct(nsid) {
        return Ok(account);
    }
    let value = record::json::from_json(body).ok();
    let person = value.and_then(|value| plan.person(nsid, did, &value));
    Ok(match person {
        Some(person) => find_key(connection, &person)?.unwrap_or(account),
        None => account,
    })
}

/// Where a record stands; `row` is called for each lane that has rows of its own.
fn places(
    tx: &Connection,
    memory: &mut Memory,
    ids: &Ids,
    subject: Subject<'_>,
    derived: &Derived,
    mut row: impl FnMut(i64, &[i64]) -> Result<(), Error>,
) -> Result<Vec<Published>, Error> {
    let mut places = Vec::with_capacity(derived.lanes.len());
    let author = match &derived.person {
        Some(person) if !derived.lanes.is_empty() => memory.key(tx, person)?,
        _ => subject.author,
    };
    for (lane, keys) in &derived.lanes {
        let Some(&lane) = ids.lanes.get(lane.0) else {
            continue;
        };
        let numbers = keys.iter().map(|key| memory.key(tx, key));
        let keys = numbers.collect::<Result<Vec<i64>, Error>>()?;
        if has_rows(lane) {
            row(lane, &keys)?;
        }
        places.push(Published {
            lane,
            time_us: subject.time,
            author,
            keys,
        });
    }
    Ok(places)
}

/// The sources of follows that a record is in, each with the key that it follows.
fn follows(
    tx: &Connection,
    memory: &mut Memory,
    ids: &Ids,
    derived: &Derived,
) -> Result<Vec<(i64, i64)>, Error> {
    let known = derived.follows.iter();
    let known = known.filter_map(|(source, key)| Some((*ids.sources.get(source.0)?, key)));
    known
        .map(|(source, key)| Ok((source, memory.key(tx, key)?)))
        .collect()
}

/// Adds a record's rows, or removes those that its time and body gave it; returns its places
/// and pushes follow changes. `live`: it happened just now.
pub(super) fn touch(
    tx: &Connection,
    memory: &mut Memory,
    ids: &Ids,
    subject: Subject<'_>,
    derived: &Derived,
    (touch, live): (Touch, bool),
    changes: &mut Vec<Change>,
) -> Result<Vec<Published>, Error> {
    let (tail, time, record) = (subject.tail(), subject.time, subject.record);
    let places = places(tx, memory, ids, subject, derived, |lane, keys| {
        for key in keys {
            match touch {
                Touch::Came => tx
                    .prepare_cached("INSERT OR REPLACE INTO published (lane, key, time, tail, record) VALUES (?1, ?2, ?3, ?4, ?5)")?
                    .execute(params![lane, key, time, tail, record])?,
                Touch::Goes => tx
                    .prepare_cached("DELETE FROM published WHERE lane = ?1 AND key = ?2 AND time = ?3 AND tail = ?4")?
                    .execute(params![lane, key, time, tail])?,
            };
        }
        match touch {
            Touch::Came => tx
                .prepare_cached("INSERT OR REPLACE INTO recent (lane, time, tail, record, keys) VALUES (?1, ?2, ?3, ?4, ?5)")?
                .execute(params![lane, time, tail, record, pack(keys)])?,
            Touch::Goes => tx
                .prepare_cached("DELETE FROM recent WHERE lane = ?1 AND time = ?2 AND tail = ?3")?
                .execute(params![lane, time, tail])?,
        };
        Ok(())
    })?;
    group::touch(tx, memory, ids, subject, &derived.parts, touch, live)?;
    let reader = subject.author;
    for (source, key) in follows(tx, memory, ids, derived)? {
        let (sql, change) = match touch {
            Touch::Came => (
                "INSERT OR IGNORE INTO follow (source, reader, key, record) VALUES (?1, ?2, ?3, ?4)",
                Change::Follow {
                    source,
                    reader,
                    key,
                },
            ),
            Touch::Goes => (
                "DELETE FROM follow WHERE source = ?1 AND reader = ?2 AND key = ?3 AND record = ?4",
                Change::Unfollow {
                    source,
                    reader,
                    key,
                },
            ),
        };
        tx.prepare_cached(sql)?
            .execute([source, reader, key, record])?;
        changes.push(change);
    }
    Ok(places)
}

/// Key numbers as bytes, eight each.
pub(super) fn pack(keys: &[i64]) -> Vec<u8> {
    keys.iter().flat_map(|key| key.to_le_bytes()).collect()
}

/// The key numbers in packed bytes.
pub(super) fn unpack(bytes: &[u8]) -> impl Iterator<Item = i64> + '_ {
    bytes
        .chunks_exact(8)
        .filter_map(|chunk| Some(i64::from_le_bytes(chunk.try_into().ok()?)))
}
