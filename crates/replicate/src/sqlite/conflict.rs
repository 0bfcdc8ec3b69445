//! Blocks of a replica that its authority does not have and will not take as they are.
//!
//! In:    blocks that lost their key, or were refused.
//! Out:   the same contents under new sequences; or rows that can be listed.
//! Never: a block that is neither sent again nor listed.

use super::append::size;
use super::learn::{self, Learner};
use super::row::{BLOCK_COLUMNS, COLUMNS, held, signed, with_values};
use super::space::FeedRow;
use super::tail::Arrival;
use super::{SqliteLog, passing};
use blocklog::block::Held;
use blocklog::chain::{Sealed, Tip};
use blocklog::conflict::{Aside, CURABLE, can_reissue, displaced, newer, reissue};
use blocklog::replica::is_replicated;
use blocklog::store::StoreError;
use rusqlite::types::ToSql;
use rusqlite::{OptionalExtension, Result, params};

/// What may be written again: it was written here and is not signed.
const LOCAL: &str = "b.position IS NULL AND b.pulled = 0 AND b.signature IS NULL";

impl Learner<'_> {
    /// A feed in which blocks wait for another sequence.
    pub(super) fn lost_feed(&self) -> Result<Option<String>> {
        let sql = format!(
            "SELECT f.feedId FROM blocks AS b JOIN feeds AS f USING (feedPrivateId) \
             WHERE b.spacePrivateId = ?1 AND b.setAside IN (?2, ?3) AND {LOCAL} AND b.data IS NOT NULL LIMIT 1"
        );
        let [one, other] = CURABLE;
        self.moment
            .prepare_cached(&sql)?
            .query_row(params![self.space.private_id, one, other], |row| row.get(0))
            .optional()
    }

    /// Write the refused blocks of a feed again.
    pub(super) fn reissue_refused(&self, feed: &str, newest: Option<&Tip>) -> Result<u64> {
        let Some(feed) = self.feed(feed)? else {
            return Ok(0);
        };
        let lost = self.waiting(&feed, "AND b.setAside IN ('conflict', 'predecessor')")?;
        Ok(self.reissue(&feed, lost, newest.cloned())?.0)
    }

    /// Blocks of a feed that were written here and wait, in Lamport order.
    fn waiting(&self, feed: &FeedRow, which: &str) -> Result<Vec<Held>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM blocks AS b JOIN feeds AS f USING (feedPrivateId) \
             WHERE b.feedPrivateId = ?1 AND {LOCAL} {which} ORDER BY b.sequence, b.actorId"
        );
        let mut query = self.moment.prepare_cached(&sql)?;
        let rows: Vec<Held> = query
            .query_map([feed.private_id], held)?
            .collect::<Result<_>>()?;
        let again = rows.into_iter().filter(|held| can_reissue(&held.block));
        Ok(again.collect())
    }

    /// Write blocks that lost their key again, and what follows them. Returns how many were, and
    /// how many were kept as conflicts because the feed has used up its sequences.
    pub(super) fn reissue(
        &self,
        feed: &FeedRow,
        lost: Vec<Held>,
        newest: Option<Tip>,
    ) -> Result<(u64, u64)> {
        let mut row = feed.clone();
        row.catch_up(self.moment)?;
        let used = row.state.tip.as_ref().map_or(0, |tip| tip.sequence);
        let moved = displaced(lost, self.waiting(feed, "")?);
        for block in &moved {
            let found = self.find(feed, &block.block.key())?;
            // A block of the page may be under that key by now.
            if let Some(found) = found.filter(|found| found.hash == block.hash) {
                self.moment
                    .prepare_cached("DELETE FROM blocks WHERE blockId = ?1")?
                    .execute([found.block_id])?;
            }
        }
        let held = match self.moment.newest(feed.private_id)? {
            Some(block_id) => Some(FeedRow::tip(self.moment, block_id)?),
            None => None,
        };
        let Some(again) = reissue(&self.space.id, &moved, used, newer(held, newest)) else {
            for block in &moved {
                self.keep(feed, block)?;
            }
            return Ok((0, moved.len() as u64));
        };
        for sealed in &again {
            self.insert_block(feed, sealed, false)?;
            row.state.tip = Some(Tip::after(row.state.tip.take(), sealed));
        }
        row.advance(self.moment)?;
        Ok((again.len() as u64, 0))
    }

    /// Insert a block that has no position yet; returns its id.
    pub(super) fn insert_block(
        &self,
        feed: &FeedRow,
        sealed: &Sealed,
        is_pulled: bool,
    ) -> Result<i64> {
        let sql = format!(
            "INSERT INTO blocks (blockId, spacePrivateId, namespacePrivateId, feedPrivateId, pulled, {BLOCK_COLUMNS}) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        );
        let block_id = self.moment.next_block();
        with_values(&sealed.block, &sealed.hash, None, |values| {
            let own: [&dyn ToSql; 5] = [
                &block_id,
                &self.space.private_id,
                &feed.namespace_private_id,
                &feed.private_id,
                &is_pulled,
            ];
            let all: Vec<&dyn ToSql> = own.into_iter().chain(values.iter().copied()).collect();
            self.moment.prepare_cached(&sql)?.execute(all.as_slice())
        })?;
        self.space.clone().grow(self.moment, size(sealed))?;
        self.moment.came(&Arrival {
            block_id,
            feed: feed.private_id,
            sequence: sealed.block.sequence,
            actor: &sealed.block.actor,
            position: None,
            entry: &[],
        });
        Ok(block_id)
    }

    /// Keep a block among the conflicts.
    pub(super) fn keep(&self, feed: &FeedRow, block: &Held) -> Result<()> {
        let sql = format!(
            "INSERT INTO conflicts (spacePrivateId, feedPrivateId, {BLOCK_COLUMNS}) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        );
        with_values(&block.block, &block.hash, block.position, |values| {
            let own: [&dyn ToSql; 2] = [&self.space.private_id, &feed.private_id];
            let all: Vec<&dyn ToSql> = own.into_iter().chain(values.iter().copied()).collect();
            self.moment.prepare_cached(&sql)?.execute(all.as_slice())
        })?;
        Ok(())
    }

    pub(super) fn conflicts(&self, max: usize) -> Result<Vec<Aside>> {
        let values = params![self.space.private_id, signed(max as u64)];
        let sql = format!(
            "SELECT {COLUMNS} FROM conflicts AS b JOIN feeds AS f USING (feedPrivateId) \
             WHERE b.spacePrivateId = ?1 ORDER BY b.conflictId LIMIT ?2"
        );
        let mut query = self.moment.prepare_cached(&sql)?;
        let lost = query.query_map(values, |row| {
            Ok(Aside {
                held: held(row)?,
                reason: "conflict".to_owned(),
            })
        })?;
        let mut all: Vec<Aside> = lost.collect::<Result<_>>()?;
        let sql = format!(
            "SELECT {COLUMNS}, b.setAside FROM blocks AS b JOIN feeds AS f USING (feedPrivateId) \
             WHERE b.spacePrivateId = ?1 AND b.setAside IS NOT NULL \
             ORDER BY b.sequence, b.actorId, f.feedId LIMIT ?2"
        );
        let mut query = self.moment.prepare_cached(&sql)?;
        let refused = query.query_map(values, |row| {
            Ok(Aside {
                held: held(row)?,
                reason: row.get(14)?,
            })
        })?;
        for aside in refused {
            all.push(aside?);
        }
        Ok(all)
    }
}

impl SqliteLog {
    /// Blocks of all replicas that their authorities do not have and will not take as they are.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn aside_count(&self) -> std::result::Result<u64, StoreError> {
        self.reading(|connection| {
            let sql = "SELECT (SELECT count(*) FROM conflicts) + \
                       (SELECT count(*) FROM blocks WHERE setAside IS NOT NULL)";
            connection
                .prepare_cached(sql)?
                .query_row([], |row| super::row::number(row, 0))
        })
    }

    /// Blocks of a replica that wait in feeds which it does not replicate, and so are never sent.
    ///
    /// # Errors
    /// If the space is not known, or the file cannot be read.
    pub fn unsent_count(&self, space: &str) -> std::result::Result<u64, StoreError> {
        self.look(space, |moment, row| {
            let lanes = learn::lanes(moment, row.private_id)?;
            let sql = "SELECT f.feedId, count(*) FROM blocks AS b JOIN feeds AS f USING (feedPrivateId) \
                       WHERE b.position IS NULL AND b.spacePrivateId = ?1 GROUP BY f.feedId";
            let mut query = moment.prepare_cached(sql)?;
            let mut feeds = query.query([row.private_id])?;
            let mut unsent = 0;
            while let Some(feed) = feeds.next()? {
                if !is_replicated(&lanes, &feed.get::<_, String>(0)?) {
                    unsent += super::row::number(feed, 1)?;
                }
            }
            Ok(unsent)
        })
    }

    /// Try again to send what was refused: its reason may be gone. Returns how many there are.
    ///
    /// # Errors
    /// If the store fails.
    pub fn retry_refused(&self, space: &str) -> std::result::Result<u64, StoreError> {
        let sql =
            "UPDATE blocks SET setAside = NULL WHERE spacePrivateId = ?1 AND setAside IS NOT NULL";
        self.change(space, |moment, row| {
            let changed = moment.prepare_cached(sql)?.execute([row.private_id])?;
            Ok(changed as u64)
        })
    }

    /// Drop what was refused for good. Returns how many blocks went.
    ///
    /// # Errors
    /// If the store fails.
    pub fn discard_refused(&self, space: &str) -> std::result::Result<u64, StoreError> {
        let sql = "DELETE FROM blocks WHERE spacePrivateId = ?1 AND setAside IS NOT NULL";
        self.change(space, |moment, row| {
            let feeds = "SELECT DISTINCT f.feedId FROM blocks AS b JOIN feeds AS f USING (feedPrivateId) \
                         WHERE b.spacePrivateId = ?1 AND b.setAside IS NOT NULL";
            let mut feeds = moment.prepare_cached(feeds)?;
            for feed in feeds.query_map([row.private_id], |found| found.get::<_, String>(0))? {
                // Their sequences stay used.
                if let Some(newest) = FeedRow::newest(moment, &row.id, &feed?)? {
                    newest.advance(moment)?;
                }
            }
            let gone = moment.prepare_cached(sql)?.execute([row.private_id])?;
            Ok(gone as u64)
        })
    }

    /// Drop the blocks whose key another block took. Returns how many went.
    ///
    /// # Errors
    /// If the store fails.
    pub fn forget_conflicts(&self, space: &str) -> std::result::Result<u64, StoreError> {
        let sql = "DELETE FROM conflicts WHERE spacePrivateId = ?1";
        self.writing(|moment| {
            let row = super::find_space(moment, space)?;
            let query = moment.prepare_cached(sql);
            let gone = query.and_then(|mut query| query.execute([row.private_id]));
            gone.map(|gone| gone as u64).map_err(passing)
        })
    }
}
