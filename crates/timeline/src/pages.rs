//! Pages: the engine as its readers see it.
//!
//! In:    requests, from any thread, at any time, also while the writer writes.
//! Out:   pages that are exact at one instant of the reading.
//! Never: a wait for the writer, or a writer that waits.
//!
//! A page is made of what lies in memory, though that may change under it, and
//! is believed only if in the end nothing it leans on moved. If something did
//! it is made again, a few times, and then left to the store. Memory that the
//! writer replaced stays until nobody can be looking at it.

use crate::accounts::Accounts;
use crate::ahead::fetch;
use crate::feed::Feed;
use crate::page::{Entry, Page, Read, Request};
use crate::reading::{Cold, Reading};
use crate::settings::KeyId;
use sdd::{AtomicOwned, Guard};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

/// How often a page is made before it is left to the store.
const TRIES_MAX: usize = 4;

/// What pages are made of.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) feeds: Vec<Arc<Feed>>,
    pub(crate) accounts: Accounts,
    pub(crate) page_scan_max: usize,
    pub(crate) window_scan_max: usize,
    /// All changes up to here are made.
    position: AtomicU64,
    /// Odd while changes are made that the position does not count yet.
    moves: AtomicU64,
}

impl Engine {
    pub(crate) fn new(
        feeds: Vec<Arc<Feed>>,
        position: u64,
        page_scan_max: usize,
        window_scan_max: usize,
    ) -> Self {
        Self {
            feeds,
            accounts: Accounts::default(),
            page_scan_max,
            window_scan_max,
            position: AtomicU64::new(position),
            moves: AtomicU64::new(0),
        }
    }

    pub(crate) fn position(&self) -> u64 {
        self.position.load(Acquire)
    }

    /// Changes begin that are not counted yet. For the one writer.
    pub(crate) fn moves(&self) {
        let moves = self.moves.load(Relaxed);
        if moves.is_multiple_of(2) {
            self.moves.store(moves + 1, Relaxed);
            fence(Release);
        }
    }

    /// All changes up to `position` are made; who reads may see them from now on. For the one
    /// writer.
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

    /// The position, if nothing is made that it does not count.
    fn settled(&self) -> Option<u64> {
        let moves = self.moves.load(Acquire);
        let position = self.position.load(Acquire);
        (moves.is_multiple_of(2) && self.moves.load(Relaxed) == moves).then_some(position)
    }
}

/// The instant a page is made at.
#[derive(Debug)]
pub struct Moment<'a> {
    engine: &'a Engine,
    feed: &'a Feed,
    position: Option<u64>,
}

impl Moment<'_> {
    /// The position of the outbox at which the page is so; `None` if it cannot be told, because
    /// changes are just being made.
    pub fn position(&self) -> Option<u64> {
        self.position
    }

    /// Whether an account is hidden from everybody.
    pub fn is_hidden(&self, KeyId(account): KeyId) -> bool {
        self.engine.accounts.is_hidden(account)
    }

    /// Appends the URIs of the page's entries, and where each ends.
    pub fn push_uris(&self, entries: &[Entry], text: &mut Vec<u8>, ends: &mut Vec<usize>) {
        let lanes = &self.feed.lanes;
        let touch = |entry: &Entry| {
            let lane = lanes.get(entry.target);
            lane.map_or(0, |lane| lane.records.touch_uri(entry.number))
        };
        fetch(entries.iter().map(touch));
        for entry in entries {
            if let Some(lane) = lanes.get(entry.target) {
                lane.records.push_uri(entry.number, text);
            }
            ends.push(text.len());
        }
    }
}

/// Where the engine stands that answers; another one may take its place.
pub(crate) type Stand = AtomicOwned<Arc<Engine>>;

/// The engine as its readers see it. Copies see the same.
#[derive(Debug, Clone)]
pub struct Pages {
    pub(crate) stand: Arc<Stand>,
}

impl Pages {
    /// What `take` makes of the page of an active reader.
    ///
    /// It may be called more than once, with pages that are not believed in the end.
    pub fn read<T>(
        &self,
        request: &Request<'_>,
        take: impl FnMut(&Moment<'_>, Page) -> T,
    ) -> Read<T> {
        self.attempt(request, None, take)
    }

    /// The same for a reader whose follows the caller loaded.
    ///
    /// [`Read::Cold`] says that they do not hold at the engine's position: it
    /// has not drawn as far, or the reader changed them since.
    pub fn read_cold<T>(
        &self,
        request: &Request<'_>,
        cold: &Cold<'_>,
        take: impl FnMut(&Moment<'_>, Page) -> T,
    ) -> Read<T> {
        self.attempt(request, Some(cold), take)
    }

    fn attempt<T>(
        &self,
        request: &Request<'_>,
        cold: Option<&Cold<'_>>,
        mut take: impl FnMut(&Moment<'_>, Page) -> T,
    ) -> Read<T> {
        for _ in 0..TRIES_MAX {
            let guard = Guard::new();
            let Some(engine) = self.stand.load(Acquire, &guard).as_ref() else {
                return Read::Below;
            };
            let Some(feed) = engine.feeds.get(request.feed) else {
                return Read::Below;
            };
            // First of all: what is entered from now on is asked about in the end.
            let since = feed.journal.stands();
            let moment = Moment {
                engine,
                feed,
                position: engine.settled(),
            };
            let reading = Reading {
                accounts: &engine.accounts,
                position: engine.position(),
                page_scan_max: engine.page_scan_max,
                window_scan_max: engine.window_scan_max,
                guard: &guard,
            };
            let mut attempt = match cold {
                None => feed.read(request, &reading),
                Some(cold) => feed.read_cold(request, cold, &reading),
            };
            let taken = match std::mem::replace(&mut attempt.read, Read::Busy) {
                Read::Page(page) => take(&moment, page),
                Read::Cold => return Read::Cold,
                Read::Below => return Read::Below,
                Read::Sparse => return Read::Sparse,
                Read::Busy => continue,
            };
            let quiet = feed
                .journal
                .is_quiet(since, |change| attempt.is_concerned(change));
            if quiet && attempt.leans.are_still(&guard) {
                return Read::Page(taken);
            }
        }
        Read::Busy
    }

    /// The position drawn so far.
    pub fn position(&self) -> u64 {
        let guard = Guard::new();
        let engine = self.stand.load(Acquire, &guard).as_ref();
        engine.map_or(0, |engine| engine.position())
    }

    /// The position, if no changes are being made that it does not count.
    pub fn settled(&self) -> Option<u64> {
        let guard = Guard::new();
        self.stand.load(Acquire, &guard).as_ref()?.settled()
    }

    /// Above this time the pages of an active reader come from memory; `None` if it is not active.
    pub fn complete_after_us(&self, feed: usize, target: usize, reader: KeyId) -> Option<i64> {
        let guard = Guard::new();
        let engine = self.stand.load(Acquire, &guard).as_ref()?;
        let KeyId(reader) = reader;
        engine.feeds.get(feed)?.complete_after_us(target, reader)
    }
}
