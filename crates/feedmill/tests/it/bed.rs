//! The bed of a river: a simulated network, a running river, and the question
//! whether every feed equals the model yet.

use std::time::{Duration, Instant};

use feedmill::clock::Clock;
use feedmill::config::Config;
use feedmill::oracle::{self, Oracle};
use feedmill::river::{River, Role, Start};
use sim::network::{Network, NetworkOptions};
use sim::traffic::{Act, Traffic};
use sim::world::{World, WorldOptions};

/// How long a small world may take to be read.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) async fn network(seed: u64, options: NetworkOptions) -> Network {
    network_without(&[], seed, options).await
}

/// A network in whose world some acts never happen.
pub(crate) async fn network_without(acts: &[Act], seed: u64, options: NetworkOptions) -> Network {
    feedmill::identity::provide_tls();
    let lively = Traffic::lively();
    let world = World::new(WorldOptions {
        seed,
        accounts: 12,
        traffic: acts.iter().fold(lively, |mix, act| mix.with(*act, 0.0)),
        ..WorldOptions::default()
    });
    Network::start(world, options).await.expect("a network")
}

/// A network whose events happen now by the clock of this machine, as those of a real one do.
pub(crate) async fn network_of_now(seed: u64) -> Network {
    feedmill::identity::provide_tls();
    let world = World::new(WorldOptions {
        seed,
        accounts: 12,
        traffic: Traffic::lively(),
        start_us: Clock::Wall.now_us(),
        ..WorldOptions::default()
    });
    let network = Network::start(world, NetworkOptions::default()).await;
    network.expect("a network")
}

/// What a Jetstream does not tell of: the repository changes, and only the firehose says that it did.
pub(crate) const UNTOLD: &[Act] = &[Act::Rewrite, Act::TooBig];

/// What cannot be learnt from repositories after a gap: whose records are hidden.
pub(crate) const STANDING: &[Act] = &[
    Act::Rewrite,
    Act::TooBig,
    Act::Hide,
    Act::Restore,
    Act::Falter,
    Act::Leave,
    Act::Murmur,
];

/// The configuration that reads the network's relay, with each (old, new) replaced.
pub(crate) fn config(network: &Network, store: &str, changes: &[(&str, &str)]) -> Config {
    let mut text = oracle::config(network, "127.0.0.1:0", store);
    for (old, new) in changes {
        assert!(text.contains(old), "{old:?} is not in {text}");
        text = text.replacen(old, new, 1);
    }
    Config::parse(&text).expect("a configuration")
}

/// The line of the configuration that names the relay.
pub(crate) fn firehose(network: &Network) -> String {
    format!("firehose = \"{}\"", network.relay_ws_url())
}

pub(crate) async fn start(config: &Config) -> River {
    let start = Start {
        role: Role::All,
        clock: Clock::Wall,
        lexicons: sim::lexicons::ALL,
    };
    River::start(config, start).await.expect("a river")
}

/// Waits until every feed equals the model, and the accounting adds up.
#[track_caller]
pub(crate) fn equal(river: &River, network: &Network, since_us: i64) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    let address = river.address.expect("it serves").to_string();
    async move {
        let oracle = Oracle::new(network, address, since_us).hasty();
        let begun = Instant::now();
        loop {
            let outcome = oracle.every_feed(&|_, _| {}).await.expect("pages");
            if outcome.mismatches == 0 {
                assert!(outcome.entries > 0, "{place}: nothing was compared");
                break;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{place}: {:?}; {:?}",
                outcome.first,
                river.store.accounting(None)
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let accounting = river.store.accounting(None).expect("counters");
        assert!(accounting.adds_up(), "{place}: {accounting:?}");
    }
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(mut so: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let begun = Instant::now();
        while !so() {
            assert!(begun.elapsed() < PATIENCE, "{place}: not so in time");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Waits until a question is answered with yes.
#[track_caller]
pub(crate) fn until_async(mut so: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let begun = Instant::now();
        while !so().await {
            assert!(begun.elapsed() < PATIENCE, "{place}: not so in time");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// `/status` as JSON.
pub(crate) async fn status(river: &River) -> serde_json::Value {
    let address = river.address.expect("it serves");
    let answer = reqwest::get(format!("http://{address}/status")).await;
    answer.expect("an answer").json().await.expect("JSON")
}
