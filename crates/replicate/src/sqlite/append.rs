//! Appending: blocks into rows, positions out of the counter.
//!
//! In:    sealed blocks of a stranger, or drafts of our own.
//! Out:   a position for each, in one transaction.
//! Never: a position taken by a batch that failed.
//!
//! Nothing is written but blocks: the newest of them tells how its feed and its
//! space stand, and [`Remembered`] saves looking for it. A block above its feed's
//! newest is new; only what comes late is looked for.

use super::bundle;
use super::keep;
use super::learn;
use super::moment::Moment;
use super::remembered::Remembered;
use super::row::{BLOCK_COLUMNS, hash, signed, unsigned_or_none, with_values};
use super::space::{FeedRow, SpaceRow};
use super::tail::Arrival;
use blocklog::block::{Hash, Held};
use blocklog::chain::{
    Draft, Known, Refusal, Refused, Sealed, Tip, Verdict, exhausted, judge, next, not_replicated,
};
use blocklog::limits::{BLOCK_BYTES, INTEGER_MAX, Limits};
use blocklog::replica::{Lane, Target, may_write};
use blocklog::signature::Author;
use blocklog::store::{AppendError, FeedName, Role, StoreError};
use rusqlite::types::ToSql;
use rusqlite::{CachedStatement, OptionalExtension, Result};
use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

