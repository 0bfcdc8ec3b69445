//! The rows of a space, its namespaces and its feeds.
//!
//! In:    a transaction, a space's id.
//! Out:   its counters and feeds, read once and written back once.
//! Never: a counter written lower than it was read.

use super::moment::Moment;
use super::row::{hash, hash_or_none, number, signed, sixteen, unsigned_or_none};
use blocklog::block::Head;
use blocklog::chain::Tip;
use blocklog::cursor::Epoch;
use blocklog::replica::Upstream;
use blocklog::store::{FeedState, Role, SpaceState};
use rusqlite::{Connection, OptionalExtension, Result, Row, params};
use std::sync::LazyLock;

/// One row of `spaces`.
#[derive(Debug, Clone)]
pub(super) struct SpaceRow {
    pub(super) private_id: i64,
    pub(super) id: String,
    pub(super) role: Role,
    pub(super) epoch: Epoch,
    pub(super) position_max: u64,
    pub(super) head: Head,
    pub(super) placed_ms: u64,
    pub(super) feed_count: u64,
    pub(super) upstream: Upstream,
    /// What was evicted up to here is not remembered.
    pub(super) forgotten: u64,
    /// What its blocks count towards `space_bytes_max`.
    pub(super) bytes: u64,
}

impl SpaceRow {
    pub(super) fn find(connection: &Connection, space: &str) -> Result<Option<Self>> {
        let sql = "SELECT spacePrivateId, spaceId, isAuthority, epoch, positionMax, head, placedAt, feedCount, \
                   upstreamEpoch, healing, forgottenThrough, bytes FROM spaces WHERE spaceId = ?1 AND deleting = 0";
        let found = connection
            .prepare_cached(sql)?
            .query_row([space], Self::read)
            .optional()?;
        match found {
            Some(mut row) if row.role == Role::Authority => {
                row.catch_up(connection)?;
                Ok(Some(row))
            }
            other => Ok(other),
        }
    }

    /// Stand where the newest block stands. What the row itself holds is how the
    /// space stood when blocks were last evicted from it.
    fn catch_up(&mut self, connection: &Connection) -> Result<()> {
        let sql = "SELECT position, head, placedAt FROM blocks WHERE spacePrivateId = ?1 AND position > ?2 \
                   ORDER BY position DESC LIMIT 1";
        let values = params![self.private_id, signed(self.position_max)];
        let newest = connection
            .prepare_cached(sql)?
            .query_row(values, |row| {
                Ok((number(row, 0)?, sixteen(row, 1)?, number(row, 2)?))
            })
            .optional()?;
        if let Some((position, head, placed_ms)) = newest {
            self.position_max = position;
            self.head = Head(head);
            self.placed_ms = placed_ms;
        }
        Ok(())
    }

    fn read(row: &Row<'_>) -> Result<Self> {
        let upstream_epoch = match row.get::<_, Option<Vec<u8>>>(8)? {
            None => None,
            Some(_) => Some(Epoch(sixteen(row, 8)?)),
        };
        Ok(Self {
            private_id: row.get(0)?,
            id: row.get(1)?,
            role: if row.get(2)? {
                Role::Authority
            } else {
                Role::Replica
            },
            epoch: Epoch(sixteen(row, 3)?),
            position_max: number(row, 4)?,
            head: Head(sixteen(row, 5)?),
            placed_ms: number(row, 6)?,
            feed_count: number(row, 7)?,
            upstream: Upstream {
                epoch: upstream_epoch,
                healing: row.get(9)?,
            },
            forgotten: number(row, 10)?,
            bytes: number(row, 11)?,
        })
    }

