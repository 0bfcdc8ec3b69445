//! A seat: what one listening reader keeps in memory, and what all do.
//!
//! In:    news for the reader, and the message that is being sent to it.
//! Out:   the news in order; the bytes of it all.
//! Never: more news waiting for one reader than `listener_events_max` or
//!        `listener_bytes_max`; more bytes of all than `listeners_bytes_max`
//!        for longer than it takes to let the slowest go.
//!
//! A reader that does not take its news is let go: its queue is dropped at
//! once, and its connection closed if a message is stuck in it. It comes back
//! with its last cursor and misses nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use metrics::{Gauge, gauge};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::view::{News, Told};
use crate::metrics as names;

/// What a connection takes that says nothing: its buffers and its state.
const CONNECTION_BYTES: usize = 4 << 10;

/// Bytes that all seats take together.
#[derive(Debug)]
pub(super) struct Load {
    bytes: AtomicUsize,
    bytes_max: usize,
    gauge: Gauge,
}

impl Load {
    pub(super) fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes: AtomicUsize::new(0),
            bytes_max,
            gauge: gauge!(names::QUEUE_BYTES, "queue" => "listeners"),
        })
    }

    /// What a message counts for: one that is larger than all may be must not wait for ever.
    pub(super) fn counted(&self, bytes: usize) -> usize {
        bytes.min(self.bytes_max / 4)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether there is more than there may be, with so many bytes to come.
    pub(super) fn is_over(&self, more: usize) -> bool {
        self.bytes() + more > self.bytes_max
    }

    /// Takes so many bytes, if that leaves no more than there may be.
    fn try_add(&self, bytes: usize) -> bool {
        let fits = |now: usize| Some(now + bytes).filter(|all| *all <= self.bytes_max);
        let relaxed = Ordering::Relaxed;
        self.bytes.fetch_update(relaxed, relaxed, fits).is_ok()
    }

    fn add(&self, bytes: usize) {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.gauge.set((before + bytes) as f64);
    }

    fn sub(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.gauge.set(before.saturating_sub(bytes) as f64);
    }
}

/// How a seat ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The server stops, or the reader left.
    Over,
    /// The reader, or we, fell too far behind.
    Slow,
}

/// One listening reader's part.
#[derive(Debug)]
pub(super) struct Seat {
    load: Arc<Load>,
    events_max: usize,
    bytes_max: usize,
    state: Mutex<State>,
    ready: Notify,
    /// Set off to close the connection.
    closing: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Told>,
    queued_bytes: usize,
    /// Of the message being sent.
    sending_bytes: usize,
    /// Of what it follows.
    view_bytes: usize,
    end: Option<End>,
    /// Let go for its bytes: none are counted any more, and its connection ends.
    evicted: bool,
}

/// What a piece of news takes while it waits.
pub(super) fn weight(told: &Told) -> usize {
    let uri = match &told.news {
        News::Entry(entry) => entry.uri.len(),
        News::Removal { uri, .. } => uri.len(),
        News::Start | News::Outdated | News::Changed => 0,
    };
    size_of::<Told>() + uri
}

impl Seat {
    pub(super) fn new(
        load: &Arc<Load>,
        events_max: usize,
        bytes_max: usize,
        closing: Arc<Notify>,
    ) -> Arc<Self> {
        load.add(CONNECTION_BYTES);
        Arc::new(Self {
            load: Arc::clone(load),
            events_max,
            bytes_max,
            state: Mutex::default(),
            ready: Notify::new(),
            closing,
        })
    }

    /// Adds a piece of news; false if the reader has fallen too far behind.
    pub(super) fn push(&self, told: Told) -> bool {
        let mut state = self.state.lock();
        let bytes = weight(&told);
        let full = state.queue.len() >= self.events_max
            || state.queued_bytes + state.sending_bytes + bytes > self.bytes_max;
        if full || state.end.is_some() {
            return false;
        }
        state.queue.push_back(told);
        state.queued_bytes += bytes;
        self.load.add(bytes);
        drop(state);
        self.ready.notify_one();
        true
    }

    /// The next piece of news; `None` when it is over. What was queued when the reader fell behind
    /// is still given, so that it comes back from as near as possible.
    pub(super) async fn next(&self) -> Option<Told> {
        loop {
            {
                let mut state = self.state.lock();
                if let Some(told) = state.queue.pop_front() {
                    let bytes = weight(&told);
                    state.queued_bytes -= bytes;
                    self.load.sub(bytes);
                    return Some(told);
                }
                if state.end.is_some() {
                    return None;
                }
            }
            self.ready.notified().await;
        }
    }

