//! Slices: the tail on its way into the tables, a little at a time.
//!
//! In:    a generation of the tail that is full, and how many blocks were added.
//! Out:   rows in `blockKeys` and `blockPlaces`, feed by feed; and when all are there, how far.
//! Never: a call that pays for many others; a row for a block that is gone; two blocks with one key.
//!
//! For every block added a little more than one is written, so that a generation
//! is written before the next is full. Should more than one wait, so many times
//! as many are. What a crash repeats is there already and is passed over.

use super::passing;
use super::row::signed;
use super::tail::{Frozen, Key, TAIL_BLOCKS_MAX, Tail};
use blocklog::store::StoreError;
use rusqlite::{Connection, Result, ToSql, params_from_iter};
use std::sync::LazyLock;

/// For so many blocks added one more is written.
const SPARE: usize = 16;

/// So many slices a generation has at most. Each meets pages of its own, so single blocks leave
/// theirs to every hundredth.
const SLICES_MAX: usize = TAIL_BLOCKS_MAX / 100;

/// Rows of one statement: the next is mostly found where the last one went.
const ROWS: usize = 32;

static KEYS: LazyLock<String> = LazyLock::new(|| {
    let rows = vec!["(?, ?, ?, ?)"; ROWS].join(", ");
    format!(
        "INSERT OR IGNORE INTO blockKeys (feedPrivateId, sequence, actorId, blockId) VALUES {rows}"
    )
});

static PLACES: LazyLock<String> = LazyLock::new(|| {
    let rows = vec!["(?, ?, ?)"; ROWS].join(", ");
    format!("INSERT OR IGNORE INTO blockPlaces (feedPrivateId, position, blockId) VALUES {rows}")
});

/// The generation that is being written.
#[derive(Debug, Clone, Default)]
pub(super) struct Slices {
    frozen: Option<Frozen>,
    /// Blocks added, so many times as many generations wait, that nothing was written for yet.
    owed: usize,
}

impl Slices {
    /// Write the share of so many new blocks. Returns up to where the tables tell of every block,
    /// if this slice ended a generation: [`Tail::settle`] must follow the commit.
    pub(super) fn write(
        &mut self,
        connection: &Connection,
        tail: &Tail,
        added: usize,
    ) -> Result<Option<i64>, StoreError> {
        let indexed_through = tail.indexed_through();
        let is_told = |frozen: &Frozen| frozen.through <= indexed_through;
        if self.frozen.as_ref().is_none_or(is_told) {
            self.frozen = tail.frozen();
            self.owed = 0;
        }
        let Some(frozen) = &mut self.frozen else {
            return Ok(None);
        };
        self.owed += added.saturating_mul(tail.waiting().max(1));
        let share = self.owed + self.owed / SPARE;
        if share < (frozen.blocks / SLICES_MAX).min(frozen.left) {
            return Ok(None);
        }
        self.owed = 0;
        let slice = frozen.take(share);
        write_slice(connection, frozen.from, &slice)?;
        if frozen.left > 0 {
            return Ok(None);
        }
        let sql = "UPDATE tail SET indexedThrough = max(indexedThrough, ?1)";
        connection
            .prepare_cached(sql)
            .and_then(|mut query| query.execute([frozen.through]))
            .map_err(passing)?;
        Ok(Some(frozen.through))
    }
}

/// Write blocks of a generation whose oldest is `from`.
fn write_slice(connection: &Connection, from: i64, slice: &[(i64, Key)]) -> Result<(), StoreError> {
    let sql = "SELECT touchedThrough FROM tail";
    let touched_through: i64 = connection
        .prepare_cached(sql)
        .and_then(|mut query| query.query_row([], |row| row.get(0)))
        .map_err(passing)?;
    for rows in slice.chunks(ROWS) {
        // Where nothing was touched each block is as it came, and its row need not be looked at.
        let as_they_came = touched_through < from && rows.len() == ROWS;
        if as_they_came && write_rows(connection, rows).map_err(passing)? {
            continue;
        }
        for (_, key) in rows {
            write_one(connection, key.block_id)?;
        }
    }
    Ok(())
}

/// Write rows as the tail has them; false if not all were new.
fn write_rows(connection: &Connection, rows: &[(i64, Key)]) -> Result<bool> {
    let mut keys: Vec<&dyn ToSql> = Vec::with_capacity(4 * ROWS);
    let sequences: Vec<i64> = rows.iter().map(|(_, key)| signed(key.sequence)).collect();
    for ((feed, key), sequence) in rows.iter().zip(&sequences) {
        let row: [&dyn ToSql; 4] = [feed, sequence, &key.actor, &key.block_id];
        keys.extend(row);
    }
    let positions = rows.iter().map(|(_, key)| key.position.map(signed));
    let Some(positions) = positions.collect::<Option<Vec<i64>>>() else {
        return Ok(false);
    };
    let mut places: Vec<&dyn ToSql> = Vec::with_capacity(3 * ROWS);
    for ((feed, key), position) in rows.iter().zip(&positions) {
        let row: [&dyn ToSql; 3] = [feed, position, &key.block_id];
        places.extend(row);
    }
    let run = |sql: &str, values: Vec<&dyn ToSql>| {
        connection
            .prepare_cached(sql)?
            .execute(params_from_iter(values))
    };
    Ok(run(&KEYS, keys)? == rows.len() && run(&PLACES, places)? == rows.len())
}

/// Write what the row of a block tells, if it is there.
fn write_one(connection: &Connection, block_id: i64) -> Result<(), StoreError> {
    let keys = "INSERT OR IGNORE INTO blockKeys (feedPrivateId, sequence, actorId, blockId) \
                SELECT feedPrivateId, sequence, actorId, blockId FROM blocks WHERE blockId = ?1";
    let places = "INSERT OR IGNORE INTO blockPlaces (feedPrivateId, position, blockId) \
                  SELECT feedPrivateId, position, blockId FROM blocks WHERE blockId = ?1 AND position IS NOT NULL";
    let run = |sql: &str| connection.prepare_cached(sql)?.execute([block_id]);
    let added = run(keys).and_then(|keys| Ok(keys + run(places)?));
    if added.map_err(passing)? == 2 {
        return Ok(());
    }
    // Gone, or not positioned, or there already; and if there, then the same block.
    let sql = "SELECT EXISTS (SELECT 1 FROM blocks AS b JOIN blockKeys AS k USING (feedPrivateId, sequence, actorId) \
               WHERE b.blockId = ?1 AND k.blockId != ?1) OR EXISTS (SELECT 1 FROM blocks AS b \
               JOIN blockPlaces AS p USING (feedPrivateId, position) WHERE b.blockId = ?1 AND p.blockId != ?1)";
    let two = connection
        .prepare_cached(sql)
        .and_then(|mut query| query.query_row([block_id], |row| row.get(0)));
    match two.map_err(passing)? {
        true => Err(StoreError::Damaged(
            "two blocks of a feed have one key or one position",
        )),
        false => Ok(()),
    }
}
