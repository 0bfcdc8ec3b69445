//! Pages: what a reader sees, from whichever sources can say it exactly.
//!
//! In:    a reader (active, or with the follows the caller loaded), a cursor,
//!        a limit.
//! Out:   visible records in order and a cursor; or the plain statement that
//!        the engine cannot answer this page wholly and exactly.
//! Never: a page that is partly from above a floor and partly from below; a
//!        page without cursor while anything may be left.
//!
//! Visibility is decided here: a delete, an unfollow, a mute or a takedown
//! has only flipped a bit or edited a set. Candidates may therefore be
//! invisible; a page looks at no more than `page_scan_max`, and is left to the
//! store if that does not fill it.

use crate::accounts::Accounts;
use crate::gather::{Candidate, Gather};
use crate::records::{Position, Record, Records};
use crate::ring::RingFloor;
use crate::settings::{KeyId, RecordId};
use crate::sorted::Sorted;
use sdd::Guard;
use std::cmp::Ordering;
use std::iter;

/// Which targets of a feed a page shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// One, by its number in the feed.
    One(usize),
    /// All of them in one order.
    Mixed,
}

/// A wish for a page.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The feed's number.
    pub feed: usize,
    /// Which of its targets.
    pub target: Target,
    /// Whose feed.
    pub reader: KeyId,
    /// Only what is older than this.
    pub before: Option<&'a Position>,
    /// Most entries; 0 counts as 1.
    pub limit: usize,
    /// The moment of reading; it keeps the reader active.
    pub now_us: i64,
}

/// A record on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The store's number for it.
    pub id: RecordId,
    /// Its time.
    pub time_us: i64,
    /// Which target of the feed it belongs to.
    pub target: usize,
    /// The engine's number for it, good until the engine changes.
    pub(crate) number: u32,
}

/// A page, exact.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Newest first.
    pub entries: Vec<Entry>,
    /// Where to go on; `None` only if nothing is left.
    pub next: Option<Position>,
}

/// What a read found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read<T = Page> {
    /// The page, or what was made of it.
    Page(T),
    /// The reader is not active, or its follows are not known at this moment:
    /// load them and call `read_cold`.
    Cold,
    /// Some of the page may lie below the floor: the store must answer all of it.
    Below,
    /// Too much of what the page would have to look at is gone or hidden: the
    /// store, which meets little of that, must answer it.
    Sparse,
    /// What the page is made of changed again and again while it was read: the
    /// store must answer it.
    Busy,
}

/// Keys a page is judged by.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Keys<'a> {
    Set(&'a Sorted),
    List(&'a [u32]),
}

impl Keys<'_> {
    #[inline]
    pub(crate) fn contains(self, key: u32) -> bool {
        match self {
            Self::Set(set) => set.contains(key),
            Self::List(list) => is_in(list, key),
        }
    }

    pub(crate) fn is_empty(self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(self) -> usize {
        match self {
            Self::Set(set) => set.len(),
            Self::List(list) => list.len(),
        }
    }
}

/// Whether a sorted list holds `key`.
///
/// Ids are handed out in order, so a long list is nearly even: where a key
/// should lie says nearly where it lies, and the search touches two lines of
/// memory instead of ten.
fn is_in(list: &[u32], key: u32) -> bool {
    let (Some(&first), Some(&last)) = (list.first(), list.last()) else {
        return false;
    };
    if list.len() < EVEN_MIN || key <= first || key >= last {
        return list.binary_search(&key).is_ok();
    }
    let share = u64::from(key - first) * list.len() as u64 / u64::from(last - first);
    let guess = (share as usize).min(list.len() - 1);
    let mut reach = EVEN_REACH;
    loop {
        let from = guess.saturating_sub(reach);
        let to = (guess + reach).min(list.len() - 1);
        let within = list.get(from).is_some_and(|&low| low <= key)
            && list.get(to).is_some_and(|&high| key <= high);
        if within {
            let part = list.get(from..=to).unwrap_or(&[]);
            return part.binary_search(&key).is_ok();
        }
        reach = reach.saturating_mul(8);
    }
}

/// Lists shorter than this are searched by halves alone.
const EVEN_MIN: usize = if cfg!(debug_assertions) { 8 } else { 4_096 };
/// How far from its even place a key is looked for at first.
const EVEN_REACH: usize = if cfg!(debug_assertions) { 2 } else { 256 };

/// What decides whether a reader sees a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) follows: Keys<'a>,
    pub(crate) hidden: Keys<'a>,
    /// The reader's own key, if its records are shown without a follow.
    pub(crate) own: Option<u32>,
    /// Whether nothing is gathered but what came by keys that are followed and not hidden.
    pub(crate) reached: bool,
    /// Accounts hidden from everybody.
    pub(crate) accounts: &'a Accounts,
    pub(crate) guard: &'a Guard,
}

impl View<'_> {
    #[inline]
    pub(crate) fn follows(&self, key: u32) -> bool {
        self.follows.contains(key) || self.own == Some(key)
    }

    fn shows(&self, records: &Records, number: u32, row: &Record) -> bool {
        if records.is_gone(number) {
            return false;
        }
        let author = records.author(row, self.guard);
        // A key that the reader hides reaches nobody, though it is followed.
        let reaches = |&key: &u32| {
            self.follows(key) && (self.hidden.is_empty() || !self.hidden.contains(key))
        };
        let keys = records.keys(row, self.guard);
        (self.reached || keys.iter().any(reaches))
            && !self.accounts.is_hidden(author)
            && (self.hidden.is_empty() || !self.hidden.contains(author))
    }
}

