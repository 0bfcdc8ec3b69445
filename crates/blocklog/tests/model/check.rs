//! What must hold, during and after.

use super::{Workshop, World, held};
use blocklog::block::{BlockKey, Hash};
use blocklog::replica::{Mode, Target};
use blocklog::store::ReplicaStore;
use std::collections::BTreeMap;

impl<W: Workshop> World<W> {
    /// A position, once given, is never given to another block.
    pub(super) fn check_positions(&mut self) {
        for held in held(&self.authority) {
            let position = held
                .position
                .expect("an authority gives every block a position");
            let before = *self.given.entry(position).or_insert(held.hash);
            assert_eq!(before, held.hash, "position {position} was given twice");
        }
    }

    pub(super) fn check_all(&mut self) {
        self.check_positions();
        let authority = held(&self.authority);
        let there: BTreeMap<BlockKey, (u64, Hash)> = authority
            .iter()
            .map(|held| (held.block.key(), (held.position.unwrap(), held.hash)))
            .collect();
        assert_eq!(there.len(), authority.len(), "a block has two positions");
        self.check_nothing_lost(&there);
        (0..self.peers.len()).for_each(|peer| self.check_peer(peer, &there));
    }

    /// Everything anybody wrote into a feed it replicates, acknowledged or not,
    /// has come to the authority, byte for byte.
    fn check_nothing_lost(&self, there: &BTreeMap<BlockKey, (u64, Hash)>) {
        for (key, hash) in &self.written {
            let author = self
                .peers
                .iter()
                .find(|peer| peer.author.actor() == key.actor)
                .unwrap();
            if self.excused.contains(key) || mode_of(&author.store, &key.feed) == Mode::None {
                continue;
            }
            let (_, found) = there.get(key).unwrap_or_else(|| panic!("{key:?} is lost"));
            assert_eq!(found, hash);
        }
    }

    /// The replica agrees with the authority on every position, waits for none,
    /// and holds all of every feed it wants in full.
    fn check_peer(&self, number: usize, there: &BTreeMap<BlockKey, (u64, Hash)>) {
        let peer = &self.peers[number];
        let mut here = BTreeMap::new();
        for held in held(&peer.store) {
            let key = held.block.key();
            let mode = mode_of(&peer.store, &key.feed);
            match (held.position, there.get(&key)) {
                (Some(position), Some(&(expected, hash))) if mode != Mode::None => {
                    assert_eq!(
                        (position, held.hash),
                        (expected, hash),
                        "peer {number}: {key:?}"
                    );
                }
                (None, _) if mode != Mode::None => panic!("peer {number} still waits for {key:?}"),
                (Some(_), None) if mode != Mode::None => assert!(
                    self.excused.contains(&key),
                    "peer {number} alone has {key:?}"
                ),
                _ => {}
            }
            here.insert(key, held.position);
        }
        for key in there.keys() {
            let wanted = matches!(mode_of(&peer.store, &key.feed), Mode::From(0));
            // What the authority had evicted may be back from an old copy, behind
            // those who have passed it.
            if wanted && !peer.evicted.contains(key) && !self.excused.contains(key) {
                assert!(here.contains_key(key), "peer {number} lacks {key:?}");
            }
        }
        assert_eq!(peer.store.conflicts(super::SPACE).unwrap(), []);
        assert_eq!(peer.sync.report().conflicts, 0);
    }
}

/// How a replica replicates a feed.
pub(super) fn mode_of(store: &dyn blocklog::store::ReplicaStore, feed: &str) -> Mode {
    let lanes = store.lanes(super::SPACE).unwrap();
    let of = |target: &Target| {
        lanes
            .iter()
            .find(|lane| lane.target == *target)
            .map(|lane| lane.mode)
    };
    of(&Target::Feed(feed.into()))
        .or_else(|| of(&Target::Space))
        .unwrap_or(Mode::None)
}
