//! Sheets: entries in order, packed into what fits on one page.
//!
//! In:    byte strings in order.
//! Out:   pieces of at most [`BYTES_MAX`], and the strings again.
//! Never: a piece that does not fit on a page; a panic on damaged bytes.
//!
//! Each entry tells how many bytes it shares with the one before, then how many
//! follow, then these.

use rusqlite::Error;

use crate::store::sqlite::broken;

/// Bytes of a sheet, at most: with its row they fill one page of 4096.
pub(super) const BYTES_MAX: usize = 4_000;
/// Bytes of a sheet that was cut: there is room for more.
const CUT_BYTES: usize = 3_000;
/// Bytes of an entry, at most: so much more than [`CUT_BYTES`] may a sheet hold.
pub(super) const ENTRY_BYTES_MAX: usize = 900;

/// Byte strings in order, one after another in one piece of memory.
#[derive(Debug, Default)]
pub(super) struct Entries {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = index
            .checked_sub(1)
            .and_then(|before| self.ends.get(before));
        self.bytes.get(start.copied().unwrap_or(0)..end)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        let bounds = starts.zip(&self.ends);
        bounds.filter_map(|(start, end)| self.bytes.get(*start..*end))
    }

    /// How many lie below a bound.
    pub(super) fn below(&self, bound: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.get(middle) {
                Some(entry) if entry < bound => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    /// Adds what a sheet holds; the sheet must lie above what is here.
    pub(super) fn unpack(&mut self, mut packed: &[u8]) -> Result<(), Error> {
        let mut before = self.ends.len().checked_sub(2).map_or(0, |last_but_one| {
            self.ends.get(last_but_one).copied().unwrap_or(0)
        });
        while !packed.is_empty() {
            let read = number(&mut packed).zip(number(&mut packed));
            let (shared, own) = read.ok_or_else(damaged)?;
            let start = self.bytes.len();
            let kept = before..before + shared;
            if kept.end > start {
                return Err(damaged());
            }
            self.bytes.extend_from_within(kept);
            let (tail, rest) = packed.split_at_checked(own).ok_or_else(damaged)?;
            self.bytes.extend_from_slice(tail);
            self.ends.push(self.bytes.len());
            (packed, before) = (rest, start);
        }
        Ok(())
    }

    /// These and others, in order; one that is in both stands once.
    pub(super) fn with<'a>(&'a self, others: &[&'a [u8]]) -> Vec<&'a [u8]> {
        let mut all = Vec::with_capacity(self.len() + others.len());
        let mut others = others.iter().copied().peekable();
        for own in self.iter() {
            while let Some(other) = others.next_if(|other| *other < own) {
                all.push(other);
            }
            others.next_if_eq(&own);
            all.push(own);
        }
        all.extend(others);
        all
    }
}

/// One sheet, and the first entry on it.
#[derive(Debug)]
pub(super) struct Sheet<'a> {
    pub(super) first: &'a [u8],
    pub(super) packed: Vec<u8>,
}

/// Entries in order as sheets: one if they fit, else several of about one size with room for more.
pub(super) fn cut<'a>(entries: &[&'a [u8]]) -> Vec<Sheet<'a>> {
    let mut before: &[u8] = &[];
    let mut total = 0;
    for entry in entries {
        total += packed_bytes(entry.len(), shared(before, entry));
        before = entry;
    }
    let parts = match total <= BYTES_MAX {
        true => 1,
        false => total.div_ceil(CUT_BYTES),
    };
    let enough = total.div_ceil(parts);
    let mut sheets: Vec<Sheet<'a>> = Vec::with_capacity(parts);
    let mut before: &[u8] = &[];
    for entry in entries {
        let full = sheets.last().is_none_or(|last| last.packed.len() >= enough);
        if full {
            before = &[];
            sheets.push(Sheet {
                first: entry,
                packed: Vec::with_capacity(BYTES_MAX),
            });
        }
        if let Some(sheet) = sheets.last_mut() {
            pack(&mut sheet.packed, before, entry);
        }
        before = entry;
    }
    sheets
}

fn pack(packed: &mut Vec<u8>, before: &[u8], entry: &[u8]) {
    let shared = shared(before, entry);
    put_number(packed, shared);
    put_number(packed, entry.len() - shared);
    packed.extend(entry.iter().skip(shared));
}

fn shared(before: &[u8], entry: &[u8]) -> usize {
    let pairs = before.iter().zip(entry);
    pairs.take_while(|(one, other)| one == other).count()
}

fn packed_bytes(bytes: usize, shared: usize) -> usize {
    let own = bytes - shared;
    own + number_bytes(shared) + number_bytes(own)
}

/// Seven bits a byte, two bytes at most.
fn put_number(packed: &mut Vec<u8>, number: usize) {
    if number < 0x80 {
        packed.push(number as u8);
    } else {
        packed.push(number as u8 | 0x80);
        packed.push((number >> 7) as u8);
    }
}

fn number_bytes(number: usize) -> usize {
    if number < 0x80 { 1 } else { 2 }
}

fn number(packed: &mut &[u8]) -> Option<usize> {
    let (&low, rest) = packed.split_first()?;
    *packed = rest;
    if low < 0x80 {
        return Some(usize::from(low));
    }
    let (&high, rest) = packed.split_first()?;
    *packed = rest;
    Some(usize::from(low & 0x7f) | usize::from(high) << 7)
}

fn damaged() -> Error {
    let cause = "a sheet of an index is damaged; restore the file from a copy";
    Error::ToSqlConversionFailure(Box::new(broken(cause.into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unpacked(sheets: &[Sheet<'_>]) -> Vec<Vec<u8>> {
        let mut entries = Entries::default();
        for sheet in sheets {
            entries.unpack(&sheet.packed).unwrap();
        }
        entries.iter().map(<[u8]>::to_vec).collect()
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_back_and_fits_its_page(
            set in proptest::collection::btree_set(proptest::collection::vec(0u8..4, 1..ENTRY_BYTES_MAX), 1..60)
        ) {
            let entries: Vec<&[u8]> = set.iter().map(Vec::as_slice).collect();
            let sheets = cut(&entries);
            for sheet in &sheets {
                prop_assert!(sheet.packed.len() <= BYTES_MAX);
            }
            prop_assert_eq!(unpacked(&sheets), set.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn damaged_bytes_are_an_error_or_entries_but_never_a_panic(
            packed in proptest::collection::vec(any::<u8>(), 0..300)
        ) {
            let mut entries = Entries::default();
            drop(entries.unpack(&packed));
            prop_assert_eq!(entries.iter().count(), entries.len());
        }
    }

    #[test]
    fn two_sets_are_one_in_order_and_what_both_have_stands_once() {
        let mut old = Entries::default();
        let sheets = cut(&[b"a", b"c", b"e"]);
        old.unpack(&sheets.first().unwrap().packed).unwrap();
        let all = old.with(&[b"0", b"c", b"d", b"f"]);
        assert_eq!(all, [b"0", b"a", b"c", b"d", b"e", b"f"]);
        assert_eq!(
            (old.below(b"c"), old.below(b"d"), old.below(b"z")),
            (1, 2, 3)
        );
    }
}
