//! Warming: asking for what a batch of records will touch, all at once.
//!
//! In:    the records of a batch, before they are inserted.
//! Out:   nothing but memory on its way to the processor.
//! Never: a change; an effect on any answer.
//!
//! To insert a record is to follow a dozen pointers one after another (key,
//! outbox, newest record, author's text, readers, rings), and each waits for
//! memory. Of many records at once the first pointers can be followed together,
//! then the second ones, and so on: the waits overlap, and a post costs a third.

use crate::ahead::ask;
use crate::audience::Followers;
use crate::block::Block;
use crate::feed::FeedWriter;
use crate::lane::NewRecord;
use crate::sequence::Sequence;
use crate::settings::KeyId;
use sdd::Guard;

/// Records whose memory is asked for together.
pub(crate) const BATCH: usize = 64;

/// The way from a key to the memory behind it, as far as it is known.
#[derive(Debug, Default, Clone, Copy)]
struct Trail<'a> {
    outbox: Option<&'a Sequence>,
    newest: Option<&'a Block>,
    readers: Option<Followers<'a>>,
}

impl FeedWriter {
    /// Asks for what inserting these records will need.
    pub(crate) fn warm(&self, target: usize, records: &[NewRecord<'_>], guard: &Guard) {
        let Some(lane) = self.feed.lanes.get(target) else {
            return;
        };
        // The first key is nearly always the only one; others are waited for when needed.
        let keys = records.iter().filter_map(|record| record.keys.first());
        for &KeyId(key) in keys.clone() {
            lane.outboxes.ask_tip(key);
            self.audience.ask(key);
        }
        let mut trails = [Trail::default(); BATCH];
        for (trail, &KeyId(key)) in trails.iter_mut().zip(keys) {
            let readers = self.audience.followers(key);
            readers.ask_list();
            trail.readers = Some(readers);
            trail.outbox = lane.outboxes.get(key);
            ask(trail.outbox);
        }
        for trail in &mut trails {
            if let Some(outbox) = trail.outbox {
                trail.newest = outbox.newest_block(guard);
                ask(trail.newest);
                lane.records.ask_prefix(outbox.prefix());
            }
            if let Some(readers) = trail.readers {
                readers.ask_some();
            }
        }
        for block in trails.iter().filter_map(|trail| trail.newest) {
            block.ask_end();
        }
    }
}
