//! Pages that some threads read while another writes.
//!
//! In:    seeds, as for the model; what the threads do beside each other is theirs.
//! Out:   every page equals the model's at one instant of its reading, and where
//!        the engine says at which position it is so, at that one.
//! Never: a lock that a reader and the writer of the engine share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use timeline::{KeyId, Page, Pages, Position, Read, Request, Settings, Target, Timelines};

use crate::apply::{apply, put_all};
use crate::random::{self, READERS, Random, Theme};
use crate::world::{Change, Post, World};
use crate::{Loaded, lanes, position, with_uris};

/// Groups of changes in one world.
const GROUPS: u64 = 500;
const THREADS: u64 = 2;
/// Readers that wait to be registered.
const WISHES_MAX: usize = 8;

/// What readers and writer share besides the engine.
struct Scene {
    pages: Pages,
    settings: Settings,
    theme: Theme,
    /// The world at each position that can be seen, the last one perhaps not yet.
    history: Mutex<Vec<Arc<World>>>,
    /// Readers that want to be registered.
    wishes: Mutex<Vec<(usize, u32, Loaded)>>,
    done: AtomicBool,
    told: [AtomicU64; 4],
}

/// What was seen: pages of active readers, of cold ones, at a known position, and none.
#[derive(Clone, Copy)]
enum Told {
    Active,
    Cold,
    Placed,
    Busy,
}

