//! Records: a dense number for each target record, and what a page asks of it.
//!
//! In:    records as the store numbers them, and removals by id.
//! Out:   time, author, keys, id and URI of a number; the order of two numbers.
//! Never: a number given to another record while any list may still hold it.
//!
//! Timelines hold four-byte numbers. A number says nothing about order: order
//! is (time, uri), and the number itself only where both are equal, which is a
//! record and its own replacement. A removed record keeps its row, marked gone,
//! so that lists holding it stay sorted; the sweep frees it once no list does.

use crate::column::{Bits, Column};
use crate::numbers::Numbers;
use crate::reuse::Reuse;
use crate::uris::{Packed, Uris, UrisWriter};
use sdd::{AtomicOwned, Guard, Owned, Tag};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

const TID: u32 = 1 << 31;
const WIDE: u32 = 1 << 30;
const PREFIX: u32 = WIDE - 1;
/// Two to this power of neighbouring numbers share a [`Records::latest_us`].
const SPAN_BITS: u32 = if cfg!(debug_assertions) { 2 } else { 8 };

/// What a number takes in columns: its row, and its share of what a span or a word has.
pub(crate) const NUMBER_BYTES: usize = size_of::<Row>() + (size_of::<u64>() >> SPAN_BITS) + 1;
/// What the keys of a wide record take besides themselves: where they are found, with two counts.
const WIDE_BYTES: usize = size_of::<AtomicOwned<Wide>>() + size_of::<Wide>() + 32;

/// A place in the order of a feed, as a cursor carries it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Microseconds since 1970.
    pub time_us: i64,
    /// The record's URI, compared byte by byte.
    pub uri: String,
}

/// One record in 32 bytes: two to a cache line.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Record {
    pub(crate) time_us: i64,
    pub(crate) id: u64,
    tail: u64,
    /// Prefix number in the low bits, flags above.
    prefix: u32,
    /// The one key, which is the author; or the number of a [`Wide`].
    key: u32,
}

impl Record {
    fn packed(&self) -> Packed {
        Packed {
            prefix: self.prefix & PREFIX,
            tail: self.tail,
            tid: self.prefix & TID != 0,
        }
    }
}

/// The same as it lies in memory, where it may change while it is read.
#[derive(Debug, Default)]
struct Row {
    time_us: AtomicI64,
    id: AtomicU64,
    tail: AtomicU64,
    prefix: AtomicU32,
    key: AtomicU32,
}

impl Row {
    #[inline]
    fn read(&self) -> Record {
        Record {
            time_us: self.time_us.load(Relaxed),
            id: self.id.load(Relaxed),
            tail: self.tail.load(Relaxed),
            prefix: self.prefix.load(Relaxed),
            key: self.key.load(Relaxed),
        }
    }

    fn write(&self, record: Record) {
        self.time_us.store(record.time_us, Relaxed);
        self.id.store(record.id, Relaxed);
        self.tail.store(record.tail, Relaxed);
        self.prefix.store(record.prefix, Relaxed);
        self.key.store(record.key, Relaxed);
    }
}

/// Keys of a record that is published under more than its author.
#[derive(Debug, Default)]
struct Wide {
    author: u32,
    keys: Box<[u32]>,
}

/// The records of one target that are in the window.
#[derive(Debug, Default)]
pub(crate) struct Records {
    rows: Column<Row>,
    /// Span by span, a time that none of its records is later than. Numbers are given as records
    /// come, so this nearly always says that a record is older, without a look at its row.
    latest: Column<Latest>,
    wide: Column<AtomicOwned<Wide>>,
    uris: Uris,
    gone: Bits,
    /// Tells pages whether a row may be another record's by now.
    pub(crate) reuse: Reuse,
}

/// See [`Records::latest_us`].
#[derive(Debug)]
struct Latest(AtomicI64);

impl Default for Latest {
    fn default() -> Self {
        Self(AtomicI64::new(i64::MIN))
    }
}

/// What the one writer knows of records.
#[derive(Debug, Default)]
pub(crate) struct RecordsWriter {
    uris: UrisWriter,
    numbers: Numbers,
    wide_free: Vec<u32>,
    wide_next: u32,
    /// Keys of records that are published under more than their author.
    wide_keys: usize,
    /// The one that is free longest first: pages that are late find it unchanged.
    free: VecDeque<u32>,
    next: u32,
    live: usize,
}

impl RecordsWriter {
    /// Records that are not gone.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Numbers that are not free: records that are live, or gone and perhaps still in some list.
    pub(crate) fn used(&self) -> usize {
        self.next as usize - self.free.len()
    }

    /// Memory of all numbers that are not free, with what they refer to.
    pub(crate) fn bytes(&self) -> usize {
        let wide = self.wide_next as usize - self.wide_free.len();
        self.used() * NUMBER_BYTES
            + wide * WIDE_BYTES
            + self.wide_keys * size_of::<u32>()
            + self.numbers.bytes()
            + self.uris.bytes()
    }

    pub(crate) fn number_of(&self, id: u64) -> Option<u32> {
        self.numbers.get(id)
    }

