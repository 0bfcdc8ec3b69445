//! Timelines: the engine, as the rest of the product sees it.
//!
//! In:    every change drawn from the outbox, in its order, by one writer.
//! Out:   [`Pages`], which anybody reads meanwhile.
//! Never: I/O, a clock, an answer that may be wrong. What the engine cannot
//!        answer wholly it leaves wholly to the store. No reader is waited for.
//!
//! How to use it: make it as of a position of the outbox; insert the store's
//! records newest first until [`Timelines::is_window_full`] or none are left;
//! say [`Timelines::loaded`] for each target; then draw the outbox, calling
//! [`Timelines::begin`] before the changes of each position,
//! [`Timelines::end`] after those that are to be seen together, and
//! [`Timelines::step`] between batches.

use crate::engine::Engine;
use crate::feed::{FeedWriter, Registered};
use crate::lane::{Inserted, LaneWriter, NewRecord};
use crate::page::{Page, Read, Request};
use crate::pages::Pages;
use crate::reading::{self, Cold, Inspection};
use crate::settings::{KeyId, RECORD_BYTES, RecordId, Settings};
use crate::sweep::{Due, Sweep};
use crate::warm::BATCH;
use sdd::{AtomicOwned, Guard, Owned, Tag};
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

/// What the engine holds and has done; for metrics.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Records in the window.
    pub records: usize,
    /// Records removed whose numbers are not yet free.
    pub removed: usize,
    /// Active readers, counted per feed.
    pub readers: usize,
    /// Rings, counted per target.
    pub rings: u64,
    /// Entries in all rings.
    pub entries: u64,
    /// Pairs of key and active reader.
    pub edges: u64,
    /// Keys whose outboxes reads merge.
    pub merged_keys: usize,
    /// Records written into rings since the start.
    pub pushes: u64,
    /// Deliveries left to reads since the start.
    pub pulled: u64,
    /// Background fan-outs waiting.
    pub fanouts: usize,
    /// Readers waiting to be entered into lists.
    pub joining: usize,
    /// Readers waiting to be taken out of lists.
    pub leaving: usize,
    /// Readers that hibernated since the start.
    pub hibernated: u64,
    /// Sweeps finished since the start.
    pub sweeps: u64,
    /// Memory of readers and their timelines.
    pub reader_bytes: usize,
    /// Memory of the records in the window, as far as it grows with them.
    pub window_bytes: usize,
}

/// Whether background work of a feed waits.
fn is_busy(feed: &FeedWriter, sweep: &Sweep) -> bool {
    !feed.jobs.is_empty()
        || !feed.joining.is_empty()
        || !feed.leaving.is_empty()
        || !sweep.is_idle()
}

/// The in-memory timelines of all feeds, for their one writer.
#[derive(Debug)]
pub struct Timelines {
    feeds: Vec<(FeedWriter, Sweep)>,
    engine: Arc<Engine>,
    pages: Pages,
    /// The changes that are being made belong here.
    position: u64,
    settings: Settings,
}

impl Timelines {
    /// An empty engine that will be loaded as of `position` of the outbox.
    pub fn new(settings: Settings, position: u64) -> Self {
        let new = |spec| FeedWriter::new(spec, &settings, position);
        let feeds: Vec<(FeedWriter, Sweep)> = settings
            .feeds
            .iter()
            .map(|spec| (new(spec), Sweep::default()))
            .collect();
        let seen = feeds.iter().map(|(feed, _)| Arc::clone(&feed.feed));
        let engine = Arc::new(Engine::new(seen.collect(), position, &settings));
        let pages = Pages {
            stand: Arc::new(AtomicOwned::new(Arc::clone(&engine))),
        };
        Self {
            feeds,
            engine,
            pages,
            position,
            settings,
        }
    }

    /// The same engine for its readers.
    pub fn pages(&self) -> Pages {
        self.pages.clone()
    }

    /// Has `other` answer from now on, also those who read the pages of this one.
    pub fn replace(&mut self, other: Self) {
        let engine = Owned::new(Arc::clone(&other.engine));
        drop(self.pages.stand.swap((Some(engine), Tag::None), Release));
        *self = Self {
            pages: self.pages.clone(),
            ..other
        };
    }

    /// The position drawn so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The changes that follow belong to this position of the outbox. Positions never go back.
    pub fn begin(&mut self, position: u64) {
        self.position = self.position.max(position);
        self.engine.moves();
    }

