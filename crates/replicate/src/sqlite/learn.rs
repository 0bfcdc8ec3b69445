//! What a replica learns from its authority, as rows.
//!
//! In:    acknowledgements and pulled pages, each in a transaction.
//! Out:   blocks at the positions the authority gave.
//! Never: a block dropped because the authority does not have it: it waits, and
//!        is pushed again.

use super::moment::Moment;
use super::row::{COLUMNS, held, number, signed, unsigned_or_none};
use super::space::{FeedRow, SpaceRow};
use blocklog::block::{BlockKey, Hash, Held};
use blocklog::chain::{Sealed, Tip};
use blocklog::conflict::can_reissue;
use blocklog::replica::{
    Acknowledged, Adopted, Lane, Mode, Pulled, Target, advance, is_replicated,
};
use rusqlite::{Connection, OptionalExtension, Result, params};
use std::collections::{BTreeMap, HashSet};

/// Where a held block is: its row, its hash, its position, whether it has data.
pub(super) struct Found {
    pub(super) block_id: i64,
    pub(super) hash: Hash,
    position: Option<u64>,
    has_data: bool,
    /// Whether it came from the authority.
    is_pulled: bool,
}

pub(super) struct Learner<'a> {
    pub(super) moment: &'a Moment<'a>,
    pub(super) space: SpaceRow,
}

