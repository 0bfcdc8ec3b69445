//! A world of one authority and some replicas, driven by a seed.
//!
//! In:    a seed, a way to make stores, how bad the world is.
//! Out:   a panic that prints the seed, or nothing.
//! Never: an oracle that asks the code under test what ought to be there: it
//!        keeps its own set of what was written and what was acknowledged.
//!
//! Messages are dropped, doubled and delivered in any order, as JSON. Replicas
//! crash and evict, write under one name, and write what is refused; the authority
//! evicts, is rolled back to a copy, or replaced by an empty one. Readers carry
//! their cursors from one log to another. Then the world calms down, and
//! everything must agree.
//!
//! No two writes have the same content, so a content names what somebody wrote
//! whatever its block is called in the end.

mod check;
mod disaster;
mod luck;
mod ranges;
mod reader;
mod together;

use blocklog::authority::Authority;
use blocklog::block::{BlockKey, Hash, Held, Payload};
use blocklog::chain::Draft;
use blocklog::cursor::Epoch;
use blocklog::limits::Limits;
use blocklog::message::{AppendRequest, Reply, Request, RequestId};
use blocklog::page::{PageMax, PendingStart, Selection, Start};
use blocklog::replica::{Mode, Target};
use blocklog::signature::Author;
use blocklog::store::{AppendError, FeedName, Keep, LogStore, ReplicaStore, Role};
use blocklog::sync::{Input, Sync, SyncSettings};
use blocklog::writers::Writers;
use check::mode_of;
use luck::Luck;
use reader::Reader;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

pub const SPACE: &str = "space";
const FEEDS: [&str; 3] = ["f", "g", "h"];

const MODES: [Mode; 6] = [
    Mode::None,
    Mode::From(0),
    Mode::From(0),
    Mode::Tail,
    Mode::Since(9000),
    Mode::From(7),
];

/// Bytes of a block that the authority takes, where it refuses some.
const BLOCK_BYTES_MAX: usize = 64;
/// The feed that the actor of peer 1 may not append to, where some are refused.
const CLOSED_FEED: &str = "g";

/// What somebody wrote.
pub type Content = Vec<u8>;

/// Makes stores and copies of them.
pub trait Workshop {
    type Store: ReplicaStore;
    fn fresh(&self) -> Self::Store;
    fn copy(&self, store: &Self::Store) -> Self::Store;

    /// Append what came together. `None` if the store died at the place named in `kill`, and was opened
    /// again: then nobody learns the outcome.
    fn append(
        &self,
        store: &mut Self::Store,
        appends: Vec<AppendRequest>,
        now_ms: u64,
        limits: &Limits,
        _kill: Option<&'static str>,
    ) -> Option<Vec<Result<Vec<Option<u64>>, AppendError>>> {
        let one = |append: &AppendRequest| {
            let namespace = append.namespace.as_deref();
            store.append(SPACE, namespace, &append.blocks, now_ms, limits)
        };
        Some(appends.iter().map(one).collect())
    }
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
    /// Replicas that write under one actor.
    pub twins: Twins,
    /// Some blocks are too large, and some actors may not write to some feeds.
    pub refusals: bool,
    /// Readers carry cursors between the authority and a replica.
    pub readers: bool,
    /// All replicas but the first want a part, and the authority is rolled back only to where that
    /// part had begun.
    pub ranges: bool,
    /// Appends that are on their way together arrive together, and the store may die while it commits them.
    pub groups: bool,
}

/// Which replicas have an actor of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Twins {
    /// All of them.
    None,
    /// None: all write under one name.
    Named,
    /// None: all sign with one key.
    Signed,
}

impl Weather {
    pub const FAIR: Self = Self {
        peers: 2,
        steps: 400,
        disasters: false,
        evictions: false,
        partial: false,
        twins: Twins::None,
        refusals: false,
        readers: false,
        ranges: false,
        groups: false,
    };

    /// What the authority takes.
    fn limits(self) -> Limits {
        match self.refusals {
            false => Limits::default(),
            true => Limits {
                block_bytes_max: BLOCK_BYTES_MAX,
                batch_bytes_max: BLOCK_BYTES_MAX * 3 / 2,
                ..Limits::default()
            },
        }
    }

