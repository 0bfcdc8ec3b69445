//! Faults on demand: what a connection does to the events that pass it.
//!
//! In:    the events of the backlog in order, and what may go wrong how often.
//! Out:   [`Deed`]s for the socket, and a count of every fault done.
//! Never: a fault that is not counted; a fault on a connection opened before
//!        the faults were set that another seed would not repeat.
//!
//! A lost commit is lost for every connection, or a second connection would
//! heal it by accident: that choice hangs on the seed and the sequence number
//! alone. Everything else hangs on the seed and the connection's number, so
//! that a client which reconnects is not torn off at the same place for ever.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Bytes;
use record::cbor::Writer;

use crate::event::{Body, SeqEvent};
use crate::rng::{Rng, mix};

/// Bytes of a frame that no client should accept.
pub const OVERSIZED_BYTES: usize = 5_000_001;

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A whole commit is lost, for every connection.
    Drop,
    /// A frame comes twice.
    Double,
    /// A frame comes after the next one of another account.
    Reorder,
    /// A byte within a commit's blocks is flipped.
    Corrupt,
    /// A frame of garbage comes in between.
    Garbage,
    /// A well-formed frame of a kind nobody knows comes in between.
    Unknown,
    /// A frame longer than the protocol allows comes in between.
    Oversized,
    /// Nothing comes for a while.
    Stall,
    /// The connection ends between two frames.
    Disconnect,
    /// The connection ends within a frame.
    Tear,
    /// At connect: the cursor is called too old and a part of the window is gone.
    Outdated,
    /// At connect: the cursor is called one from the future.
    Future,
}

/// Every fault there is, in the order of its counter.
pub const FAULTS: [Fault; 12] = [
    Fault::Drop,
    Fault::Double,
    Fault::Reorder,
    Fault::Corrupt,
    Fault::Garbage,
    Fault::Unknown,
    Fault::Oversized,
    Fault::Stall,
    Fault::Disconnect,
    Fault::Tear,
    Fault::Outdated,
    Fault::Future,
];

/// How often each fault happens: a probability per frame, or per connection
/// for the last two.
#[derive(Debug, Clone)]
pub struct Faults {
    pub seed: u64,
    /// A fault not named does not happen.
    pub rates: Vec<(Fault, f64)>,
    /// How long a stall lasts.
    pub stall_ms: u64,
}

impl Default for Faults {
    fn default() -> Self {
        Self::none()
    }
}

impl Faults {
    /// Nothing goes wrong.
    pub fn none() -> Self {
        Self {
            seed: 0,
            rates: Vec::new(),
            stall_ms: 200,
        }
    }

    /// Everything goes wrong now and then.
    pub fn all(seed: u64, rate: f64) -> Self {
        FAULTS.iter().fold(
            Self {
                seed,
                ..Self::none()
            },
            |faults, &fault| faults.with(fault, rate),
        )
    }

    /// The same faults with `fault` at `rate`.
    #[must_use]
    pub fn with(mut self, fault: Fault, rate: f64) -> Self {
        self.rates.retain(|(other, _)| *other != fault);
        self.rates.push((fault, rate));
        self
    }

    /// How often `fault` happens.
    pub fn rate(&self, fault: Fault) -> f64 {
        self.rates
            .iter()
            .find(|(other, _)| *other == fault)
            .map_or(0.0, |(_, rate)| *rate)
    }

    /// Whether the commit numbered `seq` is lost.
    pub fn loses(&self, seq: u64) -> bool {
        Rng::new(mix(self.seed) ^ seq).chance(self.rate(Fault::Drop))
    }
}

/// How often each fault was done. Shared by all connections of a server.
#[derive(Debug, Default)]
pub struct Tally {
    counts: [AtomicU64; FAULTS.len()],
}

impl Tally {
    fn counter(&self, fault: Fault) -> Option<&AtomicU64> {
        let at = FAULTS.iter().position(|other| *other == fault)?;
        self.counts.get(at)
    }

    /// Counts one more.
    pub fn add(&self, fault: Fault) {
        if let Some(counter) = self.counter(fault) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often `fault` was done.
    pub fn count(&self, fault: Fault) -> u64 {
        self.counter(fault)
            .map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    /// All faults done, of every kind.
    pub fn total(&self) -> u64 {
        FAULTS.iter().map(|&fault| self.count(fault)).sum()
    }
}

/// What the socket is to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    Send(Bytes),
    Pause {
        ms: u64,
    },
    /// End the connection now.
    End,
    /// Send a part of this and end the connection.
    Tear(Bytes),
}

/// What the messages of a connection are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tongue {
    /// CBOR frames of `subscribeRepos`.
    Frames,
    /// JSON of Jetstream, before compression.
    Json,
}

/// One connection's troublemaker.
#[derive(Debug)]
pub struct Meddler {
    faults: Faults,
    tally: Arc<Tally>,
    tongue: Tongue,
    rng: Rng,
    /// Faults asked for by name, done before any lot is drawn.
    orders: VecDeque<Fault>,
    /// A message held back, and whose it is.
    held: Option<(Arc<str>, Bytes)>,
}

impl Meddler {
    /// The meddler of connection number `connection`.
    pub fn new(faults: Faults, tally: Arc<Tally>, tongue: Tongue, connection: u64) -> Self {
        let rng = Rng::new(mix(faults.seed) ^ mix(connection));
        Self {
            faults,
            tally,
            tongue,
            rng,
            orders: VecDeque::new(),
            held: None,
        }
    }

