//! Records' places in time follow the configuration.
//!
//! In:    the plan, at start, and the time field under which each collection's records were stored.
//! Out:   where the field became another one, every record with the time that it now has.
//! Never: records of one collection in the order of two fields.
//!
//! What waits to be applied carries its time along, so it is given the new one too.
//! Rows of lanes and ladders hold times as well; their specs name the field, so
//! they are made anew after this.

use rusqlite::{Connection, Error, params};
use tracing::info;

use super::memory::{IDS_MAX, Memory};
use super::shelf;
use crate::clock::Micros;
use crate::store::plan::Plan;

/// Records read, and moved, together.
const SLICE: usize = if cfg!(debug_assertions) { 16 } else { 10_000 };

/// The place in time of a record that says `told` of itself: nothing is later than its first sight.
pub(super) fn time_of(told: Option<Micros>, seen: Micros) -> Micros {
    told.filter(|told| *told <= seen).unwrap_or(seen)
}

/// What a body says of its time.
fn told(body: &str, path: Option<&str>) -> Option<Micros> {
    let value = record::json::from_json(body).ok()?;
    record::datetime::parse_us(value.at(path?)?.text()?)
}

/// How the field is written down; first sight has no path.
fn text(path: &Option<String>) -> &str {
    path.as_deref().unwrap_or_default()
}

/// Gives records the times of the plan's fields; how many collections have another field than before.
pub(super) fn align(tx: &Connection, plan: &Plan) -> Result<usize, Error> {
    let mut memory = Memory::new(IDS_MAX);
    let mut changed = 0;
    for (nsid, path) in &plan.times {
        let collection = memory.collection(tx, nsid)?;
        let stored: Option<String> = tx.query_row(
            "SELECT time FROM collection WHERE id = ?1",
            [collection],
            |row| row.get(0),
        )?;
        if stored.as_deref() == Some(text(path)) {
            continue;
        }
        if stored.is_some() {
            info!(
                nsid,
                was = stored,
                now = text(path),
                "the time field changed: records get their new times"
            );
            move_records(tx, &mut memory, collection, path.as_deref())?;
            move_waiting(tx, collection, path.as_deref())?;
            changed += 1;
        }
        tx.execute(
            "UPDATE collection SET time = ?2 WHERE id = ?1",
            params![collection, text(path)],
        )?;
    }
    Ok(changed)
}

/// Whether the records have the times of the plan's fields already.
pub(super) fn is_aligned(tx: &Connection, plan: &Plan) -> Result<bool, Error> {
    let mut statement = tx.prepare("SELECT nsid, time FROM collection WHERE time IS NOT NULL")?;
    let stored = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let stored = stored.collect::<Result<Vec<(String, String)>, Error>>()?;
    let is_known = |(nsid, path): (&String, &Option<String>)| {
        let mut stored = stored.iter();
        stored.any(|(other, time)| other == nsid && time == text(path))
    };
    Ok(plan.times.iter().all(is_known))
}

/// A record whose time may be another one.
struct Stored {
    id: i64,
    author: i64,
    rkey: String,
    time: i64,
    seen: i64,
    body: Option<String>,
}

fn move_records(
    tx: &Connection,
    memory: &mut Memory,
    collection: i64,
    path: Option<&str>,
) -> Result<(), Error> {
    let mut after = 0;
    loop {
        let records = slice(tx, collection, after)?;
        let Some(last) = records.last() else {
            return Ok(());
        };
        after = last.id;
        for it in &records {
            let body = it.body.as_deref().unwrap_or("null");
            let time = time_of(told(body, path), it.seen);
            if time == it.time {
                continue;
            }
            let at = |time| shelf::authored(collection, it.author, time, &it.rkey, it.id);
            memory.authored.remove(&at(it.time));
            memory.authored.add(&at(time));
            tx.prepare_cached("UPDATE record SET time = ?2 WHERE id = ?1")?
                .execute([it.id, time])?;
        }
        memory.authored.settle(tx)?;
    }
}

fn slice(tx: &Connection, collection: i64, after: i64) -> Result<Vec<Stored>, Error> {
    tx.prepare_cached(
        "SELECT id, author, rkey, time, seen, body FROM record NOT INDEXED
         WHERE id > ?1 AND collection = ?2 AND state = 0 ORDER BY id LIMIT ?3",
    )?
    .query_map(params![after, collection, SLICE as i64], |row| {
        Ok(Stored {
            id: row.get(0)?,
            author: row.get(1)?,
            rkey: row.get(2)?,
            time: row.get(3)?,
            seen: row.get(4)?,
            body: row.get(5)?,
        })
    })?
    .collect()
}

/// The same for what is parked and for what waits in a queue: there the time is what the record says.
fn move_waiting(tx: &Connection, collection: i64, path: Option<&str>) -> Result<(), Error> {
    for table in ["parked", "pending"] {
        let mut after = 0;
        loop {
            let rows: Vec<(i64, String)> = tx
                .prepare_cached(&format!(
                    "SELECT id, body FROM {table} WHERE id > ?1 AND collection = ?2 AND body IS NOT NULL ORDER BY id LIMIT ?3"
                ))?
                .query_map(params![after, collection, SLICE as i64], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })?
                .collect::<Result<_, _>>()?;
            let Some((last, _)) = rows.last() else { break };
            after = *last;
            for (id, body) in &rows {
                tx.prepare_cached(&format!("UPDATE {table} SET time = ?2 WHERE id = ?1"))?
                    .execute(params![id, told(body, path)])?;
            }
        }
    }
    Ok(())
}
