//! Lanes: one target of one feed, with its records, outboxes and rings.
//!
//! In:    records of that target, removals, and the budget's demand for room.
//! Out:   outboxes by key, the window in order, rings by reader.
//! Never: a record in an outbox that is not in the window above its floor,
//!        unless it is marked gone; a record at or below the floor taken in.
//!
//! Each feed and target has a lane of its own, so feeds cannot leak into each
//! other: there is no place where they could meet.

use crate::ahead::ask;
use crate::column::Column;
use crate::journal::{Change, Journal};
use crate::pushes::RingsWriter;
use crate::records::{Records, RecordsWriter};
use crate::rings::Rings;
use crate::sequence::Sequence;
use crate::settings::{KeyId, RecordId};
use sdd::Guard;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, fence};

/// A record for the engine.
#[derive(Debug, Clone, Copy)]
pub struct NewRecord<'a> {
    /// The store's number for it.
    pub id: RecordId,
    /// Its place in time, microseconds since 1970.
    pub time_us: i64,
    /// Its URI, compared byte by byte where times are equal.
    pub uri: &'a str,
    /// Whose it is; mutes, blocks and takedowns look at this.
    pub author: KeyId,
    /// The keys it is published under.
    pub keys: &'a [KeyId],
}

/// What became of a record given to the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// It is in the window, and reaches its readers.
    Taken,
    /// It lies at or below the floor; the store answers there.
    Below,
    /// It was there already, exactly so.
    Repeated,
}

/// The outbox of a key, found by the key's number.
#[derive(Debug, Default, Clone, Copy)]
struct Tip {
    /// A second at or after the newest record; 0 without outbox.
    second: u32,
    outbox: u32,
}

impl Tip {
    fn unpack(word: u64) -> Self {
        Self {
            second: (word >> 32) as u32,
            outbox: word as u32,
        }
    }

    fn pack(self) -> u64 {
        u64::from(self.second) << 32 | u64::from(self.outbox)
    }
}

/// One target of one feed.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) records: Records,
    pub(crate) window: Sequence,
    pub(crate) rings: Rings,
    /// A [`Tip`] for each key.
    tips: Column<AtomicU64>,
    outboxes: Column<Sequence>,
    /// See [`Lane::floor_us`].
    floor_us: AtomicI64,
    /// While the store is read in, nothing is complete.
    loading: AtomicBool,
}

/// A second at or after `time_us`, never 0.
pub(crate) fn second_at_or_after(time_us: i64) -> u32 {
    let second = time_us.div_euclid(1_000_000).saturating_add(1);
    second.clamp(1, i64::from(u32::MAX)) as u32
}

/// The latest time a tip of `second` may stand for.
pub(crate) fn latest_of(second: u32) -> i64 {
    if second == u32::MAX {
        i64::MAX
    } else {
        i64::from(second) * 1_000_000
    }
}

impl Lane {
    pub(crate) fn new(items_max: usize) -> Self {
        Self {
            records: Records::default(),
            window: Sequence::default(),
            rings: Rings::new(items_max),
            tips: Column::default(),
            outboxes: Column::default(),
            floor_us: AtomicI64::new(i64::MIN),
            loading: AtomicBool::new(true),
        }
    }

    /// The window is complete for times after this one.
    pub(crate) fn floor_us(&self) -> i64 {
        self.floor_us.load(Acquire)
    }

    pub(crate) fn is_loading(&self) -> bool {
        self.loading.load(Acquire)
    }

    fn tip(&self, key: u32) -> Tip {
        let word = self.tips.get(key);
        word.map_or_else(Tip::default, |word| Tip::unpack(word.load(Acquire)))
    }

    /// Asks for the tip of a key.
    #[inline]
    pub(crate) fn ask_tip(&self, key: u32) {
        ask(self.tips.get(key));
    }

    /// See [`Tip::second`].
    #[inline]
    pub(crate) fn tip_second(&self, key: u32) -> u32 {
        self.tip(key).second
    }

    pub(crate) fn outbox(&self, key: u32) -> Option<&Sequence> {
        let tip = self.tip(key);
        if tip.second == 0 {
            return None;
        }
        self.outboxes.get(tip.outbox)
    }

    pub(crate) fn newest_us(&self, key: u32, guard: &Guard) -> Option<i64> {
        let newest = self.outbox(key)?.newest(guard)?;
        Some(self.records.time_us(newest))
    }
}

/// A lane, and what its one writer knows of it.
#[derive(Debug)]
pub(crate) struct LaneWriter {
    pub(crate) lane: Arc<Lane>,
    pub(crate) records: RecordsWriter,
    pub(crate) rings: RingsWriter,
    outboxes: Places,
    /// Gone, but perhaps still in some list.
    pub(crate) removed: Vec<u32>,
}

/// Which places for outboxes are free.
#[derive(Debug, Default)]
struct Places {
    free: Vec<u32>,
    next: u32,
}

