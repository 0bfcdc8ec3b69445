//! The answering side: a request in, an answer out.
//!
//! In:    a parsed request for a space, the time, sixteen random bytes.
//! Out:   the answer, or the fault.
//! Never: a page from another history than the cursor's without saying so.
//!
//! It answers for an authority and for a replica alike; a replica only has less
//! to say: no positions of its own, and nothing that is not final.

use crate::block::{Hash, Head};
use crate::chain::{Refused, Sealed, check_alone};
use crate::cursor::Cursor;
use crate::limits::{INTEGER_MAX, Limits};
use crate::message::{
    Answer, AppendRequest, Appended, Blocks, Expected, Fault, Feeds, From, ListRequest,
    QueryRequest, Request, SubscribeRequest, Subscribed, Wanted,
};
use crate::page::{PageMax, PendingStart, Selection, Start};
use crate::store::{
    AppendError, Crowded, FeedState, LogStore, Role, SpaceState, Subscription, SubscriptionsMax,
};
use crate::writers::Writers;
use std::fmt;

/// Answers requests from a store.
#[derive(Clone, Copy)]
pub struct Authority<'a> {
    /// What it answers from.
    pub store: &'a dyn LogStore,
    /// How much anybody may ask.
    pub limits: &'a Limits,
    /// Who may append.
    pub writers: &'a Writers,
}

fn replaced(state: &SpaceState) -> Fault {
    Fault::Replaced {
        epoch: state.epoch,
        position_max: state.position_max,
    }
}

fn rolled_back(state: &SpaceState) -> Fault {
    Fault::RolledBack {
        epoch: state.epoch,
        position_max: state.position_max,
    }
}

impl fmt::Debug for Authority<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Authority")
            .field("writers", &self.writers)
            .finish_non_exhaustive()
    }
}

