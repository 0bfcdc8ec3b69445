//! Client memory: where a client's messages are counted in bytes.
//!
//! In:    the pools of the process, and whose connection it is.
//! Out:   reservations for what the client sends and for what it is sent.
//! Never: a message that nobody counts because it came over a WebSocket.
//!
//! The process puts a [`ClientMemory`] into the extensions of each request, beside its
//! [`Charge`](crate::charge::Charge). Where there is none, nothing is counted.

use crate::memory_pool::{MemoryPool, Reservation};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// What one client may keep in memory.
#[derive(Debug, Clone)]
pub struct ClientMemory {
    /// `None`: this machine itself.
    pub address: Option<IpAddr>,
    /// What clients send, until it is answered.
    pub uploads: Arc<MemoryPool>,
    /// What clients are sent, until they have taken it.
    pub answers: Arc<MemoryPool>,
    /// Set off to close the connection.
    pub closing: Arc<Notify>,
    /// Where the connection counts what it reads, once it is a WebSocket.
    pub reading: Arc<OnceLock<Reading>>,
}

impl ClientMemory {
    /// A reservation for what the client is about to send.
    #[must_use]
    pub fn upload(&self) -> Reservation {
        self.uploads.open(self.address, None)
    }

    /// From now on the connection counts what it reads, and its buffers; false if there is no room
    /// for them.
    pub(crate) fn begin_reading(&self, buffer_bytes: usize) -> bool {
        let reading = self.reading.get_or_init(|| Reading {
            reservation: self
                .uploads
                .open(self.address, Some(Arc::clone(&self.closing))),
            message_bytes: AtomicUsize::new(0),
            reserved_bytes: AtomicUsize::new(0),
        });
        let fits = reading.add(buffer_bytes);
        self.answered();
        fits
    }

    /// The message that was read is answered.
    pub(crate) fn answered(&self) {
        if let Some(reading) = self.reading.get() {
            reading.message_bytes.store(0, Ordering::Relaxed);
        }
    }

    /// A reservation for a message to the client.
    pub(crate) fn answer(&self, bytes: usize) -> Reservation {
        self.answers
            .take(self.address, bytes, Arc::clone(&self.closing))
    }
}

/// What a WebSocket takes to read messages: as much as the largest one, which it keeps for the
/// next ones.
#[derive(Debug)]
pub struct Reading {
    reservation: Reservation,
    /// Of the message that is arriving, or being answered.
    message_bytes: AtomicUsize,
    reserved_bytes: AtomicUsize,
}

impl Reading {
    /// Counts bytes that arrived; false if there is no room for them, and the connection must end.
    pub fn add(&self, bytes: usize) -> bool {
        // One task reads a connection.
        let message = self.message_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let reserved = self.reserved_bytes.load(Ordering::Relaxed);
        let more = message.saturating_sub(reserved);
        if more > 0 && !self.reservation.try_grow(more) {
            return false;
        }
        self.reserved_bytes.fetch_add(more, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use metrics::{Counter, Gauge};

    fn connections<const N: usize>(uploads_bytes_max: usize) -> [ClientMemory; N] {
        let pool = |bytes| MemoryPool::new(bytes, Gauge::noop(), Counter::noop());
        let (uploads, answers) = (pool(uploads_bytes_max), pool(1000));
        std::array::from_fn(|_| ClientMemory {
            address: None,
            uploads: Arc::clone(&uploads),
            answers: Arc::clone(&answers),
            closing: Arc::default(),
            reading: Arc::default(),
        })
    }

    #[test]
    fn a_socket_counts_its_buffers_and_its_largest_message() {
        let [one, two] = connections(1000);
        assert!(one.begin_reading(100));
        let reading = one.reading.get().unwrap();
        // Messages that fit into what it has take nothing more.
        for _ in 0..10 {
            assert!(reading.add(300) && reading.add(300));
            one.answered();
        }
        let body = two.upload();
        assert!(body.try_grow(400));
        assert!(one.closing.notified().now_or_never().is_none());
        // One that waits is closed where there is no room for what arrives.
        assert!(body.try_grow(100));
        assert!(one.closing.notified().now_or_never().is_some());
        assert!(!reading.add(700), "it must end");
    }
}
