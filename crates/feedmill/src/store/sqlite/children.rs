//! Records that name a parent: counted, and the newest of each parent's.
//!
//! A relation is a lane whose keys are parents, so each parent's children are
//! found by one seek, and a parent with many takes nothing from the others.
//! How many there are is kept, not counted.

use rusqlite::{Connection, Error, OptionalExtension, params};

use super::derive::Ids;
use super::names::find_key;
use super::read::{ROW, ROW_FROM, VISIBLE, to_row};
use crate::store::page::{Children, Row};
use crate::store::plan::LaneId;

/// Bytes of the children shown with one parent; the first is shown however large it is.
const CHILDREN_BYTES_MAX: usize = 256 << 10;

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

/// The newest children of a parent, as many as were asked for or as fit.
fn newest(connection: &Connection, lane: i64, key: i64, limit: usize) -> Result<Vec<Row>, Error> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {ROW} FROM published p CROSS JOIN {ROW_FROM} WHERE p.lane = ?1 AND p.key = ?2
         AND r.id = p.record AND {VISIBLE} ORDER BY p.time DESC, p.tail DESC LIMIT ?3"
    ))?;
    let (mut rows, mut bytes) = (Vec::new(), 0);
    for row in statement.query_map(params![lane, key, limit as i64], to_row)? {
        let row = row?;
        bytes += row.bytes();
        if bytes > CHILDREN_BYTES_MAX && !rows.is_empty() {
            break;
        }
        rows.push(row);
    }
    Ok(rows)
}

fn of_one(connection: &Connection, lane: i64, key: i64, limit: usize) -> Result<Children, Error> {
    let count = connection
        .prepare_cached("SELECT count FROM tally WHERE lane = ?1 AND key = ?2")?
        .query_row(params![lane, key], |row| row.get(0))
        .optional()?;
    let rows = if limit == 0 {
        Vec::new()
    } else {
        newest(connection, lane, key, limit)?
    };
    Ok(Children {
        count: count.unwrap_or(0),
        rows,
    })
}
