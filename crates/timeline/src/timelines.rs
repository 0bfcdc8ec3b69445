//! Timelines: the engine, as the rest of the product sees it.
//!
//! In:    every change drawn from the outbox, in its order, by one writer; and
//!        reads, by anybody, between the writer's batches.
//! Out:   pages that are exact as of the position drawn so far.
//! Never: I/O, a clock, an answer that may be wrong. What the engine cannot
//!        answer wholly it leaves wholly to the store.
//!
//! How to use it: make it as of a position of the outbox; insert the store's
//! records newest first until [`Timelines::is_window_full`] or none are left;
//! say [`Timelines::loaded`] for each target; then draw the outbox, calling
//! [`Timelines::begin`] before the changes of each position, and
//! [`Timelines::step`] between batches.

use crate::ahead::fetch;
use crate::feed::{Feed, Registered};
use crate::lane::{Inserted, NewRecord};
use crate::page::{Entry, Read, Request};
use crate::reading::{Cold, Inspection, Reading};
use crate::settings::{KeyId, RecordId, Settings};
use crate::shards::Quick;
use crate::sweep::{self, Due, Sweep};
use crate::warm::BATCH;
use std::collections::HashSet;

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
}

/// Turns of fan-outs that were made while others read, and what is left of them.
#[derive(Debug, Default)]
pub struct Carried {
    turns: Vec<(usize, sweep::Carried)>,
}

impl Carried {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}

/// Whether background work of a feed waits.
fn is_busy(feed: &Feed, sweep: &Sweep) -> bool {
    !feed.jobs.is_empty()
        || !feed.joining.is_empty()
        || !feed.leaving.is_empty()
        || !sweep.is_idle()
}

/// The in-memory timelines of all feeds.
#[derive(Debug)]
pub struct Timelines {
    feeds: Vec<(Feed, Sweep)>,
    /// Accounts hidden from everybody.
    accounts: HashSet<u32, Quick>,
    position: u64,
    settings: Settings,
}

impl Timelines {
    /// An empty engine that will be loaded as of `position` of the outbox.
    pub fn new(settings: Settings, position: u64) -> Self {
        let mut feeds: Vec<(Feed, Sweep)> = settings
            .feeds
            .iter()
            .map(|spec| (Feed::new(spec, &settings), Sweep::default()))
            .collect();
        for (feed, _) in &mut feeds {
            feed.changes.forget(position);
        }
        Self {
            feeds,
            accounts: HashSet::default(),
            position,
            settings,
        }
    }

    /// The position drawn so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The changes that follow belong to this position of the outbox.
    ///
    /// Positions never go back. All changes of one position must be made
    /// before the next read.
    pub fn begin(&mut self, position: u64) {
        self.position = self.position.max(position);
    }

    /// Whether loading further back would only evict what was loaded.
    pub fn is_window_full(&self) -> bool {
        self.records() >= self.settings.window_records_max()
    }

    /// Ends the loading of a target. Everything later than `floor_us` has been
    /// inserted; `None` says that the store holds nothing else.
    pub fn loaded(&mut self, feed: usize, target: usize, floor_us: Option<i64>) {
        if let Some((feed, _)) = self.feeds.get_mut(feed)
            && let Some(lane) = feed.lanes.get_mut(target)
        {
            lane.loading = false;
            lane.floor_us = lane.floor_us.max(floor_us.unwrap_or(i64::MIN));
        }
    }

    /// A record appeared, or changed its time, keys or URI.
    pub fn insert(&mut self, feed: usize, target: usize, record: NewRecord<'_>) -> Inserted {
        let Some((feed, _)) = self.feeds.get_mut(feed) else {
            return Inserted::Below;
        };
        let outcome = feed.insert(target, &record);
        feed.send_taken(target);
        if outcome == Inserted::Taken {
            self.keep_the_window();
        }
        outcome
    }

