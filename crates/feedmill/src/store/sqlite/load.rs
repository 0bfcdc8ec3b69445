//! What timelines in memory start from.

use rusqlite::{Connection, Error, OptionalExtension, params};

use super::derive::{Ids, writer};
use super::read::uri;
use super::shelf::{Shelf, keys_in};
use crate::store::change::{LoadPlace, Loaded};
use crate::store::plan::{LaneId, Plan, SourceId};

/// How many live records the collections of each lane hold.
pub(super) fn sizes(connection: &Connection, plan: &Plan) -> Result<Vec<u64>, Error> {
    let mut live = connection.prepare_cached("SELECT live FROM collection WHERE nsid = ?1")?;
    let mut size = |at| {
        let mut records = 0u64;
        for nsid in plan.collections_of(LaneId(at)) {
            let found: Option<i64> = live.query_row([nsid], |row| row.get(0)).optional()?;
            records += found.unwrap_or(0).max(0).cast_unsigned();
        }
        Ok(records)
    };
    (0..plan.lanes.len()).map(&mut size).collect()
}

/// Rows visited in one snapshot. A longer one would keep the log of changes from being moved into
/// the file while a large store is loaded.
const SLICE: usize = if cfg!(debug_assertions) { 3 } else { 20_000 };

/// Visits hidden accounts, or some of a lane's newest records; returns where the next slice begins.
pub(super) fn slice(
    connection: &Connection,
    known: (&Plan, &Ids),
    from: LoadPlace,
    lane_max: usize,
    visit: &mut dyn FnMut(Loaded<'_>),
) -> Result<Option<LoadPlace>, Error> {
    match from {
        LoadPlace::Hidden(after) => hidden(connection, after, visit).map(Some),
        LoadPlace::Lane { at, below, visited } => {
            let lane = Lane {
                connection,
                known,
                at,
                lane_max,
            };
            lane.slice(&below, visited, visit)
        }
    }
}

fn hidden(
    connection: &Connection,
    after: i64,
    visit: &mut dyn FnMut(Loaded<'_>),
) -> Result<LoadPlace, Error> {
    let mut hidden = connection.prepare_cached(
        "SELECT key FROM account WHERE status % 2 = 1 AND key > ?1 ORDER BY key LIMIT ?2",
    )?;
    let keys = hidden.query_map(params![after, SLICE as i64], |row| row.get(0))?;
    let keys: Vec<i64> = keys.collect::<Result<_, _>>()?;
    for &key in &keys {
        visit(Loaded::Hidden { key });
    }
    Ok(match keys.last() {
        Some(&last) if keys.len() >= SLICE => LoadPlace::Hidden(last),
        _ => LoadPlace::lane(0),
    })
}

/// One lane of a plan.
struct Lane<'a> {
    connection: &'a Connection,
    known: (&'a Plan, &'a Ids),
    at: usize,
    lane_max: usize,
}

impl Lane<'_> {
    fn slice(
        &self,
        (time, tail): &(i64, String),
        visited: usize,
        visit: &mut dyn FnMut(Loaded<'_>),
    ) -> Result<Option<LoadPlace>, Error> {
        let (plan, ids) = self.known;
        let (Some(lane), Some(&number)) = (plan.lanes.get(self.at), ids.lanes.get(self.at)) else {
            return Ok(None); // the one before was the last
        };
        let shelf = Shelf::of(number);
        let collections = plan.collections_of(LaneId(self.at));
        let is_apps = collections.iter().any(|nsid| plan.is_direct(nsid));
        // It says who wrote the record, where an app did for a person.
        let body = if is_apps { "r.body" } else { "NULL" };
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT p.time, p.tail, p.record, p.keys, r.author, {body} FROM {} p CROSS JOIN record r
             WHERE p.lane = ?1 AND r.id = p.record AND (p.time, p.tail) < (?2, ?3)
             ORDER BY p.time DESC, p.tail DESC LIMIT ?4",
            shelf.recent
        ))?;
        let wanted = SLICE.min(self.lane_max.saturating_sub(visited));
        let mut rows = statement.query(params![shelf.number, time, tail, wanted as i64])?;
        let (mut found, mut last) = (0, None);
        while let Some(row) = rows.next()? {
            let (time_us, tail): (i64, String) = (row.get(0)?, row.get(1)?);
            let uri = uri(&lane.nsid, &tail);
            let keys: Vec<i64> = keys_in(row.get_ref(3)?)?.collect();
            let body = row.get_ref(5)?.as_str_or_null()?.unwrap_or("null");
            let author = writer(self.connection, plan, (&uri, body), row.get(4)?)?;
            visit(Loaded::Record {
                lane: number,
                record: row.get(2)?,
                time_us,
                uri: &uri,
                author,
                keys: &keys,
            });
            found += 1;
            last = Some((time_us, tail));
        }
        let visited = visited + found;
        let is_full = visited >= self.lane_max;
        if let Some(below) = last.clone().filter(|_| found == SLICE && !is_full) {
            let at = self.at;
            return Ok(Some(LoadPlace::Lane { at, below, visited }));
        }
        let lowest = last.map_or(*time, |(time_us, _)| time_us);
        visit(Loaded::LaneEnd {
            lane: number,
            floor_us: is_full.then_some(lowest),
        });
        Ok(Some(LoadPlace::lane(self.at + 1)))
    }
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
