//! Rows derived from records: lanes and follows.
//!
//! A record's old rows are found by deriving its old body again, so nothing
//! else has to remember them.

use rusqlite::{Connection, Error, params};

use super::group::{self, Touch};
use super::names::Names;
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
        format!("{}/{}", self.did, self.rkey)
    }
}

/// Lane and source numbers of the plan, as this file knows them.
#[derive(Debug, Clone, Default)]
pub(super) struct Ids {
    pub(super) lanes: Vec<i64>,
    pub(super) sources: Vec<i64>,
    pub(super) ladders: Vec<i64>,
}

/// Derives a stored body again.
pub(super) fn of_body(plan: &Plan, nsid: &str, did: &str, body: &str) -> Derived {
    // What was stored was parsed once; a body that no longer parses derived nothing.
    record::json::from_json(body).map_or_else(
        |_| Derived::default(),
        |value| plan.derive(nsid, did, &value),
    )
}

/// Adds a record's rows; returns its places and pushes follow changes.
pub(super) fn add(
    tx: &Connection,
    names: &mut Names,
    ids: &Ids,
    subject: Subject<'_>,
    derived: &Derived,
    changes: &mut Vec<Change>,
) -> Result<Vec<Published>, Error> {
    let tail = subject.tail();
    let mut places = Vec::with_capacity(derived.lanes.len());
    for (lane, keys) in &derived.lanes {
        let Some(&lane) = ids.lanes.get(lane.0) else {
            continue;
        };
        let mut numbers = Vec::with_capacity(keys.len());
        for key in keys {
            numbers.push(names.key(tx, key)?);
        }
        if has_rows(lane) {
            for key in &numbers {
                tx.prepare_cached("INSERT OR REPLACE INTO published (lane, key, time, tail, record) VALUES (?1, ?2, ?3, ?4, ?5)")?
                    .execute(params![lane, key, subject.time, tail, subject.record])?;
            }
            tx.prepare_cached("INSERT OR REPLACE INTO recent (lane, time, tail, record, keys) VALUES (?1, ?2, ?3, ?4, ?5)")?
                .execute(params![lane, subject.time, tail, subject.record, pack(&numbers)])?;
        }
        places.push(Published {
            lane,
            time_us: subject.time,
            author: subject.author,
            keys: numbers,
        });
    }
    group::touch(
        tx,
        names,
        ids,
        subject,
        &derived.parts,
        Touch::Came,
        changes,
    )?;
    for (source, key) in &derived.follows {
        let Some(&source) = ids.sources.get(source.0) else {
            continue;
        };
        let key = names.key(tx, key)?;
        tx.prepare_cached(
            "INSERT OR IGNORE INTO follow (source, reader, key, record) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![source, subject.author, key, subject.record])?;
        changes.push(Change::Follow {
            source,
            reader: subject.author,
            key,
        });
    }
    Ok(places)
}

/// Removes a record's rows; `time` is the one they were added with. Returns where it stood.
pub(super) fn remove(
    tx: &Connection,
    names: &mut Names,
    ids: &Ids,
    subject: Subject<'_>,
    derived: &Derived,
    changes: &mut Vec<Change>,
) -> Result<Vec<Published>, Error> {
    let tail = subject.tail();
    let mut places = Vec::with_capacity(derived.lanes.len());
    for (lane, keys) in &derived.lanes {
        let Some(&lane) = ids.lanes.get(lane.0) else {
            continue;
        };
        let mut numbers = Vec::with_capacity(keys.len());
        for key in keys {
            numbers.push(names.key(tx, key)?);
        }
        if has_rows(lane) {
            for key in &numbers {
                tx.prepare_cached(
                    "DELETE FROM published WHERE lane = ?1 AND key = ?2 AND time = ?3 AND tail = ?4",
                )?
                .execute(params![lane, key, subject.time, tail])?;
            }
            tx.prepare_cached("DELETE FROM recent WHERE lane = ?1 AND time = ?2 AND tail = ?3")?
                .execute(params![lane, subject.time, tail])?;
        }
        places.push(Published {
            lane,
            time_us: subject.time,
            author: subject.author,
            keys: numbers,
        });
    }
    group::touch(
        tx,
        names,
        ids,
        subject,
        &derived.parts,
        Touch::Goes,
        changes,
    )?;
    for (source, key) in &derived.follows {
        let Some(&source) = ids.sources.get(source.0) else {
            continue;
        };
        let key = names.key(tx, key)?;
        tx.prepare_cached(
            "DELETE FROM follow WHERE source = ?1 AND reader = ?2 AND key = ?3 AND record = ?4",
        )?
        .execute(params![source, subject.author, key, subject.record])?;
        changes.push(Change::Unfollow {
            source,
            reader: subject.author,
            key,
        });
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
