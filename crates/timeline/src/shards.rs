//! Hash tables that grow in small pieces.
//!
//! In:    keys and values.
//! Out:   the value of a key.
//! Never: a pause in which one large table is copied into a larger one.
//!
//! A table of ten million entries takes a good part of a second to grow, and
//! readers wait meanwhile. Cut into many, each grows alone and soon is done.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

const SHARD_BITS: u32 = 10;
const SHARD_SHIFT: u32 = 40;

/// Hashes our own numbers, which no stranger chooses: one multiplication.
#[derive(Debug, Default, Clone, Copy)]
pub struct Quick;

/// The state of one [`Quick`] hash.
#[derive(Debug, Default)]
pub struct QuickState(u64);

impl BuildHasher for Quick {
    type Hasher = QuickState;

    fn build_hasher(&self) -> QuickState {
        QuickState(0)
    }
}

impl Hasher for QuickState {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_i64(&mut self, number: i64) {
        self.write_u64(number.cast_unsigned());
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number ^ 0x9e37_79b9_7f4a_7c15)
            .wrapping_mul(0xd6e8_feb8_6659_fd93_a076_1d64_78bd_642f);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A map cut into shards by hash.
#[derive(Debug)]
pub(crate) struct Shards<V> {
    shards: Vec<HashMap<u64, V, Quick>>,
}

impl<V> Default for Shards<V> {
    fn default() -> Self {
        Self {
            shards: std::iter::repeat_with(HashMap::default)
                .take(1 << SHARD_BITS)
                .collect(),
        }
    }
}

/// The shard of a key.
fn shard(key: u64) -> usize {
    // The table inside uses the top and the bottom bits; these lie between.
    (Quick.hash_one(key) >> SHARD_SHIFT) as usize & ((1 << SHARD_BITS) - 1)
}

impl<V> Shards<V> {
    pub(crate) fn get(&self, key: u64) -> Option<&V> {
        self.shards.get(shard(key))?.get(&key)
    }

    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        self.shards.get_mut(shard(key))?.get_mut(&key)
    }

    pub(crate) fn insert(&mut self, key: u64, value: V) -> Option<V> {
        self.shards.get_mut(shard(key))?.insert(key, value)
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<V> {
        self.shards.get_mut(shard(key))?.remove(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_share_neighbouring_numbers_evenly() {
        let mut map: Shards<u32> = Shards::default();
        for number in 0..100_000u64 {
            map.insert(number, number as u32);
        }
        assert_eq!(map.get(99_999), Some(&99_999));
        assert_eq!(map.remove(5), Some(5));
        assert_eq!(map.get(5), None);
        let largest = map.shards.iter().map(HashMap::len).max().unwrap();
        assert!(largest < 200, "{largest} of 100 000 in one of 1024 shards");
    }
}