impl Places {
    /// Puts a record into the outbox of a key, which is given a place if it has none.
    fn publish(&mut self, lane: &Lane, key: u32, number: u32, time_us: i64, guard: &Guard) {
        let place = lane.tips.slot(key);
        let mut tip = Tip::unpack(place.load(Relaxed));
        if tip.second == 0 {
            tip.outbox = self.free.pop().unwrap_or_else(|| {
                self.next += 1;
                self.next - 1
            });
        }
        tip.second = tip.second.max(second_at_or_after(time_us));
        let outbox = lane.outboxes.slot(tip.outbox);
        outbox.insert(number, &lane.records, guard);
        place.store(tip.pack(), Release);
    }
}

impl LaneWriter {
    pub(crate) fn new(items_max: usize) -> Self {
        let lane = Arc::new(Lane::new(items_max));
        Self {
            records: RecordsWriter::default(),
            rings: RingsWriter::new(&lane.rings),
            lane,
            outboxes: Places::default(),
            removed: Vec::new(),
        }
    }

    /// The store holds nothing that is not here but up to `floor_us`.
    pub(crate) fn loaded(&mut self, floor_us: i64) {
        self.raise_floor(floor_us);
        self.lane.loading.store(false, Release);
    }

    fn raise_floor(&self, floor_us: i64) {
        let floor_us = floor_us.max(self.lane.floor_us());
        self.lane.floor_us.store(floor_us, Release);
        // Who misses what is now below it sees that it is.
        fence(Release);
    }

    /// Takes a record in; its number, if it is new here.
    pub(crate) fn add(
        &mut self,
        record: &NewRecord<'_>,
        journal: &Journal,
        guard: &Guard,
    ) -> Result<u32, Inserted> {
        let KeyId(author) = record.author;
        let RecordId(id) = record.id;
        let (one, many);
        let keys: &[u32] = match record.keys {
            [KeyId(key)] => {
                one = [*key];
                &one
            }
            keys => {
                many = keys.iter().map(|&KeyId(key)| key).collect::<Vec<u32>>();
                &many
            }
        };
        if let Some(known) = self.records.number_of(id) {
            let records = &self.lane.records;
            if records.says(known, record.time_us, record.uri, author, keys) {
                return Err(Inserted::Repeated);
            }
            self.take_out(known, journal, guard);
        }
        let lane = &*self.lane;
        if !lane.is_loading() && record.time_us <= lane.floor_us() {
            return Err(Inserted::Below);
        }
        for &key in keys {
            journal.open(Change::Key(key));
        }
        let like = lane.outbox(author).map(Sequence::prefix);
        let number = self.records.add(
            &lane.records,
            id,
            record.time_us,
            record.uri,
            author,
            keys,
            like,
        );
        lane.window.insert(number, &lane.records, guard);
        for &key in keys {
            self.outboxes
                .publish(lane, key, number, record.time_us, guard);
        }
        Ok(number)
    }

    /// Marks a record gone; the sweep clears it out of the lists.
    pub(crate) fn take_out(&mut self, number: u32, journal: &Journal, guard: &Guard) -> bool {
        self.tell(number, journal, guard);
        self.mark_gone(number)
    }

    fn mark_gone(&mut self, number: u32) -> bool {
        let was_live = self.records.remove(&self.lane.records, number);
        if was_live {
            self.removed.push(number);
        }
        was_live
    }

    /// Says that the lists which hold this record change.
    fn tell(&self, number: u32, journal: &Journal, guard: &Guard) {
        let records = &self.lane.records;
        if let Some(row) = records.row(number) {
            for &key in records.keys(&row, guard) {
                journal.open(Change::Key(key));
            }
        }
    }

    /// Lets the oldest record leave the window; the floor rises to it.
    ///
    /// The floor comes first: a page that does not see the record sees the floor above it.
    pub(crate) fn evict(&mut self, guard: &Guard) -> bool {
        while let Some(number) = self.lane.window.oldest(guard) {
            let records = &self.lane.records;
            if !records.is_gone(number) {
                self.raise_floor(records.time_us(number));
            }
            self.lane.window.pop_oldest(guard);
            if self.mark_gone(number) {
                return true;
            }
        }
        false
    }

    pub(crate) fn oldest_us(&self, guard: &Guard) -> Option<i64> {
        let oldest = self.lane.window.oldest(guard);
        oldest.map(|number| self.lane.records.time_us(number))
    }

    /// Clears a gone record out of window and outboxes and frees its number.
    /// No ring and no fan-out may hold it any more.
    pub(crate) fn bury(&mut self, number: u32, journal: &Journal, guard: &Guard) {
        let lane = Arc::clone(&self.lane);
        self.tell(number, journal, guard);
        lane.window.remove(number, &lane.records, guard);
        let row = lane.records.row(number).unwrap_or_default();
        for &key in lane.records.keys(&row, guard) {
            let Some(place) = lane.tips.get(key) else {
                continue;
            };
            let tip = Tip::unpack(place.load(Relaxed));
            let Some(outbox) = lane.outboxes.get(tip.outbox).filter(|_| tip.second != 0) else {
                continue;
            };
            let was_there = outbox.remove(number, &lane.records, guard);
            debug_assert!(was_there, "an outbox holds a record until it is buried");
            if outbox.is_empty(guard) {
                place.store(Tip::default().pack(), Release);
                outbox.clear();
                self.outboxes.free.push(tip.outbox);
            }
        }
        self.records.free(&lane.records, number);
    }
}
