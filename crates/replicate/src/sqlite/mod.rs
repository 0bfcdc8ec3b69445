//! The log in SQLite.
//!
//! In:    the calls of [`LogStore`] and [`ReplicaStore`], from any thread.
//! Out:   what they promise; a call that has returned survives a power cut.
//! Never: two writers at once; a reader that waits for one.
//!
//! One connection writes, behind a lock. Each call is one transaction, and appends of peers that are in flight
//! together share one (`group.rs`). Readers take
//! a connection from a small pool and see one snapshot. The order of each feed is
//! written later than its blocks (`tail.rs`); whoever asks sees both as one. The file is its own: it
//! shares nothing with the records, so it can be copied, moved or lost alone.

mod append;
mod bundle;
#[cfg(test)]
mod bundle_tests;
mod conflict;
mod connection;
mod entries;
mod group;
#[cfg(test)]
mod group_tests;
mod keep;
mod learn;
mod moment;
mod page;
pub mod published;
mod remembered;
mod remove;
mod row;
mod schema;
mod slices;
mod space;
mod tail;
#[cfg(test)]
mod tail_tests;
#[cfg(test)]
mod tests;
mod transaction;
pub(super) mod within;

use blocklog::block::{BlockKey, Head, Held};
use blocklog::chain::{Draft, Sealed, Tip};
use blocklog::conflict::Aside;
use blocklog::cursor::Epoch;
use blocklog::limits::Limits;
use blocklog::page::{Gather, Page, PageMax, Selection, Start};
use blocklog::replica::{Acknowledged, Adopted, Lane, Mode, Pulled, Target, Upstream, set_lane};
use blocklog::signature::Author;
use blocklog::store::{
    AppendError, Crowded, FeedName, FeedState, Keep, LogStore, ReplicaStore, Role, SpaceState,
    StoreError, Subscription, SubscriptionsMax,
};
use group::Group;
use learn::Learner;
pub(super) use moment::Moment;
use parking_lot::Mutex;
pub(super) use remembered::Remembered;
use rusqlite::{Connection, OptionalExtension};
use slices::Slices;
use space::{FeedRow, SpaceRow};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use tail::{TAIL_BLOCKS_MAX, Tail};

/// Idle connections kept for readers.
const READERS_MAX: usize = 16;

/// How often a reader begins. It begins again only if a generation has left the tail since it
/// began, which takes thousands of blocks.
const LOOKS_MAX: usize = 100;

/// A log in one SQLite file.
#[derive(Debug)]
pub struct SqliteLog {
    path: PathBuf,
    writer: Mutex<Writer>,
    tail: Tail,
    readers: Mutex<Vec<Connection>>,
    /// Appends that share the next transaction.
    group: Group,
    /// Bytes of the file that are in use, as of the last transaction.
    file_bytes: AtomicU64,
    transactions: AtomicU64,
    /// Told where the process is, by name: tests end it there.
    at: fn(&'static str),
}

/// How much a space holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceSize {
    /// Its feeds.
    pub feeds: u64,
    /// What its blocks count towards `space_bytes_max`.
    pub bytes: u64,
}

/// The connection that writes, and what it knows without looking.
#[derive(Debug)]
struct Writer {
    connection: Connection,
    known: Remembered,
    slices: Slices,
    /// The size at which the write-ahead log is to be emptied, where that was tried in vain.
    wal_tried: u64,
}

impl SqliteLog {
    /// Open the file, and make or migrate its tables.
    ///
    /// # Errors
    /// If the file cannot be opened or is of a later version.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::with_tail(path, TAIL_BLOCKS_MAX)
    }

    /// The same with generations of another size.
    fn with_tail(path: &Path, tail_blocks_max: usize) -> Result<Self, StoreError> {
        let mut writer = connection::open(path).map_err(passing)?;
        if !schema::migrate(&mut writer).map_err(passing)? {
            return Err(StoreError::Damaged(
                "the file was written by a newer version of feedmill; install that version",
            ));
        }
        let log = Self {
            path: path.to_owned(),
            writer: Mutex::new(Writer {
                connection: writer,
                known: Remembered::default(),
                slices: Slices::default(),
                wal_tried: 0,
            }),
            tail: Tail::new(tail_blocks_max),
            readers: Mutex::new(Vec::new()),
            group: Group::default(),
            file_bytes: AtomicU64::new(0),
            transactions: AtomicU64::new(0),
            at: |_| (),
        };
        log.account(&log.writer.lock().connection);
        log.reading(|connection| moment::catch_up(connection, &log.tail))?;
        Ok(log)
    }

    /// The same, with a function that is called at named places of a group commit.
    #[must_use]
    pub fn watched(self, at: fn(&'static str)) -> Self {
        Self { at, ..self }
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

    /// Run `work` on a connection for reading.
    pub(super) fn reading<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let pooled = self.readers.lock().pop();
        let connection = match pooled {
            Some(connection) => connection,
            None => connection::open(&self.path).map_err(passing)?,
        };
        let answer = work(&connection).map_err(passing);
        let mut readers = self.readers.lock();
        if readers.len() < READERS_MAX {
            readers.push(connection);
        }
        answer
    }

    /// How much a space holds; `None` if it is not known.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn size(&self, space: &str) -> Result<Option<SpaceSize>, StoreError> {
        self.reading(|connection| {
            let row = SpaceRow::find(connection, space)?;
            Ok(row.map(|row| SpaceSize {
                feeds: row.feed_count,
                bytes: row.bytes,
            }))
        })
    }

    /// Look at a space, all at one instant.
    fn look<T>(
        &self,
        space: &str,
        work: impl FnOnce(&Moment<'_>, SpaceRow) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let found = self.reading(|connection| {
            for _ in 0..LOOKS_MAX {
                let snapshot = connection.unchecked_transaction()?;
                let Some(moment) = Moment::of_reader(&snapshot, &self.tail)? else {
                    continue;
                };
                return Ok(Ok(match SpaceRow::find(&moment, space)? {
                    Some(row) => Some(work(&moment, row)?),
                    None => None,
                }));
            }
            Ok(Err(StoreError::Damaged(
                "the tables tell less than they told",
            )))
        })?;
        found?.ok_or(StoreError::UnknownSpace)
    }

    /// Change a space in one transaction.
    fn change<T>(
        &self,
        space: &str,
        work: impl FnOnce(&Moment<'_>, SpaceRow) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.writing(|moment| {
            let row = find_space(moment, space)?;
            work(moment, row).map_err(passing)
        })
    }
}