    /// All changes of the positions begun are made. Who reads sees all of those since the last
    /// such call, or none; a page that one of them concerns waits for this, or the store answers it.
    pub fn end(&mut self) {
        self.engine.stands_at(self.position);
    }

    /// Whether loading further back would only evict what was loaded.
    pub fn is_window_full(&self) -> bool {
        self.settings
            .is_beyond(self.records() + 1, self.window_bytes() + RECORD_BYTES)
    }

    /// Ends the loading of a target. Everything later than `floor_us` has been
    /// inserted; `None` says that the store holds nothing else.
    pub fn loaded(&mut self, feed: usize, target: usize, floor_us: Option<i64>) {
        if let Some(lane) = self.lane_mut(feed, target) {
            lane.loaded(floor_us.unwrap_or(i64::MIN));
        }
    }

    fn lane_mut(&mut self, feed: usize, target: usize) -> Option<&mut LaneWriter> {
        self.feeds.get_mut(feed)?.0.lanes.get_mut(target)
    }

    /// A record appeared, or changed its time, keys or URI.
    pub fn insert(&mut self, feed: usize, target: usize, record: NewRecord<'_>) -> Inserted {
        let guard = Guard::new();
        if self.leaves_out(feed, target, record.time_us, &guard) {
            return Inserted::Below;
        }
        let Some((feed, _)) = self.feeds.get_mut(feed) else {
            return Inserted::Below;
        };
        let outcome = feed.insert(target, &record, &guard);
        feed.send_taken(target);
        if outcome == Inserted::Taken {
            self.keep_the_window(&guard);
        }
        outcome
    }

    /// Whether a record is left out because the window is full, while it is loaded, of records that
    /// are all later. To take it in and let it leave would cost memory until the next sweep.
    fn leaves_out(&self, feed: usize, target: usize, time_us: i64, guard: &Guard) -> bool {
        let lane = self.feeds.get(feed).map(|(feed, _)| &feed.lanes);
        let Some(lane) = lane.and_then(|lanes| lanes.get(target)) else {
            return false;
        };
        if !lane.lane.is_loading() || !self.is_window_full() {
            return false;
        }
        let lanes = self.feeds.iter().flat_map(|(feed, _)| &feed.lanes);
        let oldest_us = lanes.filter_map(|lane| lane.oldest_us(guard)).min();
        let oldest = oldest_us.is_some_and(|oldest_us| time_us <= oldest_us);
        if oldest {
            lane.lane.floor.raise(time_us);
        }
        oldest
    }

