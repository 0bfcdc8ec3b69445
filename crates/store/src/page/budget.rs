//! What one page may cost.
//!
//! Candidates are read in growing chunks, so that a page whose newest
//! candidates are all visible costs little, and one that must look at many
//! needs few round trips.

use crate::error::StoreError;

/// The largest chunk.
const CHUNK_MAX: usize = 3_200;
/// The second chunk, at least.
const SECOND_MIN: usize = 200;
/// How many times larger the next chunk is.
const GROWTH: usize = 4;
/// Candidates that a page without a filter looks at: never more than four chunks.
const PLAIN_SCAN_MAX: usize = 4_000;

/// What one page may cost.
#[derive(Clone, Copy)]
pub struct Budget<'b> {
    /// Rows of the page.
    pub limit: usize,
    /// Candidates looked at before the page is returned short.
    pub scan_max: usize,
    /// Bytes of the page's rows; the first row is returned however large it is.
    pub bytes_max: usize,
    /// Whether the caller's deadline has passed, or the caller has left. Asked before each chunk.
    pub is_over: &'b (dyn Fn() -> bool + Sync),
}

impl std::fmt::Debug for Budget<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = formatter.debug_struct("Budget");
        debug.field("limit", &self.limit);
        debug.field("scan_max", &self.scan_max);
        debug.field("bytes_max", &self.bytes_max);
        debug.finish_non_exhaustive()
    }
}

impl Budget<'static> {
    /// So many rows, and 2 000 candidates looked at, without a deadline.
    pub fn of(limit: usize) -> Self {
        Self {
            limit,
            scan_max: 2_000,
            bytes_max: usize::MAX,
            is_over: &|| false,
        }
    }
}

impl Budget<'_> {
    /// The same for a page without a filter.
    pub(super) fn plain(self) -> Self {
        Self {
            scan_max: self.scan_max.min(PLAIN_SCAN_MAX),
            ..self
        }
    }

    /// An error if nobody waits for the page any more.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match (self.is_over)() {
            true => Err(StoreError::Ended),
            false => Ok(()),
        }
    }
}

/// The size of the next chunk.
pub(super) fn larger(chunk: usize) -> usize {
    chunk
        .saturating_mul(GROWTH)
        .clamp(SECOND_MIN, CHUNK_MAX.max(chunk))
}