    /// Takes a record in. `like` is the prefix of one that may well begin the same.
    #[expect(clippy::too_many_arguments, reason = "one record, spelled out")]
    pub(crate) fn add(
        &mut self,
        records: &Records,
        id: u64,
        time_us: i64,
        uri: &str,
        author: u32,
        keys: &[u32],
        like: Option<u32>,
    ) -> u32 {
        let packed = self.uris.pack(&records.uris, uri, like);
        let mut prefix = packed.prefix;
        if packed.tid {
            prefix |= TID;
        }
        let key = if keys == [author] {
            author
        } else {
            prefix |= WIDE;
            self.widen(records, author, keys)
        };
        let number = self.number(records);
        records.rows.slot(number).write(Record {
            time_us,
            id,
            tail: packed.tail,
            prefix,
            key,
        });
        let Latest(latest) = records.latest.slot(number >> SPAN_BITS);
        latest.store(time_us.max(latest.load(Relaxed)), Relaxed);
        records.gone.set(number, false);
        self.numbers.insert(id, number);
        self.live += 1;
        number
    }

    /// A number for a new record: the one that is free longest, or the next.
    ///
    /// What a free row refers to goes only now: until then a page that is late may read it.
    fn number(&mut self, records: &Records) -> u32 {
        let Some(number) = self.free.pop_front() else {
            self.next += 1;
            return self.next - 1;
        };
        records.reuse.gives_again();
        if let Some(row) = records.row(number) {
            self.uris.release(&records.uris, row.packed());
            if row.prefix & WIDE != 0 {
                let place = records.wide.slot(row.key);
                let (wide, _) = place.swap((None, Tag::None), Release);
                self.wide_keys -= wide.map_or(0, |wide| wide.keys.len());
                self.wide_free.push(row.key);
            }
        }
        number
    }

    fn widen(&mut self, records: &Records, author: u32, keys: &[u32]) -> u32 {
        let keys = sorted(keys);
        self.wide_keys += keys.len();
        let number = self.wide_free.pop().unwrap_or_else(|| {
            self.wide_next += 1;
            self.wide_next - 1
        });
        let wide = Owned::new(Wide {
            author,
            keys: keys.into_boxed_slice(),
        });
        let place = records.wide.slot(number);
        drop(place.swap((Some(wide), Tag::None), Release));
        number
    }

    /// Marks the record gone; its number stays taken until [`RecordsWriter::free`].
    pub(crate) fn remove(&mut self, records: &Records, number: u32) -> bool {
        let Some(row) = records.row(number) else {
            return false;
        };
        if !records.gone.set(number, true) {
            return false;
        }
        self.numbers.remove(row.id);
        self.live -= 1;
        true
    }

    /// Gives the number back. Only the sweep may say that no list holds it.
    pub(crate) fn free(&mut self, records: &Records, number: u32) {
        self.free.push_back(number);
        records.reuse.freed();
    }
}

/// Keys in order, each once.
fn sorted(keys: &[u32]) -> Vec<u32> {
    let mut keys = keys.to_vec();
    keys.sort_unstable();
    keys.dedup();
    keys
}

impl Records {
    #[inline]
    pub(crate) fn is_gone(&self, number: u32) -> bool {
        self.gone.contains(number)
    }

    #[inline]
    pub(crate) fn row(&self, number: u32) -> Option<Record> {
        self.rows.get(number).map(Row::read)
    }

    #[inline]
    pub(crate) fn time_us(&self, number: u32) -> i64 {
        self.rows
            .get(number)
            .map_or(i64::MIN, |row| row.time_us.load(Relaxed))
    }

    /// A time that the record is not later than.
    #[inline]
    fn latest_us(&self, number: u32) -> i64 {
        let latest = self.latest.get(number >> SPAN_BITS);
        latest.map_or(i64::MAX, |Latest(latest)| latest.load(Relaxed))
    }

