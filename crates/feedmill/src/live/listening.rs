//! A reader's way: from where it was, through what it missed, to the others.
//!
//! In:    the position that a reader came back with; the outbox.
//! Out:   its news one by one, first those it missed, then those that happen.
//! Never: more news waiting than `listener_events_max`, however much was
//!        missed; a piece lost because a wait for it was broken off.
//!
//! What was missed is read as it is taken, a stretch of the outbox at a time,
//! and until the end of it is reached the hub does not know the reader. So a
//! gap of any length costs no memory, and ends only where the outbox does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tracing::error;

use super::hub::Listener;
use super::view::Entries;
use super::{DRAW_MAX, Ear, Live, News, Reach, Told, View, numbered};
use crate::store::{Change, StoreError};

/// A reader's own news; dropping it ends the listening.
#[derive(Debug)]
pub struct Listening {
    /// Shared with the thread that reads it, so that a wait for that may be broken off.
    past: Arc<Mutex<Past>>,
    /// What happens from now on, once it has caught up.
    news: Option<mpsc::Receiver<Told>>,
    slow: Arc<AtomicBool>,
    id: u64,
    live: Arc<Live>,
}

/// What a reader has not been told yet.
#[derive(Debug)]
struct Past {
    live: Arc<Live>,
    id: u64,
    feed: usize,
    ear: Ear,
    /// `None` before it is loaded, and when the hub has it.
    view: Option<View>,
    /// Everything up to here is told, or waits in `told`.
    at: i64,
    told: VecDeque<Told>,
    /// Its end of the channel, when it has caught up.
    news: Option<mpsc::Receiver<Told>>,
    over: bool,
    slow: Arc<AtomicBool>,
}

impl Listening {
    pub(super) fn new(live: Arc<Live>, id: u64, feed: usize, ear: Ear) -> Self {
        let slow = Arc::new(AtomicBool::new(false));
        let past = Past {
            live: Arc::clone(&live),
            id,
            feed,
            ear,
            view: None,
            at: 0,
            told: VecDeque::new(),
            news: None,
            over: false,
            slow: Arc::clone(&slow),
        };
        Self {
            past: Arc::new(Mutex::new(past)),
            news: None,
            slow,
            id,
            live,
        }
    }

    /// Stands where the reader was, or at the newest position.
    pub(super) fn begin(&mut self, from: Option<i64>) -> Result<(), StoreError> {
        let mut past = self.past.lock();
        match from {
            Some(from) => {
                past.load()?;
                // A cursor is a client's word: nothing lies before the first change.
                past.at = from.max(0);
            }
            None => past.start(News::Start)?,
        }
        Ok(())
    }

    /// The next piece; `None` when it is over. A wait that is broken off loses nothing.
    pub async fn next(&mut self) -> Option<Told> {
        loop {
            if let Some(news) = &mut self.news {
                return news.recv().await;
            }
            // While somebody reads it, he is waited for on a thread that may block.
            if let Some(mut past) = self.past.try_lock() {
                if let Some(told) = past.told.pop_front() {
                    return Some(told);
                }
                self.news = past.news.take();
                if self.news.is_some() {
                    continue;
                }
                if past.over {
                    return None;
                }
            }
            let past = Arc::clone(&self.past);
            let read = move || past.lock().read();
            tokio::task::spawn_blocking(read).await.ok()?;
        }
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

impl Past {
    /// Loads what the reader follows; returns the position at which that is so.
    fn load(&mut self) -> Result<i64, StoreError> {
        let (store, reader) = (&self.live.store, self.ear.reader);
        let Some(plan) = self.live.plan.feeds.get(self.feed) else {
            return Err(StoreError::Broken("a feed without a plan".to_owned()));
        };
        let loaded = store.follows(reader, &plan.follows, &plan.hides)?;
        // Read after the follows: what changes it from here on is taken in again.
        let account = store.account(&self.ear.did)?;
        let shown = account.is_none_or(|account| account.status.visible());
        let view = View::new(self.feed, reader, plan.include_self, shown, &loaded);
        self.view = Some(view);
        Ok(loaded.as_of)
    }

    /// Begins at the newest position, with a word about it.
    fn start(&mut self, word: News) -> Result<(), StoreError> {
        self.at = self.load()?;
        self.live.until_shown(self.at);
        self.told.push_back(Told {
            position: self.at,
            is_last: true,
            news: word,
        });
        Ok(())
    }

    /// Reads on until there is something to tell, or until it has caught up.
    fn read(&mut self) {
        while self.told.is_empty() && self.news.is_none() && !self.over {
            if let Err(cause) = self.advance() {
                error!(%cause, "what a reader missed cannot be read; it is let go");
                self.over = true;
            }
        }
    }

    fn advance(&mut self) -> Result<(), StoreError> {
        if self.joined() {
            return Ok(());
        }
        let live = Arc::clone(&self.live);
        let drawn = live.store.missed(self.at, DRAW_MAX)?;
        if drawn.gone {
            return self.start(News::Outdated);
        }
        live.until_shown(drawn.position);
        for (position, change) in numbered(&drawn) {
            // What does not fit is drawn again when this much was taken.
            if self.told.len() >= live.events_max {
                return Ok(());
            }
            let reach = match change {
                Change::Account { key, .. } => live.reach(*key)?,
                _ => Reach::default(),
            };
            let entries = &mut Entries::default();
            if let Some(view) = &mut self.view {
                let told = view.take(&live.routes, position, change, &reach, entries);
                self.told.extend(told);
            }
            self.at = position;
        }
        Ok(())
    }

    /// Goes over to the hub, if it has told nothing yet that is not known here; true also if all is over.
    fn joined(&mut self) -> bool {
        let mut hub = self.live.hub.lock();
        if !hub.is_seated(self.id) {
            self.over = true;
            return true;
        }
        if hub.position > self.at {
            return false;
        }
        let Some(view) = self.view.take() else {
            return true;
        };
        let (sender, news) = mpsc::channel(self.live.events_max);
        let listener = Listener {
            view,
            after: self.at,
            news: sender,
            slow: Arc::clone(&self.slow),
        };
        hub.join(self.id, listener);
        self.news = Some(news);
        true
    }
}
