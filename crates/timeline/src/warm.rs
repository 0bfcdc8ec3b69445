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

use crate::ahead::fetch;
use crate::audience::Followers;
use crate::feed::FeedWriter;
use crate::lane::NewRecord;
use crate::sequence::Sequence;
use crate::settings::KeyId;
use sdd::Guard;

/// Records whose memory is fetched together.
pub(crate) const BATCH: usize = 64;

/// The way from a key to the memory behind it, as far as it is known.
#[derive(Debug, Default, Clone, Copy)]
struct Trail<'a> {
    outbox: Option<&'a Sequence>,
    prefix: Option<u32>,
    readers: Option<Followers<'a>>,
}

impl FeedWriter {
    /// Fetches what inserting these records will need.
    pub(crate) fn warm(&self, target: usize, records: &[NewRecord<'_>], guard: &Guard) {
        let Some(lane) = self.feed.lanes.get(target) else {
            return;
        };
        // The first key is nearly always the only one; others are fetched when needed.
        let keys = records.iter().filter_map(|record| record.keys.first());
        let known = keys.clone();
        fetch(known.map(|&KeyId(key)| lane.tip_second(key) ^ self.audience.touch(key)));
        let mut trails = [Trail::default(); BATCH];
        for (trail, &KeyId(key)) in trails.iter_mut().zip(keys) {
            *trail = Trail {
                outbox: lane.outbox(key),
                prefix: lane.outbox(key).map(Sequence::prefix),
                readers: Some(self.audience.followers(key)),
            };
        }
        fetch(trails.iter().map(|trail| {
            let newest = trail.outbox.and_then(|outbox| outbox.newest(guard));
            let prefix = trail.prefix.map(|prefix| lane.records.touch_prefix(prefix));
            let readers = trail.readers.map(|readers| readers.touch());
            newest.unwrap_or(0) ^ prefix.unwrap_or(0) ^ readers.unwrap_or(0)
        }));
    }
}
