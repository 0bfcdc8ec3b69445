//! The tail: the newest blocks of every feed, in memory.
//!
//! In:    each block as it is inserted, or as it is found in the file.
//! Out:   where a feed's newest blocks may be, for as long as the tables do not tell.
//! Never: a lock held while SQLite works; a block forgotten that somebody's tables lack.
//!
//! Blocks arrive in the order of the space, and each feed has its own order. An
//! index by feed that is kept with every block meets another page for each, and
//! a page that is written costs as much as ten blocks. So the newest blocks wait
//! here, until so many have come that each feed has some, and then they are
//! written feed by feed ([`super::slices`]).
//!
//! The tail is a hint, the rows are the truth. It may name a block that was
//! deleted, moved, or not committed: whoever asks must look at the row. It may
//! not lack one: a block is here before it is committed, and leaves after the
//! tables that tell of it are.

use super::bundle::BUNDLE_BYTES_MAX;
use super::entries::{Entries, Spot};
use parking_lot::RwLock;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Blocks of one generation. Twice as many may wait, and are looked at when a
/// file is opened; a thousand feeds then have 130 blocks each to be written at once.
pub(super) const TAIL_BLOCKS_MAX: usize = 131_072;

/// A block that came.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival<'a> {
    pub(super) block_id: i64,
    pub(super) feed: i64,
    pub(super) sequence: u64,
    pub(super) actor: &'a str,
    pub(super) position: Option<u64>,
    /// What a bundle would hold of it; empty if that is to be read from its row.
    pub(super) entry: &'a [u8],
}

/// A block by its key.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) sequence: u64,
    pub(super) actor: Arc<str>,
    pub(super) block_id: i64,
    pub(super) position: Option<u64>,
}

impl Key {
    fn rank(&self) -> (u64, &str) {
        (self.sequence, &self.actor)
    }
}

/// Where a block stands in its feed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) position: u64,
    pub(super) block_id: i64,
    /// What a bundle would hold of it.
    pub(super) entry: Spot,
}

impl Place {
    fn told(&self) -> (u64, i64) {
        (self.position, self.block_id)
    }
}

/// The blocks of one feed in one generation, in both orders.
#[derive(Debug, Default)]
struct Feed {
    keys: Vec<Key>,
    places: Vec<Place>,
}

impl Feed {
    fn insert(&mut self, arrival: &Arrival<'_>, entry: Spot) {
        // Most often the writer of a feed is who wrote it before.
        let actor = match self.keys.last() {
            Some(last) if &*last.actor == arrival.actor => last.actor.clone(),
            _ => arrival.actor.into(),
        };
        let rank = (arrival.sequence, arrival.actor);
        let at = match self.keys.last() {
            Some(last) if last.rank() > rank => self.keys.partition_point(|key| key.rank() <= rank),
            _ => self.keys.len(),
        };
        let key = Key {
            sequence: arrival.sequence,
            actor,
            block_id: arrival.block_id,
            position: arrival.position,
        };
        self.keys.insert(at, key);
        if let Some(position) = arrival.position {
            let place = Place {
                position,
                block_id: arrival.block_id,
                entry,
            };
            let told = place.told();
            let at = match self.places.last() {
                Some(last) if last.told() > told => {
                    self.places.partition_point(|held| held.told() < told)
                }
                _ => self.places.len(),
            };
            self.places.insert(at, place);
        }
    }

    /// Forget the blocks after `through`; the first of their entries.
    fn cut(&mut self, through: i64) -> Option<Spot> {
        self.keys.retain(|key| key.block_id <= through);
        let ended = self.places.extract_if(.., |place| place.block_id > through);
        let entries = ended.map(|place| place.entry);
        entries.filter(|entry| entry.length > 0).min()
    }
}

/// Blocks that came one after the other, and are written together.
#[derive(Debug, Default)]
struct Generation {
    /// The oldest of them.
    from: i64,
    /// The newest of them.
    through: i64,
    blocks: usize,
    feeds: BTreeMap<i64, Feed>,
    entries: Entries,
}

