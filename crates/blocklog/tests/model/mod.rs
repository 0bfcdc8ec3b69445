//! A world of one authority and some replicas, driven by a seed.
//!
//! In:    a seed, a way to make stores, how bad the world is.
//! Out:   a panic that prints the seed, or nothing.
//! Never: an oracle that asks the code under test what ought to be there: it
//!        keeps its own set of what was written and what was acknowledged.
//!
//! Messages are dropped, doubled and delivered in any order, as JSON. Replicas
//! crash and evict, the authority evicts, is rolled back to a copy, or replaced
//! by an empty one. Then the world calms down, and everything must agree.

mod check;
mod luck;

use blocklog::authority::Authority;
use blocklog::block::{BlockKey, Hash, Held};
use blocklog::chain::Draft;
use blocklog::cursor::Epoch;
use blocklog::limits::Limits;
use blocklog::message::{Reply, Request, RequestId};
use blocklog::page::{PageMax, PendingStart, Selection, Start};
use blocklog::replica::{Mode, Target};
use blocklog::signature::Author;
use blocklog::store::{FeedName, Keep, LogStore, ReplicaStore, Role};
use blocklog::sync::{Input, Sync, SyncSettings};
use blocklog::writers::Writers;
use check::mode_of;
use luck::Luck;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

pub const SPACE: &str = "space";
const FEEDS: [&str; 3] = ["f", "g", "h"];

const MODES: [Mode; 5] = [
    Mode::None,
    Mode::From(0),
    Mode::From(0),
    Mode::Tail,
    Mode::Since(9000),
];

/// Makes stores and copies of them.
pub trait Workshop {
    type Store: ReplicaStore;
    fn fresh(&self) -> Self::Store;
    fn copy(&self, store: &Self::Store) -> Self::Store;
}

/// How bad the world is.
#[derive(Debug, Clone, Copy)]
pub struct Weather {
    pub peers: usize,
    pub steps: u32,
    /// The authority is rolled back and replaced.
    pub disasters: bool,
    /// Replicas and authority evict.
    pub evictions: bool,
    /// Replicas want some feeds only, and change their minds.
    pub partial: bool,
}

struct Peer<S> {
    store: S,
    sync: Sync,
    runs: u32,
    author: Author,
    /// Blocks this replica evicted itself.
    evicted: BTreeSet<BlockKey>,
}

/// One message on its way.
#[derive(Debug, Clone)]
struct Letter {
    peer: usize,
    to_authority: bool,
    message: Value,
}

pub struct World<W: Workshop> {
    workshop: W,
    luck: Luck,
    weather: Weather,
    now_ms: u64,
    authority: W::Store,
    epochs: u8,
    /// Copies of the authority, with what each had given.
    copies: Vec<(W::Store, BTreeMap<u64, Hash>)>,
    peers: Vec<Peer<W::Store>>,
    letters: Vec<Letter>,
    /// Everything anybody wrote.
    written: BTreeMap<BlockKey, Hash>,
    /// What the present history of the authority has given each position to.
    given: BTreeMap<u64, Hash>,
    /// Blocks the authority dropped on purpose, or whose last copy within reach was
    /// evicted, or put out of reach, before a disaster.
    excused: BTreeSet<BlockKey>,
}

/// Play one seed to its end.
pub fn play<W: Workshop>(workshop: W, seed: u64, weather: Weather) {
    let mut world = World::new(workshop, seed, weather);
    for step in 0..weather.steps {
        world.step();
        if step % 16 == 0 {
            world.check_positions();
        }
    }
    world.calm_down();
    world.check_all();
}

fn settings() -> SyncSettings {
    SyncSettings {
        pull_blocks_max: 4,
        push_max: PageMax {
            blocks: 3,
            bytes: 1 << 20,
        },
        ..SyncSettings::default()
    }
}

impl<W: Workshop> World<W> {
    fn new(workshop: W, seed: u64, weather: Weather) -> Self {
        let authority = workshop.fresh();
        authority
            .open(SPACE, Role::Authority, Epoch([1; 16]))
            .unwrap();
        let mut luck = Luck::new(seed);
        let peers = (0..weather.peers)
            .map(|number| Peer::new(&workshop, number, weather.partial, &mut luck))
            .collect();
        Self {
            workshop,
            luck,
            weather,
            now_ms: 1000,
            authority,
            epochs: 1,
            copies: Vec::new(),
            peers,
            letters: Vec::new(),
            written: BTreeMap::new(),
            given: BTreeMap::new(),
            excused: BTreeSet::new(),
        }
    }