    fn wide<'g>(&self, row: &Record, guard: &'g Guard) -> Option<&'g Wide> {
        self.wide.get(row.key)?.load(Acquire, guard).as_ref()
    }

    #[inline]
    pub(crate) fn author(&self, row: &Record, guard: &Guard) -> u32 {
        if row.prefix & WIDE == 0 {
            row.key
        } else {
            self.wide(row, guard).map_or(u32::MAX, |wide| wide.author)
        }
    }

    #[inline]
    pub(crate) fn keys<'a>(&self, row: &'a Record, guard: &'a Guard) -> &'a [u32] {
        if row.prefix & WIDE == 0 {
            std::slice::from_ref(&row.key)
        } else {
            self.wide(row, guard).map_or(&[], |wide| &wide.keys)
        }
    }

    pub(crate) fn uri(&self, number: u32) -> String {
        self.row(number)
            .map_or_else(String::new, |row| self.uris.text(row.packed()))
    }

    /// Appends the URI of a record.
    pub(crate) fn push_uri(&self, number: u32, text: &mut Vec<u8>) {
        if let Some(row) = self.row(number) {
            self.uris.push(row.packed(), text);
        }
    }

    /// Some of the text that a record's URI begins with, to have it at hand.
    #[inline]
    pub(crate) fn touch_uri(&self, number: u32) -> u32 {
        let prefix = self.prefix(number);
        prefix.map_or(0, |prefix| self.uris.touch(prefix))
    }

    /// The number of the text that a record's URI begins with.
    pub(crate) fn prefix(&self, number: u32) -> Option<u32> {
        Some(self.rows.get(number)?.prefix.load(Relaxed) & PREFIX)
    }

    /// Asks for some of the text of a prefix.
    #[inline]
    pub(crate) fn ask_prefix(&self, prefix: u32) {
        self.uris.ask(prefix);
    }

    pub(crate) fn position(&self, number: u32) -> Position {
        Position {
            time_us: self.time_us(number),
            uri: self.uri(number),
        }
    }

    /// The one order of the product; numbers decide only between a record and
    /// its replacement.
    pub(crate) fn compare(&self, one: u32, other: u32) -> Ordering {
        let (Some(first), Some(second)) = (self.row(one), self.row(other)) else {
            return one.cmp(&other);
        };
        first
            .time_us
            .cmp(&second.time_us)
            .then_with(|| self.uris.compare(first.packed(), second.packed()))
            .then_with(|| one.cmp(&other))
    }

    /// The same, where the time of `other` is known; times nearly always decide.
    #[inline]
    pub(crate) fn compare_at(&self, one: u32, other: u32, other_us: i64) -> Ordering {
        if self.latest_us(one) < other_us {
            return Ordering::Less;
        }
        match self.time_us(one).cmp(&other_us) {
            Ordering::Equal => self.compare(one, other),
            order => order,
        }
    }

    /// Whether `one` comes after `other`, whose time is known.
    #[inline]
    pub(crate) fn is_newer(&self, one: u32, other: u32, other_us: i64) -> bool {
        self.compare_at(one, other, other_us) == Ordering::Greater
    }

    /// Whether the record comes after `before` in a newest-first reading.
    pub(crate) fn is_older(&self, number: u32, before: &Position) -> bool {
        let Some(row) = self.row(number) else {
            return false;
        };
        match row.time_us.cmp(&before.time_us) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => self.uris.text(row.packed()).as_str() < before.uri.as_str(),
        }
    }

    /// Whether the row at `number` already says exactly this.
    pub(crate) fn says(
        &self,
        number: u32,
        time_us: i64,
        uri: &str,
        author: u32,
        keys: &[u32],
    ) -> bool {
        let Some(row) = self.row(number) else {
            return false;
        };
        let guard = Guard::new();
        row.time_us == time_us
            && self.author(&row, &guard) == author
            && self.keys(&row, &guard) == sorted(keys).as_slice()
            && self.uri(number) == uri
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_its_place_in_the_order_after_it_is_gone() {
        let (records, mut writer) = (Records::default(), RecordsWriter::default());
        let guard = Guard::new();
        let old = writer.add(&records, 1, 10, "at://a/c/2222222222222", 1, &[1], None);
        let like = records.prefix(old);
        let new = writer.add(
            &records,
            2,
            10,
            "at://a/c/2222222222223",
            1,
            &[1, 9, 9],
            like,
        );
        assert_eq!(records.compare(new, old), Ordering::Greater);
        assert!(writer.remove(&records, old));
        assert!(!writer.remove(&records, old));
        assert_eq!(writer.number_of(1), None);
        assert_eq!(records.compare(new, old), Ordering::Greater);
        assert_eq!(records.keys(&records.row(new).unwrap(), &guard), [1, 9]);
        assert_eq!(records.author(&records.row(new).unwrap(), &guard), 1);
        assert!(records.says(new, 10, "at://a/c/2222222222223", 1, &[9, 1]));
        assert!(!records.says(new, 10, "at://a/c/2222222222223", 1, &[1]));
        writer.free(&records, old);
        assert_eq!(writer.add(&records, 3, 5, "x", 2, &[2], None), old);
        assert!(!records.is_gone(old));
    }

    #[test]
    fn a_known_time_changes_no_order_also_where_numbers_were_given_again() {
        let (records, mut writer) = (Records::default(), RecordsWriter::default());
        let mut numbers = Vec::new();
        for id in 0..2_000i64 {
            let time_us = id * 7_919 % 50 - 25;
            let uri = format!("at://a/c/{id:013}");
            numbers.push(writer.add(&records, id.cast_unsigned(), time_us, &uri, 1, &[1], None));
            // The old ones' numbers come again, with times that are later or earlier.
            if id % 3 == 0 {
                let number = numbers.swap_remove(numbers.len() / 2);
                writer.remove(&records, number);
                writer.free(&records, number);
            }
        }
        for &one in numbers.iter().step_by(7) {
            for &other in &numbers {
                let other_us = records.time_us(other);
                assert_eq!(
                    records.compare_at(one, other, other_us),
                    records.compare(one, other)
                );
            }
        }
    }

    #[test]
    fn a_row_is_thirty_two_bytes() {
        assert_eq!(size_of::<Row>(), 32);
    }
}
