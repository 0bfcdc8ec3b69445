//! The log in SQLite.
//!
//! In:    the calls of [`LogStore`] and [`ReplicaStore`], from any thread.
//! Out:   what they promise; a call that has returned survives a power cut.
//! Never: two writers at once; a reader that waits for one.
//!
//! One connection writes, behind a lock, each call one transaction. Readers take
//! a connection from a small pool and see one snapshot. The file is its own: it
//! shares nothing with the records, so it can be copied, moved or lost alone.

mod append;
mod keep;
mod learn;
mod page;
pub mod published;
mod remembered;
mod row;
mod schema;
mod space;
#[cfg(test)]
mod tests;

use append::Batch;
use blocklog::block::{BlockKey, Head, Held};
use blocklog::chain::{Draft, Sealed};
use blocklog::cursor::Epoch;
use blocklog::limits::Limits;
use blocklog::page::{Gather, Page, PageMax, Selection, Start};
use blocklog::replica::{Acknowledged, Adopted, Lane, Mode, Pulled, Target, Upstream, set_lane};
use blocklog::signature::Author;
use blocklog::store::{
    AppendError, FeedName, FeedState, Keep, LogStore, ReplicaStore, Role, SpaceState, StoreError,
    Subscription,
};
use learn::Learner;
use parking_lot::Mutex;
use remembered::Remembered;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use space::{FeedRow, SpaceRow};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Prepared statements each connection keeps.
const STATEMENTS_MAX: usize = 64;

/// Idle connections kept for readers.
const READERS_MAX: usize = 16;

/// How long to wait for another process that writes.
const BUSY_MS_MAX: u64 = 10_000;

/// How much of the file is read through the system's own cache, without copying:
/// a page far from the last one read costs no more than a near one.
const MMAP_BYTES_MAX: i64 = 16 << 30;

/// Pages written before the file is brought up to date. A batch over a thousand
/// feeds writes two thousand pages; the default would copy them all every time.
const CHECKPOINT_PAGES: i64 = 16_000;

/// A log in one SQLite file.
#[derive(Debug)]
pub struct SqliteLog {
    path: PathBuf,
    writer: Mutex<Writer>,
    readers: Mutex<Vec<Connection>>,
}

/// The connection that writes, and what it knows without looking.
#[derive(Debug)]
struct Writer {
    connection: Connection,
    known: Remembered,
}

impl SqliteLog {
    /// Open the file, and make or migrate its tables.
    ///
    /// # Errors
    /// If the file cannot be opened or is of a later version.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let mut writer = connect(path).map_err(passing)?;
        if !schema::migrate(&mut writer).map_err(passing)? {
            return Err(StoreError::Damaged("the file is of a later version"));
        }
        Ok(Self {
            path: path.to_owned(),
            writer: Mutex::new(Writer {
                connection: writer,
                known: Remembered::default(),
            }),
            readers: Mutex::new(Vec::new()),
        })
    }

    /// Write a copy of the log, as of now, to a new file.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub fn copy_to(&self, path: &Path) -> Result<(), StoreError> {
        let to = path.to_string_lossy();
        self.reading(|connection| {
            connection
                .execute("VACUUM INTO ?1", [to.as_ref()])
                .map(|_| ())
        })
    }

    /// A number that changes when another process has written to the file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn foreign_writes(&self) -> Result<i64, StoreError> {
        let writer = self.writer.lock();
        writer
            .connection
            .pragma_query_value(None, "data_version", |row| row.get(0))
            .map_err(passing)
    }

    /// Subscriptions that have not expired, in all spaces.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn live_subscriptions(&self, now_ms: u64) -> Result<u64, StoreError> {
        self.reading(|connection| {
            let sql = "SELECT count(*) FROM subscriptions WHERE expiresAt > ?1";
            connection
                .prepare_cached(sql)?
                .query_row([row::signed(now_ms)], |found| row::number(found, 0))
        })
    }

    /// Run one transaction that writes. It is kept if `work` succeeds.
    pub(super) fn writing<T, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut writer = self.writer.lock();
        let Writer { connection, known } = &mut *writer;
        known.forget();
        let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = begun.map_err(passing)?;
        let answer = work(&transaction)?;
        transaction.commit().map_err(passing)?;
        Ok(answer)
    }

    /// Run one transaction that only adds blocks to `space`.
    fn adding<T>(
        &self,
        space: &str,
        now_ms: u64,
        work: impl FnOnce(Batch<'_>) -> Result<T, AppendError>,
    ) -> Result<T, AppendError> {
        let mut writer = self.writer.lock();
        let Writer { connection, known } = &mut *writer;
        let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = begun.map_err(passing)?;
        known.check(&transaction).map_err(passing)?;
        let row = known.take_space(&transaction, space).map_err(passing)?;
        let row = row.ok_or(StoreError::UnknownSpace)?;
        let done = work(Batch::new(&transaction, row, now_ms, known)).and_then(|answer| {
            transaction.commit().map_err(passing)?;
            Ok(answer)
        });
        if done.is_err() {
            known.forget();
        }
        done
    }

    /// Run `work` on a connection for reading.
    pub(super) fn reading<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let pooled = self.readers.lock().pop();
        let connection = match pooled {
            Some(connection) => connection,
            None => connect(&self.path).map_err(passing)?,
        };
        let answer = work(&connection).map_err(passing);
        let mut readers = self.readers.lock();
        if readers.len() < READERS_MAX {
            readers.push(connection);
        }
        answer
    }

    /// Look at a space, all at one instant.
    fn look<T>(
        &self,
        space: &str,
        work: impl FnOnce(&Connection, SpaceRow) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let found = self.reading(|connection| {
            let snapshot = connection.unchecked_transaction()?;
            match SpaceRow::find(&snapshot, space)? {
                Some(row) => work(&snapshot, row).map(Some),
                None => Ok(None),
            }
        })?;
        found.ok_or(StoreError::UnknownSpace)
    }

    /// Change a space in one transaction.
    fn change<T>(
        &self,
        space: &str,
        work: impl FnOnce(&Connection, SpaceRow) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.writing(|transaction| {
            let row = find_space(transaction, space)?;
            work(transaction, row).map_err(passing)
        })
    }
}

