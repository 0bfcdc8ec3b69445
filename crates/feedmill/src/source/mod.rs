//! Sources: where streams come from.
//!
//! In:    an address and a cursor.
//! Out:   frames in order on a channel bounded in number and bytes; when it is full the socket is
//!        not read, and the network's own back-pressure does the rest.
//! Never: an end without a reconnect; a pause without a limit; one host's
//!        cursor given to another.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock::Micros;

// Messages that are too large lose their end.
mod cut;
// `com.atproto.sync.subscribeRepos`.
pub mod firehose;
// The next message of a host that may have nothing to say.
pub(crate) mod hear;
// Jetstream, versions 1 and 2.
pub mod jetstream;
// One connection after the other.
mod link;
// The log of a peer.
pub mod log;
// Bytes on their way to the store.
pub mod pending;
// A WebSocket whose messages are cut.
pub(crate) mod socket;
// One subscription and its pool of hosts.
pub mod stream;
// Tap, which is acknowledged.
pub mod tap;

/// One message as it came off the wire.
#[derive(Debug, Clone, Default)]
pub struct Arrival {
    pub frame: bytes::Bytes,
    /// The name under which the cursor of the host it came from is kept.
    pub row: Arc<str>,
    /// When the connection it came over was opened, where acknowledgements go back over it.
    pub line_us: Micros,
    /// The cursor may not pass this number yet: an earlier frame still waits for something.
    pub floor: Option<i64>,
    /// Why it is not believed, where somebody on the way has found out.
    pub doubt: Option<Doubt>,
    /// What it takes of the source's `pending_bytes_max`, until it is dropped.
    pub reserved: pending::Reserved,
}

/// Why a frame is not believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// The stage of its dead letter: `verify` if the frame is at fault, `retryable` if the world is.
    pub stage: &'static str,
    pub message: String,
}

/// Cursors to read again from, by the name under which each is kept. The
/// stage below asks for them, the source obeys when it connects next.
#[derive(Debug, Default)]
pub struct Rewind(Mutex<HashMap<String, i64>>);

impl Rewind {
    /// Asks for everything after `cursor` again.
    pub fn ask(&self, row: &str, cursor: i64) {
        self.0.lock().insert(row.to_owned(), cursor);
    }

    /// Whether something was asked of this row.
    pub fn asked(&self, row: &str) -> bool {
        self.0.lock().contains_key(row)
    }

    fn take(&self, row: &str) -> Option<i64> {
        self.0.lock().remove(row)
    }
}
