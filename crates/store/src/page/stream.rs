//! Candidates from several indexes, in one order.
//!
//! In:    indexes, and where in each of them candidates are found.
//! Out:   candidates newest first, each place once, with the indexes it was found in.
//! Never: a candidate past a place that some index was not yet read to.

use std::collections::{HashSet, VecDeque};

use decide::derived::unpack;
use decide::ids::{IndexId, KeyId, Micros, RecordId, SortId};
use decide::rows::{Recent, Sorted};
use decide::table::{Row as _, damaged};
use decide::value::{Cell, Value};

use super::place::{Place, uri};
use crate::error::StoreError;
use crate::port::{Newest, Range, Snapshot, Stored, dangling};

/// Rows of an index that are walked at once, at least.
const WALK_MIN: usize = 256;

/// How the candidates of one index are found.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way<'w> {
    /// Everything in it.
    All,
    /// Each of these keys by itself.
    Keys(&'w [KeyId]),
    /// Everything in it is looked at, and kept if it is under one of these keys.
    Walk(&'w HashSet<KeyId>),
    /// Everything with one value in a sort index.
    Value(SortId, &'w Value),
}

/// A candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) place: Place,
    pub(super) stored: Stored,
}

/// The candidates of one index.
#[derive(Debug)]
struct Stream<'s> {
    index: IndexId,
    collection: &'s str,
    way: Way<'s>,
    buffer: VecDeque<Found>,
    /// Where reading goes on.
    before: Option<(Micros, String)>,
    ended: bool,
}

/// Candidates of several indexes.
#[derive(Debug, Default)]
pub(super) struct Streams<'s> {
    streams: Vec<Stream<'s>>,
}

/// What comes next. Taken apart as soon as it is made, so its size does not matter.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
pub(super) enum Next {
    /// A candidate, and the numbers of the streams that have it.
    Found(Found, Vec<usize>),
    /// More must be read: of some stream, nothing below this place is known. `None`: nothing at all is.
    Unread(Option<Place>),
    End,
}

impl<'s> Streams<'s> {
    /// Adds an index, read from a place on. Its number is how many were added before.
    pub(super) fn add(
        &mut self,
        (index, collection): (IndexId, &'s str),
        way: Way<'s>,
        before: Option<&Place>,
    ) {
        let before = before.map(|place| (place.time_us, place.tail(collection)));
        self.streams.push(Stream {
            index,
            collection,
            way,
            buffer: VecDeque::new(),
            before,
            ended: false,
        });
    }

    /// Reads no more of a stream.
    pub(super) fn end(&mut self, number: usize) {
        if let Some(stream) = self.streams.get_mut(number) {
            stream.ended = true;
            stream.buffer.clear();
        }
    }

    /// Reads until every stream has `chunk` candidates, or was walked so far; returns how many
    /// rows were looked at in vain. One round trip; two for streams that are walked or have a value.
    pub(super) fn load(
        &mut self,
        snapshot: &dyn Snapshot,
        chunk: usize,
    ) -> Result<usize, StoreError> {
        let mut asked = Vec::new();
        let mut ranges = Vec::new();
        for stream in &self.streams {
            let missing = stream.missing(chunk);
            if missing == 0 {
                continue;
            }
            match stream.range(missing) {
                Some(range) => ranges.push(range),
                None => asked.push(stream.newest(missing)),
            }
        }
        let mut found = match asked.is_empty() {
            true => Vec::new(),
            false => snapshot.newest(&asked)?,
        }
        .into_iter();
        let mut rows = match ranges.is_empty() {
            true => Vec::new(),
            false => snapshot.range(&ranges)?,
        }
        .into_iter();
        let mut in_vain = 0;
        let mut hits: Vec<(usize, (Micros, String), RecordId)> = Vec::new();
        for (number, stream) in self.streams.iter_mut().enumerate() {
            let missing = stream.missing(chunk);
            if missing == 0 {
                continue;
            }
            match stream.way {
                Way::All | Way::Keys(_) => {
                    let candidates = found.next().unwrap_or_default();
                    stream.ended = candidates.len() < missing;
                    for candidate in candidates {
                        let tail = candidate.tail;
                        stream.push(candidate.time_us, &tail, candidate.stored);
                        stream.before = Some((candidate.time_us, tail));
                    }
                }
                Way::Walk(_) | Way::Value(..) => {
                    let Some(rows) = rows.next() else { continue };
                    let read = rows.len();
                    stream.ended = read < stream.rows(missing);
                    let passing = stream.passing(rows)?;
                    in_vain += read - passing.len();
                    let hit = passing.into_iter();
                    hits.extend(hit.map(|(place, record)| (number, place, record)));
                }
            }
        }
        self.fetch(snapshot, hits)?;
        Ok(in_vain)
    }

    /// Loads the records of what was found by walking.
    fn fetch(
        &mut self,
        snapshot: &dyn Snapshot,
        hits: Vec<(usize, (Micros, String), RecordId)>,
    ) -> Result<(), StoreError> {
        if hits.is_empty() {
            return Ok(());
        }
        let ids: Vec<RecordId> = hits.iter().map(|(_, _, record)| *record).collect();
        let records = snapshot.records(&ids)?;
        for ((number, (time_us, tail), _), stored) in hits.into_iter().zip(records) {
            if let Some(stream) = self.streams.get_mut(number) {
                stream.push(time_us, &tail, stored.ok_or_else(dangling)?);
            }
        }
        Ok(())
    }

    /// The next candidate.
    pub(super) fn next(&mut self) -> Next {
        let mut newest: Option<&Place> = None;
        let mut unread: Option<Option<Place>> = None;
        for stream in &self.streams {
            match stream.buffer.front() {
                Some(found) => newest = newest.max(Some(&found.place)),
                None if stream.ended => {}
                None => {
                    let reached = stream.reached();
                    let is_further = match (&unread, &reached) {
                        (None, _) | (_, None) => true,
                        (Some(None), _) => false,
                        (Some(Some(other)), Some(reached)) => reached > other,
                    };
                    if is_further {
                        unread = Some(reached);
                    }
                }
            }
        }
        match (newest, unread) {
            (None, None) => return Next::End,
            (_, Some(None)) => return Next::Unread(None),
            (newest, Some(unread)) if newest < unread.as_ref() => return Next::Unread(unread),
            _ => {}
        }
        let Some(newest) = newest.cloned() else {
            return Next::End;
        };
        let mut taken: Option<Found> = None;
        let mut numbers = Vec::with_capacity(1);
        for (number, stream) in self.streams.iter_mut().enumerate() {
            if stream
                .buffer
                .front()
                .is_some_and(|found| found.place == newest)
            {
                taken = stream.buffer.pop_front().or(taken);
                numbers.push(number);
            }
        }
        match taken {
            Some(found) => Next::Found(found, numbers),
            None => Next::End,
        }
    }

    /// The candidates that were read and not yet taken.
    pub(super) fn read(&self) -> impl Iterator<Item = &Found> {
        self.streams.iter().flat_map(|stream| &stream.buffer)
    }
}

impl Stream<'_> {
    /// How many candidates it must be asked for.
    fn missing(&self, chunk: usize) -> usize {
        match self.ended {
            true => 0,
            false => chunk.saturating_sub(self.buffer.len()),
        }
    }

