//! Pools of hosts: one that is dead, stalled or counts otherwise is left, and
//! nothing is lost.

use std::time::Duration;

use feedmill::clock::Clock;
use sim::faults::{Fault, Faults};
use sim::network::NetworkOptions;

use crate::bed::{config, equal, firehose, network, start, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_host_is_left_for_the_next() {
    let network = network(71, NetworkOptions::default()).await;
    let since_us = Clock::Wall.now_us();
    let pool = format!(
        "firehose = [\"ws://127.0.0.1:1\", \"{}\"]",
        network.relay_ws_url()
    );
    let changes = [(&*firehose(&network), &*pool)];
    let river = start(&config(&network, "sqlite::memory:", &changes)).await;
    network.emit(100);
    equal(&river, &network, since_us).await;
    river.stop().await;
    network.stop().await;
}

/// The host still answers pings: only its silence tells.
#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_host_is_left_and_what_it_swallowed_is_read_elsewhere() {
    let network = network(72, NetworkOptions::default()).await;
    network.set_faults(Faults {
        stall_ms: 600_000,
        ..Faults::none()
    });
    network.order(Fault::Stall);
    let since_us = Clock::Wall.now_us();
    let pds = network.pds_url.replacen("http", "ws", 1);
    let pool = format!("firehose = [\"{}\", \"{pds}\"]", network.relay_ws_url());
    let changes = [
        (&*firehose(&network), &*pool),
        ("[intake]\n", "[intake]\nsilence_s_max = 1\n"),
    ];
    let river = start(&config(&network, "sqlite::memory:", &changes)).await;
    network.emit(100);
    equal(&river, &network, since_us).await;
    assert_eq!(network.faults_done(Fault::Stall), 1);
    river.stop().await;
    network.stop().await;
}

/// The second host says nothing about cursors from the future, as the production relay does.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_counts_otherwise_is_not_given_the_cursor_of_another() {
    let far = network(73, NetworkOptions::default()).await;
    far.emit(3000);
    let options = NetworkOptions {
        cursor_notices: false,
        ..NetworkOptions::default()
    };
    let near = network(74, options).await;
    let since_us = Clock::Wall.now_us();
    let (far_url, near_url) = (far.relay_ws_url(), near.relay_ws_url());
    let pool = format!("firehose = [\"{far_url}\", \"{near_url}\"]");
    let changes = [
        (&*firehose(&near), &*pool),
        ("[intake]\n", "[intake]\nreconnect_ms = 20\n"),
    ];
    let river = start(&config(&near, "sqlite::memory:", &changes)).await;
    let (row, last) = (format!("sim {far_url}"), far.last_seq() as i64);
    let store = river.store.clone();
    until(|| store.cursor(&row).unwrap() == Some(last)).await;
    assert!(near.last_seq() < far.last_seq());
    far.stop().await;
    near.emit(100);
    equal(&river, &near, since_us).await;
    assert_eq!(store.cursor(&row).unwrap(), Some(last), "its own stays");
    drop(store);
    river.stop().await;
    near.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_host_that_answers_is_kept() {
    let network = network(75, NetworkOptions::default()).await;
    let changes = [("[intake]\n", "[intake]\nsilence_s_max = 1\n")];
    let river = start(&config(&network, "sqlite::memory:", &changes)).await;
    let last = network.last_seq() as i64;
    let store = river.store.clone();
    until(|| store.cursor("sim").unwrap() == Some(last)).await;
    tokio::time::sleep(Duration::from_millis(3500)).await;
    assert_eq!(network.connections(), 1);
    network.emit(1);
    let last = network.last_seq() as i64;
    until(|| store.cursor("sim").unwrap() == Some(last)).await;
    assert_eq!(network.connections(), 1);
    drop(store);
    river.stop().await;
    network.stop().await;
}
