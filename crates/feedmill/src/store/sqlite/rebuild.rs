//! Lanes and follow sources follow the configuration.
//!
//! At start each lane and source of the plan is found by its spec. A new one
//! is filled from the records, and one that is no longer wanted is dropped,
//! all before the store answers anybody. The layout then has another number,
//! and a process that began under the one before notices: it would write to
//! lanes that are gone, and read from them.

use rusqlite::{Connection, Error, Transaction, params};
use tracing::info;

use super::broken;
use super::cover;
use super::derive::{self, Ids, Subject};
use super::group::Touch;
use super::memory::{IDS_MAX, Memory};
use super::names;
use super::retime;
use super::shelf::lane_of;
use super::tally::Books;
use crate::store::plan::{Derived, Lane, LaneId, Plan};

/// Records of merged feeds that are regrouped together while a lane is filled.
const REGROUP_MAX: usize = if cfg!(debug_assertions) { 50 } else { 10_000 };

/// Brings derived rows in line with the plan; returns the numbers of its lanes and sources.
pub(super) fn align(connection: &mut Connection, plan: &Plan) -> Result<Ids, Error> {
    let tx = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // First, because rows are filled from the records' times.
    let retimed = retime::align(&tx, plan)?;
    let lane_specs: Vec<&str> = plan
        .lanes
        .iter()
        .filter(|lane| !plan.holds_all(lane))
        .map(|lane| lane.spec.as_str())
        .collect();
    let source_specs: Vec<&str> = plan
        .sources
        .iter()
        .map(|source| source.spec.as_str())
        .collect();
    let ladder_specs: Vec<&str> = plan.ladders.iter().map(|it| it.spec.as_str()).collect();
    let of_lanes = ["published", "recent", "tally", "voice", "part"];
    let dropped = drop_unwanted(&tx, "lane", &of_lanes, "lane", &lane_specs)?
        + drop_unwanted(&tx, "follow_source", &["follow"], "source", &source_specs)?
        + drop_unwanted(&tx, "ladder", &["rung"], "ladder", &ladder_specs)?;
    if dropped > 0 {
        let counted = "UPDATE size SET rows = (SELECT count(*) FROM part WHERE role = 2) WHERE name = 'unmerged'";
        tx.execute(counted, [])?;
    }
    let (lanes, new_lanes) = lane_numbers(&tx, plan)?;
    let (sources, new_sources) = numbers(&tx, "follow_source", &source_specs)?;
    let (ladders, new_ladders) = numbers(&tx, "ladder", &ladder_specs)?;
    let new = new_lanes.len() + new_sources.len() + new_ladders.len();
    // Who does not know of a collection would not keep it: that is another layout, too.
    if retimed + dropped + new + cover::keep(&tx, plan)? > 0 {
        tx.execute("UPDATE layout SET number = number + 1", [])?;
    }
    let ids = Ids {
        layout: layout(&tx)?,
        lanes,
        sources,
        ladders,
        needed: cover::needed(&tx, plan)?.unwrap_or_default(),
    };
    fill(&tx, plan, &ids, &new_lanes, &new_sources)?;
    raise(&tx, plan, &ids, &new_ladders)?;
    super::pending::align(&tx, plan)?;
    tx.commit()?;
    Ok(ids)
}

/// Fails if another process has laid the store out anew since `ids` were read.
pub(super) fn hold(connection: &Connection, ids: &Ids) -> Result<(), Error> {
    if layout(connection)? == ids.layout {
        return Ok(());
    }
    let cause = "another process has laid the store out for another configuration; start this one again with the file that one has";
    Err(Error::ToSqlConversionFailure(Box::new(broken(
        cause.into(),
    ))))
}

/// The number of the layout.
fn layout(connection: &Connection) -> Result<i64, Error> {
    let mut statement = connection.prepare_cached("SELECT number FROM layout")?;
    statement.query_row([], |row| row.get(0))
}

