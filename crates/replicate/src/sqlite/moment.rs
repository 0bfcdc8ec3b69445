//! A moment of the log: one transaction, and the tail beside it.
//!
//! In:    a feed, and a key or positions.
//! Out:   the blocks there: from the tables, from the tail, each once, in order.
//! Never: a block of the transaction that neither tells; one that is not in the transaction.
//!
//! The tables tell only what is so: what deletes or moves a block changes them
//! with it. The tail tells what may be so, and therefore the row is looked at
//! before it counts.

use super::row::{number, signed, unsigned_or_none};
use super::space::FeedRow;
use super::tail::{Arrival, Tail, View};
use rusqlite::{Connection, OptionalExtension, Result, Row, ToSql, params};
use std::cmp::Reverse;
use std::ops::Deref;

/// Positions looked at together when a feed is walked.
const STRIDE: usize = 64;

/// Where a block of a feed stands, or may stand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) position: u64,
    pub(super) block_id: i64,
    /// The tables tell so; else the row must be looked at.
    is_certain: bool,
}

/// What of the tail belongs to the transaction.
#[derive(Debug)]
enum Sight<'a> {
    /// Nobody else writes meanwhile.
    Writer(&'a Tail),
    /// What waited when it began, and whether the tables tell of any block.
    Reader(View, bool),
}

/// One transaction, and the tail beside it.
#[derive(Debug)]
pub(crate) struct Moment<'a> {
    connection: &'a Connection,
    sight: Sight<'a>,
}

impl Deref for Moment<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
    }
}

impl<'a> Moment<'a> {
    /// The moment of a transaction that holds the write lock, with a tail that has caught up.
    pub(super) fn of_writer(connection: &'a Connection, tail: &'a Tail) -> Self {
        let sight = Sight::Writer(tail);
        Self { connection, sight }
    }

    /// The moment of a transaction that only reads; `None` if the tail has moved on since it began:
    /// begin another.
    pub(super) fn of_reader(connection: &'a Connection, tail: &Tail) -> Result<Option<Self>> {
        let stand = Stand::of(connection)?;
        let mut view = tail.view_of(stand.indexed_through, stand.newest);
        if view.is_none() && stand.newest > tail.known_through() {
            learn(connection, tail, &stand)?;
            view = tail.view_of(stand.indexed_through, stand.newest);
        }
        let is_told = stand.indexed_through > 0;
        let sight = view.map(|view| Sight::Reader(view, is_told));
        Ok(sight.map(|sight| Self { connection, sight }))
    }

    /// The id of the next block to be inserted.
    pub(super) fn next_block(&self) -> i64 {
        self.writer_tail().known_through() + 1
    }

    /// A block was inserted.
    pub(super) fn came(&self, arrival: &Arrival<'_>) {
        self.writer_tail().push(arrival);
    }

    fn writer_tail(&self) -> &Tail {
        match &self.sight {
            Sight::Writer(tail) => tail,
            Sight::Reader(..) => unreachable!("who only reads inserts nothing"),
        }
    }

    fn ask<T>(&self, question: impl FnOnce(&View) -> T) -> T {
        match &self.sight {
            Sight::Writer(tail) => question(&tail.view()),
            Sight::Reader(view, _) => question(view),
        }
    }

    /// Whether it is worth looking for bundles. A small log has none.
    pub(super) fn may_have_bundles(&self) -> bool {
        !matches!(self.sight, Sight::Reader(_, false))
    }

    /// Whether a block is there. What it is under its id it is for ever.
    fn is_there(&self, block_id: i64) -> Result<bool> {
        let sql = "SELECT 1 FROM blocks WHERE blockId = ?1";
        self.prepare_cached(sql)?.exists([block_id])
    }

    fn stands(&self, place: &Place) -> Result<bool> {
        if place.is_certain {
            return Ok(true);
        }
        let sql = "SELECT 1 FROM blocks WHERE blockId = ?1 AND position = ?2";
        let values = params![place.block_id, signed(place.position)];
        self.prepare_cached(sql)?.exists(values)
    }