impl Generation {
    fn cut(&mut self, through: i64) {
        let ended = self.feeds.values_mut().filter_map(|feed| feed.cut(through));
        if let Some(first) = ended.min() {
            self.entries.forget(first);
        }
        self.feeds.retain(|_, feed| !feed.keys.is_empty());
        let keys = self.feeds.values().flat_map(|feed| &feed.keys);
        let ids = keys.map(|key| key.block_id);
        (self.blocks, self.through) =
            ids.fold((0, 0), |(count, most), id| (count + 1, most.max(id)));
    }
}

/// All generations, oldest first. The last one fills, the others are written.
#[derive(Debug, Default)]
struct Generations {
    all: VecDeque<Arc<RwLock<Generation>>>,
    /// Every block up to here is in the tables or in a generation.
    known_through: i64,
    /// The tables tell of every block up to here.
    indexed_through: i64,
}

impl Generations {
    fn push(&mut self, arrival: &Arrival<'_>, blocks_max: usize) {
        assert!(
            arrival.block_id > self.known_through,
            "a block that came twice"
        );
        let full = |last: &Arc<RwLock<Generation>>| last.read().blocks >= blocks_max;
        if self.all.back().is_none_or(full) {
            self.all.push_back(Arc::default());
        }
        if let Some(last) = self.all.back() {
            let mut last = last.write();
            if last.blocks == 0 {
                last.from = arrival.block_id;
            }
            last.through = arrival.block_id;
            last.blocks += 1;
            let entry = last.entries.push(arrival.entry);
            let feed = last.feeds.entry(arrival.feed).or_default();
            feed.insert(arrival, entry);
        }
        self.known_through = arrival.block_id;
    }

    fn settle(&mut self, through: i64) {
        self.indexed_through = self.indexed_through.max(through);
        let through = self.indexed_through;
        let told = |first: &Arc<RwLock<Generation>>| first.read().through <= through;
        while self.all.front().is_some_and(told) {
            self.all.pop_front();
        }
    }

    fn view(&self) -> View {
        View(self.all.iter().cloned().collect())
    }
}

/// Blocks of a generation that follow each other in a feed.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) feed: i64,
    /// How many of the feed's come before.
    at: usize,
    /// The position of the one before, if it is of this generation.
    pub(super) before: Option<u64>,
    pub(super) places: Vec<Place>,
    /// Their entries, one after the other: as many as fill a bundle, and one more.
    pub(super) entries: Vec<u8>,
}

/// A generation that is full, and how far it was taken from.
#[derive(Debug, Clone)]
pub(super) struct Frozen {
    generation: Arc<RwLock<Generation>>,
    /// The feed that is next, and how many of its blocks were taken.
    next: (i64, usize),
    /// The same for runs, which are taken in another order.
    next_run: (i64, usize),
    /// How many blocks are left.
    pub(super) left: usize,
    /// How many there were.
    pub(super) blocks: usize,
    /// The oldest of them.
    pub(super) from: i64,
    /// The newest of them.
    pub(super) through: i64,
}

impl Frozen {
    /// Take the next blocks, each with its feed, feed by feed.
    pub(super) fn take(&mut self, limit: usize) -> Vec<(i64, Key)> {
        let generation = self.generation.read();
        let mut taken = Vec::with_capacity(limit.min(self.left));
        let (first, mut at) = self.next;
        for (id, feed) in generation.feeds.range(first..) {
            let some = feed.keys.iter().skip(at).take(limit - taken.len());
            let before = taken.len();
            taken.extend(some.map(|key| (*id, key.clone())));
            self.next = (*id, at + taken.len() - before);
            if taken.len() == limit {
                break;
            }
            at = 0;
        }
        self.left = self.left.saturating_sub(taken.len());
        taken
    }

