//! Live: changes told to connected readers as they happen.
//!
//! In:    the outbox, drawn once for everybody; readers who listen.
//! Out:   for each reader its own news, in order, each with the position after it.
//! Never: a reader that delays another or the drawing; news lost without a
//!        word: who is too slow is let go with a reason and comes back with
//!        its last position.
//!
//! A hub knows which listeners follow which key, so a change costs what its
//! deliveries cost. Nothing here is durable: a reader who comes back is told
//! what the outbox still holds.

// What one reader is told.
mod view;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tracing::error;

use crate::metrics as names;
use crate::store::routes::Routes;
use crate::store::{Change, Plan, SharedStore, StoreError};
use view::{Entries, View};

pub use view::{Entry, News};

/// Changes drawn at once.
const DRAW_MAX: usize = 1000;
/// How long to wait for changes before looking again.
const PATIENCE: Duration = Duration::from_millis(50);
/// How often follows are loaded again because the hub went on meanwhile.
const LOADS_MAX: usize = 100;

/// One piece of news and the position after it.
#[derive(Debug, Clone)]
pub struct Told {
    pub position: i64,
    pub news: News,
}

/// Why a reader cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("too many readers listen")]
    Full,
    #[error("store")]
    Store(#[from] StoreError),
    #[error("there is no such feed")]
    UnknownFeed,
    #[error("the position lies ahead of everything that happened here")]
    Future,
}

/// A reader's own news; dropping it ends the listening.
#[derive(Debug)]
pub struct Listening {
    /// What happened since the position that the reader came back with.
    pub missed: Vec<Told>,
    /// The position was too old: what happened in between is not known any more.
    pub outdated: bool,
    /// Where it stands after what it missed.
    pub position: i64,
    news: mpsc::Receiver<Told>,
    slow: Arc<AtomicBool>,
    id: u64,
    live: Arc<Live>,
}

impl Listening {
    /// The next piece; `None` when it is over.
    pub async fn next(&mut self) -> Option<Told> {
        self.news.recv().await
    }

    /// Whether it ended because the reader took too long.
    pub fn was_slow(&self) -> bool {
        self.slow.load(Ordering::Relaxed)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.live.hub.lock().leave(self.id);
    }
}

#[derive(Debug)]
struct Listener {
    view: View,
    news: mpsc::Sender<Told>,
    slow: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Hub {
    position: i64,
    listeners: HashMap<u64, Listener>,
    by_key: HashMap<(usize, i64), BTreeSet<u64>>,
    by_reader: HashMap<(usize, i64), BTreeSet<u64>>,
}

impl Hub {
    fn join(&mut self, id: u64, listener: Listener) {
        let view = &listener.view;
        for key in view.keys() {
            self.by_key.entry((view.feed, key)).or_default().insert(id);
        }
        self.by_reader
            .entry((view.feed, view.reader))
            .or_default()
            .insert(id);
        self.listeners.insert(id, listener);
        metrics::gauge!(names::LISTENERS).set(self.listeners.len() as f64);
    }

    fn leave(&mut self, id: u64) {
        let Some(listener) = self.listeners.remove(&id) else {
            return;
        };
        let view = &listener.view;
        let keys = view.keys().map(|key| (view.feed, key));
        let index = &mut self.by_key;
        keys.for_each(|place| forget(index, place, id));
        forget(&mut self.by_reader, (view.feed, view.reader), id);
        metrics::gauge!(names::LISTENERS).set(self.listeners.len() as f64);
    }