/// The numbers of the plan's lanes and sources, if the store is laid out for it and nothing else.
/// Changes nothing.
pub(super) fn find(connection: &mut Connection, plan: &Plan) -> Result<Option<Ids>, Error> {
    let tx = connection.transaction()?;
    let found = |table: &str, wanted: &[&str]| -> Result<Option<Vec<i64>>, Error> {
        let known = specs(&tx, table)?;
        let id = |spec: &&str| Some(known.iter().find(|(_, known)| known == spec)?.0);
        let ids: Option<Vec<i64>> = wanted.iter().map(id).collect();
        Ok(ids.filter(|ids| ids.len() == known.len()))
    };
    let own = |lane: &&Lane| !plan.holds_all(lane);
    let lane_specs: Vec<&str> = plan.lanes.iter().filter(own).map(|it| &*it.spec).collect();
    let source_specs: Vec<&str> = plan.sources.iter().map(|it| &*it.spec).collect();
    let ladder_specs: Vec<&str> = plan.ladders.iter().map(|it| &*it.spec).collect();
    let (Some(with_rows), Some(sources), Some(ladders)) = (
        found("lane", &lane_specs)?,
        found("follow_source", &source_specs)?,
        found("ladder", &ladder_specs)?,
    ) else {
        return Ok(None);
    };
    let is_timed = retime::is_aligned(&tx, plan)?;
    let mut with_rows = with_rows.into_iter();
    let mut lanes = Vec::with_capacity(plan.lanes.len());
    for lane in &plan.lanes {
        let number = match plan.holds_all(lane) {
            true => names::find_collection(&tx, &lane.nsid)?.map(lane_of),
            false => with_rows.next(),
        };
        let Some(number) = number else {
            return Ok(None);
        };
        lanes.push(number);
    }
    let Some(needed) = cover::needed(&tx, plan)?.filter(|_| is_timed) else {
        return Ok(None);
    };
    Ok(Some(Ids {
        layout: layout(&tx)?,
        lanes,
        sources,
        ladders,
        needed,
    }))
}

