//! The engine against a naive model, through random histories.
//!
//! In:    seeds. `SEED=n` replays one world; `FEEDMILL_STEPS=n` sets how many
//!        steps are run in all.
//! Out:   every page the engine answers equals the model's, and after every
//!        step every timeline is complete above its floor.
//! Never: a page compared with a world at another position than the engine's.
//!
//! Two worlds run side by side: `store` is ahead, as a database is; `drawn` is
//! where the engine has come to. Follows are loaded from `store`, pages are
//! judged by `drawn`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

mod apply;
mod meanwhile;
mod random;
mod world;

use apply::{apply, put, put_all};
use random::{KEYS, READERS, Random, Theme};
use std::collections::{BTreeMap, VecDeque};
use timeline::{
    Cold, KeyId, KeyList, Moment, Page, Position, Read, RecordId, Registered, Request, Settings,
    Target, Timelines,
};
use world::{Change, Post, World};

/// What the caller loaded for a reader, some time ago.
#[derive(Debug, Clone)]
struct Loaded {
    follows: KeyList,
    hidden: KeyList,
    as_of: u64,
}

impl Loaded {
    fn from(world: &World, feed: usize, reader: u32) -> Self {
        Self {
            follows: KeyList::new(world.follows_of(feed, reader).into_iter().map(KeyId)),
            hidden: KeyList::new(world.hides_of(feed, reader).into_iter().map(KeyId)),
            as_of: world.position,
        }
    }

    fn cold(&self) -> Cold<'_> {
        Cold {
            follows: &self.follows,
            hidden: &self.hidden,
            as_of: self.as_of,
        }
    }
}

struct Bench {
    random: Random,
    settings: Settings,
    theme: Theme,
    engine: Timelines,
    store: World,
    drawn: World,
    waiting: VecDeque<Change>,
    loaded: BTreeMap<(usize, u32), Loaded>,
    registered_as_of: BTreeMap<(usize, u32), u64>,
    serial: u64,
    now_us: i64,
    tally: Tally,
}