    fn step(&mut self) {
        self.now_ms += self.luck.below(400);
        let peer = self.luck.below(self.peers.len() as u64) as usize;
        match self.luck.below(100) {
            0..20 => self.write(peer),
            20..40 => self.drive(peer, Input::Tick),
            40..85 => self.deliver_some(),
            85..88 => self.drive(peer, Input::Hint),
            88..90 => self.drive(peer, Input::Lost),
            90..92 => self.peers[peer].restart(peer),
            92..95 if self.weather.evictions => self.evict_at_peer(peer),
            95..96 if self.weather.evictions => self.evict_at_authority(),
            96..97 => self.copy(),
            97..98 if self.weather.disasters => self.roll_back(),
            98..99 if self.weather.disasters && self.luck.below(3) == 0 => self.replace(),
            99..100 if self.weather.partial => self.change_lane(peer),
            _ => {}
        }
    }

    fn write(&mut self, peer: usize) {
        let feed = FEEDS[self.luck.below(3) as usize];
        let drafts: Vec<Draft> = (0..=self.luck.below(3))
            .map(|number| Draft {
                timestamp_ms: self.now_ms,
                data: format!("{peer} {} {number}", self.luck.below(1 << 40)).into(),
            })
            .collect();
        let name = FeedName {
            feed,
            namespace: (feed == "h").then_some("other"),
        };
        let author = self.peers[peer].author.clone();
        let written = self.peers[peer]
            .store
            .write(SPACE, &name, &author, &drafts, self.now_ms)
            .unwrap();
        for held in written {
            let before = self.written.insert(held.block.key(), held.hash);
            assert_eq!(
                before,
                None,
                "a sequence was used twice: {:?}",
                held.block.key()
            );
        }
        self.drive(peer, Input::Changed);
    }

    fn drive(&mut self, peer: usize, input: Input<'_>) {
        let at = &mut self.peers[peer];
        if let Some((id, request)) = at.sync.step(&at.store, self.now_ms, input).unwrap() {
            self.letters.push(Letter {
                peer,
                to_authority: true,
                message: request.to_message(&id),
            });
        }
    }

    /// Let a replica change its mind about a feed.
    fn change_lane(&mut self, peer: usize) {
        let target = Target::Feed(FEEDS[self.luck.below(3) as usize].into());
        let mode = match self.luck.below(6) {
            5 => None,
            which => Some(MODES[which as usize]),
        };
        let before = self.keys_within_reach();
        self.peers[peer]
            .store
            .set_lane(SPACE, &target, mode)
            .unwrap();
        let left = self.keys_within_reach();
        self.excused.extend(before.difference(&left).cloned());
        self.drive(peer, Input::Changed);
    }

    /// Deliver, drop or double one letter, not always the oldest.
    fn deliver_some(&mut self) {
        if self.letters.is_empty() {
            return;
        }
        let which = self.luck.below(self.letters.len() as u64) as usize;
        match self.luck.below(10) {
            0 => drop(self.letters.remove(which)),
            1 => self.deliver(self.letters[which].clone()),
            _ => {
                let letter = self.letters.remove(which);
                self.deliver(letter);
            }
        }
    }

    fn deliver(&mut self, letter: Letter) {
        let limits = Limits::default();
        if letter.to_authority {
            let reply = self.answer(&letter.message, &limits);
            self.letters.push(Letter {
                to_authority: false,
                message: reply.to_message(),
                ..letter
            });
        } else {
            let reply = Reply::parse(&letter.message, SPACE, &limits).unwrap();
            self.drive(letter.peer, Input::Reply(&reply));
        }
    }

    fn answer(&mut self, message: &Value, limits: &Limits) -> Reply {
        let authority = Authority {
            store: &self.authority,
            limits,
            writers: &Writers::Anyone,
        };
        let outcome = Request::parse(message, None, SPACE, limits)
            .and_then(|request| authority.answer(SPACE, &request, self.now_ms, &[0; 16]));
        Reply {
            id: RequestId::of(message, 128),
            outcome,
        }
    }

    fn evict_at_peer(&mut self, peer: usize) {
        let feed = FEEDS[self.luck.below(3) as usize];
        let keep = Keep::Newest(self.luck.below(6));
        let at = &mut self.peers[peer];
        let before = keys(&at.store);
        at.store.evict(SPACE, feed, keep, 4).unwrap();
        let after = keys(&at.store);
        let gone: Vec<BlockKey> = before.difference(&after).cloned().collect();
        at.evicted.extend(gone.iter().cloned());
        // A replica that evicts what a rolled-back authority no longer has,
        // before it could know, throws away the last copy.
        let left = self.keys_within_reach();
        self.excused
            .extend(gone.into_iter().filter(|key| !left.contains(key)));
    }

    /// Blocks the authority holds, or somebody who would push them.
    fn keys_within_reach(&self) -> BTreeSet<BlockKey> {
        let mut left = keys(&self.authority);
        for peer in &self.peers {
            let held = keys(&peer.store).into_iter();
            left.extend(held.filter(|key| mode_of(&peer.store, &key.feed) != Mode::None));
        }
        left
    }

