//! Keeping and forgetting: eviction, purging, subscriptions, positions by time.
//!
//! In:    a transaction and a space.
//! Out:   rows gone, or found.
//! Never: a counter touched: what is gone leaves a gap for ever.

use super::moment::{Moment, Place};
use super::row::{hash, number, signed};
use super::space::{FeedRow, SpaceRow};
use blocklog::block::{Block, Hash};
use blocklog::limits::BLOCK_BYTES;
use blocklog::page::Selection;
use blocklog::store::{Crowded, EVICTED_REMEMBERED_MAX, Keep, Subscription, SubscriptionsMax};
use rusqlite::{Connection, OptionalExtension, Result, params};

/// Blocks looked at together to find the first that is young enough.
const STRIDE: usize = 64;

/// Drop the oldest positioned blocks of a feed beyond `keep`.
pub(super) fn evict(
    moment: &Moment<'_>,
    space: &mut SpaceRow,
    feed: &mut FeedRow,
    keep: Keep,
    slice_max: usize,
) -> Result<u64> {
    let Some(through) = evict_through(moment, feed, keep)? else {
        return Ok(0);
    };
    // The counters outlive the blocks that told them.
    feed.catch_up(moment)?;
    feed.advance(moment)?;
    let surplus = moment.first(feed, 0, through, slice_max)?;
    for Place {
        position, block_id, ..
    } in &surplus
    {
        let sql = "INSERT OR REPLACE INTO evicted \
                   (spacePrivateId, position, head, hash, feedPrivateId, sequence, actorId) \
                   SELECT spacePrivateId, position, head, hash, feedPrivateId, sequence, actorId \
                   FROM blocks WHERE blockId = ?1 AND head IS NOT NULL";
        moment.prepare_cached(sql)?.execute([block_id])?;
        moment
            .prepare_cached("DELETE FROM blocks WHERE blockId = ?1")?
            .execute([block_id])?;
        feed.state.evicted_through = feed.state.evicted_through.max(*position);
    }
    feed.recede(moment)?;
    space.forgotten = space.forgotten.max(forget(moment, space)?);
    space.update(moment)?;
    Ok(surplus.len() as u64)
}

/// Remember only the newest of what was evicted; up to where it is forgotten.
fn forget(connection: &Connection, space: &SpaceRow) -> Result<u64> {
    let sql = "SELECT position FROM evicted WHERE spacePrivateId = ?1 \
               ORDER BY position DESC LIMIT 1 OFFSET ?2";
    let values = params![space.private_id, signed(EVICTED_REMEMBERED_MAX)];
    let through = connection
        .prepare_cached(sql)?
        .query_row(values, |row| number(row, 0))
        .optional()?
        .unwrap_or(0);
    let sql = "DELETE FROM evicted WHERE spacePrivateId = ?1 AND position <= ?2";
    connection
        .prepare_cached(sql)?
        .execute(params![space.private_id, signed(through)])?;
    Ok(through)
}

/// The hash and the position of the evicted block that had this key, as far as they are remembered.
pub(super) fn evicted_under(
    connection: &Connection,
    feed: &FeedRow,
    block: &Block,
) -> Result<Option<(Hash, u64)>> {
    let sql = "SELECT hash, position FROM evicted WHERE feedPrivateId = ?1 AND sequence = ?2 AND actorId = ?3";
    let key = params![feed.private_id, signed(block.sequence), block.actor];
    connection
        .prepare_cached(sql)?
        .query_row(key, |row| Ok((hash(row, 0)?, number(row, 1)?)))
        .optional()
}

/// The newest position that need not be kept.
fn evict_through(moment: &Moment<'_>, feed: &FeedRow, keep: Keep) -> Result<Option<u64>> {
    match keep {
        Keep::All => Ok(None),
        Keep::Newest(count) => moment.highest_but(feed, count),
        Keep::Since(time_ms) => {
            // Times grow with positions, so the first block that is young enough
            // ends the walk.
            let sql = "SELECT placedAt FROM blocks WHERE blockId = ?1";
            let mut query = moment.prepare_cached(sql)?;
            let mut through = None;
            loop {
                let some = moment.first(feed, through.unwrap_or(0), u64::MAX, STRIDE)?;
                if some.is_empty() {
                    return Ok(through);
                }
                for place in some {
                    if query.query_row([place.block_id], |row| number(row, 0))? >= time_ms {
                        return Ok(through);
                    }
                    through = Some(place.position);
                }
            }
        }
    }
}

