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

use crate::ahead::fetch;
use crate::engine::Engine;
use crate::page::{Entry, Page, Read, Request};
use crate::reading::{self, Cold, Reading};
use crate::settings::KeyId;
use crate::witness::Witness;
use sdd::{AtomicOwned, Guard};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

/// How often a page is made before it is left to the store.
const TRIES_MAX: usize = 4;

/// The instant a page is made at.
#[derive(Debug)]
pub struct Moment<'a> {
    witness: &'a Witness<'a>,
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
        self.witness.accounts().is_hidden(account)
    }

    /// Appends the URIs of the page's entries, and where each ends.
    pub fn push_uris(&self, entries: &[Entry], text: &mut Vec<u8>, ends: &mut Vec<usize>) {
        let touch = |entry: &Entry| {
            let rows = self.witness.rows(entry.target);
            rows.map_or(0, |rows| rows.touch_uri(entry.number))
        };
        fetch(entries.iter().map(touch));
        for entry in entries {
            if let Some(rows) = self.witness.rows(entry.target) {
                rows.push_uri(entry.number, text);
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
            let Some(mut witness) = engine.witness(request.feed, &guard) else {
                return Read::Below;
            };
            let position = engine.settled();
            let reading = Reading {
                position: engine.position(),
                page_scan_max: engine.page_scan_max,
                window_scan_max: engine.window_scan_max,
            };
            let read = match cold {
                None => reading::read(request, &reading, &mut witness),
                Some(cold) => reading::read_cold(request, cold, &reading, &mut witness),
            };
            let moment = Moment {
                witness: &witness,
                position,
            };
            let taken = match read {
                Read::Page(page) => take(&moment, page),
                Read::Cold => return Read::Cold,
                Read::Below => return Read::Below,
                Read::Sparse => return Read::Sparse,
                Read::Busy => continue,
            };
            if witness.holds() {
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

    /// Above this time the pages of an active reader come from memory; `None` if it is not active,
    /// or changes again and again.
    pub fn complete_after_us(&self, feed: usize, target: usize, reader: KeyId) -> Option<i64> {
        for _ in 0..TRIES_MAX {
            let guard = Guard::new();
            let engine = self.stand.load(Acquire, &guard).as_ref()?;
            let mut witness = engine.witness(feed, &guard)?;
            let after_us = reading::complete_after_us(target, reader, &mut witness);
            if witness.holds() {
                return after_us;
            }
        }
        None
    }
}
