//! Patience: how long a client may take to read what was sent.
//!
//! In:    writes to a client's connection, ready or not.
//! Out:   the same; an error once the client has used up its time.
//! Never: a client that reads nothing for longer than `stall_s`, or on average less
//!        than `read_bytes_per_s_min`, while anything waits for it.
//!
//! Time is credit: waiting for a client uses it, and each byte that it takes gives
//! some back. So who takes a little now and then does not begin anew each time.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use metrics::counter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::connections::Place;
use super::line::Reads;
use crate::metrics as names;

/// How long to wait for a client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// The most credit there is, and what a client begins with.
    most: Duration,
    bytes_per_s_min: u64,
    left: Duration,
}

impl Patience {
    pub(super) fn new(most: Duration, bytes_per_s_min: u64) -> Self {
        Self {
            most,
            bytes_per_s_min: bytes_per_s_min.max(1),
            left: most,
        }
    }

    /// The client was waited for.
    fn waited(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }

    /// The client took so many bytes.
    fn took(&mut self, bytes: usize) {
        if self.left < self.most {
            let earned_ms = (bytes as u64).saturating_mul(1000) / self.bytes_per_s_min;
            let left = self.left.saturating_add(Duration::from_millis(earned_ms));
            self.left = left.min(self.most);
        }
    }
}

/// The connection of a client, whose writes fail if the client reads too slowly.
pub(super) struct Client {
    stream: TcpStream,
    patience: Patience,
    /// Since when a write waits, and what ends it.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
    reads: Reads,
    /// Kept as long as the stream is, whoever has it by then.
    _place: Place,
}

impl Client {
    pub(super) fn new(stream: TcpStream, patience: Patience, place: Place) -> Self {
        Self {
            stream,
            patience,
            waiting: None,
            reads: Reads::default(),
            _place: place,
        }
    }

    /// Where what is read is counted, once it is a WebSocket.
    pub(super) fn reads(&self) -> Reads {
        self.reads.clone()
    }

    /// Passes a finished write on, and gives up one that waits too long.
    fn bounded<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            if let Some((since, _)) = self.waiting.take() {
                self.patience.waited(since.elapsed());
            }
            return poll;
        }
        let left = self.patience.left;
        let (_, end) = self
            .waiting
            .get_or_insert_with(|| (Instant::now(), Box::pin(tokio::time::sleep(left))));
        match end.as_mut().poll(context) {
            Poll::Ready(()) => {
                counter!(names::LIMITED, "by" => "stall").increment(1);
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// The same for a write that says how much the client took.
    fn written(
        &mut self,
        context: &mut Context<'_>,
        poll: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let poll = self.bounded(context, poll);
        if let Poll::Ready(Ok(bytes)) = &poll {
            self.patience.took(*bytes);
        }
        poll
    }
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let bytes = buffer.filled().len() - before;
        let reading = self.reads.0.get();
        Poll::Ready(match reading.is_none_or(|reading| reading.add(bytes)) {
            true => Ok(()),
            false => Err(io::ErrorKind::OutOfMemory.into()),
        })
    }
}

impl AsyncWrite for Client {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(context, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_flush(context);
        self.bounded(context, poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bounded(context, poll)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_too_slowly_uses_up_its_time_and_who_reads_fast_enough_does_not() {
        let (second, most) = (Duration::from_secs(1), Duration::from_secs(30));
        let lasts = |bytes_per_s: usize| {
            let mut patience = Patience::new(most, 8_000);
            // A little is taken after each second of waiting, so no wait is long.
            (0..600).all(|_| {
                patience.waited(second);
                let lasts = !patience.left.is_zero();
                patience.took(bytes_per_s);
                lasts
            })
        };
        assert!(!lasts(100));
        assert!(!lasts(7_000));
        assert!(lasts(8_000));
        let mut patience = Patience::new(most, 8_000);
        patience.waited(29 * second);
        patience.took(usize::MAX);
        assert_eq!(patience.left, most, "no more than there was at first");
    }
}