/// The highest position given before `time_ms`, by halving: no index by time is
/// needed, because times grow with positions.
pub(super) fn position_before(connection: &Connection, space: i64, time_ms: u64) -> Result<u64> {
    let sql = "SELECT position, placedAt FROM blocks WHERE spacePrivateId = ?1 AND position >= ?2 \
               ORDER BY position LIMIT 1";
    let mut query = connection.prepare_cached(sql)?;
    let mut at_or_after = |position: u64| {
        let values = params![space, signed(position)];
        query
            .query_row(values, |row| Ok((number(row, 0)?, number(row, 1)?)))
            .optional()
    };
    let last = "SELECT position FROM blocks WHERE spacePrivateId = ?1 AND position IS NOT NULL \
                ORDER BY position DESC LIMIT 1";
    let highest = connection
        .prepare_cached(last)?
        .query_row([space], |row| number(row, 0))
        .optional()?;
    // Everything up to `early` was given before, everything from `late` on was not.
    let (mut early, mut late) = (0, highest.map_or(1, |highest| highest + 1));
    while early + 1 < late {
        let middle = early + (late - early) / 2;
        match at_or_after(middle)? {
            Some((position, placed_ms)) if placed_ms < time_ms => early = position,
            _ => late = middle,
        }
    }
    Ok(early)
}

pub(super) fn subscribe(
    connection: &Connection,
    space: &SpaceRow,
    subscription: &Subscription,
    now_ms: u64,
    max: SubscriptionsMax,
) -> Result<Option<Crowded>> {
    let id = space.private_id;
    let sql = "DELETE FROM subscriptions WHERE spacePrivateId = ?1 AND expiresAt <= ?2";
    connection
        .prepare_cached(sql)?
        .execute(params![id, signed(now_ms)])?;
    let sql = "SELECT count(*), coalesce(sum(?3 + coalesce(octet_length(feedIds), 0) \
               + coalesce(octet_length(feedNamespace), 0)), 0) \
               FROM subscriptions WHERE spacePrivateId = ?1 AND subscriptionId <> ?2";
    let values = params![id, subscription.id, signed(BLOCK_BYTES)];
    let (others, bytes) = connection
        .prepare_cached(sql)?
        .query_row(values, |row| Ok((number(row, 0)?, number(row, 1)?)))?;
    if others >= max.count {
        return Ok(Some(Crowded::Count));
    }
    let bytes = bytes.saturating_add(subscription.bytes());
    if space.bytes.saturating_add(bytes) > max.bytes {
        return Ok(Some(Crowded::Bytes));
    }
    let (feeds, namespace) = match &subscription.selection {
        Selection::Space => (None, None),
        Selection::Namespace(namespace) => (None, Some(namespace)),
        Selection::Feeds(feeds) => (serde_json::to_string(feeds).ok(), None),
    };
    let sql = "INSERT OR REPLACE INTO subscriptions (spacePrivateId, subscriptionId, expiresAt, feedIds, feedNamespace) \
               VALUES (?1, ?2, ?3, ?4, ?5)";
    let values = params![
        id,
        subscription.id,
        signed(subscription.expires_ms),
        feeds,
        namespace
    ];
    connection.prepare_cached(sql)?.execute(values)?;
    Ok(None)
}

pub(super) fn find_subscription(
    connection: &Connection,
    space: i64,
    id: &str,
) -> Result<Option<Subscription>> {
    let sql = "SELECT expiresAt, feedIds, feedNamespace FROM subscriptions \
               WHERE spacePrivateId = ?1 AND subscriptionId = ?2";
    let read = |row: &rusqlite::Row<'_>| {
        let feeds: Option<String> = row.get(1)?;
        let selection = match (feeds, row.get(2)?) {
            (Some(feeds), _) => Selection::Feeds(serde_json::from_str(&feeds).unwrap_or_default()),
            (None, Some(namespace)) => Selection::Namespace(namespace),
            (None, None) => Selection::Space,
        };
        Ok(Subscription {
            id: id.to_owned(),
            expires_ms: number(row, 0)?,
            selection,
        })
    };
    connection
        .prepare_cached(sql)?
        .query_row(params![space, id], read)
        .optional()
}