    /// Whom a change may concern.
    fn concerned(&self, routes: &Routes, change: &Change) -> BTreeSet<u64> {
        let mut places: Vec<(usize, i64)> = Vec::new();
        let mut readers: Vec<(usize, i64)> = Vec::new();
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
            Change::Follow { source, reader, .. } | Change::Unfollow { source, reader, .. } => {
                let feeds = routes.follows(*source).chain(routes.hides(*source));
                readers.extend(feeds.map(|feed| (feed, *reader)));
            }
            Change::Account { key, .. } => {
                places.extend((0..routes.feeds()).map(|feed| (feed, *key)))
            }
        }
        let by_key = places.iter().filter_map(|place| self.by_key.get(place));
        let by_reader = readers.iter().filter_map(|place| self.by_reader.get(place));
        by_key.chain(by_reader).flatten().copied().collect()
    }

    fn tell(&mut self, routes: &Routes, position: i64, change: &Change) {
        let mut entries = Entries::default();
        let mut slow = Vec::new();
        for id in self.concerned(routes, change) {
            let Some(listener) = self.listeners.get_mut(&id) else {
                continue;
            };
            let news = listener.view.take(routes, position, change, &mut entries);
            if let Change::Follow { key, .. } | Change::Unfollow { key, .. } = change {
                let place = (listener.view.feed, *key);
                match listener.view.listens_to(*key) {
                    true => drop(self.by_key.entry(place).or_default().insert(id)),
                    false => forget(&mut self.by_key, place, id),
                }
            }
            for news in news {
                if listener.news.try_send(Told { position, news }).is_err() {
                    listener.slow.store(true, Ordering::Relaxed);
                    slow.push(id);
                    break;
                }
            }
        }
        for id in slow {
            metrics::counter!(names::LISTENERS_SLOW).increment(1);
            self.leave(id);
        }
        self.position = position;
    }
}

fn forget(index: &mut HashMap<(usize, i64), BTreeSet<u64>>, place: (usize, i64), id: u64) {
    if let Some(ids) = index.get_mut(&place) {
        ids.remove(&id);
        if ids.is_empty() {
            index.remove(&place);
        }
    }
}

/// Tells changes to those who listen.
#[derive(Debug)]
pub struct Live {
    hub: Mutex<Hub>,
    routes: Routes,
    plan: Arc<Plan>,
    store: SharedStore,
    next_id: AtomicU64,
    listeners_max: usize,
    events_max: usize,
    stop: watch::Sender<bool>,
}

impl Live {
    /// Begins at the newest position of the outbox.
    pub fn open(
        store: &SharedStore,
        listeners_max: usize,
        events_max: usize,
    ) -> Result<Arc<Self>, StoreError> {
        let plan = Arc::clone(store.plan());
        let routes = Routes::new(&plan, &**store);
        let position = store.head()?;
        Ok(Arc::new(Self {
            hub: Mutex::new(Hub {
                position,
                ..Hub::default()
            }),
            routes,
            plan,
            store: Arc::clone(store),
            next_id: AtomicU64::new(0),
            listeners_max,
            events_max,
            stop: watch::Sender::new(false),
        }))
    }

    /// How many listen.
    pub fn listeners(&self) -> usize {
        self.hub.lock().listeners.len()
    }

    /// Lets everybody go; nobody may listen after it.
    pub fn stop(&self) {
        self.stop.send_replace(true);
        let mut hub = self.hub.lock();
        let ids: Vec<u64> = hub.listeners.keys().copied().collect();
        ids.into_iter().for_each(|id| hub.leave(id));
    }

    /// The thread: draws until told to stop.
    pub fn run(&self) {
        while !*self.stop.borrow() {
            let position = self.hub.lock().position;
            self.store.wait(position, PATIENCE);
            if let Err(cause) = self.step() {
                error!(%cause, "live news cannot be drawn; trying again");
                std::thread::sleep(Duration::from_secs(1));
            }
        }
    }