    /// Several records of one target, in order; the same as one after another,
    /// at about a third of the cost.
    pub fn insert_all(&mut self, feed: usize, target: usize, records: &[NewRecord<'_>]) {
        for some in records.chunks(BATCH) {
            let Some((feed, _)) = self.feeds.get_mut(feed) else {
                return;
            };
            feed.warm(target, some);
            for record in some {
                feed.insert(target, record);
            }
            feed.send_taken(target);
            self.keep_the_window();
        }
    }

    fn keep_the_window(&mut self) {
        while self.records() > self.settings.window_records_max() && self.evict() {}
    }

    fn records(&self) -> usize {
        let lanes = self.feeds.iter().flat_map(|(feed, _)| &feed.lanes);
        lanes.map(|lane| lane.records.live()).sum()
    }

    /// Lets the oldest record of all lanes leave.
    fn evict(&mut self) -> bool {
        let lanes = self.feeds.iter_mut().flat_map(|(feed, _)| &mut feed.lanes);
        let oldest = lanes
            .filter(|lane| lane.oldest_us().is_some())
            .min_by_key(|lane| lane.oldest_us());
        oldest.is_some_and(|lane| lane.evict())
    }

    /// A record is gone from every feed; false if it was in none.
    pub fn remove(&mut self, RecordId(id): RecordId) -> bool {
        let mut found = false;
        for (feed, _) in &mut self.feeds {
            for lane in &mut feed.lanes {
                if let Some(number) = lane.records.number_of(id) {
                    found |= lane.take_out(number);
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
            Some(number) => lane.take_out(number),
            None => false,
        }
    }

    /// An account is hidden from everybody, or shown again.
    pub fn account(&mut self, KeyId(author): KeyId, hidden: bool) {
        if hidden {
            self.accounts.insert(author);
        } else {
            self.accounts.remove(&author);
        }
    }

    /// One follow record more. Two for one key count twice.
    pub fn follow(&mut self, feed: usize, KeyId(reader): KeyId, KeyId(key): KeyId) {
        if let Some((feed, _)) = self.feeds.get_mut(feed) {
            feed.follow(self.position, reader, key);
        }
    }

    /// One follow record less.
    pub fn unfollow(&mut self, feed: usize, KeyId(reader): KeyId, KeyId(key): KeyId) {
        if let Some((feed, _)) = self.feeds.get_mut(feed) {
            feed.unfollow(self.position, reader, key);
        }
    }

    /// One mute or block of an author by a reader more.
    pub fn hide(&mut self, feed: usize, KeyId(reader): KeyId, KeyId(author): KeyId) {
        if let Some((feed, _)) = self.feeds.get_mut(feed) {
            feed.hide(self.position, reader, author, true);
        }
    }

    /// One mute or block of an author by a reader less.
    pub fn unhide(&mut self, feed: usize, KeyId(reader): KeyId, KeyId(author): KeyId) {
        if let Some((feed, _)) = self.feeds.get_mut(feed) {
            feed.hide(self.position, reader, author, false);
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
        if bytes >= self.settings.reader_bytes_max && feed.readers.slot_of(reader).is_none() {
            return Registered::Full;
        }
        feed.register(reader, cold.follows, cold.hidden, cold.as_of, now_us)
    }

    /// Lets a reader hibernate at once; its next read is cold.
    pub fn hibernate(&mut self, feed: usize, KeyId(reader): KeyId) {
        if let Some((feed, _)) = self.feeds.get_mut(feed)
            && let Some(slot) = feed.readers.slot_of(reader)
        {
            feed.hibernate(slot);
        }
    }

    fn reading(&self) -> Reading<'_> {
        Reading {
            accounts: &self.accounts,
            position: self.position,
            page_scan_max: self.settings.page_scan_max,
            window_scan_max: self.settings.window_scan_max,
        }
    }

    /// The page of an active reader.
    pub fn read(&self, request: &Request<'_>) -> Read {
        match self.feeds.get(request.feed) {
            Some((feed, _)) => feed.read(request, &self.reading()),
            None => Read::Below,
        }
    }

    /// Appends the URIs of entries that were just read, and where each ends; of one that is not
    /// here any more there is nothing.
    pub fn push_uris(
        &self,
        feed: usize,
        entries: &[Entry],
        text: &mut Vec<u8>,
        ends: &mut Vec<usize>,
    ) {
        let lanes = self
            .feeds
            .get(feed)
            .map_or(&[][..], |(feed, _)| &feed.lanes);
        let touch = |entry: &Entry| {
            let lane = lanes.get(entry.target);
            lane.map_or(0, |lane| lane.records.touch_uri(entry.number))
        };
        fetch(entries.iter().map(touch));
        for entry in entries {
            let RecordId(id) = entry.id;
            if let Some(lane) = lanes.get(entry.target) {
                lane.records.push_uri(entry.number, id, text);
            }
            ends.push(text.len());
        }
    }

    /// The page of a reader whose follows the caller loaded.
    ///
    /// [`Read::Cold`] says that they do not hold at the engine's position: it
    /// has not drawn as far, or the reader changed them since.
    pub fn read_cold(&self, request: &Request<'_>, cold: &Cold<'_>) -> Read {
        match self.feeds.get(request.feed) {
            Some((feed, _)) => feed.read_cold(request, cold, &self.reading()),
            None => Read::Below,
        }
    }

    /// Background work, about `work` units of a push each; true if more waits.
    ///
    /// Fan-outs, joining, leaving and sweeping each get a share, so none waits
    /// for another to end.
    pub fn step(&mut self, now_us: i64, work: usize) -> bool {
        let mut waiting = false;
        let share = self.share(work);
        let due = self.due();
        for (feed, sweep) in &mut self.feeds {
            let left = sweep.tend(feed, due, now_us, share);
            feed.step_jobs(left + share);
            waiting |= is_busy(feed, sweep);
        }
        waiting
    }

    /// The same without fan-outs, which [`Timelines::carry`] carries on while others read.
    pub fn tend(&mut self, now_us: i64, work: usize) -> bool {
        let mut waiting = false;
        let share = self.share(work);
        let due = self.due();
        for (feed, sweep) in &mut self.feeds {
            sweep.tend(feed, due, now_us, share);
            waiting |= is_busy(feed, sweep);
        }
        waiting
    }

    /// Carries fan-outs on, about `work` pushes, as far as they can be while others read.
    ///
    /// Pages may be read meanwhile, and are exact. [`Timelines::land`] must follow until nothing is
    /// left, before anything else changes and before this is called again.
    pub fn carry(&self, work: usize) -> Carried {
        let turn = (work / self.feeds.len().max(1)).max(1);
        let feeds = self.feeds.iter().enumerate();
        Carried {
            turns: feeds
                .filter_map(|(at, (feed, _))| Some((at, feed.carry(turn)?)))
                .collect(),
        }
    }

    /// Makes the pushes that [`Timelines::carry`] had to put off, at most about `work` of them.
    pub fn land(&mut self, carried: &mut Carried, work: usize) {
        let Some((at, turn)) = carried.turns.last_mut() else {
            return;
        };
        let landed = match self.feeds.get_mut(*at) {
            Some((feed, _)) => feed.land(turn, work),
            None => true,
        };
        if landed {
            carried.turns.pop();
        }
    }

    /// What each kind of background work of a feed may take.
    fn share(&self, work: usize) -> usize {
        (work / self.feeds.len().max(1) / 4).max(1)
    }

    fn due(&self) -> Due {
        Due {
            ttl_us: self.settings.ttl_us,
            removed_max: self.settings.removed_max,
        }
    }

    /// How an active reader stands; `None` if it is cold.
    pub fn inspect(&self, feed: usize, target: usize, KeyId(reader): KeyId) -> Option<Inspection> {
        self.feeds.get(feed)?.0.inspect(target, reader)
    }

    /// Below or at this time a target's pages come from the store.
    pub fn floor_us(&self, feed: usize, target: usize) -> Option<i64> {
        let (feed, _) = self.feeds.get(feed)?;
        Some(feed.lanes.get(target)?.floor_us)
    }

    /// What the engine holds and has done.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            records: self.records(),
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
                page_scan_max: 1,
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
            let Read::Page { entries, next } = read else {
                panic!("all of it is in memory");
            };
            seen.extend(entries.iter().map(|entry| entry.id.0));
            before = next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(seen, [3, 2, 9]);
    }
}
