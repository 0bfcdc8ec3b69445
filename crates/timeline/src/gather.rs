//! Gathering: the newest records of many keys, without opening most outboxes.
//!
//! In:    keys, a cursor or none, and other sources already in order.
//! Out:   candidates, newest first, each once.
//! Never: a candidate out of order or twice, whatever the sources overlap.
//!
//! A page of fifty needs at most fifty outboxes, however many keys a reader
//! follows. A key's tip says, to the second, how new its newest record can be;
//! tips lie in one array and cost one look each. Outboxes are opened in the
//! order of their tips and only while a tip could beat the best candidate.

use crate::ahead::fetch;
use crate::outboxes::{Outboxes, latest_of, second_at_or_after};
use crate::records::{Position, Records};
use crate::ring::{Ring, RingWalk};
use crate::sequence::{Sequence, Walk};
use sdd::Guard;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A record a page may show.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub(crate) time_us: i64,
    pub(crate) number: u32,
    pub(crate) records: &'a Records,
    pub(crate) lane_at: usize,
}

impl Candidate<'_> {
    /// The order of the feed; lanes decide only between equal URIs.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        self.time_us.cmp(&other.time_us).then_with(|| {
            if self.lane_at == other.lane_at {
                return self.records.compare(self.number, other.number);
            }
            let one = self.records.uri(self.number);
            let two = other.records.uri(other.number);
            one.cmp(&two).then(self.lane_at.cmp(&other.lane_at))
        })
    }
}

/// A candidate at the head of the source it came from.
#[derive(Debug)]
struct Head<'a> {
    candidate: Candidate<'a>,
    source: usize,
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.candidate.compare(&other.candidate)
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head<'_> {}

/// Record numbers in order, newest first.
#[derive(Debug)]
enum Numbers<'a> {
    Ring(RingWalk<'a>),
    Sequence(Walk<'a>),
}

/// The records of one lane that come from one place.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    lane_at: usize,
    records: &'a Records,
    numbers: Numbers<'a>,
}

impl<'a> Iterator for Source<'a> {
    type Item = Candidate<'a>;

    #[inline]
    fn next(&mut self) -> Option<Candidate<'a>> {
        let number = match &mut self.numbers {
            Numbers::Ring(walk) => walk.next()?,
            Numbers::Sequence(walk) => walk.next()?,
        };
        Some(Candidate {
            time_us: self.records.time_us(number),
            number,
            records: self.records,
            lane_at: self.lane_at,
        })
    }
}

/// Keys of one lane whose outboxes are not yet open, latest tip on top.
#[derive(Debug)]
struct Unopened<'a> {
    records: &'a Records,
    outboxes: &'a Outboxes,
    lane_at: usize,
    /// Second of the tip above, key below.
    tips: BinaryHeap<u64>,
}

/// A merge of sources in the order of the feed.
#[derive(Debug)]
pub(crate) struct Gather<'a> {
    guard: &'a Guard,
    before: Option<&'a Position>,
    sources: Vec<Source<'a>>,
    /// The newest head. Most pages have but one source, and then no other.
    lead: Option<Head<'a>>,
    heads: BinaryHeap<Head<'a>>,
    unopened: Vec<Unopened<'a>>,
    /// Lane and number of the candidate given last.
    last: Option<(usize, u32)>,
}

impl<'a> Gather<'a> {
    pub(crate) fn new(before: Option<&'a Position>, guard: &'a Guard) -> Self {
        Self {
            guard,
            before,
            sources: Vec::new(),
            lead: None,
            heads: BinaryHeap::new(),
            unopened: Vec::new(),
            last: None,
        }
    }

    fn begin(&mut self, lane_at: usize, records: &'a Records, numbers: Numbers<'a>) {
        let mut source = Source {
            lane_at,
            records,
            numbers,
        };
        if let Some(candidate) = source.next() {
            let source = self.sources.len();
            let head = Head { candidate, source };
            let leads = self.lead.as_ref().is_none_or(|lead| head > *lead);
            let other = match leads {
                true => self.lead.replace(head),
                false => Some(head),
            };
            self.heads.extend(other);
        }
        self.sources.push(source);
    }