    pub(super) fn insert(
        connection: &Connection,
        space: &str,
        role: Role,
        epoch: Epoch,
    ) -> Result<()> {
        let sql = "INSERT INTO spaces (spaceId, isAuthority, epoch, head) VALUES (?1, ?2, ?3, ?4) \
                   ON CONFLICT (spaceId) DO NOTHING";
        let values = params![space, role == Role::Authority, epoch.0, Head::default().0];
        connection.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    pub(super) fn update(&self, connection: &Connection) -> Result<()> {
        let sql = "UPDATE spaces SET epoch = ?2, positionMax = ?3, head = ?4, placedAt = ?5, feedCount = ?6, \
                   upstreamEpoch = ?7, healing = ?8, forgottenThrough = ?9 WHERE spacePrivateId = ?1";
        connection.prepare_cached(sql)?.execute(params![
            self.private_id,
            self.epoch.0,
            signed(self.position_max),
            self.head.0,
            signed(self.placed_ms),
            signed(self.feed_count),
            self.upstream.epoch.map(|epoch| epoch.0),
            self.upstream.healing,
            signed(self.forgotten),
        ])?;
        Ok(())
    }

    /// Count blocks that were added.
    pub(super) fn grow(&mut self, connection: &Connection, bytes: u64) -> Result<()> {
        let sql = "UPDATE spaces SET bytes = bytes + ?2 WHERE spacePrivateId = ?1";
        let values = params![self.private_id, signed(bytes)];
        connection.prepare_cached(sql)?.execute(values)?;
        self.bytes += bytes;
        Ok(())
    }

    pub(super) fn state(&self, connection: &Connection) -> Result<SpaceState> {
        let position_max = match self.role {
            Role::Authority => self.position_max,
            Role::Replica => self.held_max(connection)?,
        };
        Ok(SpaceState {
            role: self.role,
            epoch: self.epoch,
            position_max,
            head: self.head,
            upstream: self.upstream.epoch.filter(|_| !self.upstream.healing),
        })
    }

    /// The highest position that is held: one step from the end of an index.
    pub(super) fn held_max(&self, connection: &Connection) -> Result<u64> {
        let sql = "SELECT position FROM blocks WHERE spacePrivateId = ?1 AND position IS NOT NULL \
                   ORDER BY position DESC LIMIT 1";
        let found = connection
            .prepare_cached(sql)?
            .query_row([self.private_id], |row| number(row, 0))
            .optional()?;
        Ok(found.unwrap_or(0))
    }

    /// The number of a namespace; made if `make` is set.
    pub(super) fn namespace(
        &self,
        connection: &Connection,
        namespace: &str,
        make: bool,
    ) -> Result<Option<i64>> {
        let values = params![self.private_id, namespace];
        if make {
            let sql = "INSERT INTO namespaces (spacePrivateId, namespace) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
            connection.prepare_cached(sql)?.execute(values)?;
        }
        let sql = "SELECT namespacePrivateId FROM namespaces WHERE spacePrivateId = ?1 AND namespace = ?2";
        connection
            .prepare_cached(sql)?
            .query_row(values, |row| row.get(0))
            .optional()
    }
}

/// One row of `feeds`.
#[derive(Debug, Clone)]
pub(super) struct FeedRow {
    pub(super) private_id: i64,
    pub(super) namespace_private_id: Option<i64>,
    pub(super) state: FeedState,
}

const FEED_COLUMNS: &str = "feedPrivateId, namespacePrivateId, feedId, feedNamespace, tipSequence, tipActorId, \
     tipHash, positionMax, evictedThrough";

/// Written once: this is asked for every feed of every batch and page.
static FIND_FEED: LazyLock<String> = LazyLock::new(|| {
    format!("SELECT {FEED_COLUMNS} FROM feeds WHERE spaceId = ?1 AND feedId = ?2")
});

impl FeedRow {
    fn read(row: &Row<'_>) -> Result<Self> {
        let tip = match (
            unsigned_or_none(row, 4)?,
            row.get::<_, Option<String>>(5)?,
            hash_or_none(row, 6)?,
        ) {
            (Some(sequence), Some(actor), Some(hash)) => Some(Tip {
                sequence,
                actor,
                hash,
            }),
            _ => None,
        };
        Ok(Self {
            private_id: row.get(0)?,
            namespace_private_id: row.get(1)?,
            state: FeedState {
                feed: row.get(2)?,
                namespace: row.get(3)?,
                tip,
                position_max: number(row, 7)?,
                evicted_through: number(row, 8)?,
            },
        })
    }

    pub(super) fn find(connection: &Connection, space: &str, feed: &str) -> Result<Option<Self>> {
        connection
            .prepare_cached(&FIND_FEED)?
            .query_row([space, feed], Self::read)
            .optional()
    }

    /// The same, standing where its newest blocks stand. What the row itself
    /// holds is how the feed stood when blocks were last evicted from it.
    pub(super) fn newest(moment: &Moment<'_>, space: &str, feed: &str) -> Result<Option<Self>> {
        let mut found = Self::find(moment, space, feed)?;
        if let Some(row) = &mut found {
            row.catch_up(moment)?;
        }
        Ok(found)
    }

