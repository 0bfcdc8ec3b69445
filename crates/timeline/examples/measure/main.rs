//! Measures the engine against the numbers of the design.
//!
//! In:    the name of a measurement: fanout, giant, cold, growth.
//! Out:   figures on the terminal, with what they must reach.
//! Never: wall time where processor time is meant.

#![allow(clippy::print_stdout)]

mod shape;
mod world;

use shape::{Random, Shape};
use std::hint::black_box;
use timeline::{Cold, KeyId, KeyList, Read, RecordId, Request, Settings, Target};
use world::{World, cpu_s, resident, settings};

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    match name.as_str() {
        "fanout" => fanout(),
        "giant" => giant(),
        "cold" => cold(),
        "growth" => growth(),
        _ => println!("one of: fanout giant cold growth"),
    }
}

fn argument(place: usize, otherwise: u32) -> u32 {
    let text = std::env::args().nth(place);
    text.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Pushes into full timelines of a million readers; then deletes and unfollows.
fn fanout() {
    let readers = argument(2, 1_000_000);
    let items_max = argument(3, 200) as usize;
    let accounts = readers;
    let shape = Shape::new(1, readers, accounts);
    shape.print();
    let before = resident();
    let mut world = World::new(Settings {
        pull_above: argument(5, 100_000) as usize,
        ..settings(items_max)
    });
    let start = cpu_s();
    for (reader, follows) in shape.follows.iter().enumerate() {
        world.register(accounts + reader as u32, follows);
        world.engine.step(world.now_us, 4_096);
    }
    world.settle();
    println!(
        "registered {readers} readers in {:.1} CPU-s",
        cpu_s() - start
    );
    let mut authors = Random(99);
    let author = |random: &mut Random| {
        let place = random.unit().powi(2) * f64::from(accounts);
        ((place as u64 * 40_503 + 123_456) % u64::from(accounts)) as u32
    };
    // Filling first: a ring that is not full yet is cheaper to push to.
    for round in 0..argument(4, 8) {
        // Addresses are made up beforehand; they are no part of the engine.
        let authors: Vec<u32> = (0..500_000).map(|_| author(&mut authors)).collect();
        let posts = world.draft(&authors);
        let start = cpu_s();
        let stats = world.engine.stats();
        for some in posts.chunks(64) {
            world.publish_all(some);
            while world.engine.stats().fanouts > 0 {
                world.engine.step(world.now_us, 65_536);
            }
        }
        let after = world.engine.stats();
        let spent = cpu_s() - start;
        println!(
            "round {round}: {} posts, {} pushes, {} left to pull, {spent:.2} CPU-s: {:.1} M pushes per CPU-s (>= 20)",
            posts.len(),
            after.pushes - stats.pushes,
            after.pulled - stats.pulled,
            (after.pushes - stats.pushes) as f64 / spent / 1e6
        );
    }
    let stats = world.engine.stats();
    println!("{stats:?}");
    let grown = resident() - before;
    let window = stats.records * timeline::RECORD_BYTES;
    println!(
        "memory: {} MB in all, {:.2} bytes per entry without the window's records (<= 6), {:.1} with",
        grown >> 20,
        (grown.saturating_sub(window)) as f64 / stats.entries as f64,
        grown as f64 / stats.entries as f64
    );
    undo(&mut world, &shape, accounts);
}

fn undo(world: &mut World, shape: &Shape, accounts: u32) {
    let mut random = Random(5);
    let start = cpu_s();
    let deletes = 20_000;
    for _ in 0..deletes {
        let id = world.posted - u64::from(random.below((world.posted / 2) as u32));
        black_box(world.engine.remove(RecordId(id)));
    }
    println!(
        "delete: {:.2} us (<= 2)",
        (cpu_s() - start) * 1e6 / f64::from(deletes)
    );
    let mut pairs = Vec::new();
    while pairs.len() < 20_000 {
        let reader = random.below(shape.follows.len() as u32);
        let list = shape
            .follows
            .get(reader as usize)
            .map_or(&[][..], Vec::as_slice);
        if let Some(&key) = list.get(random.below(list.len().max(1) as u32) as usize) {
            pairs.push((reader, key));
        }
    }
    let start = cpu_s();
    for (at, &(reader, key)) in pairs.iter().enumerate() {
        world.engine.begin(at as u64 + 1);
        world
            .engine
            .unfollow(0, KeyId(accounts + reader), KeyId(key));
    }
    println!(
        "unfollow: {:.2} us (<= 2)",
        (cpu_s() - start) * 1e6 / pairs.len() as f64
    );
}

/// One post to very many timelines, with pushing forced.
fn giant() {
    let readers = argument(2, 31_000_000);
    let items_max = 64;
    let before = resident();
    let mut world = World::new(Settings {
        pull_above: usize::MAX,
        ..settings(items_max)
    });
    let start = cpu_s();
    for reader in 0..readers {
        world.register(reader + 100, &[7]);
        if reader % 64 == 0 {
            world.engine.step(world.now_us, 1 << 16);
        }
    }
    world.settle();
    println!(
        "registered {readers} in {:.1} CPU-s, {} MB",
        cpu_s() - start,
        (resident() - before) >> 20
    );
    for post in 0..items_max + 6 {
        let start = cpu_s();
        let pushes = world.engine.stats().pushes;
        world.now_us += 1_000_000;
        world.post_at(7, world.now_us);
        while world.engine.stats().fanouts > 0 {
            world.engine.step(world.now_us, 65_536);
        }
        let spent = cpu_s() - start;
        if post < 2 || post >= items_max - 1 {
            println!(
                "post {post}: {} pushes in {spent:.3} CPU-s (<= 1), {} MB",
                world.engine.stats().pushes - pushes,
                (resident() - before) >> 20
            );
        }
    }
    let stats = world.engine.stats();
    println!(
        "{:.2} bytes per entry",
        (resident() - before) as f64 / stats.entries as f64
    );
}

/// A world of records by many authors, without readers.
fn crowd(accounts: u32, records: u32) -> World {
    let mut world = World::new(settings(200));
    let mut random = Random(3);
    for _ in 0..records {
        let place = random.unit().powi(3) * f64::from(accounts);
        world.post((place as u64 * 40_503 % u64::from(accounts)) as u32);
    }
    world
}

/// The first page of readers that were never seen.
fn cold() {
    let accounts = 1_000_000;
    let before = resident();
    let world = crowd(accounts, argument(2, 2_000_000));
    let records = world.engine.stats().records;
    println!(
        "{records} records, {} bytes each",
        (resident() - before) / records.max(1)
    );
    // The kernel counts processor time in ticks of milliseconds, so many different readers are timed together.
    for (follows, must, readers) in [
        (200, 100, 4_000),
        (1_000, 100, 2_000),
        (5_000, 200, 800),
        (300_000, 200, 60),
    ] {
        let mut random = Random(follows);
        let lists: Vec<KeyList> = (0..readers)
            .map(|_| KeyList::new((0..follows).map(|_| KeyId(random.below(accounts)))))
            .collect();
        let mut walls: Vec<f64> = Vec::new();
        let start = cpu_s();
        for list in &lists {
            let wall = std::time::Instant::now();
            let cold = Cold {
                follows: list,
                hidden: &KeyList::default(),
                as_of: 0,
            };
            let page = black_box(world.engine.read_cold(&request(1, &world), &cold));
            assert!(matches!(page, Read::Page { .. }));
            walls.push(wall.elapsed().as_secs_f64() * 1e6);
        }
        let mean = (cpu_s() - start) * 1e6 / lists.len() as f64;
        walls.sort_by(f64::total_cmp);
        let at = |share: usize| walls.get(walls.len() * share / 100).copied().unwrap_or(0.0);
        println!(
            "cold page of a reader of {follows}: mean {mean:.0} us of CPU (<= {must}); wall median {:.0}, p90 {:.0}",
            at(50),
            at(90)
        );
    }
}

fn request(reader: u32, world: &World) -> Request<'static> {
    Request {
        feed: 0,
        target: Target::One(0),
        reader: KeyId(reader),
        before: None,
        limit: 50,
        now_us: world.now_us,
    }
}

