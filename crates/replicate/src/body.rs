//! The body of a request, whole and bounded.
//!
//! In:    bytes as they arrive.
//! Out:   all of them; or nothing, if they are too many.
//! Never: a refusal that the client cannot read because it is still writing.
//!
//! Whoever is refused in the middle of a body sees a broken pipe, not the
//! refusal. So the rest is read and thrown away, up to a point.

use axum::body::Body;
use futures_util::StreamExt;

/// Bytes of a refused body that are read and thrown away.
const DISCARD_BYTES_MAX: usize = 64 << 20;

/// The body did not fit, or broke off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the body is too long or broke off")]
pub struct NoBody;

/// Read a body of at most `bytes_max`.
///
/// # Errors
/// If it is longer, or the connection breaks.
pub async fn read(body: Body, bytes_max: usize) -> Result<Vec<u8>, NoBody> {
    let mut chunks = body.into_data_stream();
    let mut bytes = Vec::new();
    let mut discarded = 0;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| NoBody)?;
        if discarded == 0 && bytes.len() + chunk.len() <= bytes_max {
            bytes.extend_from_slice(&chunk);
        } else {
            discarded += chunk.len();
            bytes = Vec::new();
        }
        if discarded > DISCARD_BYTES_MAX {
            break;
        }
    }
    if discarded > 0 {
        Err(NoBody)
    } else {
        Ok(bytes)
    }
}