fn specs(tx: &Transaction<'_>, table: &str) -> Result<Vec<(i64, String)>, Error> {
    tx.prepare(&format!("SELECT id, spec FROM {table}"))?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

/// Drops what is not wanted any more; how many.
fn drop_unwanted(
    tx: &Transaction<'_>,
    table: &str,
    rows: &[&str],
    column: &str,
    wanted: &[&str],
) -> Result<usize, Error> {
    let mut dropped = 0;
    for (id, spec) in specs(tx, table)? {
        if !wanted.contains(&spec.as_str()) {
            info!(
                spec,
                "dropping derived rows that the configuration no longer asks for"
            );
            for derived in rows {
                tx.execute(&format!("DELETE FROM {derived} WHERE {column} = ?1"), [id])?;
            }
            dropped += tx.execute(&format!("DELETE FROM {table} WHERE id = ?1"), [id])?;
        }
    }
    Ok(dropped)
}

/// The number of each spec, and which of them (by index) are new.
fn numbers(
    tx: &Transaction<'_>,
    table: &str,
    specs: &[&str],
) -> Result<(Vec<i64>, Vec<usize>), Error> {
    let mut ids = Vec::new();
    let mut new = Vec::new();
    for (index, spec) in specs.iter().enumerate() {
        let added = tx.execute(
            &format!("INSERT OR IGNORE INTO {table} (spec) VALUES (?1)"),
            [spec],
        )?;
        if added == 1 {
            new.push(index);
        }
        ids.push(tx.query_row(
            &format!("SELECT id FROM {table} WHERE spec = ?1"),
            [spec],
            |row| row.get(0),
        )?);
    }
    Ok((ids, new))
}

/// The number of each lane, and which of those with rows of their own are new.
fn lane_numbers(tx: &Transaction<'_>, plan: &Plan) -> Result<(Vec<i64>, Vec<usize>), Error> {
    let mut memory = Memory::new(IDS_MAX);
    let (mut lanes, mut new_lanes) = (Vec::with_capacity(plan.lanes.len()), Vec::new());
    for (index, lane) in plan.lanes.iter().enumerate() {
        if plan.holds_all(lane) {
            lanes.push(lane_of(memory.collection(tx, &lane.nsid)?));
            continue;
        }
        let (number, new) = numbers(tx, "lane", &[lane.spec.as_str()])?;
        lanes.extend(number);
        new_lanes.extend(new.iter().map(|_| index));
    }
    Ok((lanes, new_lanes))
}

fn fill(
    tx: &Transaction<'_>,
    plan: &Plan,
    ids: &Ids,
    new_lanes: &[usize],
    new_sources: &[usize],
) -> Result<(), Error> {
    let wanted = |derived: Derived| Derived {
        lanes: derived
            .lanes
            .into_iter()
            .filter(|(lane, _)| new_lanes.contains(&lane.0))
            .collect(),
        follows: derived
            .follows
            .into_iter()
            .filter(|(source, _)| new_sources.contains(&source.0))
            .collect(),
        parts: derived
            .parts
            .into_iter()
            .filter(|part| new_lanes.contains(&part.lane.0))
            .collect(),
        rungs: Vec::new(),
        person: derived.person,
    };
    let mut nsids: Vec<&str> = new_lanes
        .iter()
        .flat_map(|lane| plan.collections_of(LaneId(*lane)))
        .chain(
            new_sources
                .iter()
                .filter_map(|source| Some(plan.sources.get(*source)?.nsid.as_str())),
        )
        .collect();
    nsids.sort_unstable();
    nsids.dedup();
    let mut memory = Memory::new(IDS_MAX);
    let books = Books { tx, plan, ids };
    // Nobody consumes changes of rows that are filled: who began before this layout starts again.
    let mut unread = Vec::new();
    for nsid in nsids {
        each(tx, nsid, &mut |subject, body| {
            let derived = wanted(derive::of_body(plan, nsid, subject.did, body));
            books.child(&mut memory, subject, &derived, 1)?;
            let came = (Touch::Came, false);
            derive::touch(tx, &mut memory, ids, subject, &derived, came, &mut unread)?;
            if memory.edits.len() >= REGROUP_MAX {
                memory.edits.regroup(tx, &mut unread)?;
            }
            unread.clear();
            Ok(())
        })?;
    }
    memory.edits.regroup(tx, &mut unread)
}

/// Puts every record, and every account, on the ladders that are new. Counts are there by now.
fn raise(tx: &Transaction<'_>, plan: &Plan, ids: &Ids, new: &[usize]) -> Result<(), Error> {
    let ladders = new.iter().filter_map(|index| plan.ladders.get(*index));
    let mut nsids: Vec<&str> = ladders.map(|ladder| ladder.nsid.as_str()).collect();
    nsids.sort_unstable();
    nsids.dedup();
    let books = Books { tx, plan, ids };
    for nsid in nsids {
        each(tx, nsid, &mut |subject, body| {
            let derived = derive::of_body(plan, nsid, subject.did, body);
            books.climb_new(subject, nsid, &derived, new)
        })?;
    }
    books.rise_new(new)
}

/// Visits every live record of a collection, with its body.
fn each(
    tx: &Transaction<'_>,
    nsid: &str,
    visit: &mut dyn FnMut(Subject<'_>, &str) -> Result<(), Error>,
) -> Result<(), Error> {
    let Some(collection) = names::find_collection(tx, nsid)? else {
        return Ok(());
    };
    let mut statement = tx.prepare(
        "SELECT r.id, r.author, k.text, r.rkey, r.time, r.body FROM record r NOT INDEXED CROSS JOIN key k ON k.id = r.author
         WHERE r.collection = ?1 AND r.state = 0",
    )?;
    let mut rows = statement.query(params![collection])?;
    let mut visited = 0u64;
    while let Some(row) = rows.next()? {
        let (did, rkey, body): (String, String, String) = (row.get(2)?, row.get(3)?, row.get(5)?);
        let subject = Subject {
            record: row.get(0)?,
            author: row.get(1)?,
            did: &did,
            rkey: &rkey,
            time: row.get(4)?,
        };
        visit(subject, &body)?;
        visited += 1;
        if visited.is_multiple_of(100_000) {
            info!(nsid, visited, "deriving rows for a changed configuration");
        }
    }
    Ok(())
}
