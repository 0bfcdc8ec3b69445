//! Records stored under a wrong clock: noted, found, and given their right times.
//!
//! In:    a clock that the events disagree with; later the records, and a clock that is right.
//! Out:   a note for the operator; first sights as the right clock would have given them, and
//!        every order made anew from those.
//! Never: records in an order of which half is repaired: whoever opens the store next finishes it.

use rusqlite::{Connection, Error, OptionalExtension as _, TransactionBehavior};

use super::{Place, WRITER_CACHE, rebuild, schema, sql};
use crate::clock::Micros;
use crate::config;
use crate::store::StoreError;
use crate::store::plan::Plan;
use crate::store::skew::{Finder, Sighting, Stretch, WrongClock};

/// A field that no collection has: times stored under it are made anew.
const NO_FIELD: &str = "?";
/// How far ahead something may be due.
const DUE_US_MAX: Micros = 86_400_000_000;

/// Notes a wrong clock, unless one is noted already.
pub(super) fn note(tx: &Connection, now_us: Micros, off_us: Micros) -> Result<(), Error> {
    tx.prepare_cached("INSERT OR IGNORE INTO wrong_clock (id, at, off) VALUES (1, ?1, ?2)")?
        .execute([now_us, off_us])?;
    Ok(())
}

/// The wrong clock that is noted.
pub(super) fn noted(connection: &Connection) -> Result<Option<WrongClock>, Error> {
    let clock = |row: &rusqlite::Row<'_>| {
        Ok(WrongClock {
            at_us: row.get(0)?,
            off_us: row.get(1)?,
        })
    };
    connection
        .prepare_cached("SELECT at, off FROM wrong_clock")?
        .query_row([], clock)
        .optional()
}

/// Repairs what was stored under a wrong clock, in a store that nobody else uses; or only finds it.
pub(in crate::store) fn repair_clock(
    settings: &config::Store,
    plan: &Plan,
    now_us: Micros,
    only_find: bool,
) -> Result<Vec<Stretch>, StoreError> {
    let place = Place::of(&settings.url);
    if let Place::File(path) = &place
        && !path.exists()
    {
        let cause = format!("there is no file {}", path.display());
        return Err(StoreError::Passing(cause));
    }
    let mut connection = place.connect(settings.cache_mib.saturating_mul(WRITER_CACHE))?;
    if only_find {
        return find(&connection, plan, now_us).map_err(sql);
    }
    schema::create(&mut connection).map_err(sql)?;
    repair(&mut connection, plan, now_us).map_err(sql)
}

/// Stretches of records whose first sights are wrong.
fn find(connection: &Connection, plan: &Plan, now_us: Micros) -> Result<Vec<Stretch>, Error> {
    let mut records = connection.prepare(
        "SELECT r.id, r.seen, r.rkey, c.nsid FROM record r NOT INDEXED CROSS JOIN collection c ON c.id = r.collection
         ORDER BY r.id",
    )?;
    let mut rows = records.query([])?;
    let mut finder = Finder::default();
    while let Some(row) = rows.next()? {
        // The keys of direct records are no times, or they are of our own clock.
        let is_direct = plan.is_direct(row.get_ref(3)?.as_str()?);
        let made_us = match record::tid::Tid::parse(row.get_ref(2)?.as_str()?) {
            Ok(tid) if !is_direct => i64::try_from(tid.micros()).ok(),
            _ => None,
        };
        finder.push(Sighting {
            record: row.get(0)?,
            seen_us: row.get(1)?,
            made_us,
        });
    }
    Ok(finder.stretches(now_us))
}

/// Repairs them; returns what was found.
fn repair(connection: &mut Connection, plan: &Plan, now_us: Micros) -> Result<Vec<Stretch>, Error> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = find(&tx, plan, now_us)?;
    for stretch in &found {
        tx.execute(
            "UPDATE record SET seen = seen - ?3 WHERE id BETWEEN ?1 AND ?2",
            [stretch.first, stretch.last, stretch.error_us],
        )?;
        // A letter of that time would otherwise end years early, or late.
        tx.execute(
            "UPDATE dead SET time = time - ?3 WHERE time BETWEEN ?1 AND ?2",
            [stretch.from_us, stretch.to_us, stretch.error_us],
        )?;
    }
    if !found.is_empty() {
        // The time of a tombstone is never made anew; cursors that name it go on from there.
        tx.execute(
            "UPDATE record SET time = seen WHERE state <> 0 AND time > seen",
            [],
        )?;
        // Times of records that are shown, and every order, are made anew by the next start at the latest.
        tx.execute(
            "UPDATE collection SET time = ?1 WHERE time IS NOT NULL",
            [NO_FIELD],
        )?;
        for table in ["lane", "ladder"] {
            let spec = format!("UPDATE {table} SET spec = 'of a wrong clock ' || id");
            tx.execute(&spec, [])?;
        }
    }
    // Nothing waits for a moment of a clock that was ahead.
    tx.execute(
        "UPDATE parked SET due = ?1 WHERE due > ?1 + ?2",
        [now_us, DUE_US_MAX],
    )?;
    tx.execute("UPDATE pending SET seen = ?1 WHERE seen > ?1", [now_us])?;
    tx.execute("UPDATE dead SET time = ?1 WHERE time > ?1", [now_us])?;
    tx.execute(
        "DELETE FROM first_read WHERE asked > ?1 OR failed > ?1",
        [now_us],
    )?;
    tx.execute("UPDATE fetching SET begun = ?1 WHERE begun > ?1", [now_us])?;
    tx.execute("DELETE FROM wrong_clock", [])?;
    tx.commit()?;
    rebuild::align(connection, plan)?;
    Ok(found)
}