/// Below this nothing is promised: the highest floor of all lanes of a page.
#[derive(Debug, Clone)]
pub(crate) struct Floor<'a> {
    after_us: i64,
    oldest: Vec<Oldest<'a>>,
}

/// Where a ring ends. Its row lies far back, so nobody looks at it before it is needed.
#[derive(Debug, Clone, Copy)]
struct Oldest<'a> {
    number: u32,
    records: &'a Records,
    lane_at: usize,
}

impl<'a> Oldest<'a> {
    fn candidate(&self) -> Candidate<'a> {
        Candidate {
            time_us: self.records.time_us(self.number),
            number: self.number,
            records: self.records,
            lane_at: self.lane_at,
        }
    }
}

impl<'a> Floor<'a> {
    pub(crate) fn at(after_us: i64) -> Self {
        Self {
            after_us,
            oldest: Vec::new(),
        }
    }

    pub(crate) fn raise(&mut self, lane_at: usize, records: &'a Records, ring: RingFloor) {
        self.after_us = self.after_us.max(ring.after_us);
        if let Some(number) = ring.oldest {
            self.oldest.push(Oldest {
                number,
                records,
                lane_at,
            });
        }
    }

    /// Whether there is no floor: all there ever was is in memory.
    fn is_ground(&self) -> bool {
        self.after_us == i64::MIN && self.oldest.is_empty()
    }

    fn is_above(&self, candidate: &Candidate<'_>) -> bool {
        self.is_after(candidate)
            && self
                .oldest
                .iter()
                .all(|oldest| candidate.compare(&oldest.candidate()) != Ordering::Less)
    }

    /// The same for what comes from the one ring there is: its oldest is the last of them.
    fn is_after(&self, candidate: &Candidate<'_>) -> bool {
        candidate.time_us > self.after_us
    }
}

/// How much a page may ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) entries: usize,
    pub(crate) looked_at: usize,
}

/// Fills a page from what is gathered, down to `floor`; and the earliest time it looked at, which
/// is the beginning of all if it came to the end of everything.
pub(crate) fn fill(
    gather: &mut Gather<'_>,
    view: &View<'_>,
    floor: &Floor<'_>,
    limits: Limits,
) -> (Read, i64) {
    let mut lowest_us = i64::MAX;
    let read = fill_noting(gather, view, floor, limits, &mut lowest_us);
    (read, lowest_us)
}

fn fill_noting(
    gather: &mut Gather<'_>,
    view: &View<'_>,
    floor: &Floor<'_>,
    limits: Limits,
    lowest_us: &mut i64,
) -> Read {
    match gather.alone() {
        Some((first, rest)) => {
            let above = |candidate: &Candidate<'_>| floor.is_after(candidate);
            let candidates = iter::once(first).chain(rest);
            fill_from(candidates, view, floor, above, limits, lowest_us)
        }
        None => {
            let above = |candidate: &Candidate<'_>| floor.is_above(candidate);
            fill_from(gather, view, floor, above, limits, lowest_us)
        }
    }
}

fn fill_from<'a>(
    candidates: impl Iterator<Item = Candidate<'a>>,
    view: &View<'_>,
    floor: &Floor<'_>,
    is_above: impl Fn(&Candidate<'_>) -> bool,
    limits: Limits,
    lowest_us: &mut i64,
) -> Read {
    let limit = limits.entries.max(1);
    let mut entries: Vec<Entry> = Vec::with_capacity(limit.min(256));
    let mut last: Option<Candidate<'_>> = None;
    let mut looked_at = 0;
    for candidate in candidates {
        *lowest_us = candidate.time_us.min(*lowest_us);
        let full = entries.len() >= limit;
        let is_above = is_above(&candidate);
        if looked_at >= limits.looked_at || !is_above {
            return match is_above {
                _ if full => full_page(entries, last),
                true => Read::Sparse,
                false => Read::Below,
            };
        }
        let Some(row) = candidate.records.row(candidate.number) else {
            continue;
        };
        // Two targets may hold one record; its copies are neighbours in the order.
        let repeated = entries
            .last()
            .is_some_and(|last| last.id == RecordId(row.id));
        if !repeated && view.shows(candidate.records, candidate.number, &row) {
            if full {
                return full_page(entries, last);
            }
            entries.push(Entry {
                id: RecordId(row.id),
                time_us: row.time_us,
                target: candidate.lane_at,
                number: candidate.number,
            });
        }
        looked_at += 1;
        if !full {
            last = Some(candidate);
        }
    }
    *lowest_us = i64::MIN;
    if floor.is_ground() {
        return Read::Page(Page {
            entries,
            next: None,
        });
    }
    if entries.len() >= limit {
        return full_page(entries, last);
    }
    Read::Below
}

/// A page that ends before its sources do, after the last of its entries.
fn full_page(entries: Vec<Entry>, last: Option<Candidate<'_>>) -> Read {
    Read::Page(Page {
        entries,
        next: last.map(|last| last.records.position(last.number)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_searched_exactly_however_uneven_it_is() {
        let even: Vec<u32> = (0..20_000).map(|at| at * 7 + 3).collect();
        let uneven: Vec<u32> = (0..10_000)
            .chain((0..10_000).map(|at| u32::MAX - 3 * at))
            .collect();
        for mut list in [even, uneven, vec![5; 9_000], Vec::new()] {
            list.sort_unstable();
            let near = list
                .iter()
                .flat_map(|&key| [key, key.saturating_add(1), key.saturating_sub(1)]);
            for key in near.chain([0, u32::MAX, 1 << 31]) {
                assert_eq!(is_in(&list, key), list.binary_search(&key).is_ok(), "{key}");
            }
        }
    }
}
