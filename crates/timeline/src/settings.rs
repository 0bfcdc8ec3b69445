//! Settings: what the engine must know before it starts, and the ids it speaks.
//!
//! In:    numbers from the configuration.
//! Out:   the same numbers, within the bounds the engine can keep.
//! Never: a limit without a name.
//!
//! Push, pull and scan are chosen by counting (readers of a key, keys of a
//! reader), each with its own threshold, and turn back only at half of it, so
//! that a count that hovers does not make the engine swing.

use crate::block::CELL_BYTES;
use crate::records::NUMBER_BYTES;

/// A window may hold one gone record beside this many.
pub(crate) const REMOVED_SHARE: usize = 8;

/// A followable string as the store interns it: a DID or any other key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u32);

/// A record as the store numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(pub u64);

/// One target of a feed.
#[derive(Debug, Clone)]
pub struct TargetSpec {
    /// Entries a timeline keeps in memory; at most [`crate::RING_ITEMS_MAX`].
    pub items_max: usize,
}

/// One feed.
#[derive(Debug, Clone)]
pub struct FeedSpec {
    /// Its targets, in the order they are numbered.
    pub targets: Vec<TargetSpec>,
    /// Whether a reader sees its own records without following itself.
    pub include_self: bool,
}

/// Everything the engine is told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The feeds, in the order they are numbered.
    pub feeds: Vec<FeedSpec>,
    /// Active readers of a key beyond which it is pulled; half of it turns back.
    pub pull_above: usize,
    /// Keys of a reader beyond which it is scanned; half of it turns back.
    pub scan_above: usize,
    /// Readers of a key beyond which a push is done in the background.
    pub sync_threshold: usize,
    /// A reader not seen for this long hibernates.
    pub ttl_us: i64,
    /// Candidates a page may look at before it is left to the store.
    pub page_scan_max: usize,
    /// Records a scan may look at before the outboxes are asked instead; at most
    /// a quarter of the reader's keys, so that trying costs little.
    pub window_scan_max: usize,
    /// Memory for records in the window, those that are gone and not yet freed included; beyond it
    /// the oldest leave.
    pub window_bytes_max: usize,
    /// Records in the window; beyond it the oldest leave.
    pub window_records_max: usize,
    /// Memory for readers and their timelines; beyond it nobody is registered.
    pub reader_bytes_max: usize,
    /// Background fan-outs waiting; beyond it records are pulled, not pushed.
    pub fanout_jobs_max: usize,
    /// Records removed but not yet freed that start a sweep; an eighth of the
    /// window if that is more.
    pub removed_max: usize,
    /// Changes of readers remembered, so that follows loaded earlier can be judged.
    pub changes_max: usize,
}

/// What a record takes in the window at least: row, id, and a place in the window and in one
/// outbox. What it really takes is counted, see [`crate::Stats::window_bytes`]; this says how many
/// there is any use in loading.
pub const RECORD_BYTES: usize = NUMBER_BYTES + 6 + 2 * CELL_BYTES;

impl Default for Settings {
    fn default() -> Self {
        Self {
            feeds: Vec::new(),
            pull_above: 100_000,
            scan_above: 10_000,
            sync_threshold: 5_000,
            ttl_us: 7 * 24 * 3_600 * 1_000_000,
            page_scan_max: 2_000,
            window_scan_max: 50_000,
            window_bytes_max: 2 << 30,
            window_records_max: usize::MAX,
            reader_bytes_max: 8 << 30,
            fanout_jobs_max: 65_536,
            removed_max: 8_192,
            changes_max: 65_536,
        }
    }
}

impl Settings {
    /// Whether a window holds more than it may. Of its memory a share is for records that are gone,
    /// of which a sweep leaves no more than one beside [`REMOVED_SHARE`].
    pub(crate) fn is_beyond(&self, records: usize, bytes: usize) -> bool {
        let live_max = self.window_bytes_max / (REMOVED_SHARE + 1) * REMOVED_SHARE;
        records > 1 && (records > self.window_records_max || bytes > live_max)
    }
}

/// Keys in ascending order: the follow or hide records of one reader.
///
/// A key named by two records stands twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyList(Vec<u32>);

impl KeyList {
    /// Sorts once, so that reads can search. Costs little if `keys` are in order.
    pub fn new(keys: impl IntoIterator<Item = KeyId>) -> Self {
        let mut keys: Vec<u32> = keys.into_iter().map(|KeyId(key)| key).collect();
        keys.sort_unstable();
        Self(keys)
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn as_slice(&self) -> &[u32] {
        &self.0
    }
}