    /// The block with this key.
    pub(super) fn find(&self, feed: i64, sequence: u64, actor: &str) -> Result<Option<i64>> {
        for block_id in self.ask(|tail| tail.keyed(feed, sequence, actor)) {
            if self.is_there(block_id)? {
                return Ok(Some(block_id));
            }
        }
        let sql = "SELECT blockId FROM blockKeys WHERE feedPrivateId = ?1 AND sequence = ?2 AND actorId = ?3";
        let values = params![feed, signed(sequence), actor];
        self.prepare_cached(sql)?
            .query_row(values, |row| row.get(0))
            .optional()
    }

    /// The block with the highest key of a feed.
    pub(super) fn newest(&self, feed: i64) -> Result<Option<i64>> {
        let sql = "SELECT sequence, actorId, blockId FROM blockKeys WHERE feedPrivateId = ?1 \
                   ORDER BY sequence DESC, actorId DESC LIMIT 1";
        let told: Option<(u64, String, i64)> = self
            .prepare_cached(sql)?
            .query_row([feed], |row| {
                Ok((number(row, 0)?, row.get(1)?, row.get(2)?))
            })
            .optional()?;
        let mut held = self.ask(|tail| tail.highest_key(feed, None));
        while let Some(key) = held {
            let rank = (key.sequence, &*key.actor);
            if told
                .as_ref()
                .is_some_and(|told| (told.0, told.1.as_str()) >= rank)
            {
                break;
            }
            for block_id in self.ask(|tail| tail.keyed(feed, rank.0, rank.1)) {
                if self.is_there(block_id)? {
                    return Ok(Some(block_id));
                }
            }
            held = self.ask(|tail| tail.highest_key(feed, Some(rank)));
        }
        Ok(told.map(|(.., block_id)| block_id))
    }

    /// Where blocks of a feed may stand in `(after, through]`, the lowest first. All that stand
    /// there up to the last one named are among them, and only if none is named are there no more.
    ///
    /// At or below what was evicted the tail names nothing: there an authority has nothing, and
    /// what a replica has is in the tables, because it learnt the position later.
    pub(super) fn lowest(
        &self,
        feed: &FeedRow,
        after: u64,
        through: u64,
        limit: usize,
    ) -> Result<Vec<Place>> {
        let sql = "SELECT position, blockId FROM blockPlaces WHERE feedPrivateId = ?1 AND position > ?2 \
                   AND position <= ?3 ORDER BY position LIMIT ?4";
        let id = feed.private_id;
        let values = params![id, signed(after), signed(through), signed(limit as u64)];
        let places = self.places(sql, values)?;
        let above = after.max(feed.state.evicted_through);
        let waiting = self.ask(|tail| tail.lowest(id, above, through, limit));
        Ok(joined(places, waiting, limit, |place| place.position))
    }

    /// Where blocks of a feed may stand in `(0, below)`, the highest first.
    fn highest(&self, feed: &FeedRow, below: u64, limit: usize) -> Result<Vec<Place>> {
        let sql = "SELECT position, blockId FROM blockPlaces WHERE feedPrivateId = ?1 AND position < ?2 \
                   ORDER BY position DESC LIMIT ?3";
        let id = feed.private_id;
        let values = params![id, signed(below), signed(limit as u64)];
        let places = self.places(sql, values)?;
        let above = feed.state.evicted_through;
        let waiting = self.ask(|tail| tail.highest(id, above, below, limit));
        Ok(joined(places, waiting, limit, |place| {
            Reverse(place.position)
        }))
    }

