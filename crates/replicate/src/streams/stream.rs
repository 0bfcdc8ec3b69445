//! A stream: its row, its life, its end.
//!
//! In:    a transaction, a path, the time.
//! Out:   the live stream; absent; or gone, but needed by its forks.
//! Never: a stream that outlives its time; data dropped that a fork still reads.
//!
//! The bytes of a stream are blocks of one feed of the space `streams`, one block
//! per append. A fork shares its source's blocks up to a position and goes on in
//! a feed of its own; positions grow over the whole space, so offsets do too.

use super::header::Lifetime;
use super::reply::Refusal;
use crate::sqlite::{Moment, Remembered, within};
use rusqlite::{Connection, OptionalExtension, Result, Row, params};

pub(crate) use crate::settings::STREAMS_SPACE as SPACE;

/// Streams that one sweep ends.
const SWEPT_MAX: usize = 1000;

/// How deep forks of forks may go.
pub(super) const FORK_DEPTH_MAX: usize = 64;

/// One row of `streams`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) id: i64,
    pub(super) path: String,
    pub(super) content_type: String,
    pub(super) lifetime: Lifetime,
    pub(super) touched_ms: u64,
    /// The tail.
    pub(super) position: u64,
    /// The writer's own sequence, compared as text.
    pub(super) sequence: Option<String>,
    pub(super) closed: bool,
    pub(super) deleted: bool,
    pub(super) fork: Option<Fork>,
}

/// Where a fork leaves its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fork {
    pub(super) source: i64,
    pub(super) source_path: String,
    pub(super) position: u64,
    /// How much of the append behind that position was taken along.
    pub(super) sub_offset: u64,
}

/// What stands at a path.
#[derive(Debug)]
pub(super) enum Presence {
    Absent,
    /// Deleted, but its forks still read it.
    Gone,
    Live(Stream),
}

const COLUMNS: &str = "streamId, path, contentType, ttlSeconds, expiresAt, expiresText, touchedAt, position, sequence, \
     closed, deleted, forkOf, forkText, forkPosition, forkBytes";

/// The streams whose time is over at `?1`.
const EXPIRED: &str = "deleted = 0 AND streamId IN (\
     SELECT streamId FROM streams WHERE expiresAt IS NOT NULL AND expiresAt <= ?1 UNION ALL \
     SELECT streamId FROM streams WHERE ttlSeconds IS NOT NULL AND touchedAt + ttlSeconds * 1000 <= ?1)";

impl Stream {
    /// The feed that holds its own blocks.
    pub(super) fn feed(&self) -> String {
        self.id.to_string()
    }

    pub(super) fn is_json(&self) -> bool {
        super::header::essence(&self.content_type) == "application/json"
    }

