//! What timelines in memory start from.

use rusqlite::{Connection, Error, params};

use super::derive::{Ids, writer};
use super::outbox;
use super::read::uri;
use super::shelf::{Shelf, keys_in};
use crate::store::change::Loaded;
use crate::store::plan::{LaneId, Plan, SourceId};

/// Visits hidden accounts and each lane's newest records; returns the outbox position.
pub(super) fn load(
    connection: &Connection,
    plan: &Plan,
    ids: &Ids,
    lane_max: usize,
    visit: &mut dyn FnMut(Loaded<'_>),
) -> Result<i64, Error> {
    let head = outbox::head(connection)?;
    let mut hidden = connection.prepare("SELECT key FROM account WHERE status % 2 = 1")?;
    for key in hidden.query_map([], |row| row.get(0))? {
        visit(Loaded::Hidden { key: key? });
    }
    for (at, (lane, &number)) in plan.lanes.iter().zip(&ids.lanes).enumerate() {
        let shelf = Shelf::of(number);
        let collections = plan.collections_of(LaneId(at));
        let is_apps = collections.iter().any(|nsid| plan.is_direct(nsid));
        // It says who wrote the record, where an app did for a person.
        let body = if is_apps { "r.body" } else { "NULL" };
        let mut statement = connection.prepare_cached(&format!(
            "SELECT p.time, p.tail, p.record, p.keys, r.author, {body} FROM {} p CROSS JOIN record r
             WHERE p.lane = ?1 AND r.id = p.record ORDER BY p.time DESC, p.tail DESC LIMIT ?2",
            shelf.recent
        ))?;
        let mut rows = statement.query(params![shelf.number, lane_max as i64])?;
        let (mut count, mut last) = (0, None);
        while let Some(row) = rows.next()? {
            let tail: String = row.get(1)?;
            let uri = uri(&lane.nsid, &tail);
            let keys: Vec<i64> = keys_in(row.get_ref(3)?)?.collect();
            let time_us = row.get(0)?;
            let body = row.get_ref(5)?.as_str_or_null()?.unwrap_or("null");
            let author = writer(connection, plan, (&uri, body), row.get(4)?)?;
            visit(Loaded::Record {
                lane: number,
                record: row.get(2)?,
                time_us,
                uri: &uri,
                author,
                keys: &keys,
            });
            count += 1;
            last = Some(time_us);
        }
        visit(Loaded::LaneEnd {
            lane: number,
            floor_us: last.filter(|_| count >= lane_max),
        });
    }
    Ok(head)
}

/// The keys that a reader's records of these sources name, one for each record.
pub(super) fn keys(
    connection: &Connection,
    ids: &Ids,
    sources: &[SourceId],
    reader: i64,
) -> Result<Vec<i64>, Error> {
    let mut keys = Vec::new();
    for source in sources {
        let Some(source) = ids.sources.get(source.0) else {
            continue;
        };
        let mut statement = connection
            .prepare_cached("SELECT key FROM follow WHERE source = ?1 AND reader = ?2")?;
        for key in statement.query_map(params![source, reader], |row| row.get(0))? {
            keys.push(key?);
        }
    }
    Ok(keys)
}
