//! Lines: connections, from their acceptance to their end.
//!
//! In:    a listener, who answers, and limits.
//! Out:   requests with their peer's address; connections closed in time.
//! Never: more than `connections_max` at once; headers longer than
//!        `header_bytes_max` or slower than `header_s`; a client that leaves
//!        what we sent unread for longer than `stall_s`.
//!
//! A full house leaves new connections in the system's queue: they are served
//! when somebody leaves, which idle ones must do soon.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::response::Response;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics::{counter, gauge};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Sleep;
use tower_service::Service as _;
use tracing::warn;

use crate::config;
use crate::metrics as names;

/// Pause after a failed accept: the system is out of something, most likely descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who answers what comes over a line.
pub trait Answers: Send + Sync + 'static {
    /// The answer to one request, whose peer is among its extensions.
    fn answer(&self, request: Request) -> impl Future<Output = Response> + Send;
}

impl Answers for Router {
    async fn answer(&self, request: Request) -> Response {
        let Ok(response) = self.clone().call(request).await;
        response
    }
}

/// Serves until `stop` is set, then finishes open requests.
pub async fn run(
    listener: TcpListener,
    answers: impl Answers,
    settings: &config::Serve,
    mut stop: watch::Receiver<bool>,
) {
    let answers = Arc::new(answers);
    let house = Arc::new(Semaphore::new(settings.connections_max));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(settings.header_s))
        .max_buf_size(settings.header_bytes_max);
    let stall = Duration::from_secs(settings.stall_s);
    let mut lines = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &house) => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let Some((stream, peer, place)) = accepted else {
            continue;
        };
        let line = Line {
            http: http.clone(),
            answers: Arc::clone(&answers),
            peer,
            stop: stop.clone(),
        };
        gauge!(names::HTTP_CONNECTIONS).increment(1);
        lines.spawn(async move {
            line.serve(Stalling::new(stream, stall)).await;
            gauge!(names::HTTP_CONNECTIONS).decrement(1);
            drop(place);
        });
        while lines.try_join_next().is_some() {}
    }
    drop(listener);
    while lines.join_next().await.is_some() {}
}

type Accepted = (TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit);

/// The next connection, once there is room for it.
async fn accept(listener: &TcpListener, house: &Arc<Semaphore>) -> Option<Accepted> {
    let place = Arc::clone(house).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => {
            // Small answers must not wait for more; a peer that is gone already is noticed soon enough.
            drop(stream.set_nodelay(true));
            Some((stream, peer, place))
        }
        Err(error) => {
            warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// One connection.
struct Line<A> {
    http: http1::Builder,
    answers: Arc<A>,
    peer: SocketAddr,
    stop: watch::Receiver<bool>,
}

impl<A: Answers> Line<A> {
    async fn serve(mut self, stream: Stalling) {
        let (answers, peer) = (self.answers, self.peer);
        let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
            let mut request = request.map(body);
            request.extensions_mut().insert(ConnectInfo(peer));
            let answers = Arc::clone(&answers);
            async move { Ok::<_, Infallible>(answers.answer(request).await) }
        });
        let line = self
            .http
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut line = std::pin::pin!(line);
        // How a connection ends is the client's business: cut, stalled and finished are all the end.
        let stopped = async { drop(self.stop.wait_for(|stop| *stop).await) };
        tokio::select! {
            ended = line.as_mut() => drop(ended),
            () = stopped => {
                line.as_mut().graceful_shutdown();
                drop(line.await);
            }
        }
    }
}

/// The body of a request; most have none, and need no place for one.
fn body(incoming: Incoming) -> Body {
    match incoming.is_end_stream() {
        true => Body::empty(),
        false => Body::new(incoming),
    }
}

/// A stream whose writes fail if the other side does not read for too long.
struct Stalling {
    stream: TcpStream,
    patience: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Stalling {
    fn new(stream: TcpStream, patience: Duration) -> Self {
        Self {
            stream,
            patience,
            waiting: None,
        }
    }

    /// Passes a finished write on, and gives up one that waits too long.
    fn bounded<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.waiting = None;
            return poll;
        }
        let patience = self.patience;
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        match waiting.as_mut().poll(context) {
            Poll::Ready(()) => {
                counter!(names::LIMITED, "by" => "stall").increment(1);
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Stalling {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stalling {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(context, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.bounded(context, poll)
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
