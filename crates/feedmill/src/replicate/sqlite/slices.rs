//! Slices: the tail on its way into the tables, a little with every append.
//!
//! In:    a generation of the tail that is full, and how many blocks were added.
//! Out:   rows in `blockKeys` and `blockPlaces`, feed by feed; and when all are there, how far.
//! Never: a call that pays for others; a row for a block that is gone; two blocks with one key.
//!
//! A slice has a few more blocks than the call added, so that each call pays its
//! share and a generation is written before the next is full. Should more than
//! one wait, a slice has so many times as many. What a crash repeats is there
//! already and is passed over.

use super::passing;
use super::tail::{Frozen, Tail};
use blocklog::store::StoreError;
use rusqlite::{Connection, Result};

/// Of how many blocks added one more than was added is written.
const SPARE: usize = 8;

/// The generation that is being written.
#[derive(Debug, Clone, Default)]
pub(super) struct Slices {
    frozen: Option<Frozen>,
    written: usize,
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
        if added == 0 {
            return Ok(None);
        }
        let indexed_through = tail.indexed_through();
        if self
            .frozen
            .as_ref()
            .is_none_or(|frozen| frozen.through <= indexed_through)
        {
            self.frozen = tail.frozen();
            self.written = 0;
        }
        let Some(frozen) = &self.frozen else {
            return Ok(None);
        };
        let share = (added + added / SPARE + 1).saturating_mul(tail.waiting().max(1));
        let slice = frozen.order.iter().skip(self.written).take(share);
        for block_id in slice {
            self.written += 1;
            write_one(connection, *block_id)?;
        }
        if self.written < frozen.order.len() {
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
