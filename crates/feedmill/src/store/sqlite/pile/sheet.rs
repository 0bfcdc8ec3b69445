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
/// Bytes of a sheet that was cut, about: there is room for more.
const CUT_BYTES: usize = 3_600;
/// Bytes of an entry, at most.
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

    /// These and others, in order; an entry and its end are nothing.
    pub(super) fn with<'a>(&'a self, others: &[&'a [u8]]) -> Vec<&'a [u8]> {
        let mut all = Vec::with_capacity(self.len() + others.len());
        let mut others = others.iter().copied().peekable();
        for own in self.iter() {
            let (key, _) = split(own);
            while let Some(other) = others.next_if(|other| split(other).0 < key) {
                all.push(other);
            }
            match others.next_if(|other| split(other).0 == key) {
                Some(other) if other != own => {}
                Some(_) | None => all.push(own),
            }
        }
        all.extend(others);
        all
    }
}

/// Whether something is in the set, or no longer is though a level below says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    There = 0,
    Gone = 1,
}

/// A string of a sheet: what is in the set, and its sign.
pub(super) fn signed(key: &[u8], sign: Sign) -> Box<[u8]> {
    let mut entry = Vec::with_capacity(key.len() + 1);
    entry.extend_from_slice(key);
    entry.push(sign as u8);
    entry.into_boxed_slice()
}

/// The opposite of [`signed`].
pub(super) fn split(entry: &[u8]) -> (&[u8], Sign) {
    match entry.split_last() {
        Some((&sign, key)) if sign == Sign::Gone as u8 => (key, Sign::Gone),
        Some((_, key)) => (key, Sign::There),
        None => (entry, Sign::There),
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
    let whole = sheets(entries, usize::MAX, usize::MAX);
    let total = whole.first().map_or(0, |sheet| sheet.packed.len());
    match total <= BYTES_MAX {
        true => whole,
        false => sheets(
            entries,
            total.div_ceil(total.div_ceil(CUT_BYTES)),
            BYTES_MAX,
        ),
    }
}

/// Entries in order as sheets that are full at so many bytes, and hold no more than `bytes_max`.
fn sheets<'a>(entries: &[&'a [u8]], enough: usize, bytes_max: usize) -> Vec<Sheet<'a>> {
    let mut sheets: Vec<Sheet<'a>> = Vec::new();
    let mut before: &[u8] = &[];
    for entry in entries {
        // Beside an entry stand two numbers, of two bytes at most.
        let room = bytes_max.saturating_sub(entry.len() + 4);
        match sheets.last_mut() {
            Some(sheet) if sheet.packed.len() < enough.min(room) => {
                pack(&mut sheet.packed, before, entry)
            }
            _ => {
                let mut packed = Vec::with_capacity(BYTES_MAX + ENTRY_BYTES_MAX);
                pack(&mut packed, &[], entry);
                sheets.push(Sheet {
                    first: entry,
                    packed,
                });
            }
        }
        before = entry;
    }
    sheets
}

fn pack(packed: &mut Vec<u8>, before: &[u8], entry: &[u8]) {
    let shared = shared(before, entry);
    put_number(packed, shared);
    put_number(packed, entry.len() - shared);
    packed.extend_from_slice(entry.get(shared..).unwrap_or_default());
}

/// How many bytes two strings begin with alike.
fn shared(before: &[u8], entry: &[u8]) -> usize {
    let (ones, _) = before.as_chunks::<8>();
    let (others, _) = entry.as_chunks::<8>();
    let eights = ones.iter().zip(others);
    let same = eights.take_while(|(one, other)| one == other).count() * 8;
    let rest = before.iter().skip(same).zip(entry.iter().skip(same));
    same + rest.take_while(|(one, other)| one == other).count()
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
    fn an_entry_and_its_end_are_nothing_whichever_is_older() {
        let (there, gone) = (Sign::There, Sign::Gone);
        let old = [signed(b"a", there), signed(b"c", gone), signed(b"e", there)];
        let new = [
            signed(b"0", there),
            signed(b"c", there),
            signed(b"d", gone),
            signed(b"e", gone),
        ];
        let strings: Vec<&[u8]> = old.iter().map(|entry| &**entry).collect();
        let mut entries = Entries::default();
        entries
            .unpack(&cut(&strings).first().unwrap().packed)
            .unwrap();
        assert_eq!((entries.below(b"c"), entries.below(b"d")), (1, 2));
        let others: Vec<&[u8]> = new.iter().map(|entry| &**entry).collect();
        let all = entries.with(&others);
        let left = [signed(b"0", there), signed(b"a", there), signed(b"d", gone)];
        assert!(all.iter().copied().eq(left.iter().map(|entry| &**entry)));
    }
}