    /// Adds the ring of a reader. The rows of the first `wanted` entries are fetched at once:
    /// one after the other, each would be waited for.
    pub(crate) fn ring(
        &mut self,
        lane_at: usize,
        records: &'a Records,
        ring: &Ring<'a>,
        wanted: usize,
    ) {
        let mut walk = ring.walk();
        if let Some(before) = self.before {
            walk.pass(first_older(records, ring, before));
        }
        let rows = walk.clone().take(wanted);
        fetch(rows.map(|number| records.time_us(number)));
        self.begin(lane_at, records, Numbers::Ring(walk));
    }

    /// Adds one outbox, or the whole window.
    pub(crate) fn sequence(&mut self, lane_at: usize, records: &'a Records, sequence: &Sequence) {
        let walk = sequence.walk(self.before, records, self.guard);
        self.begin(lane_at, records, Numbers::Sequence(walk));
    }

    /// Adds the outboxes of many keys, to be opened only when needed.
    pub(crate) fn keys(
        &mut self,
        lane_at: usize,
        records: &'a Records,
        outboxes: &'a Outboxes,
        keys: impl Iterator<Item = u32>,
    ) {
        let latest = self
            .before
            .map_or(u32::MAX, |before| second_at_or_after(before.time_us));
        let tips: Vec<u64> = keys
            .filter_map(|key| {
                let second = outboxes.tip_second(key);
                (second != 0).then(|| u64::from(second.min(latest)) << 32 | u64::from(key))
            })
            .collect();
        if !tips.is_empty() {
            self.unopened.push(Unopened {
                records,
                outboxes,
                lane_at,
                tips: BinaryHeap::from(tips),
            });
        }
    }

    /// Opens every outbox that could hold the next candidate.
    fn open(&mut self) {
        for at in 0..self.unopened.len() {
            while let Some(waiting) = self.unopened.get_mut(at)
                && let Some(&tip) = waiting.tips.peek()
            {
                let latest_us = latest_of((tip >> 32) as u32);
                let best = self.lead.as_ref().map(|lead| lead.candidate.time_us);
                if best.is_some_and(|best| best > latest_us) {
                    break;
                }
                waiting.tips.pop();
                let (lane_at, records) = (waiting.lane_at, waiting.records);
                if let Some(outbox) = waiting.outboxes.get(tip as u32) {
                    self.sequence(lane_at, records, outbox);
                }
            }
        }
    }

    /// The newest head; the next of its source takes its place, or the newest of the others.
    #[inline]
    fn advance(&mut self) -> Option<Candidate<'a>> {
        let lead = self.lead.as_mut()?;
        let candidate = lead.candidate;
        match self.sources.get_mut(lead.source).and_then(Iterator::next) {
            Some(next) => {
                lead.candidate = next;
                if let Some(mut other) = self.heads.peek_mut()
                    && *other > *lead
                {
                    std::mem::swap(&mut *other, lead);
                }
            }
            None => self.lead = self.heads.pop(),
        }
        Some(candidate)
    }

    /// The one source there is, behind its first candidate; `None` if there are others. A merge of
    /// one is that one, and most pages are of one ring.
    pub(crate) fn alone(&mut self) -> Option<(Candidate<'a>, &mut Source<'a>)> {
        match (self.sources.as_mut_slice(), &self.lead) {
            ([source], Some(lead)) if self.unopened.is_empty() => Some((lead.candidate, source)),
            _ => None,
        }
    }
}

impl<'a> Iterator for Gather<'a> {
    type Item = Candidate<'a>;

    /// The next candidate, older than all before it.
    fn next(&mut self) -> Option<Candidate<'a>> {
        loop {
            if !self.unopened.is_empty() {
                self.open();
            }
            let candidate = self.advance()?;
            let this = Some((candidate.lane_at, candidate.number));
            if std::mem::replace(&mut self.last, this) != this {
                return Some(candidate);
            }
        }
    }
}

/// How far back in the ring the first record older than `before` lies.
fn first_older(records: &Records, ring: &Ring<'_>, before: &Position) -> usize {
    let (mut low, mut high) = (0, ring.len());
    while low < high {
        let middle = low.midpoint(high);
        let older = ring
            .nth(middle)
            .is_some_and(|number| records.is_older(number, before));
        if older {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}