    /// Several records of one target, in order; the same as one after another,
    /// at about a third of the cost.
    pub fn insert_all(&mut self, feed: usize, target: usize, records: &[NewRecord<'_>]) {
        for some in records.chunks(BATCH) {
            let Some((feed, _)) = self.feeds.get_mut(feed) else {
                return;
            };
            let guard = Guard::new();
            feed.warm(target, some, &guard);
            for record in some {
                feed.insert(target, record, &guard);
            }
            feed.send_taken(target);
            self.keep_the_window(&guard);
        }
    }

    fn keep_the_window(&mut self, guard: &Guard) {
        while self.settings.is_beyond(self.records(), self.window_bytes()) && self.evict(guard) {}
    }

    fn records(&self) -> usize {
        let lanes = self.feeds.iter().flat_map(|(feed, _)| &feed.lanes);
        lanes.map(|lane| lane.records.live()).sum()
    }

    /// Memory of all records in the window.
    fn window_bytes(&self) -> usize {
        let lanes = self.feeds.iter().flat_map(|(feed, _)| &feed.lanes);
        lanes.map(LaneWriter::bytes).sum()
    }

    /// Lets the oldest record of all lanes leave.
    fn evict(&mut self, guard: &Guard) -> bool {
        let lanes = self.feeds.iter_mut().flat_map(|(feed, _)| &mut feed.lanes);
        let oldest = lanes
            .filter_map(|lane| Some((lane.oldest_us(guard)?, lane)))
            .min_by_key(|(oldest_us, _)| *oldest_us);
        oldest.is_some_and(|(_, lane)| lane.evict(guard))
    }

    /// A record is gone from every feed; false if it was in none.
    pub fn remove(&mut self, RecordId(id): RecordId) -> bool {
        let mut found = false;
        let guard = Guard::new();
        for (feed, _) in &mut self.feeds {
            for lane in &mut feed.lanes {
                if let Some(number) = lane.records.number_of(id) {
                    found |= lane.take_out(number, &feed.feed.journal, &guard);
                }
            }
        }
        found
    }

    /// A record is gone from one target of one feed only.
    pub fn remove_from(&mut self, feed: usize, target: usize, RecordId(id): RecordId) -> bool {
        let Some((feed, _)) = self.feeds.get_mut(feed) else {
            return false;
        };
        let Some(lane) = feed.lanes.get_mut(target) else {
            return false;
        };
        match lane.records.number_of(id) {
            Some(number) => lane.take_out(number, &feed.feed.journal, &Guard::new()),
            None => false,
        }
    }

    /// An account is hidden from everybody, or shown again.
    pub fn account(&mut self, KeyId(author): KeyId, hidden: bool) {
        self.engine.set_hidden(author, hidden);
    }

    /// One follow record more. Two for one key count twice.
    pub fn follow(&mut self, feed: usize, KeyId(reader): KeyId, KeyId(key): KeyId) {
        if let Some((feed, _)) = self.feeds.get_mut(feed) {
            feed.follow(self.position, reader, key, &Guard::new());
        }
    }

    /// One follow record less.
    pub fn unfollow(&mut self, feed: usize, KeyId(reader): KeyId, KeyId(key): KeyId) {
        if let Some((feed, _)) = self.feeds.get_mut(feed) {
            feed.unfollow(self.position, reader, key, &Guard::new());
        }
    }

    /// One mute or block of an author by a reader more.
    pub fn hide(&mut self, feed: usize, KeyId(reader): KeyId, KeyId(author): KeyId) {
        if let Some((feed, _)) = self.feeds.get_mut(feed) {
            feed.hide(self.position, reader, author, true, &Guard::new());
        }
    }

    /// One mute or block of an author by a reader less.
    pub fn unhide(&mut self, feed: usize, KeyId(reader): KeyId, KeyId(author): KeyId) {
        if let Some((feed, _)) = self.feeds.get_mut(feed) {
            feed.hide(self.position, reader, author, false, &Guard::new());
        }
    }

    /// Makes a reader active after its first page was answered.
    ///
    /// `cold.as_of` may lie ahead of the engine: changes of the reader up to it
    /// are then skipped when they are drawn, and until that point its pages
    /// stay cold. The rings are built by later calls of [`Timelines::step`].
    pub fn register(
        &mut self,
        feed: usize,
        KeyId(reader): KeyId,
        cold: &Cold<'_>,
        now_us: i64,
    ) -> Registered {
        let bytes: usize = self
            .feeds
            .iter()
            .map(|(feed, _)| feed.bytes_of_readers())
            .sum();
        let Some((feed, _)) = self.feeds.get_mut(feed) else {
            return Registered::Full;
        };
        let is_new = feed.feed.readers.slot_of(reader).is_none();
        if bytes >= self.settings.reader_bytes_max && is_new {
            return Registered::Full;
        }
        feed.register(reader, cold.follows, cold.hidden, cold.as_of, now_us)
    }

    /// Lets a reader hibernate at once; its next read is cold.
    pub fn hibernate(&mut self, feed: usize, KeyId(reader): KeyId) {
        if let Some((feed, _)) = self.feeds.get_mut(feed)
            && let Some(slot) = feed.feed.readers.slot_of(reader)
        {
            feed.hibernate(slot, &Guard::new());
        }
    }

    /// The page of an active reader.
    pub fn read(&self, request: &Request<'_>) -> Read {
        self.pages.read(request, |_, page: Page| page)
    }

    /// The page of a reader whose follows the caller loaded.
    pub fn read_cold(&self, request: &Request<'_>, cold: &Cold<'_>) -> Read {
        self.pages.read_cold(request, cold, |_, page: Page| page)
    }

    /// Background work, about `work` units of a push each; true if more waits. Not between
    /// [`Timelines::begin`] and [`Timelines::end`].
    ///
    /// Fan-outs, joining, leaving and sweeping each get a share, so none waits
    /// for another to end.
    pub fn step(&mut self, now_us: i64, work: usize) -> bool {
        let mut waiting = false;
        let guard = Guard::new();
        if guard.has_garbage() {
            // What was replaced goes as soon as nobody reads it, not every few hundred changes:
            // rings of millions that widen together leave gigabytes behind.
            guard.accelerate();
        }
        let share = (work / self.feeds.len().max(1) / 4).max(1);
        let due = Due {
            ttl_us: self.settings.ttl_us,
            removed_max: self.settings.removed_max,
        };
        for (feed, sweep) in &mut self.feeds {
            let left = feed.step_joining(share);
            let left = feed.step_leaving(left + share);
            let left = sweep.step(feed, due, now_us, left + share);
            feed.step_jobs(left + share);
            waiting |= is_busy(feed, sweep);
        }
        waiting
    }

    /// How an active reader stands; `None` if it is cold.
    pub fn inspect(&self, feed: usize, target: usize, reader: KeyId) -> Option<Inspection> {
        let guard = Guard::new();
        let mut witness = self.engine.witness(feed, &guard)?;
        reading::inspect(target, reader, &mut witness)
    }

    /// Below or at this time a target's pages come from the store.
    pub fn floor_us(&self, feed: usize, target: usize) -> Option<i64> {
        let (feed, _) = self.feeds.get(feed)?;
        Some(feed.feed.lanes.get(target)?.floor_us())
    }

    /// What the engine holds and has done.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            records: self.records(),
            window_bytes: self.window_bytes(),
            ..Stats::default()
        };
        for (feed, _) in &self.feeds {
            for lane in &feed.lanes {
                stats.removed += lane.removed.len();
                stats.rings += lane.rings.rings();
                stats.entries += lane.rings.entries();
            }
            stats.readers += feed.readers.active();
            stats.edges += feed.audience.edges();
            stats.merged_keys += feed.audience.merged().len();
            stats.pushes += feed.tally.pushes;
            stats.pulled += feed.tally.pulled;
            stats.fanouts += feed.jobs.len();
            stats.joining += feed.joining.len();
            stats.leaving += feed.leaving.len();
            stats.hibernated += feed.tally.hibernated;
            stats.sweeps += feed.tally.sweeps;
            stats.reader_bytes += feed.bytes_of_readers();
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Target;
    use crate::settings::{FeedSpec, KeyList, TargetSpec};

    /// The replacement of a record has its time and URI. Where it has a lower
    /// number it belongs below the one that is gone, and out of a full ring;
    /// a page that ended at the gone one then passed it by.
    #[test]
    fn a_page_that_ends_at_a_gone_record_does_not_hide_its_replacement() {
        let target = |items_max| TargetSpec { items_max };
        let mut engine = Timelines::new(
            Settings {
                feeds: vec![FeedSpec {
                    targets: vec![target(5), target(1)],
                    include_self: false,
                }],
                removed_max: 1,
                ..Settings::default()
            },
            0,
        );
        let put = |engine: &mut Timelines, target, id, time_us, keys: &[u32]| {
            let keys: Vec<KeyId> = keys.iter().copied().map(KeyId).collect();
            let uri = format!("at://did/{target}/{id}");
            let record = NewRecord {
                id: RecordId(id),
                time_us,
                uri: &uri,
                author: KeyId(7),
                keys: &keys,
            };
            assert_eq!(engine.insert(0, target, record), Inserted::Taken);
            engine.end();
        };
        engine.loaded(0, 0, None);
        engine.loaded(0, 1, None);
        let follows = KeyList::new([KeyId(7)]);
        let cold = Cold {
            follows: &follows,
            hidden: &KeyList::default(),
            as_of: 0,
        };
        engine.register(0, KeyId(1), &cold, 0);
        put(&mut engine, 1, 1, 10, &[7]);
        put(&mut engine, 1, 2, 20, &[7]);
        put(&mut engine, 1, 3, 30, &[7]);
        put(&mut engine, 0, 9, 5, &[7]);
        // The number of the first is free now, and the edit of the third takes it.
        engine.remove(RecordId(1));
        engine.end();
        while engine.step(1, 10_000) {}
        put(&mut engine, 1, 3, 30, &[7, 8]);
        let mut before = None;
        let mut seen = Vec::new();
        for _ in 0..9 {
            let read = engine.read(&Request {
                feed: 0,
                target: Target::Mixed,
                reader: KeyId(1),
                before: before.as_ref(),
                limit: 1,
                now_us: 1,
            });
            let Read::Page(page) = read else {
                panic!("all of it is in memory");
            };
            seen.extend(page.entries.iter().map(|entry| entry.id.0));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(seen, [3, 2, 9]);
    }
}
