//! Connections that can be severed in the middle of a message.
//!
//! In:    accepted TCP connections.
//! Out:   the same connections, each with a [`Knife`] its handler can use.
//! Never: a change to the bytes themselves.
//!
//! A WebSocket library writes whole messages only. A cable does not know
//! where a message ends, so the cut is made below the library: so many more
//! bytes may pass, then both directions fail.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// Value of the allowance while nobody wants to cut.
const WHOLE: u64 = u64::MAX;

/// Cuts one connection.
#[derive(Debug, Clone)]
pub struct Knife {
    allowance: Arc<AtomicU64>,
}

impl Knife {
    fn new() -> Self {
        Self {
            allowance: Arc::new(AtomicU64::new(WHOLE)),
        }
    }

    /// Lets `bytes` more bytes out to the client, then severs.
    pub fn cut_after(&self, bytes: u64) {
        self.allowance.store(bytes, Ordering::SeqCst);
    }

    fn severed(&self) -> bool {
        self.allowance.load(Ordering::SeqCst) == 0
    }
}

/// One accepted connection.
#[derive(Debug)]
pub struct Cable {
    stream: TcpStream,
    knife: Knife,
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "severed by the simulator")
}

impl AsyncRead for Cable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.knife.severed() {
            return Poll::Ready(Err(cut()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Cable {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let allowance = self.knife.allowance.load(Ordering::SeqCst);
        if allowance == WHOLE {
            return Pin::new(&mut self.stream).poll_write(context, bytes);
        }
        if allowance == 0 {
            return Poll::Ready(Err(cut()));
        }
        let passing = bytes.get(..allowance as usize).unwrap_or(bytes);
        let written = Pin::new(&mut self.stream).poll_write(context, passing);
        if let Poll::Ready(Ok(count)) = written {
            let left = allowance.saturating_sub(count as u64);
            self.knife.allowance.store(left, Ordering::SeqCst);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A TCP listener whose connections can be severed.
#[derive(Debug)]
pub struct CableListener(pub TcpListener);

impl Listener for CableListener {
    type Io = Cable;
    type Addr = std::net::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        let cable = Cable {
            stream,
            knife: Knife::new(),
        };
        (cable, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

impl Connected<IncomingStream<'_, CableListener>> for Knife {
    fn connect_info(stream: IncomingStream<'_, CableListener>) -> Self {
        stream.io().knife.clone()
    }
}
