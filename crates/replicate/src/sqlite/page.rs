//! Reading: one page in read order, at one instant.
//!
//! In:    a selection, where to go on, how much at most.
//! Out:   a page whose cost depends on itself, not on the log.
//! Never: a sort, or a scan of more index entries than the page holds.
//!
//! A space and a namespace have an index in position order. Feeds are merged: from each
//! its next bundle, which holds the blocks themselves; or, where there is none, its next few
//! positions, from its order alone, and then the rows of the blocks that made it onto the page.

use super::bundle::Bundle;
use super::moment::{Moment, Place};
use super::row::{COLUMNS, OWN_COLUMNS, held, held_of, number, signed, sixteen};
use super::space::{FeedRow, SpaceRow};
use blocklog::block::{Head, Held};
use blocklog::order::PendingKey;
use blocklog::page::{Gather, Page, PageMax, PendingStart, Selection, Start};
use blocklog::replica::{Lane, Target, pulled_through};
use blocklog::store::Role;
use rusqlite::types::ToSql;
use rusqlite::{Connection, OptionalExtension, Result, Row, params};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::LazyLock;

/// Positions fetched from one feed at a time when feeds are merged.
const CHUNK_MIN: usize = 4;

/// A block that may stand at a position, if it does.
static FETCH: LazyLock<String> = LazyLock::new(|| {
    format!("SELECT {OWN_COLUMNS} FROM blocks AS b WHERE b.blockId = ?1 AND b.position = ?2")
});

/// The selection, as the tables know it.
enum Chosen {
    Space(i64),
    Namespace(i64),
    Feeds(Vec<FeedRow>),
}

/// The next blocks of a feed.
enum Queue {
    /// Where they may be.
    Places(std::vec::IntoIter<Place>),
    /// Themselves.
    Bundle(Bundle),
}

impl Queue {
    /// The position of the next block in `(after, through]`, and where it may be.
    fn next(&mut self, after: u64, through: u64) -> Result<Option<(u64, i64)>> {
        match self {
            Self::Places(places) => Ok(places.next().map(|place| (place.position, place.block_id))),
            Self::Bundle(bundle) => {
                let next = bundle.seek(after)?.filter(|position| *position <= through);
                Ok(next.map(|position| (position, 0)))
            }
        }
    }
}

pub(super) struct Reader<'a> {
    moment: &'a Moment<'a>,
    space: SpaceRow,
    chosen: Chosen,
    gather: Gather,
}

/// Read one page. The caller holds a transaction open.
pub(super) fn page(
    moment: &Moment<'_>,
    space: SpaceRow,
    lanes: &BTreeMap<Target, Lane>,
    selection: &Selection,
    start: &Start,
    max: PageMax,
) -> Result<Page> {
    let settled = settled(moment, &space, lanes, selection)?;
    let chosen = choose(moment, &space, selection)?;
    let mut reader = Reader {
        moment,
        space,
        chosen,
        gather: Gather::new(max),
    };
    if start.after < settled {
        reader.positions(start.after, settled)?;
    }
    if start.pending != PendingStart::Excluded && !reader.gather.is_full() {
        reader.provisional(settled.max(start.after), &start.pending)?;
    }
    let evicted = reader.evicted(start.after)?;
    let (blocks, has_more, next) = reader.gather.finish(start, settled);
    let head = if next.after == reader.space.position_max {
        Some(reader.space.head)
    } else {
        head_at(moment, reader.space.private_id, next.after)?
    };
    Ok(Page {
        blocks,
        has_more,
        next,
        head: head.unwrap_or_default(),
        epoch: reader.space.epoch,
        position_max: settled,
        evicted,
        forgotten: reader.space.forgotten,
    })
}

/// Up to where nothing of the selection can still appear.
fn settled(
    connection: &Connection,
    space: &SpaceRow,
    lanes: &BTreeMap<Target, Lane>,
    selection: &Selection,
) -> Result<u64> {
    if space.role == Role::Authority {
        return Ok(space.position_max);
    }
    match pulled_through(lanes, selection) {
        Some(pulled) => Ok(pulled),
        None => space.held_max(connection),
    }
}

fn choose(connection: &Connection, space: &SpaceRow, selection: &Selection) -> Result<Chosen> {
    match selection {
        Selection::Space => Ok(Chosen::Space(space.private_id)),
        Selection::Namespace(namespace) => match space.namespace(connection, namespace, false)? {
            Some(namespace) => Ok(Chosen::Namespace(namespace)),
            None => Ok(Chosen::Feeds(Vec::new())),
        },
        Selection::Feeds(feeds) => {
            let mut rows = Vec::with_capacity(feeds.len());
            for feed in feeds {
                rows.extend(FeedRow::find(connection, &space.id, feed)?);
            }
            Ok(Chosen::Feeds(rows))
        }
    }
}