impl Authority<'_> {
    /// Answer one request. `random` names a subscription, should one be made.
    ///
    /// # Errors
    /// The fault to send back.
    pub fn answer(
        &self,
        space: &str,
        request: &Request,
        now_ms: u64,
        random: &[u8; 16],
    ) -> Result<Answer, Fault> {
        let state = self.store.space(space)?.ok_or(Fault::UnknownSpace)?;
        match request {
            Request::Query(query) => self.query(space, &state, query, now_ms).map(Answer::Blocks),
            Request::Subscribe(subscribe) => {
                let id = Hash::of(random).to_string();
                self.subscribe(space, subscribe, now_ms, &id)
                    .map(Answer::Subscribed)
            }
            Request::Append(append) => self
                .append(space, &state, append, now_ms)
                .map(Answer::Appended),
            Request::List(list) => self.list(space, list).map(Answer::Feeds),
        }
    }

    fn query(
        &self,
        space: &str,
        state: &SpaceState,
        query: &QueryRequest,
        now_ms: u64,
    ) -> Result<Blocks, Fault> {
        let selection = match &query.wanted {
            Wanted::Here(selection) => selection.clone(),
            Wanted::Subscription(id) => self.live_subscription(space, id, now_ms)?.selection,
        };
        let (start, catching_up) = self.start(space, state, &selection, query)?;
        let limit = query
            .limit
            .map_or(self.limits.page_blocks_default, |limit| {
                usize::try_from(limit).unwrap_or(usize::MAX)
            });
        let max = PageMax {
            blocks: limit.min(self.limits.page_blocks_max),
            bytes: self.limits.page_bytes_max,
        };
        let page = self.store.page(space, &selection, &start, max)?;
        if let (false, Some(through)) = (
            query.skip_gone || catching_up,
            page.evicted.iter().map(|(_, through)| *through).max(),
        ) {
            return Err(Fault::Gone { starts_at: through });
        }
        let cursor = Cursor {
            epoch: page.epoch,
            position: page.next.after,
            head: page.head,
            pending: page.next.pending,
            catching_up: catching_up && page.has_more,
            upstream: state.upstream.filter(|_| state.role == Role::Replica),
        };
        let names_cursor = matches!(query.from, From::Cursor(_));
        let start_cursor = match names_cursor || start.after == 0 || page.next.after == start.after
        {
            true => None,
            false => self.store.head(space, start.after)?.map(|head| {
                let start = Cursor {
                    position: start.after,
                    head,
                    pending: PendingStart::Excluded,
                    catching_up: false,
                    ..cursor.clone()
                };
                start.encode()
            }),
        };
        Ok(Blocks {
            start_cursor,
            blocks: page.blocks,
            has_more: page.has_more,
            next_cursor: cursor.encode(),
            after: start.after,
            covered: page.next.after,
            epoch: page.epoch,
            position_max: page.position_max,
            evicted: page.evicted,
            forgotten: page.forgotten,
        })
    }

    /// Where the page starts, and whether its walk is one that began without a place.
    fn start(
        &self,
        space: &str,
        state: &SpaceState,
        selection: &Selection,
        query: &QueryRequest,
    ) -> Result<(Start, bool), Fault> {
        let pending = if query.unpositioned {
            PendingStart::All
        } else {
            PendingStart::Excluded
        };
        let after = match &query.from {
            From::Oldest => 0,
            From::Position(position) => {
                self.check_position(space, state, *position, &query.expected)?;
                *position
            }
            From::Since(time_ms) => self.store.position_before(space, *time_ms)?,
            From::Tail => self.tail(space, selection)?,
            From::Cursor(text) => {
                let cursor = self.resume(space, state, text)?;
                let start = Start {
                    after: cursor.position,
                    pending: cursor.pending,
                };
                return Ok((start, cursor.catching_up));
            }
        };
        let catching_up = matches!(query.from, From::Oldest | From::Since(_));
        Ok((Start { after, pending }, catching_up))
    }

    /// The position up to which everything is final now.
    fn tail(&self, space: &str, selection: &Selection) -> Result<u64, Fault> {
        let beyond = Start {
            after: INTEGER_MAX,
            pending: PendingStart::Excluded,
        };
        let nothing = PageMax {
            blocks: 0,
            bytes: 0,
        };
        Ok(self
            .store
            .page(space, selection, &beyond, nothing)?
            .position_max)
    }

    /// Go on at a cursor, if it is from this history. A cursor that nobody can
    /// verify any more is refused: reading on might skip what was lost.
    fn resume(&self, space: &str, state: &SpaceState, text: &str) -> Result<Cursor, Fault> {
        let cursor = Cursor::decode(text).map_err(|_| Fault::BadCursor)?;
        if cursor.position > INTEGER_MAX {
            return Err(Fault::BadCursor);
        }
        let is_ours = cursor.epoch == state.epoch;
        // Positions are the same here and there. But a replica does not go on with the cursor of
        // another: each has what it was set to have.
        let moved = match state.role {
            Role::Authority => cursor.upstream == Some(state.epoch),
            Role::Replica => cursor.upstream.is_none() && state.upstream == Some(cursor.epoch),
        };
        if !is_ours && !moved {
            return Err(replaced(state));
        }
        if state.role == Role::Authority {
            let beyond = cursor.position > state.position_max;
            let verifiable = cursor.head != Head::default();
            if beyond || verifiable && self.store.head(space, cursor.position)? != Some(cursor.head)
            {
                return Err(rolled_back(state));
            }
        }
        Ok(cursor)
    }

    /// Whether a position is one to read on from: not beyond the end, and of the history that
    /// the reader expects.
    fn check_position(
        &self,
        space: &str,
        state: &SpaceState,
        position: u64,
        expected: &Expected,
    ) -> Result<(), Fault> {
        let epochs = [Some(state.epoch), state.upstream];
        if expected.epoch.is_some() && !epochs.contains(&expected.epoch) {
            return Err(replaced(state));
        }
        // A replica that is behind gets there; an authority that is behind has lost something.
        if state.role == Role::Authority && position > state.position_max {
            return Err(Fault::BeyondEnd {
                epoch: state.epoch,
                position_max: state.position_max,
            });
        }
        match expected.hash {
            Some(hash) if !self.is_at(space, position, &hash)? => Err(rolled_back(state)),
            _ => Ok(()),
        }
    }

    /// Whether the block at `position` has this hash, as far as anybody knows.
    fn is_at(&self, space: &str, position: u64, hash: &Hash) -> Result<bool, Fault> {
        let Some(before) = position.checked_sub(1) else {
            return Ok(false);
        };
        let start = Start {
            after: before,
            pending: PendingStart::Excluded,
        };
        let one = PageMax {
            blocks: 1,
            bytes: 0,
        };
        let page = self.store.page(space, &Selection::Space, &start, one)?;
        let first = page.blocks.first();
        if let Some(held) = first.filter(|held| held.position == Some(position)) {
            return Ok(held.hash == *hash);
        }
        // It was let go: the heads around it tell.
        let heads = (
            self.store.head(space, before)?,
            self.store.head(space, position)?,
        );
        Ok(matches!(heads, (Some(before), Some(here)) if before.then(hash) == here))
    }

    fn live_subscription(&self, space: &str, id: &str, now_ms: u64) -> Result<Subscription, Fault> {
        let held = self
            .store
            .subscription(space, id)?
            .ok_or(Fault::UnknownSubscription)?;
        if held.expires_ms <= now_ms {
            return Err(Fault::ExpiredSubscription {
                expires_ms: held.expires_ms,
            });
        }
        Ok(held)
    }

    fn subscribe(
        &self,
        space: &str,
        request: &SubscribeRequest,
        now_ms: u64,
        fresh_id: &str,
    ) -> Result<Subscribed, Fault> {
        let (id, selection) = match &request.renew {
            None => (fresh_id.to_owned(), request.selection.clone()),
            Some(id) => {
                let held = self.live_subscription(space, id, now_ms)?;
                let selection = match &request.selection {
                    Selection::Space => held.selection,
                    other => other.clone(),
                };
                (held.id, selection)
            }
        };
        let subscription = Subscription {
            id,
            expires_ms: now_ms + self.limits.subscription_ms_max,
            selection,
        };
        let max = SubscriptionsMax {
            count: self.limits.space_subscriptions_max,
            bytes: self.limits.space_bytes_max,
        };
        match self.store.subscribe(space, &subscription, now_ms, max)? {
            Some(Crowded::Count) => Err(Fault::TooLarge {
                limit: "space_subscriptions_max".into(),
                max: max.count,
            }),
            Some(Crowded::Bytes) => Err(Fault::Full {
                limit: "space_bytes_max".into(),
                max: max.bytes,
            }),
            None => Ok(Subscribed {
                subscription_id: subscription.id,
                expires_ms: subscription.expires_ms,
            }),
        }
    }

    /// Whether a cursor is of the present history of a space.
    ///
    /// # Errors
    /// The fault to send back.
    pub fn check_cursor(&self, space: &str, cursor: &str) -> Result<(), Fault> {
        let state = self.store.space(space)?.ok_or(Fault::UnknownSpace)?;
        self.resume(space, &state, cursor).map(drop)
    }

    fn append(
        &self,
        space: &str,
        state: &SpaceState,
        request: &AppendRequest,
        now_ms: u64,
    ) -> Result<Appended, Fault> {
        if let Some(cursor) = &request.cursor {
            self.resume(space, state, cursor)?;
        }
        self.check(request)?;
        let namespace = request.namespace.as_deref();
        match self
            .store
            .append(space, namespace, &request.blocks, now_ms, self.limits)
        {
            Ok(positions) => Ok(Appended {
                positions: positions
                    .into_iter()
                    .collect::<Option<_>>()
                    .unwrap_or_default(),
                epoch: state.epoch,
            }),
            Err(AppendError::Refused(refused)) => Err(refused.into()),
            Err(AppendError::Store(error)) => Err(error.into()),
        }
    }

    /// Whether the blocks of an append may be written as far as they themselves say.
    ///
    /// # Errors
    /// The fault to send back.
    pub fn check(&self, request: &AppendRequest) -> Result<(), Fault> {
        let blocks = request.blocks.iter().enumerate();
        let refused: Vec<Refused> = blocks
            .filter_map(|(index, sealed)| self.refuse(index, sealed))
            .collect();
        match refused.is_empty() {
            true => Ok(()),
            false => Err(refused.into()),
        }
    }

    fn refuse(&self, index: usize, sealed: &Sealed) -> Option<Refused> {
        let block = &sealed.block;
        let refusal = if self.writers.allow(&block.feed, &block.actor) {
            check_alone(sealed, self.limits).err()?
        } else {
            crate::chain::Refusal::NotAllowed
        };
        Some(Refused {
            index,
            key: block.key(),
            refusal,
        })
    }

    fn list(&self, space: &str, request: &ListRequest) -> Result<Feeds, Fault> {
        let limit = request.limit.map_or(usize::MAX, |limit| {
            usize::try_from(limit).unwrap_or(usize::MAX)
        });
        let limit = limit.min(self.limits.list_feeds_max);
        let (namespace, after) = (request.namespace.as_deref(), request.after.as_deref());
        let mut feeds = match &request.feed {
            None => self.store.feeds(space, namespace, after, limit + 1)?,
            Some(feed) => {
                let fits = |feed: &FeedState| {
                    namespace.is_none_or(|asked| feed.namespace.as_deref() == Some(asked))
                };
                self.store
                    .feed(space, feed)?
                    .filter(fits)
                    .into_iter()
                    .collect()
            }
        };
        let has_more = feeds.len() > limit;
        feeds.truncate(limit);
        Ok(Feeds { feeds, has_more })
    }
}