    /// How many rows are read to find so many candidates.
    fn rows(&self, missing: usize) -> usize {
        match self.way {
            Way::Walk(_) => missing.max(WALK_MIN),
            _ => missing,
        }
    }

    fn newest(&self, max: usize) -> Newest<'_> {
        Newest {
            index: self.index,
            keys: match self.way {
                Way::Keys(keys) => Some(keys),
                _ => None,
            },
            before: self
                .before
                .as_ref()
                .map(|(time_us, tail)| (*time_us, tail.as_str())),
            max,
        }
    }

    /// The rows to read; `None` where the engine merges keys itself.
    fn range(&self, missing: usize) -> Option<Range> {
        let (table, prefix) = match self.way {
            Way::All | Way::Keys(_) => return None,
            Way::Walk(_) => (Recent::TABLE, vec![self.index.to_value()]),
            Way::Value(sort, value) => (Sorted::TABLE, vec![sort.to_value(), value.clone()]),
        };
        let before = self.before.as_ref();
        Some(Range {
            table,
            index: "",
            prefix,
            after: before.map_or_else(Vec::new, |(time_us, tail)| {
                vec![time_us.to_value(), tail.to_value()]
            }),
            inclusive: false,
            descending: true,
            max: self.rows(missing),
        })
    }

    /// Places and records of the rows that are candidates.
    #[allow(clippy::type_complexity)] // said in the line above
    fn passing(
        &mut self,
        rows: crate::port::Rows,
    ) -> Result<Vec<((Micros, String), RecordId)>, StoreError> {
        let mut passing = Vec::new();
        match self.way {
            Way::All | Way::Keys(_) => {}
            Way::Walk(wanted) => {
                for recent in rows.typed::<Recent>()? {
                    let place = (recent.time_us, recent.tail);
                    let keys = unpack(&recent.keys).ok_or(damaged::<Recent>("keys"))?;
                    self.before = Some(place.clone());
                    if keys.iter().any(|key| wanted.contains(key)) {
                        passing.push((place, recent.record));
                    }
                }
            }
            Way::Value(..) => {
                for sorted in rows.typed::<Sorted>()? {
                    let place = (sorted.time_us, sorted.tail);
                    self.before = Some(place.clone());
                    passing.push((place, sorted.record));
                }
            }
        }
        Ok(passing)
    }

    fn push(&mut self, time_us: Micros, tail: &str, stored: Stored) {
        let place = Place {
            time_us,
            uri: uri(self.collection, tail),
        };
        self.buffer.push_back(Found { place, stored });
    }

    /// How far it was read; `None`: nothing was.
    fn reached(&self) -> Option<Place> {
        let (time_us, tail) = self.before.as_ref()?;
        Some(Place {
            time_us: *time_us,
            uri: uri(self.collection, tail),
        })
    }
}