/// Fan-out and read at one and ten million stored records.
fn growth() {
    let mut before: Option<(f64, f64)> = None;
    for records in [1_000_000, 10_000_000] {
        let accounts = 1_000_000;
        let mut world = crowd(accounts, records);
        let mut random = Random(8);
        let readers = 100_000;
        for reader in 0..readers {
            let follows: Vec<u32> = (0..50).map(|_| random.below(accounts)).collect();
            world.register(accounts + reader, &follows);
            world.engine.step(world.now_us, 4_096);
        }
        world.settle();
        let start = cpu_s();
        let pushes = world.engine.stats().pushes;
        for _ in 0..1_000_000 {
            let author = random.below(accounts);
            world.post(author);
        }
        let push_ns = (cpu_s() - start) * 1e9 / (world.engine.stats().pushes - pushes) as f64;
        let start = cpu_s();
        for _ in 0..200_000 {
            let reader = accounts + random.below(readers);
            black_box(world.engine.read(&request(reader, &world)));
        }
        let read_us = (cpu_s() - start) * 1e6 / 200_000.0;
        println!(
            "{records} records: {push_ns:.1} ns per push with its post, {read_us:.2} us per page of 50"
        );
        if let Some((push, read)) = before {
            println!(
                "growth: fan-out x {:.2}, read x {:.2} (<= 1.2)",
                push_ns / push,
                read_us / read
            );
        }
        before = Some((push_ns, read_us));
    }
}
