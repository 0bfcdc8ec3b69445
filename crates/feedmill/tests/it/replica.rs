//! A Feedmill as the live replica of another: the second reads the log of the
//! first, which reads a simulated network; either is killed and comes back.
//! Then every reader's whole feed on the second equals the naive model, and
//! equals the first's, times included.
//!
//! It runs the real binary. `FEEDMILL_SEED=n` replays one run.

use std::path::Path;
use std::time::{Duration, Instant};

use feedmill::crash::POINTS;
use feedmill::oracle::{self, Oracle};
use serde_json::Value;
use sim::faults::Faults;
use sim::network::{Network, NetworkOptions};
use sim::rng::Rng;
use sim::world::{World, WorldOptions};

use crate::life::{Life, PATIENCE, adds_up, free_port};
use crate::log_measures::measure;
use crate::oracle::faults;

/// One Feedmill: its file and where it serves.
struct Mill {
    file: std::path::PathBuf,
    address: String,
    life: Option<Life>,
}

impl Mill {
    fn new(folder: &Path, name: &str, text: &str, address: &str) -> Self {
        let file = folder.join(format!("{name}.toml"));
        std::fs::write(&file, text).unwrap();
        Self {
            file,
            address: address.to_owned(),
            life: None,
        }
    }

    fn begin(&mut self, crash: Option<&str>) {
        self.end(true);
        self.life = Some(Life::begin("run", &self.file, crash));
    }

    fn end(&mut self, kill: bool) {
        match self.life.take() {
            Some(life) if kill => life.kill(),
            Some(life) => drop(life.end()),
            None => {}
        }
    }
}

/// The first reads the network and publishes; the second reads the first.
fn mills(folder: &Path, network: &Network) -> (Mill, Mill) {
    let lexicons = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/lexicons");
    let addresses = [(); 2].map(|()| format!("127.0.0.1:{}", free_port()));
    let [first, second] = &addresses;
    let config = |name: &str, address: &str| {
        let store = format!("sqlite://{}", folder.join(format!("{name}.db")).display());
        let text = oracle::config(network, address, &store);
        format!("lexicons = [{lexicons:?}]\n{text}")
    };
    let backfill = format!(
        "[intake]\nbackfill = \"{}\"\nbackfill_h = 0\n",
        network.relay_url
    );
    let origin = config("first", first).replacen("[intake]\n", &backfill, 1)
        + "[log]\nfile = \"log.db\"\npublish = \"river\"\nread = \"anyone\"\n";
    let relay = format!("firehose = \"{}\"", network.relay_ws_url());
    let text = config("second", second);
    assert!(text.contains(&relay));
    let replica = text.replacen(&relay, &format!("log = \"http://{first}/log/river\""), 1);
    (
        Mill::new(folder, "first", &origin, first),
        Mill::new(folder, "second", &replica, second),
    )
}

async fn status(address: &str) -> Option<Value> {
    let answer = reqwest::get(format!("http://{address}/status")).await;
    answer.ok()?.json().await.ok()
}