    fn evict_at_authority(&mut self) {
        let feed = FEEDS[self.luck.below(3) as usize];
        let before = keys(&self.authority);
        self.authority
            .evict(SPACE, feed, Keep::Newest(5), 4)
            .unwrap();
        let after = keys(&self.authority);
        self.excused.extend(before.difference(&after).cloned());
    }

    fn copy(&mut self) {
        self.check_positions();
        let copy = self.workshop.copy(&self.authority);
        self.copies.push((copy, self.given.clone()));
    }

    fn roll_back(&mut self) {
        if self.copies.is_empty() {
            return;
        }
        let which = self.luck.below(self.copies.len() as u64) as usize;
        let (copy, given) = &self.copies[which];
        let (copy, given) = (self.workshop.copy(copy), given.clone());
        self.put_in_place(copy, given);
    }

    fn replace(&mut self) {
        let fresh = self.workshop.fresh();
        self.epochs += 1;
        fresh
            .open(SPACE, Role::Authority, Epoch([self.epochs; 16]))
            .unwrap();
        self.copies.clear();
        self.put_in_place(fresh, BTreeMap::new());
    }

    /// Another store is the authority now. A block whose only copy was in the
    /// old one, because every replica had evicted it, is beyond anybody's help.
    fn put_in_place(&mut self, store: W::Store, given: BTreeMap<u64, Hash>) {
        let before = keys(&self.authority);
        self.authority = store;
        let left = self.keys_within_reach();
        self.excused.extend(before.difference(&left).cloned());
        self.given = given;
    }

    /// No more faults: run until nobody has anything left to do.
    fn calm_down(&mut self) {
        for _ in 0..20_000 {
            self.now_ms += 1000;
            if let Some(letter) = (!self.letters.is_empty()).then(|| self.letters.remove(0)) {
                self.deliver(letter);
                continue;
            }
            let busy: Vec<usize> = (0..self.peers.len())
                .filter(|&peer| !self.peers[peer].sync.is_idle())
                .collect();
            for &peer in &busy {
                self.drive(peer, Input::Tick);
            }
            if busy.is_empty() {
                break;
            }
        }
        // One more round for everybody: whoever came to rest early has not seen
        // what the others pushed afterwards.
        for round in 0..3 {
            for peer in 0..self.peers.len() {
                self.drive(peer, Input::Changed);
            }
            let mut left = 50_000;
            while !(self.letters.is_empty() && self.peers.iter().all(|peer| peer.sync.is_idle())) {
                self.now_ms += 1000;
                match (!self.letters.is_empty()).then(|| self.letters.remove(0)) {
                    Some(letter) => self.deliver(letter),
                    None => (0..self.peers.len()).for_each(|peer| self.drive(peer, Input::Tick)),
                }
                left -= 1;
                assert!(left > 0, "round {round} never ends: {:?}", self.letters);
            }
        }
    }
}

impl<S: ReplicaStore> Peer<S> {
    fn new<W: Workshop<Store = S>>(
        workshop: &W,
        number: usize,
        partial: bool,
        luck: &mut Luck,
    ) -> Self {
        let store = workshop.fresh();
        store
            .open(SPACE, Role::Replica, Epoch([100 + number as u8; 16]))
            .unwrap();
        let set = |target, mode| store.set_lane(SPACE, &target, Some(mode)).unwrap();
        if partial && number > 0 {
            for feed in FEEDS {
                set(Target::Feed(feed.into()), MODES[luck.below(5) as usize]);
            }
        } else {
            set(Target::Space, Mode::From(0));
        }
        let mut peer = Self {
            store,
            sync: Sync::new(SPACE, "", settings(), Limits::default()),
            runs: 0,
            author: match number {
                0 => Author::keyed(&[7; 32]),
                _ => Author::named(format!("peer {number}")),
            },
            evicted: BTreeSet::new(),
        };
        peer.restart(number);
        peer
    }

    /// The process dies and starts again; the store is what it was.
    fn restart(&mut self, number: usize) {
        self.runs += 1;
        let run = format!("{number}.{}", self.runs);
        self.sync = Sync::new(SPACE, &run, settings(), Limits::default());
    }
}

/// Everything a store holds, in read order.
fn held(store: &dyn ReplicaStore) -> Vec<Held> {
    let start = Start {
        after: 0,
        pending: PendingStart::All,
    };
    let max = PageMax {
        blocks: 1_000_000,
        bytes: 1 << 40,
    };
    store
        .page(SPACE, &Selection::Space, &start, max)
        .unwrap()
        .blocks
}

fn keys(store: &dyn ReplicaStore) -> BTreeSet<BlockKey> {
    held(store)
        .into_iter()
        .map(|held| held.block.key())
        .collect()
}