    /// Who may write at the authority.
    fn writers(self, peers: usize) -> Writers {
        if !self.refusals {
            return Writers::Anyone;
        }
        let actor = |number| self.author(number).actor().to_owned();
        let all: BTreeSet<String> = (0..peers).map(actor).collect();
        let mut some = all.clone();
        some.remove(&actor(1));
        let of = |feed: &str| match feed == CLOSED_FEED {
            true => some.clone(),
            false => all.clone(),
        };
        let feeds = FEEDS.map(|feed| (feed.to_owned(), of(feed)));
        Writers::Listed(BTreeMap::from(feeds))
    }

    fn author(self, number: usize) -> Author {
        match (self.twins, number) {
            (Twins::Signed, _) | (Twins::None, 0) => Author::keyed(&[7; 32]),
            (Twins::Named, _) => Author::named("twin"),
            (Twins::None, _) => Author::named(format!("peer {number}")),
        }
    }
}

struct Peer<S> {
    store: S,
    sync: Sync,
    runs: u32,
    author: Author,
    /// What this replica evicted itself.
    evicted: BTreeSet<Content>,
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
    written: BTreeMap<Content, Written>,
    /// Every key that was used, where each replica has an actor of its own.
    used: BTreeSet<BlockKey>,
    /// What the present history of the authority has given each position to.
    given: BTreeMap<u64, Hash>,
    /// Blocks the authority dropped on purpose, or whose last copy within reach was
    /// evicted, or put out of reach, before a disaster.
    excused: BTreeSet<Content>,
    readers: Vec<Reader>,
    /// Behind which position each replica's part of a target begins.
    floors: BTreeMap<(usize, Target), u64>,
}

