//! The oracle: random worlds, faults on the wire, restarts and kills; then
//! every reader's whole feed equals the naive model, and the accounting of
//! every unit adds up.
//!
//! It runs the real binary. `FEEDMILL_SEED=n` replays one run,
//! `FEEDMILL_ORACLE_RUNS=n` makes that many with fresh seeds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use feedmill::crash::POINTS;
use feedmill::oracle::{Oracle, feeds};
use sim::faults::{Fault, Faults};
use sim::network::{Network, NetworkOptions};
use sim::rng::Rng;
use sim::traffic::Traffic;
use sim::world::{World, WorldOptions};

use crate::life::{Home, Life, adds_up};

pub(crate) fn faults(seed: u64, rng: &mut Rng) -> Faults {
    let mut faults = Faults {
        seed,
        ..Faults::none()
    };
    let kinds = [
        (Fault::Drop, 0.02),
        (Fault::Double, 0.05),
        (Fault::Reorder, 0.05),
        (Fault::Corrupt, 0.01),
        (Fault::Garbage, 0.01),
        (Fault::Unknown, 0.01),
        (Fault::Oversized, 0.001),
        (Fault::Disconnect, 0.002),
        (Fault::Tear, 0.002),
        (Fault::Future, 0.1),
    ];
    for (fault, rate) in kinds {
        if rng.chance(0.6) {
            faults = faults.with(fault, rate);
        }
    }
    faults
}

/// Runs one world; how many entries of each kind of feed were compared.
async fn one_run(seed: u64) -> BTreeMap<&'static str, usize> {
    println!("oracle: FEEDMILL_SEED={seed}");
    let since_us = feedmill::clock::Clock::Wall.now_us();
    let mut rng = Rng::new(seed);
    let world = World::new(WorldOptions {
        seed,
        accounts: 15 + rng.below(45) as usize,
        traffic: Traffic::lively().and_library(),
        ..WorldOptions::default()
    });
    let network = Network::start(world, NetworkOptions::default())
        .await
        .expect("a network");
    // Of an account whose beginning was lost nothing in the stream tells that it matters; the list does.
    // Small thresholds, so that keys are pushed, pulled and scanned, and turn from one to another.
    let backfill = format!(
        "[timelines]\npull_above = {}\nscan_above = {}\nsync_threshold = {}\n\
         [intake]\nbackfill = \"{}\"\nbackfill_h = 0\n",
        1 + rng.below(8),
        1 + rng.below(8),
        rng.below(6),
        network.relay_url
    );
    let home = Home::new(&network, &[("[intake]\n", &backfill)]);

    for _ in 0..2 + rng.below(4) {
        network.set_faults(faults(seed, &mut rng));
        let point = rng.pick(POINTS).copied().unwrap_or("commit.before");
        let crash = format!("{point}:{}", 1 + rng.below(8));
        let mut life = Life::begin("run", &home.file, rng.chance(0.6).then_some(crash.as_str()));
        network.emit(50 + rng.below(300) as usize);
        let patience = Instant::now() + Duration::from_millis(200 + rng.below(1500));
        while !life.is_over() && Instant::now() < patience {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if rng.chance(0.5) {
            life.kill();
        } else {
            life.end();
        }
    }

    network.set_faults(Faults::none());
    network.settle();
    let mut life = Life::begin("run", &home.file, None);
    let status = home.settled(network.last_seq(), &mut [&mut life]).await;
    let status = status.unwrap_or_else(|| panic!("seed {seed}: the last life ended early"));
    adds_up(&status["accounting"]);
    let outcome = Oracle::new(&network, home.address.clone(), since_us)
        .every_feed(&|_, _| {})
        .await;
    life.end();
    network.stop().await;
    let outcome = outcome.expect("pages are served");
    println!("oracle: {outcome:?} {}", status["accounting"]);
    assert_eq!(outcome.first, None, "FEEDMILL_SEED={seed} replays it");
    outcome.shown
}

#[test]
fn feeds_equal_the_model_through_faults_restarts_and_kills() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if let Ok(seed) = std::env::var("FEEDMILL_SEED") {
        let seed = seed.parse().expect("FEEDMILL_SEED is a number");
        runtime.block_on(one_run(seed));
        return;
    }
    let runs =
        std::env::var("FEEDMILL_ORACLE_RUNS").map_or(3, |runs| runs.parse().expect("a number"));
    let fresh = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_micros() as u64
        % 1_000_000;
    let mut shown: BTreeMap<&str, usize> = BTreeMap::new();
    for run in 0..runs {
        for (kind, entries) in runtime.block_on(one_run(fresh + run)) {
            *shown.entry(kind).or_default() += entries;
        }
    }
    for kind in feeds::every() {
        let entries = shown.get(kind.kind).copied();
        let enough = entries.is_some_and(|entries| entries > 10);
        assert!(
            enough,
            "next to nothing of {} was compared: {shown:?}",
            kind.kind
        );
    }
}
