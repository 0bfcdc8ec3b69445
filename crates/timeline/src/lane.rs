//! Lanes: one target of one feed, with its records, outboxes and rings.
//!
//! In:    records of that target, removals, and the budget's demand for room.
//! Out:   outboxes by key, the window in order, rings by reader.
//! Never: a record in an outbox that is not in the window above its floor,
//!        unless it is marked gone; a record at or below the floor taken in.
//!
//! Each feed and target has a lane of its own, so feeds cannot leak into each
//! other: there is no place where they could meet.

use crate::block::CELL_BYTES;
use crate::journal::{Change, Journal};
use crate::outboxes::{Outboxes, OutboxesWriter};
use crate::pushes::RingsWriter;
use crate::records::{Records, RecordsWriter};
use crate::rings::Rings;
use crate::sequence::Sequence;
use crate::settings::{KeyId, RecordId};
use crate::window_floor::WindowFloor;
use sdd::Guard;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

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

/// One target of one feed.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) records: Records,
    pub(crate) window: Sequence,
    pub(crate) rings: Rings,
    pub(crate) outboxes: Outboxes,
    /// See [`Lane::floor_us`].
    pub(crate) floor: WindowFloor,
    /// While the store is read in, nothing is complete.
    loading: AtomicBool,
}

impl Lane {
    pub(crate) fn new(items_max: usize) -> Self {
        Self {
            records: Records::default(),
            window: Sequence::default(),
            rings: Rings::new(items_max),
            outboxes: Outboxes::default(),
            floor: WindowFloor::default(),
            loading: AtomicBool::new(true),
        }
    }

    /// The window is complete for times after this one.
    pub(crate) fn floor_us(&self) -> i64 {
        self.floor.now_us()
    }

    pub(crate) fn is_loading(&self) -> bool {
        self.loading.load(Acquire)
    }

    pub(crate) fn newest_us(&self, key: u32, guard: &Guard) -> Option<i64> {
        let newest = self.outboxes.get(key)?.newest(guard)?;
        Some(self.records.time_us(newest))
    }
}

/// A lane, and what its one writer knows of it.
#[derive(Debug)]
pub(crate) struct LaneWriter {
    pub(crate) lane: Arc<Lane>,
    pub(crate) records: RecordsWriter,
    pub(crate) rings: RingsWriter,
    outboxes: OutboxesWriter,
    /// Gone, but perhaps still in some list.
    pub(crate) removed: Vec<u32>,
}

impl LaneWriter {
    pub(crate) fn new(items_max: usize) -> Self {
        let lane = Arc::new(Lane::new(items_max));
        Self {
            records: RecordsWriter::default(),
            rings: RingsWriter::new(&lane.rings),
            lane,
            outboxes: OutboxesWriter::default(),
            removed: Vec::new(),
        }
    }

    /// The store holds nothing that is not here but up to `floor_us`.
    pub(crate) fn loaded(&mut self, floor_us: i64) {
        self.lane.floor.raise(floor_us);
        self.lane.loading.store(false, Release);
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
        let like = lane.outboxes.get(author).map(Sequence::prefix);
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
                .publish(&lane.outboxes, key, number, &lane.records, guard);
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
                self.lane.floor.raise(records.time_us(number));
            }
            self.lane.window.pop_oldest(guard);
            if self.mark_gone(number) {
                return true;
            }
        }
        false
    }

    /// Memory of the records that are live. Removed ones are freed by the next sweep; until then
    /// each takes as much as a live one.
    pub(crate) fn bytes(&self) -> usize {
        let (live, used) = (self.records.live(), self.records.used().max(1));
        let bytes = self.records.bytes() + used * CELL_BYTES + self.outboxes.bytes();
        // Not all at once: numbers have 32 bits, but bytes of all may have more.
        bytes / used * live + bytes % used * live / used
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
            self.outboxes
                .clear(&lane.outboxes, key, number, &lane.records, guard);
        }
        self.records.free(&lane.records, number);
    }
}
