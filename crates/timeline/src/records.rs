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
use crate::uris::{Packed, Uris};
use std::cmp::Ordering;
use std::collections::VecDeque;

const TID: u32 = 1 << 31;
const WIDE: u32 = 1 << 30;
const PREFIX: u32 = WIDE - 1;
/// Two to this power of neighbouring numbers share a [`Records::latest_us`].
const SPAN_BITS: u32 = 8;

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

/// Keys of a record that is published under more than its author.
#[derive(Debug, Default)]
struct Wide {
    author: u32,
    keys: Box<[u32]>,
}

/// The records of one target that are in the window.
#[derive(Debug, Default)]
pub(crate) struct Records {
    rows: Column<Record>,
    /// Span by span, a time that none of its records is later than. Numbers are given as records
    /// come, so this nearly always says that a record is older, without a look at its row.
    latest: Column<i64>,
    wide: Column<Wide>,
    wide_free: Vec<u32>,
    wide_next: u32,
    uris: Uris,
    numbers: Numbers,
    gone: Bits,
    free: VecDeque<u32>,
    next: u32,
    live: usize,
}

impl Records {
    /// Records that are not gone.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    pub(crate) fn number_of(&self, id: u64) -> Option<u32> {
        self.numbers.get(id)
    }

    /// Takes a record in. `like` is the prefix of one that may well begin the same.
    pub(crate) fn add(
        &mut self,
        id: u64,
        time_us: i64,
        uri: &str,
        author: u32,
        keys: &[u32],
        like: Option<u32>,
    ) -> u32 {
        let packed = self.uris.pack(uri, like);
        let mut prefix = packed.prefix;
        if packed.tid {
            prefix |= TID;
        }
        let key = if keys == [author] {
            author
        } else {
            prefix |= WIDE;
            self.widen(author, keys)
        };
        let number = self.free.pop_front().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        *self.rows.slot(number) = Record {
            time_us,
            id,
            tail: packed.tail,
            prefix,
            key,
        };
        let latest = self.latest.slot(number >> SPAN_BITS);
        *latest = time_us.max(*latest);
        self.gone.set(number, false);
        self.numbers.insert(id, number);
        self.live += 1;
        number
    }

    fn widen(&mut self, author: u32, keys: &[u32]) -> u32 {
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        keys.dedup();
        let number = self.wide_free.pop().unwrap_or_else(|| {
            self.wide_next += 1;
            self.wide_next - 1
        });
        *self.wide.slot(number) = Wide {
            author,
            keys: keys.into_boxed_slice(),
        };
        number
    }

    /// Marks the record gone; its number stays taken until [`Records::free`].
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        let Some(row) = self.rows.get(number) else {
            return false;
        };
        if self.gone.contains(number) {
            return false;
        }
        self.gone.set(number, true);
        self.numbers.remove(row.id);
        self.live -= 1;
        true
    }

    /// Gives the number back. Only the sweep may say that no list holds it.
    pub(crate) fn free(&mut self, number: u32) {
        let Some(&row) = self.rows.get(number) else {
            return;
        };
        self.uris.release(row.packed());
        if row.prefix & WIDE != 0 {
            *self.wide.slot(row.key) = Wide::default();
            self.wide_free.push(row.key);
        }
        self.free.push_back(number);
    }

    #[inline]
    pub(crate) fn is_gone(&self, number: u32) -> bool {
        self.gone.contains(number)
    }

    #[inline]
    pub(crate) fn row(&self, number: u32) -> Option<&Record> {
        self.rows.get(number)
    }

    #[inline]
    pub(crate) fn time_us(&self, number: u32) -> i64 {
        self.rows.get(number).map_or(i64::MIN, |row| row.time_us)
    }

    /// A time that the record is not later than.
    #[inline]
    fn latest_us(&self, number: u32) -> i64 {
        let latest = self.latest.get(number >> SPAN_BITS);
        latest.map_or(i64::MAX, |&latest| latest)
    }

    #[inline]
    pub(crate) fn author(&self, row: &Record) -> u32 {
        if row.prefix & WIDE == 0 {
            row.key
        } else {
            self.wide.get(row.key).map_or(u32::MAX, |wide| wide.author)
        }
    }

    #[inline]
    pub(crate) fn keys<'a>(&'a self, row: &'a Record) -> &'a [u32] {
        if row.prefix & WIDE == 0 {
            std::slice::from_ref(&row.key)
        } else {
            self.wide.get(row.key).map_or(&[], |wide| &wide.keys)
        }
    }

    pub(crate) fn uri(&self, number: u32) -> String {
        self.rows
            .get(number)
            .map_or_else(String::new, |row| self.uris.text(row.packed()))
    }

    /// Appends the URI of a record, if that is still the one of this number.
    pub(crate) fn push_uri(&self, number: u32, id: u64, text: &mut Vec<u8>) {
        let row = self.rows.get(number).filter(|row| row.id == id);
        if let Some(row) = row.filter(|_| !self.is_gone(number)) {
            self.uris.push(row.packed(), text);
        }
    }

    /// Some of the text that a record's URI begins with, to have it at hand.
    #[inline]
    pub(crate) fn touch_uri(&self, number: u32) -> u32 {
        let prefix = self.prefix(number);
        prefix.map_or(0, |prefix| self.touch_prefix(prefix))
    }

    /// The number of the text that a record's URI begins with.
    pub(crate) fn prefix(&self, number: u32) -> Option<u32> {
        Some(self.rows.get(number)?.prefix & PREFIX)
    }

    /// Some of the text of a prefix, to have it at hand.
    #[inline]
    pub(crate) fn touch_prefix(&self, prefix: u32) -> u32 {
        self.uris.touch(prefix)
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
        let (Some(first), Some(second)) = (self.rows.get(one), self.rows.get(other)) else {
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
        let Some(row) = self.rows.get(number) else {
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
        let Some(row) = self.rows.get(number) else {
            return false;
        };
        let mut sorted = keys.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        row.time_us == time_us
            && self.author(row) == author
            && self.keys(row) == sorted.as_slice()
            && self.uri(number) == uri
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_its_place_in_the_order_after_it_is_gone() {
        let mut records = Records::default();
        let old = records.add(1, 10, "at://a/c/2222222222222", 1, &[1], None);
        let like = records.prefix(old);
        let new = records.add(2, 10, "at://a/c/2222222222223", 1, &[1, 9, 9], like);
        assert_eq!(records.compare(new, old), Ordering::Greater);
        assert!(records.remove(old));
        assert!(!records.remove(old));
        assert_eq!(records.number_of(1), None);
        assert_eq!(records.compare(new, old), Ordering::Greater);
        assert_eq!(records.keys(records.row(new).unwrap()), [1, 9]);
        assert_eq!(records.author(records.row(new).unwrap()), 1);
        assert!(records.says(new, 10, "at://a/c/2222222222223", 1, &[9, 1]));
        assert!(!records.says(new, 10, "at://a/c/2222222222223", 1, &[1]));
        records.free(old);
        assert_eq!(records.add(3, 5, "x", 2, &[2], None), old);
        assert!(!records.is_gone(old));
    }

    #[test]
    fn a_known_time_changes_no_order_also_where_numbers_were_given_again() {
        let mut records = Records::default();
        let mut numbers = Vec::new();
        for id in 0..2_000i64 {
            let time_us = id * 7_919 % 50 - 25;
            let uri = format!("at://a/c/{id:013}");
            numbers.push(records.add(id.cast_unsigned(), time_us, &uri, 1, &[1], None));
            // The old ones' numbers come again, with times that are later or earlier.
            if id % 3 == 0 {
                let number = numbers.swap_remove(numbers.len() / 2);
                records.remove(number);
                records.free(number);
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
        assert_eq!(size_of::<Record>(), 32);
    }
}