    fn places(&self, sql: &str, values: &[&dyn ToSql]) -> Result<Vec<Place>> {
        let read = |row: &Row<'_>| {
            Ok(Place {
                position: number(row, 0)?,
                block_id: row.get(1)?,
                is_certain: true,
            })
        };
        self.prepare_cached(sql)?.query_map(values, read)?.collect()
    }

    /// The lowest positioned blocks of a feed in `(after, through]`, as many as are wanted, each
    /// with its position.
    pub(super) fn first(
        &self,
        feed: &FeedRow,
        after: u64,
        through: u64,
        wanted: usize,
    ) -> Result<Vec<Place>> {
        let (mut found, mut after) = (Vec::new(), after);
        while found.len() < wanted {
            let places = self.lowest(feed, after, through, STRIDE.min(wanted - found.len()))?;
            let Some(last) = places.last() else { break };
            after = last.position;
            for place in places {
                if self.stands(&place)? {
                    found.push(place);
                }
            }
        }
        Ok(found)
    }

    /// The position of a feed that so many others are above; `None` if there are not so many.
    pub(super) fn highest_but(&self, feed: &FeedRow, others: u64) -> Result<Option<u64>> {
        let (mut left, mut below) = (others, i64::MAX.unsigned_abs());
        loop {
            let wanted = usize::try_from(left.saturating_add(1)).unwrap_or(STRIDE);
            let places = self.highest(feed, below, STRIDE.min(wanted))?;
            let Some(last) = places.last() else {
                return Ok(None);
            };
            below = last.position;
            for place in places {
                if self.stands(&place)? {
                    if left == 0 {
                        return Ok(Some(place.position));
                    }
                    left -= 1;
                }
            }
        }
    }
}

/// What the tables and the tail tell, in order. Where both name a position, the tables are right.
fn joined<K: Ord>(
    mut places: Vec<Place>,
    waiting: Vec<(u64, i64)>,
    limit: usize,
    order: impl Fn(&Place) -> K,
) -> Vec<Place> {
    if waiting.is_empty() {
        return places;
    }
    places.extend(waiting.into_iter().map(|(position, block_id)| Place {
        position,
        block_id,
        is_certain: false,
    }));
    // Stable: what the tables told stays first.
    places.sort_by_key(order);
    places.dedup_by_key(|place| place.position);
    places.truncate(limit);
    places
}

/// Let the tail know what is in the file, for who is about to write to it.
pub(super) fn catch_up(connection: &Connection, tail: &Tail) -> Result<()> {
    let stand = Stand::of(connection)?;
    learn(connection, tail, &stand)?;
    // No id is used again, even if its block is gone.
    tail.skip_through(stand.touched_through);
    Ok(())
}

/// How the blocks of a file stand.
struct Stand {
    /// The tables tell of every block up to here.
    indexed_through: i64,
    /// The newest block that was deleted or moved.
    touched_through: i64,
    /// The newest block.
    newest: i64,
}

impl Stand {
    fn of(connection: &Connection) -> Result<Self> {
        let sql = "SELECT indexedThrough, touchedThrough, coalesce((SELECT max(blockId) FROM blocks), 0) FROM tail";
        connection.prepare_cached(sql)?.query_row([], |row| {
            Ok(Self {
                indexed_through: row.get(0)?,
                touched_through: row.get(1)?,
                newest: row.get(2)?,
            })
        })
    }
}

/// Take into the tail the blocks of the file that it does not know.
fn learn(connection: &Connection, tail: &Tail, stand: &Stand) -> Result<()> {
    let sql = "SELECT blockId, feedPrivateId, sequence, actorId, position FROM blocks \
               WHERE blockId > ?1 ORDER BY blockId";
    let mut query = connection.prepare_cached(sql)?;
    let read = |row: &Row<'_>| {
        let (actor, position): (String, _) = (row.get(3)?, unsigned_or_none(row, 4)?);
        Ok((row.get(0)?, row.get(1)?, number(row, 2)?, actor, position))
    };
    loop {
        let known = tail.known_through();
        let rows: Vec<_> = query
            .query_map([known.max(stand.indexed_through)], read)?
            .collect::<Result<_>>()?;
        let arrivals: Vec<Arrival<'_>> = rows
            .iter()
            .map(|(block_id, feed, sequence, actor, position)| Arrival {
                block_id: *block_id,
                feed: *feed,
                sequence: *sequence,
                actor,
                position: *position,
                entry: &[],
            })
            .collect();
        if tail.learn(known, &arrivals, stand.indexed_through) {
            return Ok(());
        }
    }
}
