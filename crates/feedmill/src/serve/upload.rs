//! Uploads: bodies of requests, from their first byte to their answer.
//!
//! In:    a request as it arrives.
//! Out:   the same request, whose body is counted while it is read; 503 where
//!        there is no room for it.
//! Never: bodies of more than `serve.uploads_bytes_max` at once; more than a
//!        quarter of that of one address.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use metrics::{counter, gauge};
use replicate::memory_pool::{MemoryPool, Reservation};

use super::error::XrpcError;
use crate::metrics as names;

/// Bytes of a refused body that are read and thrown away: who is refused while it writes sees a
/// broken pipe, and not the refusal.
const DISCARD_BYTES_MAX: usize = 8 << 20;

/// The pool of all uploads.
pub(super) fn pool(bytes_max: usize) -> Arc<MemoryPool> {
    let gauge = gauge!(names::QUEUE_BYTES, "queue" => "uploads");
    let limited = counter!(names::LIMITED, "by" => "uploads");
    MemoryPool::new(bytes_max, gauge, limited)
}

/// What is kept of one upload.
#[derive(Debug)]
pub(super) struct Upload {
    reservation: Reservation,
    refused: AtomicBool,
}

impl Upload {
    /// The request with its body counted; `None` where it has none.
    pub(super) fn of(
        request: Request,
        pool: &Arc<MemoryPool>,
        address: Option<IpAddr>,
    ) -> (Request, Option<Arc<Self>>) {
        if request.body().is_end_stream() {
            return (request, None);
        }
        let upload = Arc::new(Self {
            reservation: pool.open(address, None),
            refused: AtomicBool::new(false),
        });
        let counted = Arc::clone(&upload);
        let upload = Some(upload);
        let request = request.map(|body| {
            Body::new(Arriving {
                body,
                upload: counted,
                discarded: 0,
            })
        });
        (request, upload)
    }

    /// The answer, or that there was no room to read the request.
    pub(super) fn or_refused(&self, response: Response) -> Response {
        match self.refused.load(Ordering::Relaxed) {
            true => XrpcError::busy("too much is sent at once; try again").into_response(),
            false => response,
        }
    }
}

/// A body that is counted while it arrives.
struct Arriving {
    body: Body,
    upload: Arc<Upload>,
    /// Bytes that were thrown away since there was no room.
    discarded: usize,
}

fn no_room() -> axum::Error {
    axum::Error::new("no room for the body")
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                None if self.discarded > 0 => return Poll::Ready(Some(Err(no_room()))),
                ended => return Poll::Ready(ended),
            };
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            if self.discarded == 0 && self.upload.reservation.try_grow(bytes) {
                return Poll::Ready(Some(Ok(frame)));
            }
            self.upload.refused.store(true, Ordering::Relaxed);
            self.discarded += bytes;
            if self.discarded > DISCARD_BYTES_MAX {
                return Poll::Ready(Some(Err(no_room())));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