impl Learner<'_> {
    pub(super) fn acknowledge(
        &self,
        positions: &[(BlockKey, u64)],
        now_ms: u64,
    ) -> Result<Acknowledged> {
        let mut report = Acknowledged::default();
        for (key, position) in positions {
            if let Some(feed) = self.feed(&key.feed)?
                && let Some(found) = self.find(&feed, key)?
            {
                report.unplaced += self.place(feed, &found, *position, now_ms)?;
                report.placed += 1;
            }
        }
        Ok(report)
    }

    pub(super) fn set_aside(&self, blocks: &[(BlockKey, &str)]) -> Result<()> {
        for (key, reason) in blocks {
            if let Some(feed) = self.feed(&key.feed)?
                && let Some(found) = self.find(&feed, key)?
            {
                let sql = "UPDATE blocks SET setAside = ?2 WHERE blockId = ?1";
                self.moment
                    .prepare_cached(sql)?
                    .execute(params![found.block_id, reason])?;
            }
        }
        Ok(())
    }

    pub(super) fn adopt(&mut self, pulled: &Pulled<'_>, now_ms: u64) -> Result<Adopted> {
        let mut report = Adopted::default();
        for block_id in self.missing_from(pulled)? {
            self.unplace(block_id)?;
            report.unplaced += 1;
        }
        let mut lost = BTreeMap::new();
        for held in pulled.blocks {
            self.adopt_one(held, now_ms, &mut report, &mut lost)?;
        }
        for (feed, lost) in lost {
            if let Some(feed) = self.feed(&feed)? {
                let (again, kept) = self.reissue(&feed, lost, None)?;
                report.reissued += again;
                report.conflicts += kept;
            }
        }
        let mut lanes = lanes(self.moment, self.space.private_id)?;
        for moved in advance(&mut lanes, pulled) {
            put_lane(self.moment, self.space.private_id, &moved)?;
        }
        self.space.upstream.epoch = Some(pulled.epoch);
        self.space.update(self.moment)?;
        Ok(report)
    }

    /// Blocks we hold at positions the page answers for, but which it lacks.
    fn missing_from(&self, pulled: &Pulled<'_>) -> Result<Vec<i64>> {
        let present: HashSet<BlockKey> =
            pulled.blocks.iter().map(|held| held.block.key()).collect();
        let mut missing = Vec::new();
        for lane in pulled.lanes {
            let held = match &lane.target {
                Target::Space => self.between(pulled.after, pulled.covered)?,
                Target::Feed(feed) => match self.feed(feed)? {
                    Some(feed) => {
                        let all = usize::MAX;
                        let held = self
                            .moment
                            .first(&feed, pulled.after, pulled.covered, all)?;
                        held.iter().map(|place| place.block_id).collect()
                    }
                    None => continue,
                },
            };
            let sql = "SELECT b.position, f.feedId, b.sequence, b.actorId FROM blocks AS b \
                       JOIN feeds AS f USING (feedPrivateId) WHERE b.blockId = ?1";
            let mut query = self.moment.prepare_cached(sql)?;
            for block_id in held {
                let mut rows = query.query([block_id])?;
                let Some(row) = rows.next()? else { continue };
                let position = number(row, 0)?;
                let key = BlockKey {
                    feed: row.get(1)?,
                    sequence: number(row, 2)?,
                    actor: row.get(3)?,
                };
                if !present.contains(&key) && pulled.answers_for(&key.feed, position) {
                    missing.push(block_id);
                }
            }
        }
        Ok(missing)
    }

    /// The blocks of the space at positions in `(after, through]`.
    fn between(&self, after: u64, through: u64) -> Result<Vec<i64>> {
        let sql = "SELECT blockId FROM blocks WHERE spacePrivateId = ?1 AND position > ?2 AND position <= ?3";
        let values = params![self.space.private_id, signed(after), signed(through)];
        self.moment
            .prepare_cached(sql)?
            .query_map(values, |row| row.get(0))?
            .collect()
    }

    /// `lost` gathers by feed the blocks that lost their key to a block of the page.
    fn adopt_one(
        &mut self,
        theirs: &Held,
        now_ms: u64,
        report: &mut Adopted,
        lost: &mut BTreeMap<String, Vec<Held>>,
    ) -> Result<()> {
        let Some(position) = theirs.position else {
            return Ok(());
        };
        let key = theirs.block.key();
        let feed = match self.feed(&key.feed)? {
            Some(feed) => feed,
            None => FeedRow::insert(
                self.moment,
                &mut self.space,
                &key.feed,
                theirs.namespace.as_deref(),
            )?,
        };
        let found = match self.find(&feed, &key)? {
            Some(ours) if ours.hash == theirs.hash => {
                match ours.position {
                    Some(held) if held == position => {}
                    Some(_) => report.moved += 1,
                    None => report.placed += 1,
                }
                if theirs.block.payload.size() == 0 && ours.has_data {
                    purge_row(self.moment, ours.block_id)?;
                }
                ours
            }
            Some(ours) => {
                let block = self.take_out(ours.block_id)?;
                if !ours.is_pulled && can_reissue(&block.block) {
                    lost.entry(key.feed.clone()).or_default().push(block);
                } else {
                    report.conflicts += 1;
                    self.keep(&feed, &block)?;
                }
                self.hold(&feed, theirs)?
            }
            None => {
                report.added += 1;
                self.hold(&feed, theirs)?
            }
        };
        let feed = self.feed(&key.feed)?.unwrap_or(feed);
        if found.position != Some(position) {
            report.unplaced += self.place(feed, &found, position, now_ms)?;
        }
        Ok(())
    }

    pub(super) fn feed(&self, feed: &str) -> Result<Option<FeedRow>> {
        FeedRow::find(self.moment, &self.space.id, feed)
    }

    pub(super) fn find(&self, feed: &FeedRow, key: &BlockKey) -> Result<Option<Found>> {
        let found = self
            .moment
            .find(feed.private_id, key.sequence, &key.actor)?;
        let Some(block_id) = found else {
            return Ok(None);
        };
        let sql = "SELECT blockId, hash, position, data IS NOT NULL AND length(data) > 0, pulled FROM blocks \
                   WHERE blockId = ?1";
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Found {
                block_id: row.get(0)?,
                hash: super::row::hash(row, 1)?,
                position: unsigned_or_none(row, 2)?,
                has_data: row.get(3)?,
                is_pulled: row.get(4)?,
            })
        };
        self.moment
            .prepare_cached(sql)?
            .query_row([block_id], read)
            .optional()
    }

    /// Put a held block at `position`; returns 1 if another had to leave it.
    fn place(&self, mut feed: FeedRow, found: &Found, position: u64, now_ms: u64) -> Result<u64> {
        let sql = "UPDATE blocks SET position = NULL, head = NULL WHERE spacePrivateId = ?1 AND position = ?2 \
                   AND blockId != ?3";
        let values = params![self.space.private_id, signed(position), found.block_id];
        let moved = self.moment.prepare_cached(sql)?.execute(values)?;
        let sql =
            "UPDATE blocks SET position = ?2, placedAt = ?3, setAside = NULL WHERE blockId = ?1";
        let values = params![found.block_id, signed(position), signed(now_ms)];
        self.moment.prepare_cached(sql)?.execute(values)?;
        if feed.state.position_max < position {
            feed.state.position_max = position;
            feed.advance(self.moment)?;
        }
        Ok(moved as u64)
    }

    fn unplace(&self, block_id: i64) -> Result<()> {
        let sql = "UPDATE blocks SET position = NULL, head = NULL WHERE blockId = ?1";
        self.moment.prepare_cached(sql)?.execute([block_id])?;
        Ok(())
    }

    /// Take in a block of the authority, not yet at its position.
    fn hold(&self, feed: &FeedRow, theirs: &Held) -> Result<Found> {
        let sealed = Sealed {
            block: theirs.block.clone(),
            hash: theirs.hash,
        };
        let block_id = self.insert_block(feed, &sealed, true)?;
        let mut feed = feed.clone();
        feed.state.tip = Some(Tip::after(feed.state.tip.take(), &sealed));
        feed.advance(self.moment)?;
        Ok(Found {
            is_pulled: true,
            block_id,
            hash: theirs.hash,
            position: None,
            has_data: theirs.block.payload.size() > 0,
        })
    }

    /// Take a block out that lost its key.
    fn take_out(&self, block_id: i64) -> Result<Held> {
        let sql = format!(
            "SELECT {COLUMNS} FROM blocks AS b JOIN feeds AS f USING (feedPrivateId) WHERE b.blockId = ?1"
        );
        let block = self
            .moment
            .prepare_cached(&sql)?
            .query_row([block_id], held)?;
        self.moment
            .prepare_cached("DELETE FROM blocks WHERE blockId = ?1")?
            .execute([block_id])?;
        Ok(block)
    }

    /// Every block above `position_max` waits again, and of feeds that are not
    /// replicated every block.
    pub(super) fn unplace_suspect(&self, position_max: u64) -> Result<u64> {
        let sql = "UPDATE blocks SET position = NULL, head = NULL WHERE spacePrivateId = ?1 AND position > ?2";
        let values = params![self.space.private_id, signed(position_max)];
        let mut unplaced = self.moment.prepare_cached(sql)?.execute(values)?;
        let lanes = lanes(self.moment, self.space.private_id)?;
        for feed in FeedRow::all(self.moment, &self.space)? {
            if !is_replicated(&lanes, &feed.state.feed) {
                for place in self.moment.first(&feed, 0, u64::MAX, usize::MAX)? {
                    self.unplace(place.block_id)?;
                    unplaced += 1;
                }
            }
        }
        Ok(unplaced as u64)
    }
}