    /// Ends it; the first reason counts.
    pub(super) fn end(&self, end: End) {
        self.state.lock().end.get_or_insert(end);
        self.ready.notify_one();
    }

    /// Ends it and drops what waits; the connection is closed if a message is stuck in it. Its bytes
    /// count as freed at once, or all others would be let go before the connection is closed.
    pub(super) fn evict(&self) {
        let mut state = self.state.lock();
        state.end.get_or_insert(End::Slow);
        state.evicted = true;
        self.load.sub(std::mem::take(&mut state.queued_bytes));
        state.queue = VecDeque::new();
        let stuck = std::mem::take(&mut state.sending_bytes);
        self.load.sub(stuck);
        let is_stuck = stuck > 0;
        drop(state);
        self.ready.notify_one();
        if is_stuck {
            self.closing.notify_one();
        }
    }

    pub(super) fn was_slow(&self) -> bool {
        self.state.lock().end == Some(End::Slow)
    }

    /// What it takes that its reader could free by reading.
    pub(super) fn unread_bytes(&self) -> usize {
        let state = self.state.lock();
        state.queued_bytes + state.sending_bytes
    }

    /// Says that the message was sent, or given up.
    pub(super) fn sent(&self) {
        let sent = std::mem::take(&mut self.state.lock().sending_bytes);
        self.load.sub(sent);
    }

    /// Says that a message of so many bytes is being sent, if they fit and it was not let go.
    pub(super) fn try_sending(&self, bytes: usize) -> bool {
        let mut state = self.state.lock();
        let fits = !state.evicted && self.load.try_add(bytes);
        if fits {
            self.load.sub(state.sending_bytes);
            state.sending_bytes = bytes;
        }
        fits
    }

    /// Says how many keys the reader follows.
    pub(super) fn follows(&self, keys: usize) {
        /// A key of a view, and in the index of keys.
        const KEY_BYTES: usize = 100;
        let mut state = self.state.lock();
        self.load.sub(state.view_bytes);
        state.view_bytes = keys * KEY_BYTES;
        self.load.add(state.view_bytes);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let own = state.queued_bytes + state.sending_bytes + state.view_bytes;
        self.load.sub(CONNECTION_BYTES + own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    fn removal(uri_bytes: usize) -> Told {
        Told {
            position: 1,
            is_last: true,
            news: News::Removal {
                feed: 0,
                uri: "x".repeat(uri_bytes),
                time_us: 0,
            },
        }
    }

    #[test]
    fn a_seat_holds_no_more_than_its_bytes_and_gives_all_of_them_back() {
        let load = Load::new(1_000_000);
        let seat = Seat::new(&load, 1_000, 10_000, Arc::default());
        let pushed = (0..1_000).take_while(|_| seat.push(removal(900))).count();
        assert!(
            (8..=11).contains(&pushed),
            "{pushed} of about a thousand bytes"
        );
        let bytes = load.bytes() - CONNECTION_BYTES;
        assert!(bytes <= 10_000, "{bytes}");
        assert!(seat.next().now_or_never().flatten().is_some());
        assert!(seat.push(removal(800)), "there is room again");
        assert!(seat.try_sending(5_000));
        assert!(!seat.push(removal(10)), "what is being sent counts too");
        seat.follows(10);
        drop(seat);
        assert_eq!(load.bytes(), 0);
    }

    #[test]
    fn who_is_let_go_keeps_nothing_and_is_closed_if_a_message_is_stuck() {
        let load = Load::new(2 * CONNECTION_BYTES + 1_000);
        let closing = Arc::new(Notify::new());
        let seat = Seat::new(&load, 1_000, 100_000, Arc::clone(&closing));
        assert!(seat.push(removal(CONNECTION_BYTES + 2_000)) && load.is_over(0));
        seat.evict();
        assert!(seat.was_slow() && !load.is_over(0));
        assert!(
            closing.notified().now_or_never().is_none(),
            "it is told why"
        );
        assert!(seat.next().now_or_never().unwrap().is_none());
        assert!(!seat.try_sending(7), "nothing more is sent to it");
        let stuck = Seat::new(&load, 1_000, 100_000, Arc::clone(&closing));
        assert!(stuck.try_sending(700));
        stuck.evict();
        assert!(closing.notified().now_or_never().is_some());
        assert_eq!(
            load.bytes(),
            2 * CONNECTION_BYTES,
            "the others need not wait for its connection"
        );
    }
}