/// Who wrote a content, and where.
#[derive(Debug, Clone)]
struct Written {
    peer: usize,
    feed: String,
    /// Whether the authority must refuse it.
    is_bad: bool,
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
            .map(|number| Peer::new(&workshop, number, weather, &mut luck))
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
            used: BTreeSet::new(),
            given: BTreeMap::new(),
            excused: BTreeSet::new(),
            readers: vec![Reader::default(); if weather.readers { 3 } else { 0 }],
            floors: BTreeMap::new(),
        }
    }

    fn step(&mut self) {
        self.now_ms += self.luck.below(400);
        let peer = self.luck.below(self.peers.len() as u64) as usize;
        match self.luck.below(100) {
            0..20 => self.write(peer),
            20..25 if self.weather.readers => self.read(),
            20..40 => self.drive(peer, Input::Tick),
            40..52 if self.weather.groups => self.deliver_together(),
            40..85 => self.deliver_some(),
            85..88 => self.drive(peer, Input::Hint),
            88..90 => self.drive(peer, Input::Lost),
            90..92 => self.peers[peer].restart(peer),
            // A reader may begin at the replica that holds everything.
            92..95 if self.weather.evictions && !(self.weather.readers && peer == 0) => {
                self.evict_at_peer(peer);
            }
            95..96 if self.weather.evictions => self.evict_at_authority(),
            96..97 => self.copy(),
            97..98 if self.weather.disasters => self.roll_back(),
            98..99 if self.weather.disasters && !self.weather.ranges && self.luck.below(3) == 0 => {
                self.replace();
            }
            99..100 if self.weather.partial => self.change_lane(peer),
            _ => {}
        }
    }

    fn write(&mut self, peer: usize) {
        let feed = FEEDS[self.luck.below(3) as usize];
        if mode_of(&self.peers[peer].store, feed) == Mode::None {
            return self.is_refused(peer, feed);
        }
        let mut drafts = Vec::new();
        for number in 0..=self.luck.below(3) {
            let mut data = format!("{peer} {} {number}", self.luck.below(1 << 40));
            if self.weather.refusals && self.luck.below(6) == 0 {
                data.push_str(&".".repeat(BLOCK_BYTES_MAX));
            }
            let actor = |number| self.weather.author(number).actor().to_owned();
            let is_closed = self.weather.refusals && feed == CLOSED_FEED && actor(peer) == actor(1);
            let written = Written {
                peer,
                feed: feed.to_owned(),
                is_bad: is_closed || self.weather.refusals && data.len() > BLOCK_BYTES_MAX,
            };
            self.written.insert(data.clone().into(), written);
            drafts.push(Draft {
                timestamp_ms: self.now_ms,
                data: data.into(),
            });
        }
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
            let is_new = self.used.insert(held.block.key());
            let key = held.block.key();
            let alone = self.weather.twins == Twins::None;
            assert!(is_new || !alone, "a sequence was used twice: {key:?}");
        }
        self.drive(peer, Input::Changed);
    }

    /// What a replica does not replicate it does not take either.
    fn is_refused(&mut self, peer: usize, feed: &str) {
        let name = FeedName {
            feed,
            namespace: None,
        };
        let draft = Draft {
            timestamp_ms: self.now_ms,
            data: b"refused".to_vec(),
        };
        let peer = &self.peers[peer];
        let written = peer
            .store
            .write(SPACE, &name, &peer.author, &[draft], self.now_ms);
        assert!(written.is_err(), "{feed} is not replicated");
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
        let mode = match self.luck.below(7) {
            6 => None,
            which => Some(MODES[which as usize]),
        };
        let before = self.within_reach();
        self.peers[peer]
            .store
            .set_lane(SPACE, &target, mode)
            .unwrap();
        let left = self.within_reach();
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
            let reply = self.answer(&letter.message);
            self.note_floor(letter.peer, &letter.message, &reply);
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

    fn answer(&mut self, message: &Value) -> Reply {
        let limits = self.weather.limits();
        let writers = self.weather.writers(self.peers.len());
        let authority = Authority {
            store: &self.authority,
            limits: &limits,
            writers: &writers,
        };
        let outcome = Request::parse(message, None, SPACE, &limits)
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
        let before = contents(&at.store);
        at.store.evict(SPACE, feed, keep, 4).unwrap();
        let after = contents(&at.store);
        let gone: Vec<Content> = before.difference(&after).cloned().collect();
        at.evicted.extend(gone.iter().cloned());
        // A replica that evicts what a rolled-back authority no longer has,
        // before it could know, throws away the last copy.
        let left = self.within_reach();
        self.excused
            .extend(gone.into_iter().filter(|key| !left.contains(key)));
    }

    /// Blocks the authority holds, or somebody who would push them.
    fn within_reach(&self) -> BTreeSet<Content> {
        let mut left = contents(&self.authority);
        for peer in &self.peers {
            let held = contents(&peer.store).into_iter();
            let feed_of = |content: &Content| self.written.get(content).map(|of| of.feed.clone());
            left.extend(held.filter(|content| {
                feed_of(content).is_some_and(|feed| mode_of(&peer.store, &feed) != Mode::None)
            }));
        }
        left
    }

    fn evict_at_authority(&mut self) {
        let feed = FEEDS[self.luck.below(3) as usize];
        let before = contents(&self.authority);
        self.authority
            .evict(SPACE, feed, Keep::Newest(5), 4)
            .unwrap();
        let after = contents(&self.authority);
        self.excused.extend(before.difference(&after).cloned());
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
        weather: Weather,
        luck: &mut Luck,
    ) -> Self {
        let store = workshop.fresh();
        store
            .open(SPACE, Role::Replica, Epoch([100 + number as u8; 16]))
            .unwrap();
        let set = |target, mode| store.set_lane(SPACE, &target, Some(mode)).unwrap();
        if weather.ranges && number > 0 {
            for (target, mode) in ranges::lanes(luck) {
                set(target, mode);
            }
        } else if weather.partial && number > 0 {
            for feed in FEEDS {
                set(Target::Feed(feed.into()), MODES[luck.below(6) as usize]);
            }
        } else {
            set(Target::Space, Mode::From(0));
        }
        let mut peer = Self {
            store,
            sync: Sync::new(SPACE, "", settings(), Limits::default()),
            runs: 0,
            author: weather.author(number),
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

/// What a block carries. Nobody purges here.
fn content(held: &Held) -> Content {
    match &held.block.payload {
        Payload::Bytes(bytes) => bytes.clone(),
        Payload::Purged { .. } => panic!("{:?} was purged", held.block.key()),
    }
}

fn contents(store: &dyn ReplicaStore) -> BTreeSet<Content> {
    held(store).iter().map(content).collect()
}