/// The head at a position; `None` if no block stands there.
pub(super) fn head_at(connection: &Connection, space: i64, position: u64) -> Result<Option<Head>> {
    if position == 0 {
        return Ok(Some(Head::default()));
    }
    let sql =
        "SELECT head FROM blocks WHERE spacePrivateId = ?1 AND position = ?2 AND head IS NOT NULL";
    let values = params![space, signed(position)];
    let held = connection
        .prepare_cached(sql)?
        .query_row(values, |row| sixteen(row, 0).map(Head))
        .optional()?;
    if held.is_some() {
        return Ok(held);
    }
    let sql = "SELECT head FROM evicted WHERE spacePrivateId = ?1 AND position = ?2";
    connection
        .prepare_cached(sql)?
        .query_row(values, |row| sixteen(row, 0).map(Head))
        .optional()
}

impl Reader<'_> {
    /// Offer the blocks at positions in `(after, through]`.
    fn positions(&mut self, after: u64, through: u64) -> Result<()> {
        let (column, id) = match &self.chosen {
            Chosen::Space(id) => ("spacePrivateId", *id),
            Chosen::Namespace(id) => ("namespacePrivateId", *id),
            Chosen::Feeds(_) => return self.merge(after, through),
        };
        self.walk(column, id, after, through)
    }

    fn walk(&mut self, column: &str, id: i64, after: u64, through: u64) -> Result<()> {
        let sql = format!(
            "SELECT {COLUMNS} FROM blocks AS b JOIN feeds AS f USING (feedPrivateId) \
             WHERE b.{column} = ?1 AND b.position > ?2 AND b.position <= ?3 ORDER BY b.position LIMIT ?4"
        );
        let limit = signed(self.gather.wanted() as u64);
        self.offer_rows(&sql, &[&id, &signed(after), &signed(through), &limit])
    }

    /// Offer every row of a query, until the page is full.
    fn offer_rows(&mut self, sql: &str, values: &[&dyn ToSql]) -> Result<()> {
        let mut query = self.moment.prepare_cached(sql)?;
        let mut rows = query.query(values)?;
        while let Some(row) = rows.next()? {
            if !self.gather.offer(held(row)?) {
                break;
            }
        }
        Ok(())
    }

    /// Merge several feeds: a heap of each one's next position.
    fn merge(&mut self, after: u64, through: u64) -> Result<()> {
        let Chosen::Feeds(feeds) = &self.chosen else {
            return Ok(());
        };
        // Of several, twice a feed's share: to ask again costs more than to ask for some too many.
        let share = self.gather.wanted() / feeds.len().max(1);
        let chunk = match feeds.len() {
            1 => share,
            _ => (2 * share).max(CHUNK_MIN),
        };
        let mut queues = Vec::with_capacity(feeds.len());
        let mut heap = BinaryHeap::with_capacity(feeds.len());
        for (index, feed) in feeds.iter().enumerate() {
            let mut queue = self.queue(feed, after, through, chunk)?;
            let next = queue.next(after, through)?;
            heap.extend(next.map(|(position, block)| Reverse((position, block, index))));
            queues.push((feed, queue));
        }
        let mut fetch = self.moment.prepare_cached(&FETCH)?;
        while let Some(Reverse((position, block, index))) = heap.pop() {
            let Some((feed, queue)) = queues.get_mut(index) else {
                break;
            };
            let there = match queue {
                Queue::Bundle(bundle) => Some(bundle.take(feed)?),
                Queue::Places(_) => {
                    let state = &feed.state;
                    let read =
                        |row: &Row<'_>| held_of(row, state.feed.clone(), state.namespace.clone());
                    let values = params![block, signed(position)];
                    fetch.query_row(values, read).optional()?
                }
            };
            if there.is_some_and(|held| !self.gather.offer(held)) {
                break;
            }
            let mut next = queue.next(position, through)?;
            if next.is_none() {
                *queue = self.queue(feed, position, through, chunk)?;
                next = queue.next(position, through)?;
            }
            heap.extend(next.map(|(position, block)| Reverse((position, block, index))));
        }
        Ok(())
    }

    /// What of a feed comes next in `(after, through]`. If nothing does, it is empty.
    fn queue(&self, feed: &FeedRow, after: u64, through: u64, chunk: usize) -> Result<Queue> {
        let places = |through| self.moment.lowest(feed, after, through, chunk);
        let is_authority = self.space.role == Role::Authority;
        let bundle = match is_authority && self.moment.may_have_bundles() {
            true => Bundle::first(self.moment, feed.private_id, after)?,
            false => None,
        };
        let Some(bundle) = bundle else {
            return Ok(Queue::Places(places(through)?.into_iter()));
        };
        // What no bundle holds comes before this one.
        if bundle.after > after {
            let before = places(through.min(bundle.after))?;
            if !before.is_empty() {
                return Ok(Queue::Places(before.into_iter()));
            }
        }
        Ok(Queue::Bundle(bundle))
    }

    /// Offer what is not final: positions known ahead, then what waits.
    fn provisional(&mut self, settled: u64, from: &PendingStart) -> Result<()> {
        let (ahead, behind) = match from {
            PendingStart::Excluded | PendingStart::All => (Some(settled), None),
            PendingStart::Ahead(position) => (Some(settled.max(*position)), None),
            PendingStart::After(key) => (None, Some(key)),
        };
        if let Some(after) = ahead {
            self.positions(after, u64::MAX)?;
        }
        if self.gather.is_full() {
            return Ok(());
        }
        let waiting = match &self.chosen {
            Chosen::Feeds(feeds) => {
                let ids: Vec<i64> = feeds.iter().map(|feed| feed.private_id).collect();
                pending_of_feeds(self.moment, &ids, behind, self.gather.wanted(), true)?
            }
            Chosen::Space(_) => return self.pending(None, behind),
            Chosen::Namespace(id) => return self.pending(Some(*id), behind),
        };
        for held in waiting {
            if !self.gather.offer(held) {
                break;
            }
        }
        Ok(())
    }

    fn pending(&mut self, namespace: Option<i64>, behind: Option<&PendingKey>) -> Result<()> {
        let sql = format!(
            "SELECT {COLUMNS} FROM blocks AS b JOIN feeds AS f USING (feedPrivateId) \
             WHERE b.position IS NULL AND b.spacePrivateId = ?1 AND (?2 IS NULL OR b.namespacePrivateId = ?2) \
             AND (b.sequence, b.actorId, f.feedId) > (?3, ?4, ?5) \
             AND b.sequence >= ?3 ORDER BY b.sequence, b.actorId, f.feedId LIMIT ?6"
        );
        let (sequence, actor, feed) = pending_bound(behind);
        let limit = signed(self.gather.wanted() as u64);
        let space = self.space.private_id;
        self.offer_rows(
            &sql,
            &[&space, &namespace, &sequence, &actor, &feed, &limit],
        )
    }

    fn evicted(&self, after: u64) -> Result<Vec<(String, u64)>> {
        if let Chosen::Feeds(feeds) = &self.chosen {
            let lost = feeds
                .iter()
                .filter(|feed| feed.state.evicted_through > after);
            return Ok(lost
                .map(|feed| (feed.state.feed.clone(), feed.state.evicted_through))
                .collect());
        }
        let namespace = match &self.chosen {
            Chosen::Namespace(id) => Some(*id),
            _ => None,
        };
        let sql = "SELECT feedId, evictedThrough FROM feeds WHERE spaceId = ?1 AND evictedThrough > ?2 \
                   AND evictedThrough > 0 AND (?3 IS NULL OR namespacePrivateId = ?3) ORDER BY feedId";
        let mut query = self.moment.prepare_cached(sql)?;
        let values = params![self.space.id, signed(after), namespace];
        query
            .query_map(values, |row| Ok((row.get(0)?, number(row, 1)?)))?
            .collect()
    }
}

