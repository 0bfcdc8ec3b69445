//! The zstd dictionary of the simulated Jetstream.
//!
//! In:    nothing: it is trained on a small world of fixed seed.
//! Out:   the same dictionary in every process, and compressors for it.
//! Never: the public Jetstream's dictionary, which is not ours to ship.

use std::io;
use std::sync::OnceLock;

use zstd::bulk::Compressor;

use crate::traffic::Traffic;
use crate::world::{World, WorldOptions};

use super::telling::{v1, v2};

const BYTES_MAX: usize = 32 * 1024;
const LEVEL: i32 = 3;

/// A dictionary.
#[derive(Debug)]
pub(super) struct Dictionary {
    bytes: Vec<u8>,
    id: u32,
}

impl Dictionary {
    fn train() -> Self {
        let mut world = World::new(WorldOptions {
            seed: 0xd1c7,
            accounts: 20,
            traffic: Traffic::bluesky(),
            ..WorldOptions::default()
        });
        let mut samples = Vec::new();
        while samples.len() < 3000 {
            for event in world.step() {
                samples.extend(v1(&event).into_iter().map(|told| told.text));
                samples.extend(v2(&event).into_iter().map(|told| told.text));
            }
        }
        let bytes = zstd::dict::from_samples(&samples, BYTES_MAX)
            .expect("thousands of similar lines make a dictionary");
        let id = bytes
            .get(4..8)
            .and_then(|id| id.try_into().ok())
            .map(u32::from_le_bytes)
            .expect("a trained dictionary carries its id after four bytes of magic");
        Self { bytes, id }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// A compressor whose messages need this dictionary.
    pub(super) fn compressor(&self) -> io::Result<Compressor<'static>> {
        Compressor::with_dictionary(LEVEL, &self.bytes)
    }
}

/// The one dictionary, trained when first asked for.
pub(super) fn dictionary() -> &'static Dictionary {
    static DICTIONARY: OnceLock<Dictionary> = OnceLock::new();
    DICTIONARY.get_or_init(Dictionary::train)
}
