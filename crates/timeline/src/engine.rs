//! The engine: all shared state, of all feeds, as of a position of the outbox.
//!
//! In:    changes by one writer, in groups that are to be seen together.
//! Out:   a [`Witness`] for each page; the position up to which all changes are made.
//! Never: shared state handed to a page without a witness.

use crate::accounts::Accounts;
use crate::feed::Feed;
use crate::journal::Change;
use crate::settings::Settings;
use crate::witness::Witness;
use sdd::Guard;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

/// What pages are made of. What changes is private: pages read it through a witness.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) page_scan_max: usize,
    pub(crate) window_scan_max: usize,
    feeds: Vec<Arc<Feed>>,
    accounts: Accounts,
    /// All changes up to here are made.
    position: AtomicU64,
    /// Odd while changes are made that the position does not count yet.
    moves: AtomicU64,
}

impl Engine {
    pub(crate) fn new(feeds: Vec<Arc<Feed>>, position: u64, settings: &Settings) -> Self {
        Self {
            page_scan_max: settings.page_scan_max,
            window_scan_max: settings.window_scan_max,
            feeds,
            accounts: Accounts::default(),
            position: AtomicU64::new(position),
            moves: AtomicU64::new(0),
        }
    }

    /// A page of a feed begins; `None` if there is no such feed.
    pub(crate) fn witness<'a>(&'a self, feed: usize, guard: &'a Guard) -> Option<Witness<'a>> {
        let feed = self.feeds.get(feed)?;
        Some(Witness::new(feed, &self.accounts, guard))
    }

    pub(crate) fn position(&self) -> u64 {
        self.position.load(Acquire)
    }

    /// The position, if nothing is made that it does not count.
    pub(crate) fn settled(&self) -> Option<u64> {
        let moves = self.moves.load(Acquire);
        let position = self.position.load(Acquire);
        // A page that says so asks again in the end, by its witness.
        (moves.is_multiple_of(2) && self.moves.load(Relaxed) == moves).then_some(position)
    }
}

/// What the one writer does.
impl Engine {
    /// Changes begin that are not counted yet.
    pub(crate) fn moves(&self) {
        let moves = self.moves.load(Relaxed);
        if moves.is_multiple_of(2) {
            self.moves.store(moves + 1, Relaxed);
            fence(Release);
        }
    }

    /// All changes up to `position` are made; who reads may see them from now on.
    ///
    /// The position comes first: nobody sees more than it says.
    pub(crate) fn stands_at(&self, position: u64) {
        self.position.store(position, Release);
        for feed in &self.feeds {
            feed.journal.close();
        }
        let moves = self.moves.load(Relaxed);
        self.moves.store(moves.next_multiple_of(2), Release);
    }

    /// Hides an account from everybody, or shows it again.
    pub(crate) fn set_hidden(&self, account: u32, hidden: bool) {
        for feed in &self.feeds {
            feed.journal.open(Change::All);
        }
        self.accounts.set(account, hidden);
    }
}
