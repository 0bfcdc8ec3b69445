//! A reader's way: from where it was, through what it missed, to the others.
//!
//! In:    the position that a reader came back with; the outbox.
//! Out:   its news one by one, first those it missed, then those that happen.
//! Never: more news waiting than `PAST_BYTES_MAX` of what was missed, however
//!        much that is; a piece lost because a wait for it was broken off.
//!
//! What was missed is read as it is taken, a stretch of the outbox at a time,
//! and until the end of it is reached the hub does not know the reader. So a
//! gap of any length costs no memory, and ends only where the outbox does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::error;

use super::hub::Listener;
use super::seat::{End, Seat, weight};
use super::view::Entries;
use super::{DRAW_MAX, Ear, Live, News, Reach, Told, View};
use crate::store::{Change, StoreError};

/// Bytes of news that were missed and wait to be taken.
const PAST_BYTES_MAX: usize = 64 << 10;
/// How often and how long a message waits for others to be sent before the slowest is let go.
const LOOKS: usize = 20;
/// How often others are let go for one message.
const ROUNDS: usize = 3;
const LOOK: Duration = Duration::from_millis(50);

/// A reader's own news; dropping it ends the listening.
#[derive(Debug)]
pub struct Listening {
    /// Shared with the thread that reads it, so that a wait for that may be broken off.
    past: Arc<Mutex<Past>>,
    /// Whether it has caught up, and what happens comes to its seat.
    joined: bool,
    seat: Arc<Seat>,
    id: u64,
    live: Arc<Live>,
}

/// What comes next.
#[derive(Debug)]
pub enum Next {
    Told(Told),
    /// What was missed must be read first, on a thread that may block; then ask again.
    Missed(Missed),
    Over,
}

/// What a reader missed, to be read.
#[derive(Debug)]
pub struct Missed(Arc<Mutex<Past>>);

impl Missed {
    /// Reads until there is something to tell, or until the reader has caught up.
    pub fn read(self) {
        self.0.lock().read();
    }
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
    /// Whether it has caught up.
    joined: bool,
    over: bool,
    seat: Arc<Seat>,
}

impl Listening {
    pub(super) fn new(live: Arc<Live>, id: u64, feed: usize, ear: Ear, seat: Arc<Seat>) -> Self {
        let past = Past {
            live: Arc::clone(&live),
            id,
            feed,
            ear,
            view: None,
            at: 0,
            told: VecDeque::new(),
            joined: false,
            over: false,
            seat: Arc::clone(&seat),
        };
        Self {
            past: Arc::new(Mutex::new(past)),
            joined: false,
            seat,
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

    /// What comes next. A wait that is broken off loses nothing.
    pub async fn next(&mut self) -> Next {
        if !self.joined
            && let Some(mut past) = self.past.try_lock()
        {
            if let Some(told) = past.told.pop_front() {
                return Next::Told(told);
            }
            if past.over {
                return Next::Over;
            }
            self.joined = past.joined;
        }
        if !self.joined {
            // While somebody reads it, he is waited for on a thread that may block.
            return Next::Missed(Missed(Arc::clone(&self.past)));
        }
        match self.seat.next().await {
            Some(told) => Next::Told(told),
            None => Next::Over,
        }
    }

    /// Waits until a message of so many bytes may be sent. Where others have not taken theirs for
    /// a while, the slowest is let go; false if that is this one, or if there is no room all the same.
    pub async fn room_for(&self, bytes: usize) -> bool {
        let bytes = self.live.load.counted(bytes);
        for look in 1..=ROUNDS * LOOKS {
            if look % LOOKS == 0 {
                self.live.hub.lock().shrink(bytes);
            }
            if self.seat.try_sending(bytes) {
                return true;
            }
            tokio::time::sleep(LOOK).await;
        }
        self.seat.evict();
        false
    }

    /// The message was sent, or given up.
    pub fn sent(&self) {
        self.seat.sent();
    }

    /// Whether it ended because the reader took too long.
    pub fn was_slow(&self) -> bool {
        self.seat.was_slow()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.live.hub.lock().leave(self.id, End::Over);
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
        self.seat.follows(view.len());
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
        while self.told.is_empty() && !self.joined && !self.over {
            let advanced = self.advance();
            if let Err(StoreError::Ended) = advanced {
                return; // a wait was broken off; it is asked again
            }
            if let Err(cause) = advanced {
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
        let mut bytes = 0;
        for (position, change) in &drawn.changes {
            // What does not fit is drawn again when this much was taken.
            if bytes >= PAST_BYTES_MAX {
                return Ok(());
            }
            let reach = match change {
                Change::Account { key, .. } => live.reach(*key)?,
                _ => Reach::default(),
            };
            let entries = &mut Entries::default();
            if let Some(view) = &mut self.view {
                let told = view.take(&live.routes, *position, change, &reach, entries);
                bytes += told.iter().map(weight).sum::<usize>();
                self.told.extend(told);
            }
            self.at = *position;
        }
        self.at = drawn.position;
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
        let listener = Listener {
            view,
            after: self.at,
        };
        hub.join(self.id, listener);
        self.joined = true;
        true
    }
}
