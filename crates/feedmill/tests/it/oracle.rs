//! The oracle: random worlds, faults on the wire, restarts and kills; then
//! every reader's whole feed equals the naive model, and the accounting of
//! every unit adds up.
//!
//! It runs the real binary. `FEEDMILL_SEED=n` replays one run,
//! `FEEDMILL_ORACLE_RUNS=n` makes that many with fresh seeds.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use feedmill::crash::POINTS;
use feedmill::oracle::{self, Oracle};
use serde_json::Value;
use sim::faults::{Fault, Faults};
use sim::network::{Network, NetworkOptions};
use sim::rng::Rng;
use sim::world::{World, WorldOptions};

/// One life of the process.
pub(crate) struct Life {
    child: Child,
}

impl Life {
    pub(crate) fn begin(config: &Path, crash: Option<&str>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_feedmill"));
        command
            .arg("run")
            .arg(config)
            .env("RUST_LOG", "error")
            .stdout(Stdio::null());
        if let Some(point) = crash {
            command.env("FEEDMILL_CRASH", point);
        }
        Self {
            child: command.spawn().expect("the binary starts"),
        }
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.child
            .try_wait()
            .expect("a child can be asked")
            .is_some()
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn end(mut self) {
        let pid = self.child.id().to_string();
        Command::new("kill").arg(&pid).status().expect("kill runs");
        self.child.wait().expect("it ends");
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().ok();
        self.child.wait().expect("it is gone");
    }
}

pub(crate) async fn status(address: &str) -> Option<Value> {
    let text = reqwest::get(format!("http://{address}/status"))
        .await
        .ok()?;
    text.json().await.ok()
}

/// Waits until everything up to `seq` is durable and nobody waits for repair.
pub(crate) async fn settled(address: &str, seq: u64, life: &mut Life) -> Option<Value> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(240) {
        if life.is_over() {
            return None;
        }
        if let Some(status) = status(address).await {
            let cursor = status["ingestion"]["cursors"]["sim"].as_u64().unwrap_or(0);
            let due = status["resync"]["due"].as_u64().unwrap_or(1);
            let listing = status["backfill"]["running"] != false;
            let pending = status["ingestion"]["pending"] != 0;
            if cursor >= seq && due == 0 && !pending && !listing {
                return Some(status);
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not settled in time: {:?}", status(address).await);
}

pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
    listener.local_addr().expect("an address").port()
}

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

async fn one_run(seed: u64) {
    println!("oracle: FEEDMILL_SEED={seed}");
    feedmill::identity::provide_tls();
    let since_us = feedmill::clock::Clock::Wall.now_us();
    let mut rng = Rng::new(seed);
    let world = World::new(WorldOptions {
        seed,
        accounts: 15 + rng.below(45) as usize,
        ..WorldOptions::default()
    });
    let network = Network::start(world, NetworkOptions::default())
        .await
        .expect("a network");
    let folder = tempfile::tempdir().expect("a folder");
    let address = format!("127.0.0.1:{}", free_port());
    let store = format!("sqlite://{}", folder.path().join("store.db").display());
    let lexicons = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/lexicons");
    let text = format!(
        "lexicons = [{lexicons:?}]\n{}",
        oracle::config(&network, &address, &store)
    );
    // Of an account whose beginning was lost nothing in the stream tells that it matters; the list does.
    let backfill = format!(
        "[intake]\nbackfill = \"{}\"\nbackfill_h = 0\n",
        network.relay_url
    );
    let text = text.replacen("[intake]\n", &backfill, 1);
    let file = folder.path().join("feedmill.toml");
    std::fs::write(&file, text).expect("a file");

    for _ in 0..2 + rng.below(4) {
        network.set_faults(faults(seed, &mut rng));
        let point = rng.pick(POINTS).copied().unwrap_or("commit.before");
        let crash = format!("{point}:{}", 1 + rng.below(8));
        let mut life = Life::begin(&file, rng.chance(0.6).then_some(crash.as_str()));
        network.emit(50 + rng.below(300) as usize);
        let patience = Instant::now() + Duration::from_millis(200 + rng.below(1500));
        while !life.is_over() && Instant::now() < patience {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if rng.chance(0.5) {
            life.kill()
        } else {
            life.end()
        }
    }

    network.set_faults(Faults::none());
    network.settle();
    let mut life = Life::begin(&file, None);
    let status = settled(&address, network.last_seq(), &mut life).await;
    let status = status.unwrap_or_else(|| panic!("seed {seed}: the last life ended early"));
    check_accounting(seed, &status["accounting"]);
    let outcome = Oracle::new(&network, address.clone(), since_us)
        .every_feed(&|_, _| {})
        .await;
    life.end();
    network.stop().await;
    let outcome = outcome.expect("pages are served");
    println!("oracle: {outcome:?} {}", status["accounting"]);
    assert_eq!(outcome.first, None, "FEEDMILL_SEED={seed} replays it");
}

pub(crate) fn check_accounting(seed: u64, accounting: &Value) {
    let count = |name: &str| accounting[name].as_i64().expect("a number");
    let sum: i64 = [
        "applied",
        "repeated",
        "superseded",
        "filtered",
        "pending",
        "parked",
        "held",
        "dead",
    ]
    .into_iter()
    .map(count)
    .sum();
    assert_eq!(count("received"), sum, "seed {seed}: {accounting}");
}

#[test]
fn feeds_equal_the_model_through_faults_restarts_and_kills() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if let Ok(seed) = std::env::var("FEEDMILL_SEED") {
        return runtime.block_on(one_run(seed.parse().expect("FEEDMILL_SEED is a number")));
    }
    let runs =
        std::env::var("FEEDMILL_ORACLE_RUNS").map_or(3, |runs| runs.parse().expect("a number"));
    let fresh = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_micros() as u64
        % 1_000_000;
    for run in 0..runs {
        runtime.block_on(one_run(fresh + run));
    }
}
