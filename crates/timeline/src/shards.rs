//! Hash tables that grow in small pieces.
//!
//! In:    keys and values.
//! Out:   the value of a key.
//! Never: a pause in which one large table is copied into a larger one.
//!
//! A table of ten million entries takes a good part of a second to grow, and
//! readers wait meanwhile. Cut into many, each grows alone and soon is done.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};

const SHARD_BITS: u32 = 10;
const SHARD_SHIFT: u32 = 40;
const SHARD_RUN_BITS: u32 = 12;

/// Hashes our own numbers, which no stranger chooses: one multiplication.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Quick;

/// The state of one [`Quick`] hash.
#[derive(Debug, Default)]
pub(crate) struct QuickState(u64);

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

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number ^ 0x9e37_79b9_7f4a_7c15)
            .wrapping_mul(0xd6e8_feb8_6659_fd93_a076_1d64_78bd_642f);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Hashes numbers that mostly count upwards so that neighbours stay neighbours:
/// a stream of new records then touches the same lines of memory again.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counting;

/// The state of one [`Counting`] hash.
#[derive(Debug, Default)]
pub(crate) struct CountingState(u64);

impl BuildHasher for Counting {
    type Hasher = CountingState;

    fn build_hasher(&self) -> CountingState {
        CountingState(0)
    }
}

impl Hasher for CountingState {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // 4096 neighbours share a shard, whose number stands from bit 40 on; inside
        // the table the bottom bits choose the place and the top seven tell
        // entries of one place apart.
        let shard = (number >> SHARD_RUN_BITS) & ((1 << SHARD_BITS) - 1);
        let above = number >> (SHARD_RUN_BITS + SHARD_BITS);
        let place = number & ((1 << SHARD_RUN_BITS) - 1) | above << SHARD_RUN_BITS;
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = (place ^ (place >> 40)) & ((1 << SHARD_SHIFT) - 1)
            | shard << SHARD_SHIFT
            | (mixed >> 57) << 57;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A map cut into shards by hash.
#[derive(Debug)]
pub(crate) struct Shards<K, V, S = Quick> {
    shards: Vec<HashMap<K, V, S>>,
    hasher: S,
}

impl<K: Hash + Eq, V, S: BuildHasher + Default + Clone> Default for Shards<K, V, S> {
    fn default() -> Self {
        let hasher = S::default();
        Self {
            shards: std::iter::repeat_with(|| HashMap::with_hasher(hasher.clone()))
                .take(1 << SHARD_BITS)
                .collect(),
            hasher,
        }
    }
}

impl<K: Hash + Eq, V, S: BuildHasher + Default + Clone> Shards<K, V, S> {
    fn shard<Q: Hash + ?Sized>(&self, key: &Q) -> usize {
        // The table inside uses the top and the bottom bits; these lie between.
        (self.hasher.hash_one(key) >> SHARD_SHIFT) as usize & ((1 << SHARD_BITS) - 1)
    }

    pub(crate) fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: std::borrow::Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.shards.get(self.shard(key))?.get(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let shard = self.shard(&key);
        self.shards.get_mut(shard)?.insert(key, value)
    }

    pub(crate) fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: std::borrow::Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let shard = self.shard(key);
        self.shards.get_mut(shard)?.remove(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_share_neighbouring_numbers_evenly() {
        let mut map: Shards<u64, u32> = Shards::default();
        for number in 0..100_000u64 {
            map.insert(number, number as u32);
        }
        assert_eq!(map.get(&99_999), Some(&99_999));
        assert_eq!(map.remove(&5), Some(5));
        assert_eq!(map.get(&5), None);
        let largest = map.shards.iter().map(HashMap::len).max().unwrap();
        assert!(largest < 200, "{largest} of 100 000 in one of 1024 shards");
        let mut counting: Shards<u64, u32, Counting> = Shards::default();
        for number in 0..1_000_000u64 {
            counting.insert(number * 7, number as u32);
        }
        assert_eq!(counting.get(&70), Some(&10));
        let largest = counting.shards.iter().map(HashMap::len).max().unwrap();
        assert!(
            largest < 12_000,
            "{largest} of 10 000 000 in one of 1024 shards"
        );
    }
}