    /// Stand where the newest blocks stand.
    pub(super) fn catch_up(&mut self, moment: &Moment<'_>) -> Result<()> {
        let newest = moment.newest(self.private_id)?;
        if let Some(tip) = newest.map(|id| Self::tip(moment, id)).transpose()?
            && self
                .state
                .tip
                .as_ref()
                .is_none_or(|held| (tip.sequence, &tip.actor) >= (held.sequence, &held.actor))
        {
            self.state.tip = Some(tip);
        }
        let highest = moment.highest_but(self, 0)?.unwrap_or(0);
        self.state.position_max = self.state.position_max.max(highest);
        Ok(())
    }

    pub(super) fn tip(connection: &Connection, block_id: i64) -> Result<Tip> {
        let sql = "SELECT sequence, actorId, hash FROM blocks WHERE blockId = ?1";
        connection
            .prepare_cached(sql)?
            .query_row([block_id], |row| {
                Ok(Tip {
                    sequence: number(row, 0)?,
                    actor: row.get(1)?,
                    hash: hash(row, 2)?,
                })
            })
    }

    /// Add a feed, and count it in its space's row.
    pub(super) fn insert(
        connection: &Connection,
        space: &mut SpaceRow,
        feed: &str,
        namespace: Option<&str>,
    ) -> Result<Self> {
        let namespace_private_id = match namespace {
            None => None,
            Some(namespace) => space.namespace(connection, namespace, true)?,
        };
        let sql = "INSERT INTO feeds (spaceId, feedId, feedNamespace, namespacePrivateId) VALUES (?1, ?2, ?3, ?4)";
        let values = params![space.id, feed, namespace, namespace_private_id];
        connection.prepare_cached(sql)?.execute(values)?;
        space.feed_count += 1;
        Ok(Self {
            private_id: connection.last_insert_rowid(),
            namespace_private_id,
            state: FeedState {
                feed: feed.to_owned(),
                namespace: namespace.map(str::to_owned),
                tip: None,
                position_max: 0,
                evicted_through: 0,
            },
        })
    }

    /// Write down how the feed stands, before blocks that tell so go.
    pub(super) fn advance(&self, connection: &Connection) -> Result<()> {
        let sql = "UPDATE feeds SET tipSequence = ?2, tipActorId = ?3, tipHash = ?4, \
                   positionMax = ?5 WHERE feedPrivateId = ?1";
        let tip = self.state.tip.as_ref();
        connection.prepare_cached(sql)?.execute(params![
            self.private_id,
            tip.map(|tip| signed(tip.sequence)),
            tip.map(|tip| &tip.actor),
            tip.map(|tip| tip.hash.bytes().as_slice()),
            signed(self.state.position_max),
        ])?;
        Ok(())
    }

    /// Write back how far the feed was evicted.
    pub(super) fn recede(&self, connection: &Connection) -> Result<()> {
        let sql = "UPDATE feeds SET evictedThrough = ?2 WHERE feedPrivateId = ?1";
        let values = params![self.private_id, signed(self.state.evicted_through)];
        connection.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    /// Every feed of a space.
    pub(super) fn all(connection: &Connection, space: &SpaceRow) -> Result<Vec<Self>> {
        let sql = format!("SELECT {FEED_COLUMNS} FROM feeds WHERE spaceId = ?1");
        let mut query = connection.prepare_cached(&sql)?;
        query.query_map([&space.id], Self::read)?.collect()
    }

    /// Feeds behind `after`, by id.
    pub(super) fn list(
        moment: &Moment<'_>,
        space: &SpaceRow,
        namespace: Option<&str>,
        after: &str,
        limit: usize,
    ) -> Result<Vec<FeedState>> {
        let limit = signed(limit as u64);
        let rows: Vec<Self> = match namespace {
            None => {
                let sql = format!(
                    "SELECT {FEED_COLUMNS} FROM feeds WHERE spaceId = ?1 AND feedId > ?2 ORDER BY feedId LIMIT ?3"
                );
                let mut query = moment.prepare_cached(&sql)?;
                query
                    .query_map(params![space.id, after, limit], Self::read)?
                    .collect::<Result<_>>()?
            }
            Some(namespace) => {
                let Some(namespace) = space.namespace(moment, namespace, false)? else {
                    return Ok(Vec::new());
                };
                let sql = format!(
                    "SELECT {FEED_COLUMNS} FROM feeds WHERE namespacePrivateId = ?1 AND feedId > ?2 ORDER BY feedId LIMIT ?3"
                );
                let mut query = moment.prepare_cached(&sql)?;
                query
                    .query_map(params![namespace, after, limit], Self::read)?
                    .collect::<Result<_>>()?
            }
        };
        let stand = |mut row: Self| row.catch_up(moment).map(|()| row.state);
        rows.into_iter().map(stand).collect()
    }
}
