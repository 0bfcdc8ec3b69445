//! What the writer knows without looking: how its spaces and feeds stand.
//!
//! In:    rows, as they were read or left behind by an append.
//! Out:   the same rows, for the next append.
//! Never: a row that somebody else has changed since; more rows than the limits.
//!
//! An append needs the newest block of each feed it adds to. Looking it up, and
//! writing it back, cost as much as adding the block: so nothing is written
//! back, the blocks themselves tell, and what the last append left is
//! remembered. SQLite counts what other processes write, and that count tells
//! when to forget.

use super::moment::Moment;
use super::space::{FeedRow, SpaceRow};
use rusqlite::{Connection, Result};
use std::collections::HashMap;

/// Feeds remembered at once.
const FEEDS_REMEMBERED_MAX: usize = 100_000;

/// Spaces remembered at once.
const SPACES_REMEMBERED_MAX: usize = 1_000;

/// Rows that are as the file has them.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    version: i64,
    spaces: HashMap<String, SpaceRow>,
    feeds: HashMap<i64, HashMap<String, FeedRow>>,
    feed_count: usize,
}

impl Remembered {
    /// Forget everything.
    pub(crate) fn forget(&mut self) {
        self.spaces.clear();
        self.feeds.clear();
        self.feed_count = 0;
    }

    /// Forget everything if somebody else has written, and tell so. The caller holds the write lock.
    pub(super) fn check(&mut self, connection: &Connection) -> Result<bool> {
        let version = connection
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get(0))?;
        let others_wrote = version != self.version;
        if others_wrote {
            self.forget();
            self.version = version;
        }
        Ok(others_wrote)
    }

    /// Take a space's row out, to be put back.
    pub(super) fn take_space(
        &mut self,
        connection: &Connection,
        space: &str,
    ) -> Result<Option<SpaceRow>> {
        match self.spaces.remove(space) {
            Some(row) => Ok(Some(row)),
            None => SpaceRow::find(connection, space),
        }
    }

    /// Take a feed's row out, to be put back.
    pub(super) fn take_feed(
        &mut self,
        moment: &Moment<'_>,
        space: &SpaceRow,
        feed: &str,
    ) -> Result<Option<FeedRow>> {
        let known = self.feeds.get_mut(&space.private_id);
        if let Some(row) = known.and_then(|feeds| feeds.remove(feed)) {
            self.feed_count -= 1;
            return Ok(Some(row));
        }
        FeedRow::newest(moment, &space.id, feed)
    }

    /// Put back what an append leaves.
    pub(super) fn put(&mut self, space: SpaceRow, feeds: Vec<FeedRow>) {
        if self.feed_count + feeds.len() > FEEDS_REMEMBERED_MAX
            || self.spaces.len() >= SPACES_REMEMBERED_MAX
        {
            self.forget();
        }
        let known = self.feeds.entry(space.private_id).or_default();
        self.feed_count += feeds.len();
        for feed in feeds {
            known.insert(feed.state.feed.clone(), feed);
        }
        self.spaces.insert(space.id.clone(), space);
    }
}
