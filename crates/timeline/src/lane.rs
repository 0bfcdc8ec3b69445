//! Lanes: one target of one feed, with its records, outboxes and rings.
//!
//! In:    records of that target, removals, and the budget's demand for room.
//! Out:   outboxes by key, the window in order, rings by reader.
//! Never: a record in an outbox that is not in the window above its floor,
//!        unless it is marked gone; a record at or below the floor taken in.
//!
//! Each feed and target has a lane of its own, so feeds cannot leak into each
//! other: there is no place where they could meet.

use crate::column::Column;
use crate::records::Records;
use crate::rings::Rings;
use crate::sequence::Sequence;
use crate::settings::{KeyId, RecordId};

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

/// The records of one key, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Outbox {
    sequence: Sequence,
    /// What the URI of its newest record began with; the next will as well.
    prefix: u32,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            sequence: Sequence::default(),
            prefix: u32::MAX,
        }
    }
}

/// One target of one feed.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) records: Records,
    pub(crate) window: Sequence,
    pub(crate) rings: Rings,
    tips: Column<Tip>,
    outboxes: Column<Outbox>,
    outbox_free: Vec<u32>,
    outbox_next: u32,
    /// The window is complete for times after this one.
    pub(crate) floor_us: i64,
    /// While the store is read in, nothing is complete.
    pub(crate) loading: bool,
    /// Gone, but perhaps still in some list.
    pub(crate) removed: Vec<u32>,
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
            outbox_free: Vec::new(),
            outbox_next: 0,
            floor_us: i64::MIN,
            loading: true,
            removed: Vec::new(),
        }
    }

    /// See [`Tip::second`].
    #[inline]
    pub(crate) fn tip_second(&self, key: u32) -> u32 {
        self.tips.get(key).map_or(0, |tip| tip.second)
    }

    pub(crate) fn outbox(&self, key: u32) -> Option<&Sequence> {
        Some(&self.outbox_of(key)?.sequence)
    }

    /// What the URIs of the key's records begin with, as far as is known.
    pub(crate) fn prefix(&self, key: u32) -> Option<u32> {
        Some(self.outbox_of(key)?.prefix)
    }

    fn outbox_of(&self, key: u32) -> Option<&Outbox> {
        let tip = self.tips.get(key)?;
        if tip.second == 0 {
            return None;
        }
        self.outboxes.get(tip.outbox)
    }

    pub(crate) fn newest_us(&self, key: u32) -> Option<i64> {
        let newest = self.outbox(key)?.newest()?;
        Some(self.records.time_us(newest))
    }

    /// Takes a record in; its number, if it is new here.
    pub(crate) fn add(&mut self, record: &NewRecord<'_>) -> Result<u32, Inserted> {
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
            if self
                .records
                .says(known, record.time_us, record.uri, author, keys)
            {
                return Err(Inserted::Repeated);
            }
            self.take_out(known);
        }
        if !self.loading && record.time_us <= self.floor_us {
            return Err(Inserted::Below);
        }
        let like = self.prefix(author);
        let number = self
            .records
            .add(id, record.time_us, record.uri, author, keys, like);
        self.window.insert(number, &self.records);
        for &key in keys {
            self.publish(key, number, record.time_us);
        }
        Ok(number)
    }

    fn publish(&mut self, key: u32, number: u32, time_us: i64) {
        let tip = self.tips.slot(key);
        if tip.second == 0 {
            tip.outbox = self.outbox_free.pop().unwrap_or_else(|| {
                self.outbox_next += 1;
                self.outbox_next - 1
            });
        }
        tip.second = tip.second.max(second_at_or_after(time_us));
        let outbox = self.outboxes.slot(tip.outbox);
        outbox.sequence.insert(number, &self.records);
        outbox.prefix = self.records.prefix(number).unwrap_or(u32::MAX);
    }

    /// Marks a record gone; the sweep clears it out of the lists.
    pub(crate) fn take_out(&mut self, number: u32) -> bool {
        let was_live = self.records.remove(number);
        if was_live {
            self.removed.push(number);
        }
        was_live
    }

    /// Lets the oldest record leave the window; the floor rises to it.
    pub(crate) fn evict(&mut self) -> bool {
        while let Some(number) = self.window.pop_oldest() {
            if self.take_out(number) {
                self.floor_us = self.floor_us.max(self.records.time_us(number));
                return true;
            }
        }
        false
    }

    pub(crate) fn oldest_us(&self) -> Option<i64> {
        self.window
            .oldest()
            .map(|number| self.records.time_us(number))
    }

    /// Clears a gone record out of window and outboxes and frees its number.
    /// No ring and no fan-out may hold it any more.
    pub(crate) fn bury(&mut self, number: u32) {
        self.window.remove(number, &self.records);
        let keys = match self.records.row(number) {
            Some(row) => self.records.keys(row).to_vec(),
            None => Vec::new(),
        };
        for key in keys {
            let Some(tip) = self.tips.get_mut(key) else {
                continue;
            };
            let Some(outbox) = self.outboxes.get_mut(tip.outbox) else {
                continue;
            };
            outbox.sequence.remove(number, &self.records);
            if outbox.sequence.is_empty() && tip.second != 0 {
                *outbox = Outbox::default();
                self.outbox_free.push(tip.outbox);
                *tip = Tip::default();
            }
        }
        self.records.free(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outbox_is_one_cache_line() {
        assert_eq!(size_of::<Outbox>(), 64);
    }
}
