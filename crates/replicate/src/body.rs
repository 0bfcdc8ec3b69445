//! The body of a request, whole and bounded.
//!
//! In:    bytes as they arrive.
//! Out:   all of them, counted as long as the [`Upload`] lives; or why not.
//! Never: a refusal that the client cannot read because it is still writing.
//!
//! Whoever is refused in the middle of a body sees a broken pipe, not the
//! refusal. So the rest is read and thrown away, up to a point.

use crate::client_memory::ClientMemory;
use crate::memory_pool::Reservation;
use axum::body::Body;
use futures_util::StreamExt;

/// Bytes of a refused body that are read and thrown away.
const DISCARD_BYTES_MAX: usize = 64 << 20;

/// A body that was read.
#[derive(Debug, Default)]
pub struct Upload {
    /// All of it.
    pub bytes: Vec<u8>,
    /// As much of the process's memory.
    pub reservation: Option<Reservation>,
}

/// Why there is no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoBody {
    /// It is longer than it may be.
    #[error("the body is too long")]
    TooLong,
    /// The connection broke.
    #[error("the body broke off")]
    Broken,
    /// Others send as much as may be in memory; it can be sent again.
    #[error("there is no room for the body now")]
    NoRoom,
}

/// Read a body of at most `bytes_max`.
///
/// # Errors
/// If it is longer, the connection breaks, or there is no room for it.
pub async fn read(
    body: Body,
    bytes_max: usize,
    memory: Option<&ClientMemory>,
) -> Result<Upload, NoBody> {
    let mut chunks = body.into_data_stream();
    let mut upload = Upload {
        bytes: Vec::new(),
        reservation: memory.map(ClientMemory::upload),
    };
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| NoBody::Broken)?;
        if upload.bytes.len() + chunk.len() > bytes_max {
            drop(upload);
            discard(chunks).await;
            return Err(NoBody::TooLong);
        }
        let reservation = upload.reservation.as_ref();
        if !reservation.is_none_or(|reservation| reservation.try_grow(chunk.len())) {
            drop(upload);
            discard(chunks).await;
            return Err(NoBody::NoRoom);
        }
        upload.bytes.extend_from_slice(&chunk);
    }
    Ok(upload)
}

/// Throw away what is still coming.
async fn discard(mut chunks: axum::body::BodyDataStream) {
    let mut discarded = 0;
    while let Some(Ok(chunk)) = chunks.next().await {
        discarded += chunk.len();
        if discarded > DISCARD_BYTES_MAX {
            break;
        }
    }
}
