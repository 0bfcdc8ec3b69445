//! The hub: who listens to what, so that a change finds those it concerns.
//!
//! In:    changes in order; listeners that come and go.
//! Out:   each listener's news, into the queue of its seat.
//! Never: a wait for a listener: one whose queue is full is let go, and so is the
//!        slowest where all together hold too much.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::places::{Holder, Places};
use super::reach::Reach;
use super::seat::{End, Load, Seat};
use super::view::{Entries, View};
use crate::metrics as names;
use crate::store::Change;
use crate::store::routes::Routes;

/// One who has caught up and is told of changes as they are drawn.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) view: View,
    /// It knows of everything up to here.
    pub(super) after: i64,
}

#[derive(Debug)]
pub(super) struct Hub {
    /// Everything up to here was told.
    pub(super) position: i64,
    /// All who listen, those too who are still catching up.
    seats: HashMap<u64, Arc<Seat>>,
    places: Places,
    load: Arc<Load>,
    listeners: HashMap<u64, Listener>,
    by_key: HashMap<(usize, i64), BTreeSet<u64>>,
    by_reader: HashMap<i64, BTreeSet<u64>>,
    by_feed: HashMap<usize, BTreeSet<u64>>,
}

impl Hub {
    pub(super) fn at(position: i64, load: Arc<Load>, listeners_max: usize) -> Self {
        Self {
            position,
            load,
            places: Places::new(listeners_max),
            seats: HashMap::new(),
            listeners: HashMap::new(),
            by_key: HashMap::new(),
            by_reader: HashMap::new(),
            by_feed: HashMap::new(),
        }
    }

    /// How many listen.
    pub(super) fn seated(&self) -> usize {
        self.seats.len()
    }

    /// Whether nobody is told of changes as they are drawn.
    pub(super) fn is_idle(&self) -> bool {
        self.listeners.is_empty()
    }

    /// Takes a seat, if there is one.
    pub(super) fn seat(&mut self, id: u64, seat: &Arc<Seat>, holder: Holder) -> bool {
        let taken = match self.load.is_over(0) {
            true => Err("listeners"),
            false => self.places.take(id, holder),
        };
        if let Err(by) = taken {
            metrics::counter!(names::LIMITED, "by" => by).increment(1);
            return false;
        }
        self.seats.insert(id, Arc::clone(seat));
        self.count();
        true
    }

    /// Whether it was not let go meanwhile.
    pub(super) fn is_seated(&self, id: u64) -> bool {
        self.seats.contains_key(&id)
    }

    pub(super) fn join(&mut self, id: u64, listener: Listener) {
        let view = &listener.view;
        for key in view.keys() {
            self.by_key.entry((view.feed, key)).or_default().insert(id);
        }
        self.by_reader.entry(view.reader).or_default().insert(id);
        self.by_feed.entry(view.feed).or_default().insert(id);
        self.listeners.insert(id, listener);
    }

    pub(super) fn leave(&mut self, id: u64, end: End) {
        if let Some(seat) = self.seats.remove(&id) {
            seat.end(end);
        }
        self.places.give_back(id);
        self.count();
        let Some(listener) = self.listeners.remove(&id) else {
            return;
        };
        let view = &listener.view;
        for key in view.keys() {
            forget(&mut self.by_key, (view.feed, key), id);
        }
        forget(&mut self.by_reader, view.reader, id);
        forget(&mut self.by_feed, view.feed, id);
    }

    /// Lets everybody go; `slow`: because they, or we, fell too far behind.
    pub(super) fn leave_all(&mut self, slow: bool) {
        let (ids, end): (Vec<u64>, End) = match slow {
            true => (self.listeners.keys().copied().collect(), End::Slow),
            false => (self.seats.keys().copied().collect(), End::Over),
        };
        ids.into_iter().for_each(|id| self.leave(id, end));
    }

    /// Lets the slowest go while all together hold more than they may, with so many bytes to come.
    pub(super) fn shrink(&mut self, more: usize) {
        while self.load.is_over(more) {
            let seats = self.seats.iter();
            let slowest = seats.max_by_key(|(_, seat)| seat.unread_bytes());
            let Some((id, seat)) = slowest.filter(|(_, seat)| seat.unread_bytes() > 0) else {
                return; // the rest is what readers follow
            };
            let id = *id;
            seat.evict();
            metrics::counter!(names::LISTENERS_SLOW).increment(1);
            self.leave(id, End::Slow);
        }
    }

    fn count(&self) {
        metrics::gauge!(names::LISTENERS).set(self.seats.len() as f64);
    }

    /// Whom a change may concern.
    fn concerned(&self, routes: &Routes, change: &Change, reach: &Reach) -> BTreeSet<u64> {
        let mut places: Vec<(usize, i64)> = Vec::new();
        let mut readers: Option<i64> = None;
        let mut under = |lane: i64, keys: &[i64]| {
            for (feed, _) in routes.targets(lane) {
                places.extend(keys.iter().map(|key| (feed, *key)));
            }
        };
        match change {
            Change::Put { lanes, .. } | Change::Delete { lanes, .. } => {
                lanes
                    .iter()
                    .for_each(|place| under(place.lane, &place.keys));
            }
            Change::Regroup { lane, was, now, .. } => {
                was.iter()
                    .chain(now)
                    .for_each(|group| under(*lane, &group.keys));
            }
            Change::Follow { reader, .. } | Change::Unfollow { reader, .. } => {
                readers = Some(*reader);
            }
            Change::Account { key, .. } => {
                readers = Some(*key);
                places.extend(&reach.places);
            }
        }
        let by_key = places.iter().filter_map(|place| self.by_key.get(place));
        let by_feed = reach.feeds.iter().filter_map(|feed| self.by_feed.get(feed));
        let by_reader = readers.and_then(|reader| self.by_reader.get(&reader));
        let all = by_key.chain(by_feed).chain(by_reader);
        all.flatten().copied().collect()
    }

    /// Tells one change to all whom it concerns.
    pub(super) fn tell(&mut self, routes: &Routes, position: i64, change: &Change, reach: &Reach) {
        let mut entries = Entries::shared(position);
        let mut slow = Vec::new();
        for id in self.concerned(routes, change, reach) {
            let Some(listener) = self.listeners.get_mut(&id) else {
                continue;
            };
            if position <= listener.after {
                continue;
            }
            let view = &mut listener.view;
            let told = view.take(routes, position, change, reach, &mut entries);
            if let Change::Follow { key, .. } | Change::Unfollow { key, .. } = change {
                let place = (view.feed, *key);
                match view.listens_to(*key) {
                    true => drop(self.by_key.entry(place).or_default().insert(id)),
                    false => forget(&mut self.by_key, place, id),
                }
            }
            let Some(seat) = self.seats.get(&id) else {
                continue;
            };
            seat.follows(view.len());
            if !told.into_iter().all(|told| seat.push(told)) {
                slow.push(id);
            }
        }
        for id in slow {
            metrics::counter!(names::LISTENERS_SLOW).increment(1);
            self.leave(id, End::Slow);
        }
        self.shrink(0);
        self.position = position;
    }
}

fn forget<K: Eq + std::hash::Hash>(index: &mut HashMap<K, BTreeSet<u64>>, place: K, id: u64) {
    if let Some(ids) = index.get_mut(&place) {
        ids.remove(&id);
        if ids.is_empty() {
            index.remove(&place);
        }
    }
}
