//! Replicas converge and nothing acknowledged is lost, whatever the world does.
//!
//! `FEEDMILL_SEED=<n>` plays one seed, `FEEDMILL_SEEDS=<n>` that many.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    unreachable_pub
)]

mod model;

use blocklog::memory::Memory;
use model::{Weather, Workshop, play};

struct InMemory;

impl Workshop for InMemory {
    type Store = Memory;

    fn fresh(&self) -> Memory {
        Memory::default()
    }

    fn copy(&self, store: &Memory) -> Memory {
        store.snapshot()
    }
}

#[track_caller]
fn check(weather: Weather) {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let seeds = match number("FEEDMILL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + number("FEEDMILL_SEEDS").unwrap_or(20),
    };
    for seed in seeds {
        println!("FEEDMILL_SEED={seed} {weather:?}");
        play(InMemory, seed, weather);
    }
}

const FAIR: Weather = Weather {
    peers: 2,
    steps: 400,
    disasters: false,
    evictions: false,
    partial: false,
};

#[test]
fn two_replicas_converge_over_a_bad_network() {
    check(FAIR);
}

#[test]
fn three_replicas_converge_over_a_bad_network() {
    check(Weather { peers: 3, ..FAIR });
}

#[test]
fn a_replaced_or_rolled_back_authority_is_healed_without_loss() {
    check(Weather {
        peers: 3,
        steps: 600,
        disasters: true,
        ..FAIR
    });
}

#[test]
fn evictions_lose_nothing_that_is_still_wanted() {
    check(Weather {
        peers: 3,
        evictions: true,
        ..FAIR
    });
}

#[test]
fn everything_at_once_still_converges() {
    check(Weather {
        peers: 3,
        steps: 600,
        disasters: true,
        evictions: true,
        ..FAIR
    });
}

#[test]
fn partial_replicas_hold_what_they_asked_for() {
    check(Weather {
        peers: 3,
        steps: 500,
        disasters: true,
        partial: true,
        ..FAIR
    });
}
