//! Warming: fetching what a batch of records will touch, all at once.
//!
//! In:    the records of a batch, before they are inserted.
//! Out:   nothing but memory already on its way to the processor.
//! Never: a change; an effect on any answer.
//!
//! To insert a record is to follow a dozen pointers one after another (key,
//! outbox, newest record, author's text, readers, rings), and each waits for
//! memory. Of many records at once the first pointers can be followed together,
//! then the second ones, and so on: the waits overlap, and a post costs a third.

use crate::audience::Key;
use crate::feed::Feed;
use crate::lane::NewRecord;
use crate::sequence::Sequence;
use crate::settings::KeyId;
use std::hint::black_box;

/// Records whose memory is fetched together.
pub(crate) const BATCH: usize = 32;

/// The way from a key to the memory behind it, as far as it is known.
#[derive(Debug, Clone, Copy)]
struct Trail<'a> {
    key: u32,
    outbox: Option<&'a Sequence>,
    audience: Option<&'a Key>,
}

impl Feed {
    /// Fetches what inserting these records will need.
    pub(crate) fn warm(&self, target: usize, records: &[NewRecord<'_>]) {
        let Some(lane) = self.lanes.get(target) else {
            return;
        };
        let mut seen = 0;
        let mut trails: Vec<Trail<'_>> = records
            .iter()
            .flat_map(|record| record.keys.iter().take(4))
            .map(|&KeyId(key)| {
                seen ^= lane.tip_second(key);
                seen ^= u32::from(self.audience.key(key).is_some());
                Trail {
                    key,
                    outbox: None,
                    audience: None,
                }
            })
            .collect();
        for trail in &mut trails {
            trail.outbox = lane.outbox(trail.key);
            trail.audience = self.audience.key(trail.key);
            seen ^= trail
                .outbox
                .map_or(0, |outbox| u32::from(outbox.is_empty()));
            seen ^= trail.audience.map_or(0, |key| key.readers.len() as u32);
        }
        for trail in &trails {
            seen ^= trail.outbox.and_then(Sequence::newest).unwrap_or(0);
            seen ^= trail
                .audience
                .and_then(|key| key.readers.iter().next())
                .unwrap_or(0);
        }
        for trail in &trails {
            if let Some(newest) = trail.outbox.and_then(Sequence::newest) {
                seen ^= lane.records.touch_uri(newest);
            }
        }
        black_box(seen);
    }
}