/// How often each kind of answer was seen, so that a silent test is noticed.
#[derive(Debug, Default)]
struct Tally {
    rings: u64,
    pages: u64,
    cold_pages: u64,
    below: u64,
    stale: u64,
    full: u64,
    sparse: u64,
    incomplete_checks: u64,
    restarts: u64,
    pushes: u64,
    pulled: u64,
    hibernated: u64,
    sweeps: u64,
    /// Pages with equal times, of readers with merged keys.
    ties: u64,
    /// Mixed pages of indexes with different floors.
    floors: u64,
    /// The longest queue of fan-outs.
    queue: u64,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let (settings, theme) = random::settings(&mut random);
        let store = World {
            include_self: settings
                .feeds
                .iter()
                .map(|feed| feed.include_self)
                .collect(),
            ..World::default()
        };
        let mut engine = Timelines::new(settings.clone(), 0);
        for (feed, target) in lanes(&settings) {
            engine.loaded(feed, target, None);
        }
        Self {
            random,
            settings,
            theme,
            engine,
            drawn: store.clone(),
            store,
            waiting: VecDeque::new(),
            loaded: BTreeMap::new(),
            registered_as_of: BTreeMap::new(),
            serial: 0,
            now_us: 1_700_000_000_000_000,
            tally: Tally::default(),
        }
    }

    fn step(&mut self) {
        self.now_us += self.random.pick(&[0, 1, 1_000, 900_000, 5_000_000]);
        match self.random.below(100) {
            0..40 => self.write(),
            40..65 => self.draw(),
            65..85 => self.read_any(),
            85..97 => {
                let work = self.theme.work(&mut self.random);
                self.engine.step(self.now_us, work);
            }
            97 => {
                let (feed, reader) = self.any_reader();
                self.engine.hibernate(feed, KeyId(reader));
            }
            98 => self.now_us += self.random.pick(&[1_000_000, 100_000_000, 700_000_000]),
            _ => {
                if self.theme == Theme::Floors || self.random.one_in(8) {
                    self.restart();
                }
            }
        }
        self.complete_above_every_floor();
    }

    fn write(&mut self) {
        self.serial += 1;
        let change = random::change(
            &mut self.random,
            &self.store,
            (&self.settings, self.theme),
            self.serial,
            self.now_us,
        );
        self.store.apply(&change);
        self.waiting.push_back(change);
        self.tally.queue = self.tally.queue.max(self.engine.stats().fanouts as u64);
        if self.waiting.len() > 8 || self.random.one_in(2) {
            self.draw();
        }
    }

    fn draw(&mut self) {
        let together = self.random.one_in(2);
        let mut posts: Vec<Post> = Vec::new();
        for _ in 0..1 + self.random.below(8) {
            let Some(change) = self.waiting.pop_front() else {
                break;
            };
            self.drawn.apply(&change);
            match change {
                Change::Put(post) if together => {
                    let place = |post: &Post| (post.feed, post.target);
                    if posts.last().is_some_and(|last| place(last) != place(&post)) {
                        put_all(&mut self.engine, &std::mem::take(&mut posts));
                    }
                    self.engine.begin(self.drawn.position);
                    posts.push(post);
                }
                change => {
                    put_all(&mut self.engine, &std::mem::take(&mut posts));
                    self.engine.begin(self.drawn.position);
                    apply(&mut self.engine, &change);
                }
            }
        }
        put_all(&mut self.engine, &posts);
        self.engine.end();
    }

    fn any_reader(&mut self) -> (usize, u32) {
        let feed = self.random.below(self.settings.feeds.len() as u64) as usize;
        (feed, self.random.below(u64::from(READERS)) as u32)
    }

    fn read_any(&mut self) {
        let (feed, reader) = self.any_reader();
        let targets = self.settings.feeds[feed].targets.len() as u64;
        let target = match self.random.below(targets + 1) {
            at if at < targets => Some(at as usize),
            _ => None,
        };
        let mut before = None;
        let limit = self.random.pick(&[1, 1, 2, 3, 7, 50]);
        for _ in 0..1 + self.random.below(6) {
            match self.page(feed, target, reader, before.as_ref(), limit) {
                Some(next) => before = Some(next),
                None => return,
            }
        }
    }

    /// Reads one page as a caller would; where to go on.
    fn page(
        &mut self,
        feed: usize,
        target: Option<usize>,
        reader: u32,
        before: Option<&Position>,
        limit: usize,
    ) -> Option<Position> {
        let request = Request {
            feed,
            target: target.map_or(Target::Mixed, Target::One),
            reader: KeyId(reader),
            before,
            limit,
            now_us: self.now_us,
        };
        let pages = self.engine.pages();
        let mut read = pages.read(&request, with_uris);
        match &read {
            Read::Cold => {
                let loaded = self.load(feed, reader);
                read = pages.read_cold(&request, &loaded.cold(), with_uris);
                if self.random.one_in(2) {
                    self.register(feed, reader, &loaded);
                }
                self.tally.cold_pages += u64::from(matches!(read, Read::Page(_)));
            }
            Read::Page(_) => self.tally.pages += 1,
            Read::Below | Read::Sparse => {}
            Read::Busy => panic!("nobody writes"),
        }
        let expected: Vec<&Post> = self
            .drawn
            .feed(feed, target, reader)
            .into_iter()
            .filter(|post| before.is_none_or(|before| position(post) < *before))
            .collect();
        match read {
            Read::Page((page, uris)) => {
                self.judge(&request, &expected, &page, &uris);
                self.note(&request, &page);
                page.next
            }
            Read::Sparse => {
                self.tally.sparse += 1;
                assert!(self.settings.page_scan_max < 10_000, "few are invisible");
                let last = expected.get(limit - 1).or(expected.last())?;
                Some(position(last))
            }
            Read::Below => {
                self.tally.below += 1;
                self.judge_below(&request, target, &expected);
                let last = expected.get(limit - 1).or(expected.last())?;
                Some(position(last))
            }
            Read::Cold => {
                self.tally.stale += 1;
                None
            }
            Read::Busy => panic!("nobody writes"),
        }
    }

    fn judge(&self, request: &Request<'_>, expected: &[&Post], page: &Page, uris: &[String]) {
        let (entries, next) = (&page.entries, page.next.as_ref());
        let wanted: Vec<_> = expected
            .iter()
            .filter(|post| next.is_none_or(|next| position(post) >= *next))
            .map(|post| {
                (
                    RecordId(post.id),
                    post.time_us,
                    post.target,
                    post.uri.clone(),
                )
            })
            .collect();
        let found: Vec<_> = entries
            .iter()
            .zip(uris)
            .map(|(entry, uri)| (entry.id, entry.time_us, entry.target, uri.clone()))
            .collect();
        assert_eq!(
            found,
            wanted,
            "page differs: {request:?} next {next:?} {:?}",
            self.inspect(request)
        );
        assert!(entries.len() <= request.limit.max(1));
        if let (Some(next), Some(before)) = (next, request.before) {
            assert!(next < before, "the cursor must move on");
        }
        if next.is_some() {
            assert_eq!(entries.len(), request.limit, "short page: {request:?}");
        }
    }

    /// Notes what is seldom met.
    fn note(&mut self, request: &Request<'_>, page: &Page) {
        let (engine, feed) = (&self.engine, request.feed);
        let reader = engine.inspect(feed, 0, request.reader);
        let merges = reader.is_some_and(|seen| !seen.merged.is_empty());
        let mut pairs = page.entries.windows(2);
        let tied = pairs.any(|pair| pair[0].time_us == pair[1].time_us);
        self.tally.ties += u64::from(merges && tied);
        let (one, other) = (engine.floor_us(feed, 0), engine.floor_us(feed, 1));
        let differ = other.is_some() && one != other && request.target == Target::Mixed;
        self.tally.floors += u64::from(differ && !page.entries.is_empty());
    }

    /// The store may be asked only for what the window does not hold.
    fn judge_below(&self, request: &Request<'_>, target: Option<usize>, expected: &[&Post]) {
        let floor_us = lanes(&self.settings)
            .into_iter()
            .filter(|(feed, at)| *feed == request.feed && target.is_none_or(|target| target == *at))
            .filter_map(|(feed, at)| self.engine.floor_us(feed, at))
            .max()
            .unwrap();
        assert_ne!(floor_us, i64::MIN, "nothing was ever evicted: {request:?}");
        let above = expected
            .iter()
            .filter(|post| post.time_us > floor_us)
            .count();
        assert!(
            above < request.limit,
            "the window holds this page: {request:?}"
        );
    }

    fn inspect(&self, request: &Request<'_>) -> String {
        let targets = self.settings.feeds[request.feed].targets.len();
        let all: Vec<_> = (0..targets)
            .map(|target| self.engine.inspect(request.feed, target, request.reader))
            .collect();
        format!("{all:?}")
    }

    /// Loads follows from the store, or finds them loaded some time ago.
    fn load(&mut self, feed: usize, reader: u32) -> Loaded {
        let world = if self.random.one_in(3) {
            &self.drawn
        } else {
            &self.store
        };
        let fresh = Loaded::from(world, feed, reader);
        if self.random.one_in(3)
            && let Some(old) = self.loaded.get(&(feed, reader))
        {
            return old.clone();
        }
        self.loaded.insert((feed, reader), fresh.clone());
        fresh
    }

    fn register(&mut self, feed: usize, reader: u32, loaded: &Loaded) {
        match self
            .engine
            .register(feed, KeyId(reader), &loaded.cold(), self.now_us)
        {
            Registered::Active => {
                self.registered_as_of
                    .entry((feed, reader))
                    .and_modify(|as_of| *as_of = loaded.as_of.max(*as_of))
                    .or_insert(loaded.as_of);
            }
            Registered::Stale => self.tally.stale += 1,
            Registered::Full => self.tally.full += 1,
        }
    }

    /// A new process: loads the newest records and knows no reader.
    fn restart(&mut self) {
        self.tally.restarts += 1;
        self.collect_tally();
        self.waiting.clear();
        self.registered_as_of.clear();
        self.drawn = self.store.clone();
        self.engine = Timelines::new(self.settings.clone(), self.store.position);
        for &author in &self.store.hidden_accounts {
            self.engine.account(KeyId(author), true);
        }
        for (feed, target) in lanes(&self.settings) {
            let mut posts: Vec<&Post> = self
                .store
                .posts
                .iter()
                .filter(|post| (post.feed, post.target) == (feed, target))
                .collect();
            posts.sort_by_key(|post| std::cmp::Reverse(position(post)));
            let most = self.random.pick(&[3, 10, 1_000_000]);
            let mut floor_us = None;
            for (at, post) in posts.iter().enumerate() {
                if at >= most || self.engine.is_window_full() {
                    floor_us = Some(post.time_us);
                    break;
                }
                put(&mut self.engine, post);
            }
            self.engine.loaded(feed, target, floor_us);
        }
        self.engine.end();
    }

    /// Walks all rings: what a reader should see above the floor is in the
    /// ring, or is published under a key that reads merge.
    fn complete_above_every_floor(&mut self) {
        for (feed, target) in lanes(&self.settings) {
            for reader in 0..READERS {
                let ahead = self
                    .registered_as_of
                    .get(&(feed, reader))
                    .copied()
                    .unwrap_or(0);
                if ahead > self.drawn.position {
                    continue;
                }
                let Some(seen) = self.engine.inspect(feed, target, KeyId(reader)) else {
                    continue;
                };
                if !seen.has_ring {
                    continue;
                }
                self.tally.rings += 1;
                let here = self.drawn.posts.iter().filter(|post| post.target == target);
                for post in here.filter(|post| self.drawn.reaches(post, feed, reader)) {
                    let above = post.time_us > seen.complete_after_us
                        && seen
                            .complete_above
                            .as_ref()
                            .is_none_or(|floor| position(post) > *floor);
                    if !above {
                        continue;
                    }
                    let merged = seen.merged.iter().any(|KeyId(key)| {
                        post.keys.contains(key) && self.drawn.follows_of(feed, reader).contains(key)
                            || *key == reader && post.keys.contains(key)
                    });
                    self.tally.incomplete_checks += 1;
                    assert!(
                        merged || seen.entries.contains(&RecordId(post.id)),
                        "feed {feed} target {target} reader {reader} lacks {post:?}: {seen:?}"
                    );
                }
                self.sorted_without_repeats(feed, target, &seen.entries);
            }
        }
    }

    fn sorted_without_repeats(&self, feed: usize, target: usize, entries: &[RecordId]) {
        assert!(entries.len() <= self.settings.feeds[feed].targets[target].items_max);
        let places: Vec<Position> = entries
            .iter()
            .map(|RecordId(id)| {
                position(self.drawn.posts.iter().find(|post| post.id == *id).unwrap())
            })
            .collect();
        assert!(places.is_sorted_by(|one, other| one > other), "{places:?}");
    }

    fn collect_tally(&mut self) {
        let stats = self.engine.stats();
        self.tally.pushes += stats.pushes;
        self.tally.pulled += stats.pulled;
        self.tally.hibernated += stats.hibernated;
        self.tally.sweeps += stats.sweeps;
    }
}

