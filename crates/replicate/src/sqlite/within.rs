//! What peers and streams do with feeds, within a transaction that holds more.
//!
//! In:    a moment that writes, a space, a feed.
//! Out:   blocks written, read or gone, with whatever else the transaction does.
//! Never: a commit: that is the caller's.

use super::append::Batch;
use super::moment::Moment;
use super::remembered::Remembered;
use super::space::FeedRow;
use super::{find_space, keep, passing};
use blocklog::block::Held;
use blocklog::chain::Draft;
use blocklog::limits::Limits;
use blocklog::message::{AppendRequest, Appended};
use blocklog::signature::Author;
use blocklog::store::{AppendError, FeedName, Keep, StoreError};
use rusqlite::Result;

/// Append the blocks of a peer.
pub(crate) fn append(
    moment: &Moment<'_>,
    known: &mut Remembered,
    space: &str,
    request: &AppendRequest,
    now_ms: u64,
    limits: &Limits,
) -> Result<Appended, AppendError> {
    let row = known.take_space(moment, space).map_err(passing)?;
    let row = row.ok_or(StoreError::UnknownSpace)?;
    let epoch = row.epoch;
    let batch = Batch::new(moment, row, now_ms, known);
    let positions = batch.append(request.namespace.as_deref(), &request.blocks, limits)?;
    // A replica gives none.
    let positions = positions.into_iter().collect::<Option<_>>();
    Ok(Appended {
        positions: positions.unwrap_or_default(),
        epoch,
    })
}

/// Write the next blocks of a feed, at this time and while the space holds at most so many bytes.
pub(crate) fn write(
    moment: &Moment<'_>,
    known: &mut Remembered,
    space: &str,
    feed: &FeedName<'_>,
    author: &Author,
    drafts: &[Draft],
    (now_ms, bytes_max): (u64, u64),
) -> Result<Vec<Held>, AppendError> {
    let row = known.take_space(moment, space).map_err(passing)?;
    let row = row.ok_or(StoreError::UnknownSpace)?;
    Batch::new(moment, row, now_ms, known)
        .up_to(bytes_max)
        .write(feed, author, drafts)
}

/// Drop a feed and its blocks. Its id must never be used again.
pub(crate) fn drop_feed(moment: &Moment<'_>, space: &str, feed: &str) -> Result<(), StoreError> {
    let mut row = find_space(moment, space)?;
    let Some(mut found) = FeedRow::find(moment, space, feed).map_err(passing)? else {
        return Ok(());
    };
    keep::evict(moment, &mut row, &mut found, Keep::Newest(0), usize::MAX).map_err(passing)?;
    let sql = "DELETE FROM feeds WHERE feedPrivateId = ?1";
    moment
        .prepare_cached(sql)
        .and_then(|mut query| query.execute([found.private_id]))
        .map_err(passing)?;
    row.feed_count = row.feed_count.saturating_sub(1);
    row.update(moment).map_err(passing)
}

/// The payload of a feed's first block at a position in `(after, through]`; `None` if no block
/// stands there, or its payload is gone.
pub(crate) fn first_payload(
    moment: &Moment<'_>,
    space: &str,
    feed: &str,
    after: u64,
    through: u64,
) -> Result<Option<Vec<u8>>> {
    let Some(feed) = FeedRow::find(moment, space, feed)? else {
        return Ok(None);
    };
    let places = moment.first(&feed, after, through, 1)?;
    let Some(place) = places.first() else {
        return Ok(None);
    };
    let sql = "SELECT data FROM blocks WHERE blockId = ?1";
    moment
        .prepare_cached(sql)?
        .query_row([place.block_id], |row| row.get(0))
}