fn find_space(connection: &Connection, space: &str) -> Result<SpaceRow, StoreError> {
    SpaceRow::find(connection, space)
        .map_err(passing)?
        .ok_or(StoreError::UnknownSpace)
}

fn find_block(
    moment: &Moment<'_>,
    space: &SpaceRow,
    key: &BlockKey,
) -> rusqlite::Result<Option<i64>> {
    match FeedRow::find(moment, &space.id, &key.feed)? {
        Some(feed) => moment.find(feed.private_id, key.sequence, &key.actor),
        None => Ok(None),
    }
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
            if remove::is_deleting(transaction, space).map_err(passing)? {
                let problem = "the space of this name is still being deleted";
                return Err(StoreError::Passing(problem.into()));
            }
            remove::forget(transaction, space).map_err(passing)?;
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
            let mut query = connection
                .prepare_cached("SELECT spaceId FROM spaces WHERE deleting = 0 ORDER BY spaceId")?;
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
        self.look(space, |moment, row| {
            let lanes = match row.role {
                Role::Authority => Default::default(),
                Role::Replica => learn::lanes(moment, row.private_id)?,
            };
            page::page(moment, row, &lanes, selection, start, max)
        })
    }

    fn block(&self, space: &str, key: &BlockKey) -> Result<Option<Held>, StoreError> {
        self.look(space, |moment, row| {
            let Some(block_id) = find_block(moment, &row, key)? else {
                return Ok(None);
            };
            let sql = format!(
                "SELECT {} FROM blocks AS b JOIN feeds AS f USING (feedPrivateId) WHERE b.blockId = ?1",
                row::COLUMNS
            );
            moment
                .prepare_cached(&sql)?
                .query_row([block_id], row::held)
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
        max: SubscriptionsMax,
    ) -> Result<Option<Crowded>, StoreError> {
        self.change(space, |connection, row| {
            keep::subscribe(connection, &row, subscription, now_ms, max)
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
        self.change(space, |moment, row| match find_block(moment, &row, key)? {
            Some(block_id) => learn::purge_row(moment, block_id).map(|()| true),
            None => Ok(false),
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
        self.change(space, |moment, space| {
            Learner { moment, space }.acknowledge(positions, now_ms)
        })
    }

    fn set_aside(&self, space: &str, blocks: &[(BlockKey, &str)]) -> Result<(), StoreError> {
        self.change(space, |moment, space| {
            Learner { moment, space }.set_aside(blocks)
        })
    }

    fn adopt(&self, space: &str, pulled: &Pulled<'_>, now_ms: u64) -> Result<Adopted, StoreError> {
        self.change(space, |moment, space| {
            Learner { moment, space }.adopt(pulled, now_ms)
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
                moment: connection,
                space: row,
            }
            .unplace_suspect(position_max)
        })
    }

    fn lost_feed(&self, space: &str) -> Result<Option<String>, StoreError> {
        self.look(space, |moment, space| Learner { moment, space }.lost_feed())
    }

    fn reissue(&self, space: &str, feed: &str, newest: Option<&Tip>) -> Result<u64, StoreError> {
        self.change(space, |moment, space| {
            Learner { moment, space }.reissue_refused(feed, newest)
        })
    }

    fn conflicts(&self, space: &str, max: usize) -> Result<Vec<Aside>, StoreError> {
        self.look(space, |moment, space| {
            Learner { moment, space }.conflicts(max)
        })
    }
}