impl Scene {
    fn tell(&self, told: Told) {
        self.told[told as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn worlds(&self, from: u64, to: u64) -> Vec<Arc<World>> {
        let history = self.history.lock().unwrap();
        let first = history.partition_point(|world| world.position < from);
        let worlds = history[first..].iter();
        worlds
            .take_while(|world| world.position <= to)
            .cloned()
            .collect()
    }

    /// Draws until nothing is left to draw.
    fn write(&self, engine: &mut Timelines, seed: u64) {
        let mut random = Random(seed);
        let mut world = World::clone(self.history.lock().unwrap().last().unwrap());
        let (mut serial, mut now_us) = (0, 1_700_000_000_000_000);
        for _ in 0..GROUPS {
            now_us += random.pick(&[0, 1, 1_000, 900_000, 5_000_000]);
            let together = random.one_in(2);
            let mut posts: Vec<Post> = Vec::new();
            for _ in 0..random.pick(&[1, 1, 1, 2, 3, 5]) {
                serial += 1;
                let setup = (&self.settings, self.theme);
                let change = random::change(&mut random, &world, setup, serial, now_us);
                world.apply(&change);
                engine.begin(world.position);
                match change {
                    Change::Put(post) if together => {
                        let place = |post: &Post| (post.feed, post.target);
                        if posts.last().is_some_and(|last| place(last) != place(&post)) {
                            put_all(engine, &std::mem::take(&mut posts));
                        }
                        posts.push(post);
                    }
                    change => {
                        put_all(engine, &std::mem::take(&mut posts));
                        apply(engine, &change);
                    }
                }
            }
            put_all(engine, &posts);
            self.history.lock().unwrap().push(Arc::new(world.clone()));
            engine.end();
            self.tend(engine, &mut random, now_us);
        }
    }

    fn tend(&self, engine: &mut Timelines, random: &mut Random, now_us: i64) {
        let wishes = std::mem::take(&mut *self.wishes.lock().unwrap());
        for (feed, reader, loaded) in wishes {
            engine.register(feed, KeyId(reader), &loaded.cold(), now_us);
        }
        for _ in 0..random.below(4) {
            let work = self.theme.work(random);
            engine.step(now_us, work);
        }
        if random.one_in(40) {
            let feed = random.below(self.settings.feeds.len() as u64) as usize;
            let reader = random.below(u64::from(READERS)) as u32;
            engine.hibernate(feed, KeyId(reader));
        }
    }

    /// Reads whatever until all is written.
    fn read(&self, seed: u64) {
        let mut random = Random(seed);
        while !self.done.load(Ordering::Relaxed) {
            let feed = random.below(self.settings.feeds.len() as u64) as usize;
            let targets = self.settings.feeds[feed].targets.len() as u64;
            let target = match random.below(targets + 1) {
                at if at < targets => Some(at as usize),
                _ => None,
            };
            let reader = random.below(u64::from(READERS)) as u32;
            let limit = random.pick(&[1, 2, 3, 7, 50]);
            let mut before = None;
            for _ in 0..1 + random.below(4) {
                let wish = Wish {
                    feed,
                    target,
                    reader,
                    limit,
                };
                before = self.page(&mut random, &wish, before.as_ref());
                if before.is_none() {
                    break;
                }
            }
        }
    }

    /// Reads one page as a caller would; where to go on.
    fn page(
        &self,
        random: &mut Random,
        wish: &Wish,
        before: Option<&Position>,
    ) -> Option<Position> {
        let request = Request {
            feed: wish.feed,
            target: wish.target.map_or(Target::Mixed, Target::One),
            reader: KeyId(wish.reader),
            before,
            limit: wish.limit,
            now_us: 1_700_000_000_000_000,
        };
        let mut from = self.pages.position();
        let take = |moment: &timeline::Moment<'_>, page: Page| {
            (moment.position(), with_uris(moment, page))
        };
        let mut read = self.pages.read(&request, take);
        let mut told = Told::Active;
        if matches!(read, Read::Cold) {
            let world = Arc::clone(self.history.lock().unwrap().last().unwrap());
            let loaded = Loaded::from(&world, wish.feed, wish.reader);
            from = self.pages.position();
            read = self.pages.read_cold(&request, &loaded.cold(), take);
            told = Told::Cold;
            let mut wishes = self.wishes.lock().unwrap();
            if random.one_in(2) && wishes.len() < WISHES_MAX {
                wishes.push((wish.feed, wish.reader, loaded));
            }
        }
        let to = self.pages.position();
        let (placed, (page, uris)) = match read {
            Read::Page(page) => page,
            Read::Cold | Read::Below | Read::Sparse => return None,
            Read::Busy => {
                self.tell(Told::Busy);
                return None;
            }
        };
        self.tell(told);
        let worlds = self.worlds(from, to);
        let agrees = |world: &World| self.agrees(world, wish, before, &page, &uris);
        assert!(
            worlds.iter().any(|world| agrees(world)),
            "no world of {from}..={to} has this page of {request:?}: {page:?} {uris:?}"
        );
        if let Some(at) = placed {
            self.tell(Told::Placed);
            let mut worlds = worlds.iter().filter(|world| world.position == at);
            assert!(
                worlds.all(|world| agrees(world)),
                "the world at {at} has another page of {request:?}: {page:?} {uris:?}"
            );
        }
        page.next
    }

    /// Whether this is the page of a world.
    fn agrees(
        &self,
        world: &World,
        wish: &Wish,
        before: Option<&Position>,
        page: &Page,
        uris: &[String],
    ) -> bool {
        let all = world.feed(wish.feed, wish.target, wish.reader);
        let wanted = all
            .into_iter()
            .filter(|post| before.is_none_or(|before| position(post) < *before))
            .filter(|post| {
                page.next
                    .as_ref()
                    .is_none_or(|next| position(post) >= *next)
            })
            .map(|post| (post.id, post.time_us, post.target, post.uri.as_str()));
        let entries = page.entries.iter().zip(uris);
        let found = entries.map(|(entry, uri)| {
            let timeline::RecordId(id) = entry.id;
            (id, entry.time_us, entry.target, uri.as_str())
        });
        let full = page.next.is_none() || page.entries.len() == wish.limit;
        full && wanted.eq(found)
    }
}

/// What a page is asked for.
struct Wish {
    feed: usize,
    target: Option<usize>,
    reader: u32,
    limit: usize,
}

/// Says that all is written when it goes, also if the writer failed: readers that go on for ever
/// would keep that to themselves.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One world; how often each kind of page was seen.
fn run(seed: u64) -> [u64; 4] {
    let mut random = Random(seed);
    let (settings, theme) = random::settings(&mut random);
    let include_self = settings.feeds.iter().map(|feed| feed.include_self);
    let world = World {
        include_self: include_self.collect(),
        ..World::default()
    };
    let mut engine = Timelines::new(settings.clone(), 0);
    for (feed, target) in lanes(&settings) {
        engine.loaded(feed, target, None);
    }
    let scene = Scene {
        pages: engine.pages(),
        settings,
        theme,
        history: Mutex::new(vec![Arc::new(world)]),
        wishes: Mutex::new(Vec::new()),
        done: AtomicBool::new(false),
        told: Default::default(),
    };
    std::thread::scope(|scope| {
        let scene = &scene;
        let readers: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || scene.read(seed * 31 + thread)))
            .collect();
        let end = End(&scene.done);
        scene.write(&mut engine, seed);
        drop(end);
        for reader in readers {
            reader.join().unwrap();
        }
    });
    scene
        .told
        .each_ref()
        .map(|told| told.load(Ordering::Relaxed))
}

#[test]
fn every_page_read_while_others_write_is_that_of_one_instant() {
    let steps = crate::number("FEEDMILL_STEPS").unwrap_or(140_000);
    let first = crate::number("SEED");
    let worlds = first.map_or(steps / 1_000, |_| 1);
    let mut totals = [0u64; 4];
    for world in 0..worlds {
        let seed = first.unwrap_or(world);
        let Ok(told) = std::panic::catch_unwind(|| run(seed)) else {
            panic!("SEED={seed}; it may take several runs to see it again");
        };
        for (total, told) in totals.iter_mut().zip(told) {
            *total += told;
        }
    }
    println!("pages of active readers, of cold ones, at a known position, none: {totals:?}");
    assert!(
        first.is_some() || totals[..3].iter().all(|&total| total > 0),
        "a kind of page was never seen: {totals:?}"
    );
}
