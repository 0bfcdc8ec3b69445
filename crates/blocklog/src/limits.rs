//! Limits: the size of everything a stranger may hand us.
//!
//! In:    the numbers of a configuration file, or the defaults.
//! Out:   a yes, or the name of the limit that was passed.
//! Never: a list, a string, a number or a page without a bound.
//!
//! The system this log descends from had none: a block of ten megabytes was
//! accepted, and 32 767 feed ids broke its SQL. Every bound here has a name so
//! that a refusal can say which one it was.

/// The largest integer that every JSON implementation reads exactly.
pub const INTEGER_MAX: u64 = (1 << 53) - 1;

/// What a block counts beside its payload towards `space_bytes_max`.
pub const BLOCK_BYTES: u64 = 128;

/// Bounds on what one request, one feed and one space may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one block's payload.
    pub block_bytes_max: usize,
    /// Blocks of one append.
    pub batch_blocks_max: usize,
    /// Payload bytes of one append, all blocks together.
    pub batch_bytes_max: usize,
    /// Blocks of one page when the reader does not say.
    pub page_blocks_default: usize,
    /// Blocks of one page, whatever the reader says.
    pub page_blocks_max: usize,
    /// Payload bytes of one page; a page holds at least one block all the same.
    pub page_bytes_max: usize,
    /// Feeds named in one query or subscription.
    pub feed_ids_max: usize,
    /// Feeds returned by one list.
    pub list_feeds_max: usize,
    /// Feeds of one space.
    pub space_feeds_max: u64,
    /// Bytes of one space: its blocks' payloads, and [`BLOCK_BYTES`] for each block.
    pub space_bytes_max: u64,
    /// Live subscriptions of one space.
    pub space_subscriptions_max: u64,
    /// How long a subscription lives unless renewed.
    pub subscription_ms_max: u64,
    /// Bytes of a space, feed, actor or namespace id.
    pub id_bytes_max: usize,
    /// Bytes of a request id.
    pub request_id_bytes_max: usize,
    /// Bytes of the feed ids named in one query or subscription, all together.
    pub feed_ids_bytes_max: usize,
    /// Bytes of a message that appends nothing.
    pub request_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            block_bytes_max: 1 << 20,
            batch_blocks_max: 1000,
            batch_bytes_max: 8 << 20,
            page_blocks_default: 50,
            page_blocks_max: 1000,
            page_bytes_max: 1 << 20,
            feed_ids_max: 1000,
            list_feeds_max: 1000,
            space_feeds_max: 1_000_000,
            space_bytes_max: 10 << 30,
            space_subscriptions_max: 10_000,
            subscription_ms_max: 60 * 60 * 1000,
            id_bytes_max: 512,
            request_id_bytes_max: 128,
            feed_ids_bytes_max: 128 << 10,
            request_bytes_max: 512 << 10,
        }
    }
}

impl Limits {
    /// Bytes of a message that appends. Base64 makes four bytes of three, and every block has
    /// some fields besides.
    #[must_use]
    pub fn append_message_bytes_max(&self) -> usize {
        self.batch_bytes_max
            .saturating_mul(2)
            .saturating_add(1 << 20)
    }

    /// Whether `id` may name a space, a feed, an actor or a namespace: not
    /// empty, not too long, and nothing in it that breaks a line or a log.
    #[must_use]
    pub fn allows_id(&self, id: &str) -> bool {
        !id.is_empty() && id.len() <= self.id_bytes_max && !id.chars().any(char::is_control)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_neither_empty_nor_endless_nor_a_line_break() {
        let limits = Limits::default();
        assert!(limits.allows_id("01H1"));
        assert!(!limits.allows_id(""));
        assert!(!limits.allows_id("a\nb"));
        assert!(limits.allows_id(&"x".repeat(512)));
        assert!(!limits.allows_id(&"x".repeat(513)));
    }
}