/// Write the next blocks of a feed within a transaction of the caller's.
pub(super) fn write_within(
    transaction: &Transaction<'_>,
    space: &str,
    feed: &FeedName<'_>,
    author: &Author,
    drafts: &[Draft],
    now_ms: u64,
) -> Result<Vec<Held>, AppendError> {
    let row = find_space(transaction, space)?;
    Batch::new(transaction, row, now_ms, &mut Remembered::default()).write(feed, author, drafts)
}

/// Drop a feed and its blocks within a transaction of the caller's. Its id must
/// never be used again.
pub(super) fn drop_feed_within(
    transaction: &Transaction<'_>,
    space: &str,
    feed: &str,
) -> Result<(), StoreError> {
    let mut row = find_space(transaction, space)?;
    let Some(mut found) = FeedRow::find(transaction, space, feed).map_err(passing)? else {
        return Ok(());
    };
    keep::evict(
        transaction,
        &mut row,
        &mut found,
        Keep::Newest(0),
        usize::MAX,
    )
    .map_err(passing)?;
    let sql = "DELETE FROM feeds WHERE feedPrivateId = ?1";
    transaction
        .prepare_cached(sql)
        .and_then(|mut query| query.execute([found.private_id]))
        .map_err(passing)?;
    row.feed_count = row.feed_count.saturating_sub(1);
    row.update(transaction).map_err(passing)
}

fn find_space(connection: &Connection, space: &str) -> Result<SpaceRow, StoreError> {
    SpaceRow::find(connection, space)
        .map_err(passing)?
        .ok_or(StoreError::UnknownSpace)
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    #[cfg(test)]
    let connection = crate::effort::watched(connection)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    connection.busy_timeout(Duration::from_millis(BUSY_MS_MAX))?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "cache_size", -65_536)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "mmap_size", MMAP_BYTES_MAX)?;
    Ok(connection)
}

pub(super) fn passing(error: rusqlite::Error) -> StoreError {
    match error {
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..) => {
            StoreError::Damaged("a row that cannot be read")
        }
        error => StoreError::Passing(Box::new(error)),
    }
}

impl LogStore for SqliteLog {
    fn open(&self, space: &str, role: Role, fresh: Epoch) -> Result<SpaceState, StoreError> {
        self.writing(|transaction| {
            SpaceRow::insert(transaction, space, role, fresh).map_err(passing)?;
            find_space(transaction, space)?
                .state(transaction)
                .map_err(passing)
        })
    }