    /// The next blocks that follow each other in a feed; `None` if there are no more.
    pub(super) fn run(&self, limit: usize) -> Option<Run> {
        let generation = self.generation.read();
        let (first, at) = self.next_run;
        let (id, feed, at) = generation.feeds.range(first..).find_map(|(id, feed)| {
            let at = if *id == first { at } else { 0 };
            (at < feed.places.len()).then_some((*id, feed, at))
        })?;
        let before = at.checked_sub(1).and_then(|before| feed.places.get(before));
        let places: Vec<Place> = feed.places.iter().skip(at).take(limit).copied().collect();
        let mut entries = Vec::with_capacity(BUNDLE_BYTES_MAX * 2);
        for place in &places {
            if entries.len() > BUNDLE_BYTES_MAX {
                break;
            }
            entries.extend(generation.entries.get(place.entry));
        }
        Some(Run {
            feed: id,
            at,
            before: before.map(|before| before.position),
            places,
            entries,
        })
    }

    /// So many blocks of a run are done with.
    pub(super) fn pass(&mut self, run: &Run, blocks: usize) {
        self.next_run = (run.feed, run.at + blocks);
    }
}

/// The newest blocks of every feed, for one writer and any number of readers.
#[derive(Debug)]
pub(super) struct Tail {
    generations: RwLock<Generations>,
    blocks_max: usize,
}

impl Tail {
    pub(super) fn new(blocks_max: usize) -> Self {
        Self {
            generations: RwLock::default(),
            blocks_max: blocks_max.max(1),
        }
    }

    /// Every block up to here is known.
    pub(super) fn known_through(&self) -> i64 {
        self.generations.read().known_through
    }

    /// The tables tell of every block up to here.
    pub(super) fn indexed_through(&self) -> i64 {
        self.generations.read().indexed_through
    }

    /// How many generations are full.
    pub(super) fn waiting(&self) -> usize {
        self.generations.read().all.len().saturating_sub(1)
    }

    /// Take in a block that is about to be committed.
    pub(super) fn push(&self, arrival: &Arrival<'_>) {
        self.generations.write().push(arrival, self.blocks_max);
    }

    /// Take in blocks that were found in the file above `known`, in order, where the tables tell of
    /// every block up to `indexed_through`. False if so much is no longer known: look again.
    pub(super) fn learn(&self, known: i64, arrivals: &[Arrival<'_>], indexed_through: i64) -> bool {
        let mut generations = self.generations.write();
        if generations.known_through < known {
            return false;
        }
        generations.known_through = generations.known_through.max(indexed_through);
        for arrival in arrivals {
            if arrival.block_id > generations.known_through {
                generations.push(arrival, self.blocks_max);
            }
        }
        generations.settle(indexed_through);
        true
    }

    /// Ids up to here were used, though nothing may be left of their blocks.
    pub(super) fn skip_through(&self, block_id: i64) {
        let mut generations = self.generations.write();
        generations.known_through = generations.known_through.max(block_id);
    }

    /// Begin a transaction that may take in blocks.
    pub(super) fn attempt(&self) -> Attempt<'_> {
        let stood = self.known_through();
        Attempt { tail: self, stood }
    }

    /// Forget what came after `through`: it was not committed.
    fn cut(&self, through: i64) {
        let mut generations = self.generations.write();
        if generations.known_through <= through {
            return;
        }
        for generation in &generations.all {
            let mut generation = generation.write();
            if generation.through > through {
                generation.cut(through);
            }
        }
        let empty = |last: &Arc<RwLock<Generation>>| last.read().blocks == 0;
        while generations.all.back().is_some_and(empty) {
            generations.all.pop_back();
        }
        generations.known_through = through;
    }

    /// The tables tell of every block up to `through`, and that is committed.
    pub(super) fn settle(&self, through: i64) {
        self.generations.write().settle(through);
    }

    /// The oldest generation that is full.
    pub(super) fn frozen(&self) -> Option<Frozen> {
        let generations = self.generations.read();
        let is_full = generations.all.len() > 1;
        let generation = generations.all.front().filter(|_| is_full)?.clone();
        let (from, through, blocks) = {
            let first = generation.read();
            (first.from, first.through, first.blocks)
        };
        Some(Frozen {
            generation,
            next: (i64::MIN, 0),
            next_run: (i64::MIN, 0),
            left: blocks,
            blocks,
            from,
            through,
        })
    }

