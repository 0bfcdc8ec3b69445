//! Blocks of a peer's log: from JSON text to checked work.
//!
//! In:    one block of a space in which a Feedmill publishes, as its answer held it.
//! Out:   the same [`Opened`] that a message of Jetstream gives, at the block's place.
//! Never: a block believed that does not hash to its name; one bad block that stops the next.
//!
//! A place is a position with sixteen bits of the block's hash below it. It
//! grows with the position, so it is a cursor like any other; and after a
//! restart those bits tell whether the log is still the one that was read.

use blocklog::block::{Held, Payload};
use blocklog::limits::Limits;
use blocklog::message::parse_block;
use serde::Deserialize;
use serde_json::Value;

use super::Opened;
use super::jetstream::{JetstreamDecoder, letter};
use crate::clock::Micros;
use crate::store::batch::{Item, Verdict};

/// Bits of a place that tell the block's hash.
const HASH_BITS: u32 = 16;

/// What a source says instead of a block when the log is not the one it was.
pub const ROLLED_BACK: &[u8] = br#"{"error":"rolledBack"}"#;
/// What it says when blocks behind the cursor are no longer kept.
pub const GONE: &[u8] = br#"{"error":"gone"}"#;

/// The place of a block in its stream.
pub fn place(held: &Held) -> i64 {
    let position = held.position.unwrap_or(0);
    let mark = u64::from(mark(held));
    i64::try_from(position << HASH_BITS | mark).unwrap_or(i64::MAX)
}

/// The position of a place, and the bits of the hash.
pub fn position(place: i64) -> (u64, u16) {
    let place = place.max(0).cast_unsigned();
    (place >> HASH_BITS, (place & 0xffff) as u16)
}

/// The bits of a block's hash that its place carries.
pub fn mark(held: &Held) -> u16 {
    let [first, second, ..] = held.hash.bytes();
    u16::from_be_bytes([*first, *second])
}

/// The two fields that a Jetstream does not have.
#[derive(Default, Deserialize)]
struct Ours {
    seen_us: Option<Micros>,
    live: Option<bool>,
}

/// Opens published blocks.
#[derive(Debug, Clone)]
pub struct LogDecoder {
    events: JetstreamDecoder,
    space: String,
    limits: Limits,
}

impl LogDecoder {
    /// Opens blocks of `space`; what they tell goes through `events`.
    pub fn new(events: JetstreamDecoder, space: &str) -> Self {
        Self {
            events,
            space: space.to_owned(),
            limits: Limits::default(),
        }
    }

    /// Opens one block.
    pub fn open(&self, message: &[u8]) -> Opened {
        if message == ROLLED_BACK {
            return Opened::Ended {
                error: "FutureCursor".into(),
                message: "the log was rolled back".into(),
            };
        }
        if message == GONE {
            return Opened::Info {
                name: "OutdatedCursor".into(),
                message: "the log no longer keeps all blocks behind our place".into(),
            };
        }
        let Ok(value) = serde_json::from_slice::<Value>(message) else {
            return Opened::Unopened(letter(message, "frame", "not a block of a log"));
        };
        match parse_block(&value, &self.space, &self.limits) {
            Ok(held) => self.block(&held, message),
            Err(fault) => {
                // Its position is what its neighbours tell: the stream goes on behind it.
                let seq = value.get("position").and_then(Value::as_i64);
                let letter = letter(message, "verify", &fault.to_string());
                match seq.filter(|seq| (1..1 << 47).contains(seq)) {
                    Some(seq) => item(seq << HASH_BITS, Item::Unopened(letter), None),
                    None => Opened::Unopened(letter),
                }
            }
        }
    }

    fn block(&self, held: &Held, message: &[u8]) -> Opened {
        let place = place(held);
        let Payload::Bytes(payload) = &held.block.payload else {
            // What it told is deleted or hidden, and a later block tells so.
            return item(place, Item::Filtered(1), None);
        };
        let opened = match self.events.open(payload) {
            Opened::Item { item, time_us, .. } => (item, time_us),
            Opened::Unopened(letter) => (Item::Unopened(letter), None),
            _ => {
                let letter = letter(message, "frame", "the block tells of no record or account");
                (Item::Unopened(letter), None)
            }
        };
        let (mut work, time_us) = opened;
        self.complete(&mut work, payload);
        item(place, work, time_us)
    }

    /// Adds what only we tell: first sight, and whether it happened just now.
    fn complete(&self, item: &mut Item, payload: &[u8]) {
        let ours: Ours = serde_json::from_slice(payload).unwrap_or_default();
        match item {
            Item::Commit(commit) => {
                commit.live = ours.live.unwrap_or(true);
                for op in &mut commit.ops {
                    if let Verdict::Put(put) = &mut op.verdict {
                        put.seen_us = ours.seen_us;
                    }
                }
            }
            // A log is no host: an account cannot be fetched from it.
            Item::Unopened(letter) => letter.did.clear(),
            _ => {}
        }
    }
}

fn item(seq: i64, item: Item, time_us: Option<Micros>) -> Opened {
    Opened::Item { seq, item, time_us }
}
