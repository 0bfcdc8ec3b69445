//! Lines: connections, from their acceptance to their end.
//!
//! In:    a listener, who answers, and limits.
//! Out:   requests with their peer's address; connections closed in time.
//! Never: more than `connections_max` at once; headers longer than
//!        `header_bytes_max` or slower than `header_s`; a client that leaves
//!        what we sent unread for longer than `stall_s` or reads slower than
//!        `read_bytes_per_s_min` (`patience`), or keeps more of the system's memory
//!        than `SEND_BYTES_MAX`.
//!
//! Where there is no place for a new connection, an idle one of the address that
//! has most of them is closed for it (`connections`).

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::StatusCode;
use axum::response::Response;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use replicate::client_memory::Reading;
use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tower_service::Service as _;
use tracing::warn;

use super::connections::{Connections, Open, Place};
use super::patience::{Client, Patience};
use super::{descriptors, rate};
use crate::config;

/// Pause after a failed accept: the system is out of something, most likely descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bytes that the system keeps for a client that does not read; it keeps up to twice as many.
const SEND_BYTES_MAX: usize = 128 << 10;

/// Among a request's extensions: what closes the connection it came over.
#[derive(Debug, Clone)]
pub(super) struct Closing(pub(super) Arc<Notify>);

/// Among a request's extensions: where its connection counts what it reads as a WebSocket.
#[derive(Debug, Clone, Default)]
pub(super) struct Reads(pub(super) Arc<OnceLock<Reading>>);

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
    let address_max = settings.address_connections_max;
    let connections_max = descriptors::fitting(settings.connections_max);
    let connections = Connections::new(connections_max, address_max);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(settings.header_s))
        .max_buf_size(settings.header_bytes_max);
    let patience = Patience::new(
        Duration::from_secs(settings.stall_s),
        settings.read_bytes_per_s_min,
    );
    let mut lines = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &connections) => accepted,
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
            state: place.state(),
        };
        lines.spawn(line.serve(Client::new(stream, patience, place)));
        while lines.try_join_next().is_some() {}
    }
    drop(listener);
    while lines.join_next().await.is_some() {}
}

type Accepted = (TcpStream, SocketAddr, Place);

/// The next connection, if there is a place for it.
async fn accept(listener: &TcpListener, connections: &Arc<Connections>) -> Option<Accepted> {
    match listener.accept().await {
        Ok((stream, peer)) => {
            let place = connections.admit(rate::network(peer.ip().to_canonical()))?;
            // A limit of the system's own is good enough where this one cannot be set.
            set_socket_send_buffer_size(&stream, SEND_BYTES_MAX).unwrap_or_default();
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
    state: (Arc<Connections>, Arc<Open>),
}

impl<A: Answers> Line<A> {
    async fn serve(mut self, stream: Client) {
        let (answers, peer, state) = (self.answers, self.peer, self.state);
        let closing = Closing(Arc::clone(&state.1.closing));
        let reads = stream.reads();
        let close = Arc::clone(&closing.0);
        let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
            let mut request = request.map(body);
            request.extensions_mut().insert(ConnectInfo(peer));
            request.extensions_mut().insert(closing.clone());
            request.extensions_mut().insert(reads.clone());
            let (answers, (connections, open)) = (Arc::clone(&answers), state.clone());
            async move {
                connections.busy(&open);
                let response = answers.answer(request).await;
                // One that goes on, as events or over a socket, keeps its connection busy.
                if response.body().size_hint().exact().is_some() && !is_upgrade(&response) {
                    connections.idle(&open);
                }
                Ok::<_, Infallible>(response)
            }
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
            () = close.notified() => {}
        }
    }
}

fn is_upgrade(response: &Response) -> bool {
    response.status() == StatusCode::SWITCHING_PROTOCOLS
}

/// The body of a request; most have none, and need no place for one.
fn body(incoming: Incoming) -> Body {
    match incoming.is_end_stream() {
        true => Body::empty(),
        false => Body::new(incoming),
    }
}