/// Drop the payload of a row, keeping what proves it.
pub(super) fn purge_row(connection: &Connection, block_id: i64) -> Result<()> {
    let sql = "SELECT data FROM blocks WHERE blockId = ?1";
    let data: Option<Vec<u8>> = connection
        .prepare_cached(sql)?
        .query_row([block_id], |row| row.get(0))?;
    let Some(data) = data else { return Ok(()) };
    let hash = Hash::of(&data);
    let sql = "UPDATE blocks SET data = NULL, purgedHash = ?2, purgedBytes = ?3 WHERE blockId = ?1";
    let values = params![block_id, hash.bytes().as_slice(), signed(data.len() as u64)];
    connection.prepare_cached(sql)?.execute(values)?;
    Ok(())
}

/// The lowest position held of a feed, or of the space.
pub(super) fn held_from(
    moment: &Moment<'_>,
    space: &SpaceRow,
    target: &Target,
) -> Result<Option<u64>> {
    if let Target::Feed(feed) = target {
        let Some(feed) = FeedRow::find(moment, &space.id, feed)? else {
            return Ok(None);
        };
        let first = moment.first(&feed, 0, u64::MAX, 1)?;
        return Ok(first.first().map(|place| place.position));
    }
    let sql = "SELECT position FROM blocks WHERE spacePrivateId = ?1 AND position IS NOT NULL \
               ORDER BY position LIMIT 1";
    moment
        .prepare_cached(sql)?
        .query_row([space.private_id], |row| number(row, 0))
        .optional()
}

/// The space's own lane stands under the empty feed id, which no feed has.
pub(super) fn lanes(connection: &Connection, space: i64) -> Result<BTreeMap<Target, Lane>> {
    let sql = "SELECT feedId, mode, modeValue, after, cursor, resolved, startAfter, startCursor, sentBack FROM lanes WHERE spacePrivateId = ?1";
    let mut query = connection.prepare_cached(sql)?;
    let mut rows = query.query([space])?;
    let mut lanes = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let feed: String = row.get(0)?;
        let target = if feed.is_empty() {
            Target::Space
        } else {
            Target::Feed(feed)
        };
        let value = number(row, 2)?;
        let mode = match row.get::<_, String>(1)?.as_str() {
            "from" => Mode::From(value),
            "tail" => Mode::Tail,
            "since" => Mode::Since(value),
            _ => Mode::None,
        };
        let lane = Lane {
            target: target.clone(),
            mode,
            after: number(row, 3)?,
            cursor: row.get(4)?,
            resolved: row.get(5)?,
            start: row
                .get::<_, Option<String>>(7)?
                .map(|cursor| Ok::<_, rusqlite::Error>((number(row, 6)?, cursor)))
                .transpose()?,
            sent_back: row.get(8)?,
        };
        lanes.insert(target, lane);
    }
    Ok(lanes)
}

pub(super) fn put_lane(connection: &Connection, space: i64, lane: &Lane) -> Result<()> {
    let feed = match &lane.target {
        Target::Space => "",
        Target::Feed(feed) => feed,
    };
    let (mode, value) = match lane.mode {
        Mode::None => ("none", 0),
        Mode::From(position) => ("from", position),
        Mode::Tail => ("tail", 0),
        Mode::Since(time_ms) => ("since", time_ms),
    };
    let sql = "INSERT OR REPLACE INTO lanes (spacePrivateId, feedId, mode, modeValue, after, cursor, resolved, startAfter, \
               startCursor, sentBack) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let values = params![
        space,
        feed,
        mode,
        signed(value),
        signed(lane.after),
        lane.cursor,
        lane.resolved,
        signed(lane.start.as_ref().map_or(0, |(after, _)| *after)),
        lane.start.as_ref().map(|(_, cursor)| cursor),
        lane.sent_back,
    ];
    connection.prepare_cached(sql)?.execute(values)?;
    Ok(())
}
