//! Manners: hosts are asked no faster than they like, and asked how accounts
//! stand where a gap may have hidden it.

use std::time::Duration;

use feedmill::clock::Clock;
use sim::faults::{Fault, Faults};
use sim::network::{Clock as WorldClock, Limit, Network, NetworkOptions};
use sim::traffic::Act;

use crate::bed::{config, equal, network, start};

fn limit(requests: u64, tells: bool, takes_ms: u64) -> Limit {
    Limit {
        requests,
        pause: Duration::from_secs(2),
        tells,
        takes: Duration::from_millis(takes_ms),
    }
}

/// A network whose relay loses events, so that accounts must be fetched; read to the end.
async fn fetched(seed: u64, limit: Limit, intake: &str) -> Network {
    let network = network(seed, NetworkOptions::default()).await;
    let faults = Faults {
        seed,
        ..Faults::none()
    };
    network.set_faults(faults.with(Fault::Drop, 0.2));
    network.limit_pds(limit);
    let since_us = Clock::Wall.now_us();
    let backfill = format!("[intake]\nbackfill = \"{}\"\n{intake}", network.pds_url);
    let config = config(&network, "sqlite::memory:", &[("[intake]\n", &backfill)]);
    let river = start(&config).await;
    network.emit(300);
    network.settle();
    equal(&river, &network, since_us).await;
    river.stop().await;
    network
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_refuses_is_left_alone_for_as_long_as_it_says() {
    let network = fetched(91, limit(4, false, 0), "host_max = 1\n").await;
    let manners = network.manners();
    assert!(manners.answered > 8 && manners.refused > 0, "{manners:?}");
    assert_eq!(manners.rude, 0, "{manners:?}");
    network.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_counts_down_is_left_alone_before_it_must_refuse() {
    let network = fetched(92, limit(4, true, 0), "host_max = 1\n").await;
    let manners = network.manners();
    assert!(manners.answered > 8, "{manners:?}");
    assert_eq!((manners.refused, manners.rude), (0, 0), "{manners:?}");
    network.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_host_is_asked_no_more_at_once_than_host_max() {
    let network = fetched(
        93,
        limit(100_000, false, 30),
        "host_max = 2\nresync_max = 8\n",
    )
    .await;
    let manners = network.manners();
    assert!(manners.answered > 8, "{manners:?}");
    assert_eq!(manners.at_once, 2, "{manners:?}");
    network.stop().await;
}

/// Takedowns, suspensions and returns that nobody will ever stream again.
#[tokio::test(flavor = "multi_thread")]
async fn standings_that_changed_in_a_gap_are_asked_of_the_hosts() {
    let options = NetworkOptions {
        clock: WorldClock::Wall,
        ..NetworkOptions::default()
    };
    let network = network(94, options).await;
    let since_us = Clock::Wall.now_us();
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite://{}", folder.path().join("store.db").display());
    let backfill = format!("[intake]\nbackfill = \"{}\"\n", network.relay_url);
    let config = config(&network, &store, &[("[intake]\n", &backfill)]);
    let river = start(&config).await;
    network.emit(100);
    for _ in 0..4 {
        network.act(Act::Hide);
    }
    equal(&river, &network, since_us).await;
    let hidden = |network: &Network| {
        network.world(|world| {
            let accounts = world.accounts().iter();
            let hidden = accounts.filter(|account| account.standing.hides());
            hidden
                .map(|account| account.did.clone())
                .collect::<Vec<_>>()
        })
    };
    let before = hidden(&network);
    river.stop().await;

    for _ in 0..10 {
        network.act(Act::Restore);
        network.act(Act::Hide);
    }
    network.emit(100);
    network.trim_backlog(1);
    let after = hidden(&network);
    assert!(
        after.iter().any(|did| !before.contains(did)),
        "nobody was hidden in the gap"
    );
    assert!(
        before.iter().any(|did| !after.contains(did)),
        "nobody came back in the gap"
    );
    let river = start(&config).await;
    equal(&river, &network, since_us).await;
    for did in after {
        let state = river.store.account(&did).unwrap();
        assert!(state.is_none_or(|state| !state.status.visible()), "{did}");
    }
    river.stop().await;
    network.stop().await;
}
