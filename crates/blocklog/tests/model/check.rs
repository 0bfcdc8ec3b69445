//! What must hold, during and after.

use super::{Content, Peer, SPACE, Twins, Workshop, World, content, held};
use blocklog::block::{BlockKey, Hash, Held};
use blocklog::replica::{Mode, Target};
use blocklog::store::ReplicaStore;
use std::collections::{BTreeMap, BTreeSet};

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
        self.check_nothing_lost(&authority.iter().map(content).collect());
        (0..self.peers.len()).for_each(|peer| self.check_peer(peer, &there));
        if self.weather.ranges {
            self.check_ranges();
        }
    }

    /// Everything anybody wrote into a feed it replicates, acknowledged or not, has come to the
    /// authority; or it could not, and is listed.
    fn check_nothing_lost(&self, there: &BTreeSet<Content>) {
        for (content, written) in &self.written {
            let author = &self.peers[written.peer];
            let text = String::from_utf8_lossy(content);
            if self.excused.contains(content) || mode_of(&author.store, &written.feed) == Mode::None
            {
                continue;
            }
            // The author may have evicted what another still held when its key was taken.
            let listed = match author.evicted.contains(content) {
                true => self.peers.iter().any(|peer| is_listed(peer, content)),
                false => is_listed(author, content),
            };
            if written.is_bad {
                assert!(!there.contains(content), "{text} was to be refused");
                assert!(listed, "{text} is refused and not listed");
            } else if !there.contains(content) {
                let may_lose = self.weather.twins == Twins::Signed
                    || self.weather.twins == Twins::Named && author.evicted.contains(content);
                assert!(may_lose && listed, "{text} is lost: {written:?}");
            }
        }
    }

    /// The replica agrees with the authority on every position, waits for none,
    /// and holds all of every feed it wants in full.
    fn check_peer(&self, number: usize, there: &BTreeMap<BlockKey, (u64, Hash)>) {
        let peer = &self.peers[number];
        let mut here = BTreeMap::new();
        for held in held(&peer.store) {
            let (key, content) = (held.block.key(), content(&held));
            let mode = mode_of(&peer.store, &key.feed);
            match (held.position, there.get(&key)) {
                (Some(position), Some(&(expected, hash))) if mode != Mode::None => {
                    assert_eq!(
                        (position, held.hash),
                        (expected, hash),
                        "peer {number}: {key:?}"
                    );
                }
                (None, _) if mode != Mode::None => {
                    assert!(
                        is_listed(peer, &content),
                        "peer {number} still waits for {key:?}"
                    );
                }
                (Some(_), None) if mode != Mode::None => assert!(
                    self.excused.contains(&content),
                    "peer {number} alone has {key:?}"
                ),
                _ => {}
            }
            here.insert(key, held.position);
        }
        let gone = |held: &Held| {
            let content = content(held);
            peer.evicted.contains(&content) || self.excused.contains(&content)
        };
        for held in held(&self.authority) {
            let key = held.block.key();
            let position = held.position.unwrap();
            let wanted = match mode_of(&peer.store, &key.feed) {
                Mode::From(start) => position >= start,
                Mode::None | Mode::Tail | Mode::Since(_) => false,
            };
            // What the authority had evicted may be back from an old copy, behind
            // those who have passed it.
            if wanted && !gone(&held) {
                let lanes = || peer.store.lanes(SPACE).unwrap();
                let lacks = || format!("peer {number} lacks {key:?} at {position}: {:?}", lanes());
                assert!(here.contains_key(&key), "{}", lacks());
            }
        }
        self.check_listed(number);
    }

    /// Nothing is listed that its replica could have sent.
    fn check_listed(&self, number: usize) {
        for aside in self.peers[number].store.conflicts(SPACE, 10_000).unwrap() {
            let listed = content(&aside.held);
            let written = &self.written[&listed];
            let may_be = match self.weather.twins {
                Twins::None => written.is_bad,
                Twins::Signed => true,
                // What it evicted and pulled again is no longer its own to write again.
                Twins::Named => {
                    let evicted = &self.peers[number].evicted;
                    written.is_bad || written.peer != number || evicted.contains(&listed)
                }
            };
            assert!(may_be, "peer {number} lists {aside:?}");
        }
    }
}

fn is_listed<S: ReplicaStore>(peer: &Peer<S>, wanted: &Content) -> bool {
    let asides = peer.store.conflicts(SPACE, 10_000).unwrap();
    asides.iter().any(|aside| content(&aside.held) == *wanted)
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
