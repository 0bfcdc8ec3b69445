//! Live: changes told to connected readers as they happen.
//!
//! In:    the outbox, drawn once for everybody; readers who listen.
//! Out:   for each reader its own news, in order, each with where to come back to.
//! Never: a reader that delays another or the drawing; news lost without a
//!        word: who is too slow is let go with a reason and comes back with
//!        its last position; news of what the pages here do not show yet.
//!
//! A hub knows which listeners follow which key, so a change costs what its
//! deliveries cost. Whoever comes back from further behind reads the outbox by
//! itself, as fast as it takes its news, and joins the others when it has
//! caught up. Nothing here is durable: what the outbox no longer holds is not known.

// Whom a change concerns.
mod hub;
// How many may listen, and from where.
mod places;
// A reader's way from where it was to the others.
mod listening;
// What one listening reader keeps in memory.
mod seat;
// Whom an account's coming or going concerns.
mod reach;
// Texts of entries, made once for many.
mod text;
// What one reader is told.
mod view;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tracing::error;

use crate::config;
use crate::fanout::Fanout;
use crate::status::health::Health;
use crate::store::routes::Routes;
use crate::store::{Change, Plan, SharedStore, StoreError};
use hub::Hub;
use places::Holder;
use reach::Reach;
use seat::{Load, Seat};
use text::Texts;
use view::View;

pub use listening::{Listening, Missed, Next};
pub use text::Text;
pub use view::{Entry, News, Told};

/// Changes drawn at once.
const DRAW_MAX: usize = 1000;
/// The longest sleep without changes.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause after a failure.
const FAILED_PAUSE: Duration = Duration::from_secs(1);
/// How long news wait for the pages that show them; then they are told all the same.
const PAGES_MAX: Duration = Duration::from_secs(1);

/// The part of what listeners may take that texts made for several of them have.
const TEXTS_PART: usize = 8;

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

/// The number of a reader of whom nothing is here: rows are counted from one.
pub const NOBODY: i64 = 0;

/// Who listens to which feed.
#[derive(Debug, Clone)]
pub struct Ear {
    pub feed: String,
    /// The reader's DID, and its number, or [`NOBODY`].
    pub did: String,
    pub reader: i64,
    /// From where; `None` for this machine.
    pub address: Option<IpAddr>,
}

/// Tells changes to those who listen.
#[derive(Debug)]
pub struct Live {
    hub: Mutex<Hub>,
    routes: Routes,
    plan: Arc<Plan>,
    store: SharedStore,
    /// Pages from memory, where there are any: they are a little behind the store.
    fanout: Option<Arc<Fanout>>,
    next_id: AtomicU64,
    events_max: usize,
    bytes_max: usize,
    load: Arc<Load>,
    texts: Texts,
    stop: watch::Sender<bool>,
}

impl Live {
    /// Begins at the newest position of the outbox.
    pub fn open(
        store: &SharedStore,
        fanout: Option<Arc<Fanout>>,
        settings: &config::Serve,
    ) -> Result<Arc<Self>, StoreError> {
        let plan = Arc::clone(store.plan());
        let load = Load::new(settings.listeners_bytes_max);
        Ok(Arc::new(Self {
            hub: Mutex::new(Hub::at(
                store.head()?,
                Arc::clone(&load),
                settings.listeners_max,
            )),
            load,
            texts: Texts::new(settings.listeners_bytes_max / TEXTS_PART),
            routes: Routes::new(&plan, &**store),
            plan,
            store: Arc::clone(store),
            fanout,
            next_id: AtomicU64::new(0),
            events_max: settings.listener_events_max,
            bytes_max: settings.listener_bytes_max,
            stop: watch::Sender::new(false),
        }))
    }

    /// The text of an entry that somebody made lately.
    pub fn text(&self, entry: &Entry) -> Option<Text> {
        self.texts.get(entry)
    }

    /// Remembers the text of an entry for others who are told of it.
    pub fn remember(&self, entry: &Entry, text: Text) {
        self.texts.put(entry, text);
    }

    /// How many listen.
    pub fn listeners(&self) -> usize {
        self.hub.lock().seated()
    }

    /// Lets everybody go; nobody may listen after it.
    pub fn stop(&self) {
        self.stop.send_replace(true);
        self.store.wake();
        self.hub.lock().leave_all(false);
    }

    /// The thread: draws until told to stop.
    pub fn run(&self, mut health: Health) {
        let stopped = || *self.stop.borrow();
        while !stopped() {
            let position = self.hub.lock().position;
            self.store.wait(position, PATIENCE, &stopped);
            match self.step() {
                Ok(()) => health.works(),
                Err(cause) => {
                    error!(%cause, "live news cannot be drawn; trying again");
                    health.fails(&cause);
                    self.store.wait(i64::MAX, FAILED_PAUSE, &stopped);
                }
            }
        }
    }

    /// Draws once.
    fn step(&self) -> Result<(), StoreError> {
        let (position, idle) = {
            let hub = self.hub.lock();
            (hub.position, hub.is_idle())
        };
        if idle {
            let head = self.store.head()?;
            let mut hub = self.hub.lock();
            // Whoever came meanwhile stands at a position that must not be passed over.
            if hub.is_idle() {
                hub.position = hub.position.max(head);
                return Ok(());
            }
        }
        let drawn = self.store.draw(position, DRAW_MAX)?;
        if drawn.gone {
            // Too far behind: they come back and are told that they missed something.
            let head = self.store.head()?;
            let mut hub = self.hub.lock();
            hub.leave_all(true);
            hub.position = head;
            return Ok(());
        }
        let mut reaches = HashMap::new();
        for (position, change) in &drawn.changes {
            if let Change::Account { key, .. } = change {
                reaches.insert(*position, self.reach(*key)?);
            }
        }
        self.until_shown(drawn.position);
        let mut hub = self.hub.lock();
        for (position, change) in &drawn.changes {
            let reach = reaches.remove(position).unwrap_or_default();
            hub.tell(&self.routes, *position, change, &reach);
        }
        Ok(())
    }

    /// Waits until pages show what happened up to a position: who is told of a change and reads
    /// the feed again must not read it as it was before.
    fn until_shown(&self, position: i64) {
        let Some(fanout) = &self.fanout else {
            return; // every page comes from the store
        };
        fanout.wait_shown(position, PAGES_MAX);
    }

    /// Begins to listen, from a position if the reader was here before.
    /// Its connection is closed by `closing` if it must be.
    pub fn listen(
        self: &Arc<Self>,
        ear: Ear,
        from: Option<i64>,
        closing: Arc<Notify>,
    ) -> Result<Listening, ListenError> {
        let mut feeds = self.plan.feeds.iter();
        let feed = feeds.position(|plan| plan.name == ear.feed);
        let feed = feed.ok_or(ListenError::UnknownFeed)?;
        let head = self.store.head()?;
        if from.is_some_and(|from| from > head) {
            return Err(ListenError::Future);
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let seat = Seat::new(&self.load, self.events_max, self.bytes_max, closing);
        {
            // Whoever stops us lets go of all who sit by then.
            let mut hub = self.hub.lock();
            let holder = Holder {
                address: ear.address,
                is_unknown: ear.reader == NOBODY,
            };
            if *self.stop.borrow() || !hub.seat(id, &seat, holder) {
                return Err(ListenError::Full);
            }
        }
        // From here on its end gives the seat back.
        let mut listening = Listening::new(Arc::clone(self), id, feed, ear, seat);
        listening.begin(from)?;
        Ok(listening)
    }
}
