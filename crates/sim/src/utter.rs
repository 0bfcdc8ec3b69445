//! Records of the caller's own making: what no act of the world would write.
//!
//! In:    bytes, and the word of whoever made them what they mean.
//! Out:   a signed commit that carries them, told as any other.
//! Never: a look at the bytes: hostile ones are the reason for this.

use axum::body::Bytes;
use record::cid::Cid;

use crate::event::SeqEvent;
use crate::model::Fact;
use crate::repo::Change;
use crate::world::World;

/// A record, and what is true of it.
#[derive(Debug, Clone)]
pub struct Utterance {
    pub collection: String,
    pub rkey: String,
    pub block: Bytes,
    /// Instant of its `createdAt`; `None` if it has none that can be used.
    pub created_us: Option<i64>,
    /// Whether it is one that should be kept.
    pub sound: bool,
}

impl World {
    /// The account numbered `number` writes these records in one commit.
    pub fn utter(&mut self, number: usize, records: Vec<Utterance>) -> Vec<SeqEvent> {
        let did = self.did(number).as_deref().unwrap_or_default().to_owned();
        self.advance();
        let mut changes = Vec::with_capacity(records.len());
        for record in records {
            changes.push(Change {
                path: format!("{}/{}", record.collection, record.rkey),
                block: Some(record.block.clone()),
            });
            self.model.put(Fact {
                did: did.clone(),
                collection: record.collection,
                rkey: record.rkey,
                cid: Cid::of_cbor(&record.block).to_string(),
                created_us: record.created_us,
                sound: record.sound,
                fields: None,
            });
        }
        let mut events = Vec::new();
        self.commit(number, changes, &mut events);
        events
    }
}
