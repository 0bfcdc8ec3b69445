//! Records that name a parent: counted, and the newest of each parent's.
//!
//! A relation is a lane whose keys are parents, so each parent's children are
//! found by one seek, and a parent with many takes nothing from the others.
//! How many there are is kept, not counted.

use rusqlite::{Connection, Error, OptionalExtension, params};

use super::derive::Ids;
use super::names::find_key;
use super::read::{ROW, ROW_FROM, VISIBLE, to_row};
use crate::store::page::Children;
use crate::store::plan::LaneId;

pub(super) fn children(
    connection: &Connection,
    ids: &Ids,
    lane: LaneId,
    parents: &[String],
    limit: usize,
) -> Result<Vec<Children>, Error> {
    let mut found = Vec::with_capacity(parents.len());
    for parent in parents {
        let key = find_key(connection, parent)?;
        found.push(match (ids.lanes.get(lane.0), key) {
            (Some(lane), Some(key)) => of_one(connection, *lane, key, limit)?,
            _ => Children::default(),
        });
    }
    Ok(found)
}

fn of_one(connection: &Connection, lane: i64, key: i64, limit: usize) -> Result<Children, Error> {
    let count = connection
        .prepare_cached("SELECT count FROM tally WHERE lane = ?1 AND key = ?2")?
        .query_row(params![lane, key], |row| row.get(0))
        .optional()?;
    let rows = if limit == 0 {
        Vec::new()
    } else {
        connection
            .prepare_cached(&format!(
                "SELECT {ROW} FROM published p CROSS JOIN {ROW_FROM} WHERE p.lane = ?1 AND p.key = ?2
                 AND r.id = p.record AND {VISIBLE} ORDER BY p.time DESC, p.tail DESC LIMIT ?3"
            ))?
            .query_map(params![lane, key, limit as i64], to_row)?
            .collect::<Result<_, _>>()?
    };
    Ok(Children {
        count: count.unwrap_or(0),
        rows,
    })
}