/// Waits until the first has read everything up to `seq` and nobody waits for repair.
async fn settled(source: &str, address: &str, seq: u64) {
    let begun = Instant::now();
    loop {
        if let Some(status) = status(address).await {
            let cursor = status["ingestion"]["cursors"][source].as_u64().unwrap_or(0);
            let idle = status["resync"]["due"] == 0 && status["ingestion"]["pending"] == 0;
            if cursor >= seq && idle && status["backfill"]["running"] != true {
                return;
            }
        }
        assert!(begun.elapsed() < PATIENCE, "not settled in time");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The first's highest position, once it has published everything.
async fn published(first: &str) -> u64 {
    let begun = Instant::now();
    loop {
        let metrics = reqwest::get(format!("http://{first}/metrics"))
            .await
            .unwrap();
        let text = metrics.text().await.unwrap();
        if text.contains("feedmill_branch_behind_changes{branch=\"log\"} 0\n") {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "not published in time");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let question = serde_json::json!({"requestId": 1, "tail": true});
    let answer = reqwest::Client::new()
        .post(format!("http://{first}/log/river/query"))
        .json(&question)
        .send()
        .await
        .unwrap();
    let answer: Value = answer.json().await.unwrap();
    answer["maxPosition"].as_u64().unwrap()
}

/// Waits until the second has made everything up to `position` durable.
async fn caught_up(second: &str, position: u64) -> Value {
    let begun = Instant::now();
    loop {
        if let Some(status) = status(second).await {
            let cursors = status["ingestion"]["cursors"].as_object().unwrap();
            let read = cursors
                .values()
                .filter_map(Value::as_u64)
                .max()
                .unwrap_or(0)
                >> 16;
            if read >= position && status["ingestion"]["pending"] == 0 {
                return status;
            }
        }
        assert!(begun.elapsed() < PATIENCE, "not caught up in time");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Emits, kills, restarts.
async fn trouble(seed: u64, rng: &mut Rng, network: &Network, mills: &mut [Mill; 2]) {
    for _ in 0..3 + rng.below(3) {
        network.set_faults(faults(seed, rng));
        for mill in mills.iter_mut() {
            let point = rng.pick(POINTS).copied().unwrap_or("commit.before");
            let crash = format!("{point}:{}", 1 + rng.below(8));
            if mill.life.is_none() || rng.chance(0.6) {
                mill.begin(rng.chance(0.5).then_some(crash.as_str()));
            }
        }
        network.emit(50 + rng.below(200) as usize);
        tokio::time::sleep(Duration::from_millis(300 + rng.below(1500))).await;
        let kill = rng.chance(0.6);
        if let Some(mill) = mills.get_mut(rng.below(2) as usize) {
            mill.end(kill);
        }
    }
}

async fn one_run(seed: u64) {
    println!("replica: FEEDMILL_SEED={seed}");
    feedmill::identity::provide_tls();
    let since_us = feedmill::clock::Clock::Wall.now_us();
    let mut rng = Rng::new(seed);
    let world = World::new(WorldOptions {
        seed,
        accounts: 15 + rng.below(25) as usize,
        ..WorldOptions::default()
    });
    let network = Network::start(world, NetworkOptions::default())
        .await
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = mills(folder.path(), &network);
    let mut both = [first, second];
    trouble(seed, &mut rng, &network, &mut both).await;
    network.set_faults(Faults::none());
    network.settle();
    let [mut first, mut second] = both;
    first.begin(None);
    second.begin(None);
    settled("sim", &first.address, network.last_seq()).await;
    let position = published(&first.address).await;
    let status = caught_up(&second.address, position).await;
    adds_up(&status["accounting"]);
    assert_eq!(
        status["accounting"]["dead"], 0,
        "what the first believed, the second does"
    );
    let oracle = |address: &str| Oracle::new(&network, address.to_owned(), since_us);
    let outcome = oracle(&second.address)
        .every_feed(&|_, _| {})
        .await
        .unwrap();
    println!("replica: {outcome:?} {}", status["accounting"]);
    assert_eq!(outcome.first, None, "FEEDMILL_SEED={seed} replays it");
    let readers: Vec<String> = network.world(|world| {
        let accounts = world.accounts().iter();
        accounts.map(|account| account.did.to_string()).collect()
    });
    for reader in readers {
        let ours = oracle(&second.address)
            .whole("garden", &reader, 200)
            .await
            .unwrap();
        let theirs = oracle(&first.address)
            .whole("garden", &reader, 200)
            .await
            .unwrap();
        assert_eq!(ours, theirs, "{reader}");
    }
    first.end(false);
    second.end(false);
    network.stop().await;
}

#[test]
fn feeds_of_a_replica_equal_the_model_through_kills_of_either() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if let Ok(seed) = std::env::var("FEEDMILL_SEED") {
        return runtime.block_on(one_run(seed.parse().expect("FEEDMILL_SEED is a number")));
    }
    let fresh = feedmill::clock::Clock::Wall.now_us().cast_unsigned() % 1_000_000;
    for run in 0..2 {
        runtime.block_on(one_run(fresh + run));
    }
}

/// A page of all posts, as a reader sees it.
async fn posts(address: &str) -> Option<Vec<(String, i64)>> {
    let url = format!("http://{address}/xrpc/com.example.post.listRecords?limit=200");
    let page: Value = reqwest::get(url).await.ok()?.json().await.ok()?;
    let records = page["records"].as_array()?;
    let entry = |record: &Value| {
        let uri = record["uri"].as_str()?.to_owned();
        Some((uri, record["time_us"].as_i64()?))
    };
    records.iter().map(entry).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_two_examples_are_origin_and_replica() {
    feedmill::identity::provide_tls();
    let world = World::new(WorldOptions {
        seed: 11,
        accounts: 10,
        ..WorldOptions::default()
    });
    let network = Network::start(world, NetworkOptions::default())
        .await
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ports = [free_port(), free_port()];
    let example = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../examples")
            .join(name);
        let text = std::fs::read_to_string(path).unwrap();
        let place = format!("sqlite://{}/", folder.path().display());
        // Ports before the rest: a relay's address or a folder's name may hold the same digits.
        text.replace(":8080", &format!(":{}", ports[0]))
            .replace(":8081", &format!(":{}", ports[1]))
            .replace("wss://bsky.network", &network.relay_ws_url())
            .replace("sqlite://", &place)
    };
    // Only the origin knows the network; a replica has nobody to ask but its origin.
    let directory = format!("[intake]\nplc_url = \"{}\"\n", network.plc_url);
    let origin = example("log.toml") + &directory;
    let addresses = ports.map(|port| format!("127.0.0.1:{port}"));
    let mut first = Mill::new(folder.path(), "first", &origin, &addresses[0]);
    let mut second = Mill::new(
        folder.path(),
        "second",
        &example("log-replica.toml"),
        &addresses[1],
    );
    first.begin(None);
    second.begin(None);
    network.emit(300);
    network.settle();
    settled("network", &first.address, network.last_seq()).await;
    let position = published(&first.address).await;
    caught_up(&second.address, position).await;
    let (theirs, ours) = (posts(&first.address).await, posts(&second.address).await);
    assert!(
        theirs.as_ref().is_some_and(|posts| posts.len() > 10),
        "{theirs:?}"
    );
    assert_eq!(ours, theirs);
    // A whole answer: the replica has nothing more to fetch, and says nothing of fetching.
    let feed = async |address: &str| -> Value {
        let reader = network.world(|world| world.readers()[0].to_string());
        let path = format!("com.example.getFeed?feed=timeline&actor={reader}");
        let url = format!("http://{address}/xrpc/{path}");
        reqwest::get(url).await.unwrap().json().await.unwrap()
    };
    assert_eq!(feed(&second.address).await, feed(&first.address).await);
    let [origin, replica] = addresses.map(|address| format!("http://{address}"));
    let published = measure(&origin, "feedmill_log_blocks_total{by=\"river\"}").await;
    assert_eq!(published, Some(position as f64));
    let behind = measure(&replica, "feedmill_log_behind_positions{space=\"river\"}").await;
    assert_eq!(behind, Some(0.0));
    first.end(false);
    second.end(false);
    network.stop().await;
}

/// A world, its two mills, and everything read by both.
async fn both(seed: u64, folder: &Path) -> (Network, Mill, Mill) {
    feedmill::identity::provide_tls();
    let world = World::new(WorldOptions {
        seed,
        accounts: 12,
        ..WorldOptions::default()
    });
    let network = Network::start(world, NetworkOptions::default())
        .await
        .unwrap();
    let (mut first, mut second) = mills(folder, &network);
    first.begin(None);
    second.begin(None);
    go_on(&network, &first, &second).await;
    (network, first, second)
}

/// More happens, and reaches both.
async fn go_on(network: &Network, first: &Mill, second: &Mill) {
    network.emit(120);
    network.settle();
    settled("sim", &first.address, network.last_seq()).await;
    let position = published(&first.address).await;
    caught_up(&second.address, position).await;
}

/// Waits until every feed of the second equals the model.
async fn equal(network: &Network, second: &Mill, since_us: i64) {
    let begun = Instant::now();
    loop {
        let oracle = Oracle::new(network, second.address.clone(), since_us).hasty();
        // It answers 503 until it has started.
        let first = match oracle.every_feed(&|_, _| {}).await {
            Ok(outcome) if outcome.first.is_none() => return,
            outcome => format!("{outcome:?}"),
        };
        assert!(begun.elapsed() < PATIENCE, "{first}");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Takes the log's file away, or puts another in its place.
fn replace(folder: &Path, log: Option<Vec<u8>>) {
    for name in ["log.db", "log.db-wal", "log.db-shm"] {
        drop(std::fs::remove_file(folder.join(name)));
    }
    if let Some(bytes) = log {
        std::fs::write(folder.join("log.db"), bytes).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_outlives_the_rollback_and_the_loss_of_the_log_it_reads() {
    let since_us = feedmill::clock::Clock::Wall.now_us();
    let folder = tempfile::tempdir().unwrap();
    let (network, mut first, mut second) = both(31, folder.path()).await;
    equal(&network, &second, since_us).await;

    // Brought back from a copy: what was published since is published again, in other blocks.
    first.end(false);
    let copy = std::fs::read(folder.path().join("log.db")).unwrap();
    first.begin(None);
    go_on(&network, &first, &second).await;
    first.end(false);
    second.end(false);
    replace(folder.path(), Some(copy));
    network.emit(200);
    network.settle();
    first.begin(None);
    settled("sim", &first.address, network.last_seq()).await;
    published(&first.address).await;
    second.begin(None);
    let life = second.life.as_ref().unwrap();
    life.says("the log is not the one that was read").await;
    equal(&network, &second, since_us).await;

    // Lost altogether: another log, told from the records.
    first.end(true);
    replace(folder.path(), None);
    network.emit(60);
    network.settle();
    first.begin(None);
    equal(&network, &second, since_us).await;
    let accounting = status(&second.address).await.unwrap()["accounting"].clone();
    adds_up(&accounting);
    assert!(accounting["repeated"].as_i64() > Some(0), "{accounting}");
    first.end(false);
    second.end(false);
    network.stop().await;
}
