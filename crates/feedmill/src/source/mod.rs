//! Sources: where streams come from.
//!
//! In:    an address and a cursor.
//! Out:   frames in order on a bounded channel; when it is full the socket is
//!        not read, and the network's own back-pressure does the rest.
//! Never: an end without a reconnect; a pause without a limit.

/// `com.atproto.sync.subscribeRepos`.
pub mod firehose;
/// How long to wait before connecting again.
pub mod pause;

/// One message as it came off the wire.
#[derive(Debug, Clone)]
pub struct Arrival {
    pub frame: tokio_tungstenite::tungstenite::Bytes,
}