    fn read(row: &Row<'_>) -> Result<Self> {
        let number = |column: usize| {
            Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(|n| n.max(0) as u64))
        };
        let expires = number(4)?.zip(row.get::<_, Option<String>>(5)?);
        let fork = match (row.get(11)?, row.get(12)?, number(13)?) {
            (Some(source), Some(source_path), Some(position)) => Some(Fork {
                source,
                source_path,
                position,
                sub_offset: number(14)?.unwrap_or(0),
            }),
            _ => None,
        };
        Ok(Self {
            id: row.get(0)?,
            path: row.get(1)?,
            content_type: row.get(2)?,
            lifetime: Lifetime {
                ttl_seconds: number(3)?,
                expires,
            },
            touched_ms: number(6)?.unwrap_or(0),
            position: number(7)?.unwrap_or(0),
            sequence: row.get(8)?,
            closed: row.get(9)?,
            deleted: row.get(10)?,
            fork,
        })
    }

    pub(super) fn by_path(connection: &Connection, path: &str) -> Result<Option<Self>> {
        let sql = format!("SELECT {COLUMNS} FROM streams WHERE path = ?1");
        connection
            .prepare_cached(&sql)?
            .query_row([path], Self::read)
            .optional()
    }

    pub(super) fn by_id(connection: &Connection, id: i64) -> Result<Option<Self>> {
        let sql = format!("SELECT {COLUMNS} FROM streams WHERE streamId = ?1");
        connection
            .prepare_cached(&sql)?
            .query_row([id], Self::read)
            .optional()
    }

    /// Add the row; the id is given here.
    pub(super) fn insert(&mut self, connection: &Connection) -> Result<()> {
        let sql = "INSERT INTO streams (path, contentType, ttlSeconds, expiresAt, expiresText, touchedAt, position, \
                   closed, forkOf, forkText, forkPosition, forkBytes) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
        let expires = self.lifetime.expires.as_ref();
        let fork = self.fork.as_ref();
        connection.prepare_cached(sql)?.execute(params![
            self.path,
            self.content_type,
            self.lifetime.ttl_seconds.map(signed),
            expires.map(|(at_ms, _)| signed(*at_ms)),
            expires.map(|(_, text)| text),
            signed(self.touched_ms),
            signed(self.position),
            self.closed,
            fork.map(|fork| fork.source),
            fork.map(|fork| &fork.source_path),
            fork.map(|fork| signed(fork.position)),
            fork.map(|fork| signed(fork.sub_offset)),
        ])?;
        self.id = connection.last_insert_rowid();
        Ok(())
    }

    pub(super) fn update(&self, connection: &Connection) -> Result<()> {
        let sql = "UPDATE streams SET touchedAt = ?2, position = ?3, sequence = ?4, closed = ?5, deleted = ?6 \
                   WHERE streamId = ?1";
        connection.prepare_cached(sql)?.execute(params![
            self.id,
            signed(self.touched_ms),
            signed(self.position),
            self.sequence,
            self.closed,
            self.deleted,
        ])?;
        Ok(())
    }

    /// Whether its time is over.
    pub(super) fn is_expired(&self, now_ms: u64) -> bool {
        let idle = self.lifetime.ttl_seconds.is_some_and(|seconds| {
            self.touched_ms.saturating_add(seconds.saturating_mul(1000)) <= now_ms
        });
        idle || self
            .lifetime
            .expires
            .as_ref()
            .is_some_and(|(at_ms, _)| *at_ms <= now_ms)
    }

    /// Whether the time of any is over.
    pub(super) fn is_any_expired(connection: &Connection, now_ms: u64) -> Result<bool> {
        let sql = format!("SELECT 1 FROM streams WHERE {EXPIRED} LIMIT 1");
        connection.prepare_cached(&sql)?.exists([signed(now_ms)])
    }

    /// Some whose time is over.
    pub(super) fn expired(connection: &Connection, now_ms: u64) -> Result<Vec<Self>> {
        let sql = format!("SELECT {COLUMNS} FROM streams WHERE {EXPIRED} LIMIT {SWEPT_MAX}");
        let mut query = connection.prepare_cached(&sql)?;
        query.query_map([signed(now_ms)], Self::read)?.collect()
    }

    /// How many there are, if these are at least `many`. As long as fewer were ever made, nothing is counted.
    pub(super) fn are_at_least(connection: &Connection, many: u64) -> Result<bool> {
        let sql = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'streams'), 0)";
        let made: i64 = connection
            .prepare_cached(sql)?
            .query_row([], |row| row.get(0))?;
        if made < signed(many) {
            return Ok(false);
        }
        let sql = "SELECT count(*) FROM streams";
        let held: i64 = connection
            .prepare_cached(sql)?
            .query_row([], |row| row.get(0))?;
        Ok(held >= signed(many))
    }

    /// What stands at `path` now, without changing anything.
    pub(super) fn look(connection: &Connection, path: &str, now_ms: u64) -> Result<Presence> {
        Ok(match Self::by_path(connection, path)? {
            None => Presence::Absent,
            Some(stream) if stream.deleted => Presence::Gone,
            Some(stream) if stream.is_expired(now_ms) => match stream.has_forks(connection)? {
                true => Presence::Gone,
                false => Presence::Absent,
            },
            Some(stream) => Presence::Live(stream),
        })
    }

    /// What stands at `path` now; a stream whose time is over is ended first.
    pub(super) fn enter(
        moment: &Moment<'_>,
        known: &mut Remembered,
        path: &str,
        now_ms: u64,
    ) -> Result<Presence, Refusal> {
        if let Some(stream) = Self::by_path(moment, path)?
            && !stream.deleted
            && stream.is_expired(now_ms)
        {
            known.forget(); // its feed goes, and the space counts one less
            stream.end(moment)?;
        }
        Ok(Self::look(moment, path, now_ms)?)
    }

    pub(super) fn has_forks(&self, connection: &Connection) -> Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM streams WHERE forkOf = ?1)";
        connection
            .prepare_cached(sql)?
            .query_row([self.id], |row| row.get(0))
    }

    /// End the stream. While forks read it, it only disappears; the last fork
    /// takes it along.
    pub(super) fn end(mut self, moment: &Moment<'_>) -> Result<(), Refusal> {
        if self.has_forks(moment)? {
            self.deleted = true;
            return Ok(self.update(moment)?);
        }
        let mut next = Some(self);
        while let Some(stream) = next.take() {
            moment.execute("DELETE FROM producers WHERE streamId = ?1", [stream.id])?;
            moment.execute("DELETE FROM streams WHERE streamId = ?1", [stream.id])?;
            within::drop_feed(moment, SPACE, &stream.feed())?;
            if let Some(fork) = &stream.fork
                && let Some(source) = Self::by_id(moment, fork.source)?
                && source.deleted
                && !source.has_forks(moment)?
            {
                next = Some(source);
            }
        }
        Ok(())
    }

    /// The feeds that hold its content, oldest first, each up to a position.
    pub(super) fn segments(&self, connection: &Connection) -> Result<Vec<(String, u64)>> {
        let mut segments = vec![(self.feed(), self.position)];
        let mut through = u64::MAX;
        let mut fork = self.fork.clone();
        while let Some(here) = fork.take() {
            through = through.min(here.position);
            let source = Self::by_id(connection, here.source)?;
            if let Some(source) = source
                && segments.len() <= FORK_DEPTH_MAX
            {
                segments.push((source.feed(), through));
                fork = source.fork;
            }
        }
        segments.reverse();
        Ok(segments)
    }
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