    fn space(&self, space: &str) -> Result<Option<SpaceState>, StoreError> {
        match self.look(space, |connection, row| row.state(connection)) {
            Ok(state) => Ok(Some(state)),
            Err(StoreError::UnknownSpace) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn spaces(&self) -> Result<Vec<String>, StoreError> {
        self.reading(|connection| {
            let mut query =
                connection.prepare_cached("SELECT spaceId FROM spaces ORDER BY spaceId")?;
            query.query_map([], |row| row.get(0))?.collect()
        })
    }

    fn append(
        &self,
        space: &str,
        namespace: Option<&str>,
        blocks: &[Sealed],
        now_ms: u64,
        limits: &Limits,
    ) -> Result<Vec<Option<u64>>, AppendError> {
        self.adding(space, now_ms, |batch| {
            batch.append(namespace, blocks, limits)
        })
    }

    fn write(
        &self,
        space: &str,
        feed: &FeedName<'_>,
        author: &Author,
        drafts: &[Draft],
        now_ms: u64,
    ) -> Result<Vec<Held>, AppendError> {
        self.adding(space, now_ms, |batch| batch.write(feed, author, drafts))
    }

    fn page(
        &self,
        space: &str,
        selection: &Selection,
        start: &Start,
        max: PageMax,
    ) -> Result<Page, StoreError> {
        self.look(space, |connection, row| {
            let lanes = match row.role {
                Role::Authority => Default::default(),
                Role::Replica => learn::lanes(connection, row.private_id)?,
            };
            page::page(connection, row, &lanes, selection, start, max)
        })
    }

    fn block(&self, space: &str, key: &BlockKey) -> Result<Option<Held>, StoreError> {
        self.look(space, |connection, row| {
            let sql = format!(
                "SELECT {} FROM blocks AS b JOIN feeds AS f USING (feedPrivateId) \
                 WHERE f.spaceId = ?1 AND f.feedId = ?2 AND b.sequence = ?3 AND b.actorId = ?4",
                row::COLUMNS
            );
            let values = params![row.id, key.feed, row::signed(key.sequence), key.actor];
            connection
                .prepare_cached(&sql)?
                .query_row(values, row::held)
                .optional()
        })
    }

    fn head(&self, space: &str, position: u64) -> Result<Option<Head>, StoreError> {
        self.look(space, |connection, row| {
            page::head_at(connection, row.private_id, position)
        })
    }

    fn position_before(&self, space: &str, time_ms: u64) -> Result<u64, StoreError> {
        self.look(space, |connection, row| {
            keep::position_before(connection, row.private_id, time_ms)
        })
    }

    fn feed(&self, space: &str, feed: &str) -> Result<Option<FeedState>, StoreError> {
        self.look(space, |connection, row| {
            Ok(FeedRow::newest(connection, &row.id, feed)?.map(|feed| feed.state))
        })
    }

    fn feeds(
        &self,
        space: &str,
        namespace: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<FeedState>, StoreError> {
        self.look(space, |connection, row| {
            FeedRow::list(connection, &row, namespace, after.unwrap_or(""), limit)
        })
    }

    fn subscribe(
        &self,
        space: &str,
        subscription: &Subscription,
        now_ms: u64,
        subscriptions_max: u64,
    ) -> Result<bool, StoreError> {
        self.change(space, |connection, row| {
            keep::subscribe(connection, &row, subscription, now_ms, subscriptions_max)
        })
    }

    fn subscription(&self, space: &str, id: &str) -> Result<Option<Subscription>, StoreError> {
        self.look(space, |connection, row| {
            keep::find_subscription(connection, row.private_id, id)
        })
    }

    fn evict(
        &self,
        space: &str,
        feed: &str,
        keep: Keep,
        slice_max: usize,
    ) -> Result<u64, StoreError> {
        self.change(space, |connection, mut row| {
            match FeedRow::find(connection, &row.id, feed)? {
                Some(mut feed) => keep::evict(connection, &mut row, &mut feed, keep, slice_max),
                None => Ok(0),
            }
        })
    }

    fn purge(&self, space: &str, key: &BlockKey) -> Result<bool, StoreError> {
        self.change(space, |connection, row| {
            let sql = "SELECT b.blockId FROM blocks AS b JOIN feeds AS f USING (feedPrivateId) \
                       WHERE f.spaceId = ?1 AND f.feedId = ?2 AND b.sequence = ?3 AND b.actorId = ?4";
            let values = params![row.id, key.feed, row::signed(key.sequence), key.actor];
            let found: Option<i64> = connection.prepare_cached(sql)?.query_row(values, |row| row.get(0)).optional()?;
            match found {
                Some(block_id) => learn::purge_row(connection, block_id).map(|()| true),
                None => Ok(false),
            }
        })
    }
}

impl ReplicaStore for SqliteLog {
    fn upstream(&self, space: &str) -> Result<Upstream, StoreError> {
        self.look(space, |_, row| Ok(row.upstream))
    }

    fn lanes(&self, space: &str) -> Result<Vec<Lane>, StoreError> {
        self.look(space, |connection, row| {
            Ok(learn::lanes(connection, row.private_id)?
                .into_values()
                .collect())
        })
    }

    fn set_lane(&self, space: &str, target: &Target, mode: Option<Mode>) -> Result<(), StoreError> {
        self.change(space, |connection, mut row| {
            let mut lanes = learn::lanes(connection, row.private_id)?;
            let of_target = learn::held_from(connection, &row, target)?;
            let of_space = learn::held_from(connection, &row, &Target::Space)?;
            set_lane(&mut lanes, target, mode, |target| match target {
                _ if row.upstream.healing => Some(1),
                Target::Feed(_) => of_target,
                Target::Space => of_space,
            });
            let sql = "DELETE FROM lanes WHERE spacePrivateId = ?1";
            connection.prepare_cached(sql)?.execute([row.private_id])?;
            lanes
                .values()
                .try_for_each(|lane| learn::put_lane(connection, row.private_id, lane))?;
            row.epoch = row.epoch.next();
            row.update(connection)
        })
    }

    fn pending(
        &self,
        space: &str,
        only: Option<&[String]>,
        apart: &[String],
        max: PageMax,
    ) -> Result<Vec<Held>, StoreError> {
        self.look(space, |connection, row| {
            let ids = |feeds: &[String]| -> rusqlite::Result<Vec<i64>> {
                let mut ids = Vec::with_capacity(feeds.len());
                for feed in feeds {
                    ids.extend(
                        FeedRow::find(connection, &row.id, feed)?.map(|feed| feed.private_id),
                    );
                }
                Ok(ids)
            };
            let Some(only) = only else {
                return page::pending_of_space(connection, row.private_id, &ids(apart)?, max);
            };
            let mut gather = Gather::new(max);
            for held in page::pending_of_feeds(connection, &ids(only)?, None, max.blocks, false)? {
                if !gather.offer(held) {
                    break;
                }
            }
            Ok(gather.into_blocks())
        })
    }

    fn acknowledge(
        &self,
        space: &str,
        positions: &[(BlockKey, u64)],
        now_ms: u64,
    ) -> Result<Acknowledged, StoreError> {
        self.change(space, |connection, space| {
            Learner { connection, space }.acknowledge(positions, now_ms)
        })
    }

    fn set_aside(&self, space: &str, blocks: &[(BlockKey, &str)]) -> Result<(), StoreError> {
        self.change(space, |connection, space| {
            Learner { connection, space }.set_aside(blocks)
        })
    }

    fn adopt(&self, space: &str, pulled: &Pulled<'_>, now_ms: u64) -> Result<Adopted, StoreError> {
        self.change(space, |connection, space| {
            Learner { connection, space }.adopt(pulled, now_ms)
        })
    }

    fn begin_healing(&self, space: &str, epoch: Epoch) -> Result<(), StoreError> {
        self.change(space, |connection, mut row| {
            for mut lane in learn::lanes(connection, row.private_id)?.into_values() {
                lane.start_over();
                learn::put_lane(connection, row.private_id, &lane)?;
            }
            row.upstream = Upstream {
                epoch: Some(epoch),
                healing: true,
            };
            row.epoch = row.epoch.next();
            row.update(connection)
        })
    }

    fn end_healing(&self, space: &str, position_max: u64) -> Result<u64, StoreError> {
        self.change(space, |connection, mut row| {
            row.upstream.healing = false;
            row.epoch = row.epoch.next();
            row.update(connection)?;
            Learner {
                connection,
                space: row,
            }
            .unplace_suspect(position_max)
        })
    }

    fn conflicts(&self, space: &str) -> Result<Vec<Held>, StoreError> {
        self.look(space, |connection, space| {
            Learner { connection, space }.conflicts()
        })
    }
}