    /// Draws once.
    fn step(&self) -> Result<(), StoreError> {
        let (position, idle) = {
            let hub = self.hub.lock();
            (hub.position, hub.listeners.is_empty())
        };
        if idle {
            let head = self.store.head()?;
            let mut hub = self.hub.lock();
            // Whoever came meanwhile stands at a position that must not be passed over.
            if hub.listeners.is_empty() {
                hub.position = hub.position.max(head);
                return Ok(());
            }
        }
        let drawn = self.store.draw(position, DRAW_MAX)?;
        let mut hub = self.hub.lock();
        if drawn.gone {
            // Too far behind: they come back and are told that they missed something.
            let ids: Vec<u64> = hub.listeners.keys().copied().collect();
            for id in ids {
                if let Some(listener) = hub.listeners.get(&id) {
                    listener.slow.store(true, Ordering::Relaxed);
                }
                hub.leave(id);
            }
            hub.position = self.store.head()?;
            return Ok(());
        }
        let first = drawn.position + 1 - drawn.changes.len() as i64;
        for (position, change) in (first..).zip(&drawn.changes) {
            hub.tell(&self.routes, position, change);
        }
        Ok(())
    }

    /// Begins to listen, from a position if the reader was here before.
    pub fn listen(
        self: &Arc<Self>,
        feed: &str,
        reader: i64,
        from: Option<i64>,
    ) -> Result<Listening, ListenError> {
        let (number, plan) = self
            .plan
            .feeds
            .iter()
            .enumerate()
            .find(|(_, plan)| plan.name == feed)
            .ok_or(ListenError::UnknownFeed)?;
        if from.is_some_and(|from| from > self.store.head().unwrap_or(i64::MAX)) {
            return Err(ListenError::Future);
        }
        let (sender, news) = mpsc::channel(self.events_max);
        let slow = Arc::new(AtomicBool::new(false));
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut joined = None;
        for _ in 0..LOADS_MAX {
            let loaded = self.store.follows(reader, &plan.follows, &plan.hides)?;
            let mut hub = self.hub.lock();
            if hub.listeners.len() >= self.listeners_max || *self.stop.borrow() {
                return Err(ListenError::Full);
            }
            // Follows that the hub has gone past would miss a change in between.
            if loaded.as_of >= hub.position {
                let view = View::new(number, reader, plan.include_self, &loaded);
                let listener = Listener {
                    view,
                    news: sender.clone(),
                    slow: Arc::clone(&slow),
                };
                hub.join(id, listener);
                joined = Some((hub.position, loaded));
                break;
            }
        }
        let (position, loaded) = joined.ok_or_else(|| {
            StoreError::Passing("changes come faster than follows can be read".to_owned())
        })?;
        let mut listening = Listening {
            missed: Vec::new(),
            outdated: false,
            position,
            news,
            slow,
            id,
            live: Arc::clone(self),
        };
        if let Some(from) = from {
            let mut view = View::new(number, reader, plan.include_self, &loaded);
            self.catch_up(&mut view, from, &mut listening)?;
        }
        Ok(listening)
    }

    /// What happened between `from` and the position at which the reader joined.
    fn catch_up(
        &self,
        view: &mut View,
        from: i64,
        listening: &mut Listening,
    ) -> Result<(), ListenError> {
        let mut at = from;
        while at < listening.position {
            let drawn = self.store.draw(at, DRAW_MAX)?;
            if drawn.gone || listening.missed.len() >= self.events_max {
                listening.outdated = true;
                listening.missed.clear();
                return Ok(());
            }
            let first = drawn.position + 1 - drawn.changes.len() as i64;
            for (position, change) in (first..).zip(&drawn.changes) {
                if position > listening.position {
                    break;
                }
                let own = matches!(change, Change::Follow { reader, .. } | Change::Unfollow { reader, .. } if *reader == view.reader);
                let news = match own {
                    // Its follows are those of now; that they changed is told all the same.
                    true => vec![News::Changed],
                    false => view.take(&self.routes, position, change, &mut Entries::default()),
                };
                listening
                    .missed
                    .extend(news.into_iter().map(|news| Told { position, news }));
            }
            if drawn.position <= at {
                break;
            }
            at = drawn.position;
        }
        Ok(())
    }
}