    /// Everything that waits now.
    pub(super) fn view(&self) -> View {
        self.generations.read().view()
    }

    /// What waits of a snapshot whose tables tell of every block up to `indexed_through`, and whose
    /// newest block is `newest`; `None` if something is missing, because it has left already or was
    /// not learnt yet.
    pub(super) fn view_of(&self, indexed_through: i64, newest: i64) -> Option<View> {
        let generations = self.generations.read();
        let is_whole =
            generations.indexed_through <= indexed_through && generations.known_through >= newest;
        is_whole.then(|| generations.view())
    }
}

/// Blocks that are about to be committed. Unless they are, they leave the tail with this: before
/// the transaction ends, because then another process may use their ids.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    tail: &'a Tail,
    stood: i64,
}

impl Attempt<'_> {
    /// How many came so far.
    pub(super) fn added(&self) -> usize {
        let added = self.tail.known_through() - self.stood;
        usize::try_from(added).unwrap_or(0)
    }

    /// They are committed.
    pub(super) fn keep(mut self) {
        self.stood = i64::MAX;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.tail.cut(self.stood);
    }
}

/// What waited at one instant. Blocks that come later may be seen in it as well.
#[derive(Debug)]
pub(super) struct View(Vec<Arc<RwLock<Generation>>>);

impl View {
    /// Ask each generation, the newest first.
    fn ask<T>(&self, feed: i64, question: impl Fn(&Feed) -> T) -> impl Iterator<Item = T> {
        let answer = move |generation: &Arc<RwLock<Generation>>| {
            generation.read().feeds.get(&feed).map(&question)
        };
        self.0.iter().rev().filter_map(answer)
    }

    /// Blocks that may have this key, the newest first.
    pub(super) fn keyed(&self, feed: i64, sequence: u64, actor: &str) -> Vec<i64> {
        let rank = (sequence, actor);
        let found = self.ask(feed, |feed| {
            let from = feed.keys.partition_point(|key| key.rank() < rank);
            let behind = feed.keys.iter().skip(from);
            let same = behind.take_while(|key| key.rank() == rank);
            let mut ids: Vec<i64> = same.map(|key| key.block_id).collect();
            ids.reverse();
            ids
        });
        found.flatten().collect()
    }

    /// The highest key of a feed, below `below` if that is given.
    pub(super) fn highest_key(&self, feed: i64, below: Option<(u64, &str)>) -> Option<Key> {
        let found = self.ask(feed, |feed| {
            let end = below.map_or(feed.keys.len(), |below| {
                feed.keys.partition_point(|key| key.rank() < below)
            });
            feed.keys.iter().take(end).next_back().cloned()
        });
        found
            .flatten()
            .max_by(|one, other| one.rank().cmp(&other.rank()))
    }

    /// Where blocks of a feed may stand in `(after, through]`, the lowest first.
    pub(super) fn lowest(
        &self,
        feed: i64,
        after: u64,
        through: u64,
        limit: usize,
    ) -> Vec<(u64, i64)> {
        let found = self.ask(feed, |feed| {
            let from = feed.places.partition_point(|held| held.position <= after);
            let behind = feed.places.iter().skip(from).map(Place::told);
            let within = behind.take_while(|(held, _)| *held <= through);
            within.take(limit).collect::<Vec<_>>()
        });
        let mut found: Vec<_> = found.flatten().collect();
        found.sort_unstable();
        found.truncate(limit);
        found
    }

    /// Where blocks of a feed may stand in `(after, below)`, the highest first.
    pub(super) fn highest(
        &self,
        feed: i64,
        after: u64,
        below: u64,
        limit: usize,
    ) -> Vec<(u64, i64)> {
        let found = self.ask(feed, |feed| {
            let end = feed.places.partition_point(|held| held.position < below);
            let before = feed.places.iter().take(end).rev().map(Place::told);
            let within = before.take_while(|(held, _)| *held > after);
            within.take(limit).collect::<Vec<_>>()
        });
        let mut found: Vec<_> = found.flatten().collect();
        found.sort_unstable_by(|one, other| other.cmp(one));
        found.truncate(limit);
        found
    }
}
