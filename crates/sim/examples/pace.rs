//! How fast a world begins and how fast it moves, in CPU time of one thread.
//!
//! `cargo run --release -p sim --example pace -- [ACCOUNTS] [EVENTS] [SEED]`
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::time::Instant;

use sim::event::Body;
use sim::world::{World, WorldOptions};

/// CPU seconds this process has used, from the kernel's account in ticks of 10 ms.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit(") ").next().unwrap();
    let ticks: f64 = after_name
        .split(' ')
        .skip(11)
        .take(2)
        .map(|field| field.parse::<f64>().unwrap())
        .sum();
    ticks / 100.0
}

fn main() {
    let numbers: Vec<u64> = std::env::args()
        .skip(1)
        .map(|text| text.parse().unwrap())
        .collect();
    let accounts = numbers.first().map_or(2000, |it| *it as usize);
    let wanted = numbers.get(1).map_or(50_000, |it| *it as usize);
    let seed = numbers.get(2).copied().unwrap_or(1);
    let (started, cpu) = (Instant::now(), cpu_s());
    let mut world = World::new(WorldOptions {
        seed,
        accounts,
        ..WorldOptions::default()
    });
    let history = world.take_genesis().len();
    println!("seed {seed}: {}", world.marginals());
    println!(
        "start: {:.2} s wall, {:.2} s CPU, {history} events, {} records",
        started.elapsed().as_secs_f64(),
        cpu_s() - cpu,
        world.model().records().count(),
    );
    let cpu = cpu_s();
    let (mut events, mut bytes, mut commits) = (0, 0, 0);
    while events < wanted {
        for event in world.step() {
            events += 1;
            bytes += event.frame.len();
            commits += usize::from(matches!(event.body, Body::Commit { .. }));
        }
    }
    let used = cpu_s() - cpu;
    println!(
        "live: {events} events ({commits} commits, {} bytes each) in {used:.2} s CPU: {:.0} per CPU-second",
        bytes / events,
        events as f64 / used,
    );
}
