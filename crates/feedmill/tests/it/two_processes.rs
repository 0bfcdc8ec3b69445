//! `ingest` and `serve` on one SQLite file: either is killed at every named
//! place and at any moment, and started again, while the other goes on.

use std::time::{Duration, Instant};

use feedmill::crash::POINTS;
use feedmill::oracle::Oracle;
use sim::compose::POST;
use sim::faults::{Fault, Faults};
use sim::network::{Network, NetworkOptions};
use sim::rng::Rng;
use sim::world::{World, WorldOptions};

use crate::life::{Home, Life, PATIENCE, adds_up};

/// How long a life may take to reach its crash point.
const REACHED_MAX: Duration = Duration::from_secs(120);

async fn network(seed: u64) -> Network {
    let world = World::new(WorldOptions {
        seed,
        accounts: 30,
        ..WorldOptions::default()
    });
    Network::start(world, NetworkOptions::default())
        .await
        .expect("a network")
}

/// Waits until the server shows every feed as the model has it; fails if it never does.
pub(crate) async fn equal(network: &Network, home: &Home, since_us: i64, lives: &mut [&mut Life]) {
    let status = home.settled(network.last_seq(), lives).await;
    adds_up(&status.expect("both live")["accounting"]);
    let oracle = Oracle::new(network, home.address.clone(), since_us).hasty();
    let begun = Instant::now();
    loop {
        let outcome = oracle.every_feed(&|_, _| {}).await.expect("pages");
        if outcome.mismatches == 0 {
            assert!(outcome.entries > 0, "nothing was compared");
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{:?}", outcome.first);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Loss and repetition, so that repairs happen and their crash point is passed.
fn faults(seed: u64) -> Faults {
    let faults = Faults {
        seed,
        ..Faults::none()
    };
    faults
        .with(Fault::Drop, 0.03)
        .with(Fault::Double, 0.05)
        .with(Fault::Disconnect, 0.002)
}

#[tokio::test(flavor = "multi_thread")]
async fn ingest_killed_at_every_crash_point_loses_nothing_and_the_server_goes_on() {
    const SEED: u64 = 61;
    let network = network(SEED).await;
    let backfill = format!(
        "[intake]\nbackfill = \"{}\"\nbackfill_h = 0\n",
        network.relay_url
    );
    let home = Home::new(&network, &[("[intake]\n", &backfill)]);
    let since_us = feedmill::clock::Clock::Wall.now_us();
    let mut rng = Rng::new(SEED);
    let mut server = Life::begin("serve", &home.file, None);
    network.set_faults(faults(SEED));
    for point in POINTS {
        for _ in 0..2 {
            let crash = format!("{point}:{}", 1 + rng.below(6));
            let mut ingest = Life::begin("ingest", &home.file, Some(&crash));
            let begun = Instant::now();
            while !ingest.is_over() {
                assert!(begun.elapsed() < REACHED_MAX, "{crash} was never reached");
                network.emit(30);
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
            assert!(
                !server.is_over(),
                "the server went with it: {crash}: {:?}",
                server.said("")
            );
            if let Some(status) = home.status().await {
                adds_up(&status["accounting"]);
            }
        }
    }
    network.set_faults(Faults::none());
    network.settle();
    let mut ingest = Life::begin("ingest", &home.file, None);
    equal(&network, &home, since_us, &mut [&mut ingest, &mut server]).await;
    assert!(ingest.end().success());
    assert!(server.end().success());
    network.stop().await;
}

/// Asks the server to fetch somebody's posts: it writes them itself. It may be gone before it answers.
async fn notify(network: &Network, home: &Home, rng: &mut Rng) {
    let uris: Vec<String> = network.world(|world| {
        let at = rng.below(world.accounts().len() as u64) as usize;
        let account = &world.accounts()[at];
        let posts = account.repo.collection(POST);
        let uris = posts.map(|(path, _)| format!("at://{}/{path}", account.did));
        uris.take(5).collect()
    });
    let url = format!("http://{}/xrpc/com.example.notifyOfUpdate", home.address);
    let body = serde_json::json!({ "uris": uris });
    drop(reqwest::Client::new().post(url).json(&body).send().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_killed_in_its_own_writes_loses_nothing_and_ingest_goes_on() {
    const SEED: u64 = 63;
    let network = network(SEED).await;
    let home = Home::new(&network, &[("[serve]\n", "[serve]\nnotify = \"open\"\n")]);
    let since_us = feedmill::clock::Clock::Wall.now_us();
    let mut rng = Rng::new(SEED);
    let mut ingest = Life::begin("ingest", &home.file, None);
    network.emit(200);
    // Repairs are the business of the other process.
    for point in POINTS.iter().filter(|point| point.starts_with("commit.")) {
        let crash = format!("{point}:{}", 1 + rng.below(3));
        let mut server = Life::begin("serve", &home.file, Some(&crash));
        let begun = Instant::now();
        while !server.is_over() {
            assert!(begun.elapsed() < REACHED_MAX, "{crash} was never reached");
            network.emit(30);
            notify(&network, &home, &mut rng).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(!ingest.is_over(), "ingest went with it: {crash}");
    }
    network.settle();
    let mut server = Life::begin("serve", &home.file, None);
    equal(&network, &home, since_us, &mut [&mut ingest, &mut server]).await;
    assert!(ingest.end().success());
    assert!(server.end().success());
    network.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn either_process_killed_at_any_moment_under_load_is_no_business_of_the_other() {
    const SEED: u64 = 62;
    let network = network(SEED).await;
    let home = Home::new(&network, &[]);
    let since_us = feedmill::clock::Clock::Wall.now_us();
    let mut rng = Rng::new(SEED);
    let mut ingest = Life::begin("ingest", &home.file, None);
    let mut server = Life::begin("serve", &home.file, None);
    for round in 0..8 {
        network.emit(150 + rng.below(200) as usize);
        tokio::time::sleep(Duration::from_millis(50 + rng.below(400))).await;
        if round % 2 == 0 {
            ingest.kill();
            assert!(!server.is_over());
            ingest = Life::begin("ingest", &home.file, None);
        } else {
            server.kill();
            assert!(!ingest.is_over());
            server = Life::begin("serve", &home.file, None);
        }
    }
    network.settle();
    equal(&network, &home, since_us, &mut [&mut ingest, &mut server]).await;
    assert!(ingest.end().success());
    assert!(server.end().success());
    network.stop().await;
}