/// The values a pending key is compared with; what is absent sorts first.
fn pending_bound(behind: Option<&PendingKey>) -> (i64, String, String) {
    behind.map_or((-1, String::new(), String::new()), |key| {
        (signed(key.sequence), key.actor.clone(), key.feed.clone())
    })
}

/// Waiting blocks of some feeds, in Lamport order.
pub(super) fn pending_of_feeds(
    connection: &Connection,
    ids: &[i64],
    behind: Option<&PendingKey>,
    limit: usize,
    with_set_aside: bool,
) -> Result<Vec<Held>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM blocks AS b JOIN feeds AS f USING (feedPrivateId) \
         WHERE b.position IS NULL AND b.feedPrivateId = ?1 AND (?2 OR b.setAside IS NULL) \
         AND (b.sequence, b.actorId, f.feedId) > (?3, ?4, ?5) AND b.sequence >= ?3 \
         ORDER BY b.sequence, b.actorId LIMIT ?6"
    );
    let (sequence, actor, feed) = pending_bound(behind);
    let mut query = connection.prepare_cached(&sql)?;
    let mut waiting = Vec::new();
    for id in ids {
        let values = params![
            id,
            with_set_aside,
            sequence,
            actor,
            feed,
            signed(limit as u64)
        ];
        for row in query.query_map(values, held)? {
            waiting.push(row?);
        }
    }
    waiting.sort_by(blocklog::order::compare);
    waiting.truncate(limit);
    Ok(waiting)
}

/// Waiting blocks of a whole space but some feeds, in Lamport order.
pub(super) fn pending_of_space(
    connection: &Connection,
    space: i64,
    apart: &[i64],
    max: PageMax,
) -> Result<Vec<Held>> {
    let sql = format!(
        "SELECT {COLUMNS}, b.feedPrivateId FROM blocks AS b JOIN feeds AS f USING (feedPrivateId) \
         WHERE b.position IS NULL AND b.spacePrivateId = ?1 AND b.setAside IS NULL \
         ORDER BY b.sequence, b.actorId, f.feedId"
    );
    let mut gather = Gather::new(max);
    let mut query = connection.prepare_cached(&sql)?;
    let mut rows = query.query([space])?;
    while let Some(row) = rows.next()? {
        if !apart.contains(&row.get(14)?) && !gather.offer(held(row)?) {
            break;
        }
    }
    Ok(gather.into_blocks())
}