/// A batch on its way into the tables.
pub(super) struct Batch<'a> {
    moment: &'a Moment<'a>,
    space: SpaceRow,
    now_ms: u64,
    feeds: Vec<FeedRow>,
    /// Where a feed's row is, by its id.
    places: HashMap<String, usize>,
    known: &'a mut Remembered,
    made_feeds: bool,
    /// Prepared with the first block.
    insert: Option<CachedStatement<'a>>,
    /// What a bundle will hold of the block at hand.
    entry: Vec<u8>,
    /// What the new blocks count towards `space_bytes_max`, and that limit.
    bytes: u64,
    bytes_max: u64,
    /// How a replica replicates; read with the first block.
    lanes: Option<BTreeMap<Target, Lane>>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(
        moment: &'a Moment<'a>,
        space: SpaceRow,
        now_ms: u64,
        known: &'a mut Remembered,
    ) -> Self {
        Self {
            moment,
            space,
            now_ms,
            feeds: Vec::new(),
            places: HashMap::new(),
            known,
            made_feeds: false,
            insert: None,
            entry: Vec::new(),
            bytes: 0,
            bytes_max: u64::MAX,
            lanes: None,
        }
    }

    /// Whether a replica sends what is written to this feed.
    fn is_sent(&mut self, feed: &str) -> Result<bool> {
        if self.space.role == Role::Authority {
            return Ok(true);
        }
        let lanes = match &mut self.lanes {
            Some(lanes) => lanes,
            none => none.insert(learn::lanes(self.moment, self.space.private_id)?),
        };
        Ok(may_write(lanes, feed))
    }

    /// The same for strangers, who may fill the space up to a limit.
    pub(super) fn up_to(self, bytes_max: u64) -> Self {
        Self { bytes_max, ..self }
    }

    fn has_room_for(&self, sealed: &Sealed) -> bool {
        let held = self.space.bytes.saturating_add(self.bytes);
        held.saturating_add(size(sealed)) <= self.bytes_max
    }

    pub(super) fn append(
        mut self,
        namespace: Option<&str>,
        blocks: &[Sealed],
        limits: &Limits,
    ) -> Result<Vec<Option<u64>>, AppendError> {
        self.bytes_max = limits.space_bytes_max;
        let mut positions = Vec::with_capacity(blocks.len());
        let mut refused = Vec::new();
        for (index, sealed) in blocks.iter().enumerate() {
            match self
                .append_one(namespace, sealed, limits)
                .map_err(passing)?
            {
                Ok(position) => positions.push(position),
                Err(refusal) => refused.push(Refused {
                    index,
                    key: sealed.block.key(),
                    refusal,
                }),
            }
        }
        if !refused.is_empty() {
            return Err(AppendError::Refused(refused));
        }
        self.finish().map_err(passing)?;
        Ok(positions)
    }

    fn append_one(
        &mut self,
        namespace: Option<&str>,
        sealed: &Sealed,
        limits: &Limits,
    ) -> Result<Result<Option<u64>, Refusal>> {
        if !self.is_sent(&sealed.block.feed)? {
            return Ok(Err(Refusal::NotReplicated));
        }
        let place = match self.feed(&sealed.block.feed, namespace, limits)? {
            Ok(place) => place,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let Some(feed) = self.feeds.get(place) else {
            return Ok(Err(Refusal::SpaceFull));
        };
        let mut known = Known {
            same_key: None,
            predecessor: self.predecessor(feed, sealed)?,
        };
        if let Err(refusal) = judge(sealed, &known) {
            // A block we hold is a repeat, whatever is said of it now.
            let held = self.find(feed, sealed)?;
            known.same_key = held.map(|(hash, _)| hash);
            return Ok(match (judge(sealed, &known), held) {
                (Ok(Verdict::Repeat), Some((_, position))) => Ok(position),
                (Ok(_), _) => Err(refusal),
                (Err(refusal), _) => Err(refusal),
            });
        }
        if let Some((held, position)) = self.evicted_under(feed, sealed)? {
            return Ok(match held == sealed.hash {
                true => Ok(Some(position)),
                false => Err(Refusal::Conflict { held }),
            });
        }
        if !self.has_room_for(sealed) {
            let found = match self.feeds.get(place) {
                Some(feed) => self.find(feed, sealed)?,
                None => None,
            };
            let max = self.bytes_max;
            return Ok(match found {
                Some((hash, position)) if hash == sealed.hash => Ok(position),
                _ => Err(Refusal::SpaceBytes { max }),
            });
        }
        if let Some(position) = self.insert(place, sealed)? {
            return Ok(Ok(position));
        }
        let found = match self.feeds.get(place) {
            Some(feed) => self.find(feed, sealed)?,
            None => None,
        };
        Ok(match found {
            Some((hash, position)) if hash == sealed.hash => Ok(position),
            Some((held, _)) => Err(Refusal::Conflict { held }),
            None => Err(Refusal::Predecessor),
        })
    }

    pub(super) fn write(
        mut self,
        name: &FeedName<'_>,
        author: &Author,
        drafts: &[Draft],
    ) -> Result<Vec<Held>, AppendError> {
        let written = drafts
            .iter()
            .map(|draft| self.write_one(name, author, draft))
            .collect::<Result<_, _>>()?;
        self.finish().map_err(passing)?;
        Ok(written)
    }

    /// Make and insert the next block of a feed; [`Batch::finish`] must follow.
    pub(super) fn write_one(
        &mut self,
        name: &FeedName<'_>,
        author: &Author,
        draft: &Draft,
    ) -> Result<Held, AppendError> {
        if !self.is_sent(name.feed).map_err(passing)? {
            return Err(AppendError::Refused(not_replicated(name.feed, author)));
        }
        let place = match self.existing(name.feed).map_err(passing)? {
            Some(place) => place,
            None => self.make_feed(name.feed, name.namespace).map_err(passing)?,
        };
        let state = self.feeds.get(place).map(|feed| &feed.state);
        let tip = state.and_then(|state| state.tip.as_ref());
        let namespace = state.and_then(|state| state.namespace.clone());
        let sealed = next(&self.space.id, name.feed, tip, author, draft)
            .ok_or_else(|| AppendError::Refused(exhausted(name.feed, author)))?;
        if !self.has_room_for(&sealed) {
            let max = self.bytes_max;
            return Err(AppendError::Refused(vec![Refused {
                index: 0,
                key: sealed.block.key(),
                refusal: Refusal::SpaceBytes { max },
            }]));
        }
        let position = self.insert(place, &sealed).map_err(passing)?;
        let position = position.ok_or(StoreError::Damaged(
            "a feed's tip is below one of its blocks",
        ))?;
        Ok(Held {
            block: sealed.block,
            hash: sealed.hash,
            position,
            namespace,
        })
    }

    /// Where the row of a known feed is.
    fn existing(&mut self, feed: &str) -> Result<Option<usize>> {
        if let Some(place) = self.places.get(feed) {
            return Ok(Some(*place));
        }
        let row = self.known.take_feed(self.moment, &self.space, feed)?;
        Ok(row.map(|row| self.take_in(row)))
    }

    fn take_in(&mut self, row: FeedRow) -> usize {
        let place = self.feeds.len();
        self.places.insert(row.state.feed.clone(), place);
        self.feeds.push(row);
        place
    }

    /// Where the feed's row is; made if there is room for it.
    fn feed(
        &mut self,
        feed: &str,
        namespace: Option<&str>,
        limits: &Limits,
    ) -> Result<Result<usize, Refusal>> {
        let Some(place) = self.existing(feed)? else {
            if self.space.feed_count >= limits.space_feeds_max {
                return Ok(Err(Refusal::SpaceFull));
            }
            return self.make_feed(feed, namespace).map(Ok);
        };
        let held = self
            .feeds
            .get(place)
            .and_then(|row| row.state.namespace.as_deref());
        if namespace.is_some() && held != namespace {
            return Ok(Err(Refusal::Namespace));
        }
        Ok(Ok(place))
    }

    fn make_feed(&mut self, feed: &str, namespace: Option<&str>) -> Result<usize> {
        let row = FeedRow::insert(self.moment, &mut self.space, feed, namespace)?;
        self.made_feeds = true;
        Ok(self.take_in(row))
    }

    /// The hash we hold for the block's predecessor. Most often that is the
    /// feed's tip, which is at hand.
    fn predecessor(&self, feed: &FeedRow, sealed: &Sealed) -> Result<Option<Hash>> {
        let Some(claim) = &sealed.block.predecessor else {
            return Ok(None);
        };
        if claim.hash.is_none() {
            return Ok(None);
        }
        if let Some(tip) = &feed.state.tip
            && tip.sequence == claim.sequence
            && tip.actor == claim.actor
        {
            return Ok(Some(tip.hash));
        }
        let held = self.held(feed, claim.sequence, &claim.actor)?;
        Ok(held.map(|(hash, _)| hash))
    }

    fn find(&self, feed: &FeedRow, sealed: &Sealed) -> Result<Option<(Hash, Option<u64>)>> {
        self.held(feed, sealed.block.sequence, &sealed.block.actor)
    }

    /// The hash and the position of the block with this key.
    fn held(
        &self,
        feed: &FeedRow,
        sequence: u64,
        actor: &str,
    ) -> Result<Option<(Hash, Option<u64>)>> {
        let Some(block_id) = self.moment.find(feed.private_id, sequence, actor)? else {
            return Ok(None);
        };
        let sql = "SELECT hash, position FROM blocks WHERE blockId = ?1";
        let read = |row: &rusqlite::Row<'_>| Ok((hash(row, 0)?, unsigned_or_none(row, 1)?));
        self.moment
            .prepare_cached(sql)?
            .query_row([block_id], read)
            .optional()
    }

    /// Whether a block comes at or below its feed's newest: only then its key can be taken.
    fn is_late(feed: &FeedRow, sealed: &Sealed) -> bool {
        let tip = feed.state.tip.as_ref();
        tip.is_some_and(|tip| sealed.block.sequence <= tip.sequence)
    }

    /// The evicted block under the key of this one, as far as they are remembered. Only
    /// what comes late can have one.
    fn evicted_under(&self, feed: &FeedRow, sealed: &Sealed) -> Result<Option<(Hash, u64)>> {
        if !Self::is_late(feed, sealed) || feed.state.evicted_through == 0 {
            return Ok(None);
        }
        keep::evicted_under(self.moment, feed, &sealed.block)
    }

    /// Insert a block; `None` if its key is taken.
    fn insert(&mut self, place: usize, sealed: &Sealed) -> Result<Option<Option<u64>>> {
        let Some(feed) = self.feeds.get(place) else {
            return Ok(None);
        };
        if Self::is_late(feed, sealed) && self.find(feed, sealed)?.is_some() {
            return Ok(None);
        }
        let block_id = self.moment.next_block();
        let insert = match &mut self.insert {
            Some(insert) => insert,
            none => none.insert(self.moment.prepare_cached(&INSERT)?),
        };
        let is_authority = self.space.role == Role::Authority;
        let position = is_authority.then_some(self.space.position_max + 1);
        assert!(
            position.is_none_or(|position| position <= INTEGER_MAX),
            "positions are used up"
        );
        let head = self.space.head.then(&sealed.hash);
        let placed_ms = self.space.placed_ms.max(self.now_ms);
        let (head_value, placed_value) = (is_authority.then_some(head.0), signed(placed_ms));
        with_values(&sealed.block, &sealed.hash, position, |values| {
            let own: [&dyn ToSql; 6] = [
                &block_id,
                &self.space.private_id,
                &feed.namespace_private_id,
                &feed.private_id,
                &head_value,
                &placed_value,
            ];
            let all = own.into_iter().chain(values.iter().copied());
            insert.execute(rusqlite::params_from_iter(all))
        })?;
        self.bytes += size(sealed);
        self.entry.clear();
        if let Some(position) = position {
            bundle::push(&mut self.entry, &sealed.block, &sealed.hash, position);
        }
        self.moment.came(&Arrival {
            block_id,
            feed: feed.private_id,
            sequence: sealed.block.sequence,
            actor: &sealed.block.actor,
            position,
            entry: &self.entry,
        });
        let Some(feed) = self.feeds.get_mut(place) else {
            return Ok(None);
        };
        if let Some(position) = position {
            self.space.position_max = position;
            self.space.head = head;
            self.space.placed_ms = placed_ms;
            feed.state.position_max = feed.state.position_max.max(position);
        }
        feed.state.tip = Some(Tip::after(feed.state.tip.take(), sealed));
        Ok(Some(position))
    }

    /// Remember how the space and its feeds stand now. The blocks themselves
    /// tell; only the number of feeds and of bytes is written.
    pub(super) fn finish(mut self) -> Result<()> {
        if self.bytes > 0 {
            self.space.grow(self.moment, self.bytes)?;
        }
        if self.made_feeds {
            self.space.update(self.moment)?;
        }
        self.known.put(self.space, self.feeds);
        Ok(())
    }
}

/// What a block counts towards `space_bytes_max`.
pub(super) fn size(sealed: &Sealed) -> u64 {
    BLOCK_BYTES + sealed.block.payload.size() as u64
}

static INSERT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "INSERT INTO blocks (blockId, spacePrivateId, namespacePrivateId, feedPrivateId, head, placedAt, {BLOCK_COLUMNS}) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
});

pub(super) fn passing(error: rusqlite::Error) -> AppendError {
    AppendError::Store(StoreError::Passing(Box::new(error)))
}