    /// Does `fault` at the next event that allows it.
    pub fn order(&mut self, fault: Fault) {
        self.orders.push_back(fault);
    }

    /// Whether `fault` is to be done now; counts it if so.
    pub fn strikes(&mut self, fault: Fault) -> bool {
        let struck = self.draws(fault);
        if struck {
            self.tally.add(fault);
        }
        struck
    }

    /// Whether `fault` is to be done now.
    fn draws(&mut self, fault: Fault) -> bool {
        let ordered = self.orders.front() == Some(&fault);
        if ordered {
            self.orders.pop_front();
        }
        ordered || self.rng.chance(self.faults.rate(fault))
    }

    /// A number below `limit` for whoever carries out a fault.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.rng.below(limit)
    }

    /// Passes `message`, which tells `event` or a part of it, on to the socket.
    pub fn pass(&mut self, event: &SeqEvent, message: Bytes, deeds: &mut Vec<Deed>) {
        let commit = matches!(event.body, Body::Commit { .. });
        if commit && self.loses(event.seq) {
            return;
        }
        if self.strikes(Fault::Stall) {
            let ms = self.faults.stall_ms;
            deeds.push(Deed::Pause { ms });
        }
        self.insert_strangers(deeds);
        if self.strikes(Fault::Disconnect) {
            self.flush(deeds);
            deeds.push(Deed::End);
            return;
        }
        if self.strikes(Fault::Tear) {
            self.flush(deeds);
            deeds.push(Deed::Tear(message));
            return;
        }
        let message = match &event.body {
            Body::Commit { blocks, .. } if !blocks.is_empty() && self.strikes(Fault::Corrupt) => {
                match self.tongue {
                    Tongue::Frames => self.corrupt(&message, blocks.clone()),
                    // A changed letter in JSON is another record, and no
                    // client could tell; a missing half it can.
                    Tongue::Json => message.slice(..message.len() / 2),
                }
            }
            _ => message,
        };
        self.deliver(event, message, deeds);
    }

    /// Sends the message now, twice, or behind the next of another account.
    fn deliver(&mut self, event: &SeqEvent, message: Bytes, deeds: &mut Vec<Deed>) {
        match self.held.take() {
            None if self.draws(Fault::Reorder) => {
                self.held = Some((event.did.clone(), message));
            }
            None => self.send(message, deeds),
            // Order within an account is never broken: hold the newer one.
            Some((did, held)) if did == event.did => {
                deeds.push(Deed::Send(held));
                self.held = Some((did, message));
            }
            Some((_, held)) => {
                self.send(message, deeds);
                deeds.push(Deed::Send(held));
                self.tally.add(Fault::Reorder);
            }
        }
    }

    fn send(&mut self, message: Bytes, deeds: &mut Vec<Deed>) {
        deeds.push(Deed::Send(message.clone()));
        if self.strikes(Fault::Double) {
            deeds.push(Deed::Send(message));
        }
    }

    /// Sends what is held back; to be called when no event follows at once.
    pub fn flush(&mut self, deeds: &mut Vec<Deed>) {
        if let Some((_, message)) = self.held.take() {
            deeds.push(Deed::Send(message));
        }
    }

    fn loses(&mut self, seq: u64) -> bool {
        let ordered = self.orders.front() == Some(&Fault::Drop);
        if ordered {
            self.orders.pop_front();
        }
        let lost = ordered || self.faults.loses(seq);
        if lost {
            self.tally.add(Fault::Drop);
        }
        lost
    }

    fn insert_strangers(&mut self, deeds: &mut Vec<Deed>) {
        if self.strikes(Fault::Garbage) {
            let noise = self.rng.bits();
            deeds.push(Deed::Send(match self.tongue {
                // 0xff is no beginning of anything in DAG-CBOR.
                Tongue::Frames => {
                    let noise = noise.to_le_bytes();
                    std::iter::once(0xff).chain(noise).collect()
                }
                Tongue::Json => format!("{{\"garbage\":{noise}").into(),
            }));
        }
        if self.strikes(Fault::Unknown) {
            deeds.push(Deed::Send(stranger(self.tongue, 0)));
        }
        if self.strikes(Fault::Oversized) {
            deeds.push(Deed::Send(stranger(self.tongue, OVERSIZED_BYTES)));
        }
    }

    /// The message with one bit flipped within `span`.
    fn corrupt(&mut self, message: &Bytes, span: Range<usize>) -> Bytes {
        let mut bytes = message.to_vec();
        let at = span.start + self.rng.index(span.len());
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << self.rng.below(8);
        }
        bytes.into()
    }
}

/// A well-formed message of an unknown kind, carrying `filling` bytes.
fn stranger(tongue: Tongue, filling: usize) -> Bytes {
    match tongue {
        Tongue::Frames => {
            let mut writer = Writer::with_capacity(filling + 64);
            writer.map(2).text("t").text("#mystery").text("op").int(1);
            writer.map(1).text("filling").bytes(&vec![0; filling]);
            writer.into_bytes().into()
        }
        Tongue::Json => {
            let filling = "x".repeat(filling);
            format!("{{\"$type\":\"mystery\",\"kind\":\"mystery\",\"filling\":\"{filling}\"}}")
                .into()
        }
    }
}