/// A page and the URIs of its entries.
fn with_uris(moment: &Moment<'_>, page: Page) -> (Page, Vec<String>) {
    let (mut text, mut ends) = (Vec::new(), Vec::new());
    moment.push_uris(&page.entries, &mut text, &mut ends);
    let begins = std::iter::once(0).chain(ends.iter().copied());
    let uris = begins.zip(&ends).map(|(begin, &end)| &text[begin..end]);
    let uris = uris.map(|uri| String::from_utf8(uri.to_vec()).unwrap());
    (page, uris.collect())
}

fn lanes(settings: &Settings) -> Vec<(usize, usize)> {
    let feeds = settings.feeds.iter().enumerate();
    feeds
        .flat_map(|(feed, spec)| (0..spec.targets.len()).map(move |target| (feed, target)))
        .collect()
}

fn position(post: &Post) -> Position {
    Position {
        time_us: post.time_us,
        uri: post.uri.clone(),
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

#[test]
fn every_page_equals_the_model_and_every_timeline_is_complete_above_its_floor() {
    const STEPS_PER_WORLD: u64 = 700;
    const { assert!(KEYS > READERS) };
    let steps = number("FEEDMILL_STEPS").unwrap_or(140_000);
    let first = number("SEED");
    let worlds = if first.is_some() {
        1
    } else {
        steps.div_ceil(STEPS_PER_WORLD)
    };
    let mut totals = [0u64; 16];
    for world in 0..worlds {
        let seed = first.unwrap_or(world);
        let run = std::panic::catch_unwind(|| {
            let mut bench = Bench::new(seed);
            for _ in 0..STEPS_PER_WORLD {
                bench.step();
            }
            bench.collect_tally();
            bench.tally
        });
        let Ok(t) = run else {
            panic!("replay with SEED={seed}");
        };
        let seen = [
            t.rings,
            t.pages,
            t.cold_pages,
            t.below,
            t.stale,
            t.full,
            t.sparse,
            t.incomplete_checks,
            t.restarts,
            t.pushes,
            t.pulled,
            t.hibernated,
            t.sweeps,
            t.ties,
            t.floors,
        ];
        for (total, seen) in totals.iter_mut().zip(seen) {
            *total += seen;
        }
        totals[15] = totals[15].max(t.queue);
    }
    println!(
        "rings, pages, cold pages, below, stale, full, sparse, completeness checks, restarts, pushes, pulled, \
         hibernated, sweeps, ties with merged keys, different floors, longest queue: {totals:?}"
    );
    if first.is_none() && steps >= 100_000 {
        assert!(
            totals.iter().all(|&total| total > 0),
            "a kind of answer was never seen: {totals:?}"
        );
        let [.., ties, floors, queue] = totals;
        assert!(
            ties > 300 && floors > 300 && queue > 50,
            "what is seldom met was hardly seen: {totals:?}"
        );
    }
}
