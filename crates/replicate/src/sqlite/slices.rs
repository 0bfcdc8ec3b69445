//! Slices: the tail on its way into the tables, a little at a time.
//!
//! In:    a generation of the tail that is full, and how many blocks were added.
//! Out:   rows in `blockKeys` and `blockPlaces`, and bundles, feed by feed; and when all are there, how far.
//! Never: a call that pays for many others; a row for a block that is gone; two blocks with one key.
//!
//! For every block added a little more than one is written, so that a generation
//! is written before the next is full. Should more than one wait, so many times
//! as many are. What a crash repeats is there already and is passed over.
//!
//! Bundles go at the same pace, but by position, which is the order of pages; the keys go by
//! sequence. Where nothing of the generation was touched since it came, both are written from
//! memory and no row is looked at.

use super::bundle::{BUNDLE_BYTES_MAX, Bundle, push};
use super::passing;
use super::row::{OWN_COLUMNS, held_of, number, signed};
use super::tail::{Frozen, Key, Place, Run, TAIL_BLOCKS_MAX, Tail};
use blocklog::block::Held;
use blocklog::store::StoreError;
use rusqlite::{Connection, OptionalExtension, Result, Row, ToSql, params, params_from_iter};
use std::sync::LazyLock;

/// For so many blocks added one more is written.
const SPARE: usize = 16;

/// So many slices a generation has at most. Each meets pages of its own, the last of one feed and the
/// first of the next, so small calls leave theirs to the one that fills a slice.
const SLICES_MAX: usize = TAIL_BLOCKS_MAX / 256;

/// Rows of one statement: the next is mostly found where the last one went.
const ROWS: usize = 32;

static KEYS: LazyLock<String> = LazyLock::new(|| {
    let rows = vec!["(?, ?, ?, ?)"; ROWS].join(", ");
    format!(
        "INSERT OR IGNORE INTO blockKeys (feedPrivateId, sequence, actorId, blockId) VALUES {rows}"
    )
});

/// Blocks of a feed that are looked at together to be bundled: more than go into a bundle.
const RUN: usize = 64;

/// Fewer are not worth a bundle; but tests have small generations.
const BUNDLE_BLOCKS_MIN: usize = if cfg!(test) { 2 } else { 4 };

/// A block to be bundled. An authority's only, whose heads are known: it gives positions in the order
/// blocks come, so what comes later stands behind.
static FETCH: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {OWN_COLUMNS} FROM blocks AS b WHERE b.blockId = ?1 AND b.position = ?2 AND b.head IS NOT NULL"
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
    /// Blocks bundled beyond their share: a bundle is not cut.
    ahead: usize,
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
            self.ahead = 0;
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
        let touched = Touched::of(connection).map_err(passing)?;
        write_slice(connection, touched.moved_through < frozen.from, &slice)?;
        let share = if frozen.left > 0 { share } else { usize::MAX };
        self.ahead = bundle(connection, frozen, &touched, share, self.ahead).map_err(passing)?;
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

/// Bundle as many blocks as are told, of which some are bundled already; how many were more than that.
fn bundle(
    connection: &Connection,
    frozen: &mut Frozen,
    touched: &Touched,
    share: usize,
    ahead: usize,
) -> Result<usize> {
    let is_untouched = touched.moved_through.max(touched.emptied_through) < frozen.from;
    let mut done = ahead;
    // Up to where the feed at hand is bundled.
    let mut made: Option<(i64, u64)> = None;
    while done < share {
        let Some(run) = frozen.run(RUN) else {
            return Ok(0);
        };
        let made_through = match made.filter(|(feed, _)| *feed == run.feed) {
            Some((_, through)) => through,
            None => Bundle::made_through(connection, run.feed)?,
        };
        let (blocks, through) = bundle_run(connection, &run, is_untouched, made_through)?;
        made = Some((run.feed, through));
        frozen.pass(&run, blocks);
        done += blocks;
    }
    Ok(done - share)
}

/// Bundle the first blocks of a run, if they are not yet; how many are done with, and up to where the
/// feed is bundled then. What is untouched since it came need not be read again.
fn bundle_run(
    connection: &Connection,
    run: &Run,
    is_untouched: bool,
    made_through: u64,
) -> Result<(usize, u64)> {
    let Some(first) = run.places.first() else {
        return Ok((1, made_through));
    };
    if run.places.len() < BUNDLE_BLOCKS_MIN {
        return Ok((run.places.len(), made_through));
    }
    // What a crash repeats, or another process has done.
    let is_made = |place: &&Place| place.position <= made_through;
    let made = run.places.iter().take_while(is_made).count();
    if made > 0 {
        return Ok((made, made_through));
    }
    let after = match run.before {
        Some(before) => before,
        None => place_below(connection, run.feed, first.position)?,
    };
    let after = after.max(made_through);
    let (mut bytes, mut through) = (Vec::with_capacity(2 * BUNDLE_BYTES_MAX), after);
    let mut blocks = 0;
    let mut entries = run.entries.as_slice();
    for place in &run.places {
        let before = bytes.len();
        let length = usize::from(place.entry.length);
        let (entry, others) = entries.split_at_checked(length).unwrap_or_default();
        entries = others;
        if is_untouched && !entry.is_empty() {
            bytes.extend(entry);
        } else if !push_row(connection, place, &mut bytes)? {
            break;
        }
        if bytes.len() > BUNDLE_BYTES_MAX {
            bytes.truncate(before);
            break;
        }
        (through, blocks) = (place.position, blocks + 1);
    }
    if blocks < BUNDLE_BLOCKS_MIN {
        return Ok((blocks.max(1), made_through));
    }
    Bundle::insert(connection, run.feed, (after, through), &bytes)?;
    Ok((blocks, through))
}

/// Add the entry of a block as its row tells it; false if there is none.
fn push_row(connection: &Connection, place: &Place, bytes: &mut Vec<u8>) -> Result<bool> {
    let read = |row: &Row<'_>| held_of(row, String::new(), None);
    let mut fetch = connection.prepare_cached(&FETCH)?;
    let held = fetch.query_row(params![place.block_id, signed(place.position)], read);
    let is_one = |held: Held| push(bytes, &held.block, &held.hash, place.position);
    Ok(held.optional()?.is_some_and(is_one))
}

/// The highest position of a feed below another; 0 if there is none.
fn place_below(connection: &Connection, feed: i64, position: u64) -> Result<u64> {
    let sql = "SELECT coalesce(max(position), 0) FROM blockPlaces WHERE feedPrivateId = ?1 AND position < ?2";
    connection
        .prepare_cached(sql)?
        .query_row(params![feed, signed(position)], |row| number(row, 0))
}

/// The newest blocks that are not as they came.
struct Touched {
    /// Deleted or moved.
    moved_through: i64,
    /// Without their payload.
    emptied_through: i64,
}

impl Touched {
    fn of(connection: &Connection) -> Result<Self> {
        let sql = "SELECT touchedThrough, emptiedThrough FROM tail";
        connection.prepare_cached(sql)?.query_row([], |row| {
            Ok(Self {
                moved_through: row.get(0)?,
                emptied_through: row.get(1)?,
            })
        })
    }
}

/// Write blocks of a generation. If it is untouched each is as it came, and its row need not be
/// looked at.
fn write_slice(
    connection: &Connection,
    is_untouched: bool,
    slice: &[(i64, Key)],
) -> Result<(), StoreError> {
    for rows in slice.chunks(ROWS) {
        let as_they_came = is_untouched && rows.len() == ROWS;
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
