//! Unsent answers: what is kept in memory until its reader took it.
//!
//! In:    an answer, and the connection that it goes to.
//! Out:   the same answer, whose bytes are reserved as long as any part of the
//!        server keeps them.
//! Never: an answer that waits in the server beyond `serve.unsent_bytes_max`: the
//!        oldest unread one of the address that has most is closed instead.
//!
//! The reservation belongs to the bytes and not to the body: a body is gone as
//! soon as it has handed its bytes to the connection, whoever reads them when.
//! Nobody is refused for what others leave unread.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use metrics::{counter, gauge};
use replicate::memory_pool::{MemoryPool, Reservation};
use tokio::sync::Notify;

use crate::metrics as names;

/// Pieces smaller than this are not counted: a connection keeps no more than a few of them.
const COUNTED_BYTES_MIN: usize = 4096;

/// Among an answer's extensions: what it sends is counted by whoever makes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted;

/// The pool of all unsent answers.
pub(super) fn pool(bytes_max: usize) -> Arc<MemoryPool> {
    let gauge = gauge!(names::QUEUE_BYTES, "queue" => "answers");
    let limited = counter!(names::LIMITED, "by" => "answers");
    MemoryPool::new(bytes_max, gauge, limited)
}

/// The answer, with its bytes reserved until they are sent. Its connection is closed by `closing`.
pub(super) fn reserve(
    response: Response,
    pool: &Arc<MemoryPool>,
    address: Option<IpAddr>,
    closing: Arc<Notify>,
) -> Response {
    let size = response.body().size_hint().upper();
    let is_small = size.is_some_and(|bytes| bytes < COUNTED_BYTES_MIN as u64);
    if is_small || response.extensions().get::<Counted>().is_some() {
        return response;
    }
    let pool = Arc::clone(pool);
    response.map(|body| {
        Body::new(Unsent {
            body,
            pool,
            address,
            closing,
        })
    })
}

/// A body whose pieces are reserved.
struct Unsent {
    body: Body,
    pool: Arc<MemoryPool>,
    address: Option<IpAddr>,
    closing: Arc<Notify>,
}

/// A piece, and its reservation, which ends with the last copy of it.
struct Piece {
    bytes: Bytes,
    _reservation: Reservation,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Unsent {
    fn piece(&self, bytes: Bytes) -> Bytes {
        if bytes.len() < COUNTED_BYTES_MIN {
            return bytes;
        }
        let closing = Arc::clone(&self.closing);
        let reservation = self.pool.take(self.address, bytes.len(), closing);
        Bytes::from_owner(Piece {
            bytes,
            _reservation: reservation,
        })
    }
}

impl HttpBody for Unsent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        frame.map_ok(|frame| frame.map_data(|bytes| self.piece(bytes)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
