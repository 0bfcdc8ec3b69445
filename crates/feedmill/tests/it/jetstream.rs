//! Jetstream, in both versions, plain and packed, over real sockets.

use feedmill::clock::Clock;
use sim::faults::{Fault, Faults};
use sim::network::{Network, NetworkOptions};

use crate::bed::{
    STANDING, UNTOLD, config, equal, firehose, network_without, start, status, until,
};

const VERSION_2: &str = "/xrpc/network.bsky.jetstream.subscribeEvents";

fn source(network: &Network, path: &str, more: &str) -> String {
    let host = network.jetstream_ws_url();
    format!("jetstream = \"{host}{path}\"\n{more}")
}

async fn check(seed: u64, path: &str, more: impl Fn(&Network) -> String) {
    let network = network_without(UNTOLD, seed, NetworkOptions::default()).await;
    let since_us = Clock::Wall.now_us();
    let source = source(&network, path, &more(&network));
    let config = config(
        &network,
        "sqlite::memory:",
        &[(&firehose(&network), &source)],
    );
    let river = start(&config).await;
    network.emit(300);
    equal(&river, &network, since_us).await;
    river.stop().await;
    network.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn feeds_from_version_1_equal_the_model() {
    check(41, "/subscribe", |_| String::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn feeds_from_version_2_equal_the_model() {
    check(42, VERSION_2, |_| String::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packed_messages_of_version_1_are_read_with_a_dictionary_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dictionary");
    check(43, "/subscribe", |network| {
        std::fs::write(&file, network.dictionary()).unwrap();
        format!("compress = true\ndictionary = {file:?}")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packed_messages_of_version_1_are_read_with_a_dictionary_from_an_address() {
    check(44, "/subscribe", |network| {
        let host = &network.jetstream_url;
        format!("compress = true\ndictionary = \"{host}/dictionary\"")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packed_messages_of_version_2_are_read_with_the_dictionary_it_names() {
    check(45, VERSION_2, |_| "compress = true".into()).await;
}

/// Cursors are inclusive: the last event comes again, and changes nothing.
async fn resume(seed: u64, path: &str) {
    let network = network_without(UNTOLD, seed, NetworkOptions::default()).await;
    let since_us = Clock::Wall.now_us();
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite://{}", folder.path().join("store.db").display());
    let source = source(&network, path, "");
    let config = config(&network, &store, &[(&firehose(&network), &source)]);
    let river = start(&config).await;
    network.emit(150);
    equal(&river, &network, since_us).await;
    let cursor = river.store.cursor("sim").unwrap().unwrap();
    let before = river.store.accounting(None).unwrap();
    river.stop().await;

    let river = start(&config).await;
    let store = river.store.clone();
    until(|| store.accounting(None).unwrap().received > before.received).await;
    let after = river.store.accounting(None).unwrap();
    assert_eq!(after.applied, before.applied, "{before:?} {after:?}");
    assert!(after.received - before.received < 20, "read on, not anew");
    network.emit(150);
    equal(&river, &network, since_us).await;
    assert!(river.store.cursor("sim").unwrap().unwrap() > cursor);
    drop(store);
    river.stop().await;
    network.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_1_resumes_at_its_cursor_and_what_comes_again_changes_nothing() {
    resume(46, "/subscribe").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_2_resumes_at_its_cursor_and_what_comes_again_changes_nothing() {
    resume(47, VERSION_2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_doubles_and_torn_connections_of_a_jetstream_lose_nothing() {
    let faults = [Fault::Double, Fault::Garbage, Fault::Unknown]
        .into_iter()
        .fold(Faults::none(), |faults, fault| faults.with(fault, 0.05));
    let options = NetworkOptions {
        jetstream_faults: Faults { seed: 48, ..faults }
            .with(Fault::Disconnect, 0.01)
            .with(Fault::Tear, 0.01),
        ..NetworkOptions::default()
    };
    let network = network_without(UNTOLD, 48, options).await;
    let since_us = Clock::Wall.now_us();
    let source = source(&network, "/subscribe", "");
    let config = config(
        &network,
        "sqlite::memory:",
        &[
            (&firehose(&network), &source),
            ("[intake]\n", "[intake]\nreconnect_ms = 20\n"),
        ],
    );
    let river = start(&config).await;
    network.emit(300);
    equal(&river, &network, since_us).await;
    assert!(network.jetstream_faults_done(Fault::Garbage) > 0);
    assert!(river.store.accounting(None).unwrap().dead > 0);
    river.stop().await;
    network.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_says_that_loss_cannot_be_noticed_at_a_jetstream() {
    let network = network_without(UNTOLD, 49, NetworkOptions::default()).await;
    let source = source(&network, "/subscribe", "");
    let config = config(
        &network,
        "sqlite::memory:",
        &[(&firehose(&network), &source)],
    );
    let river = start(&config).await;
    let stream = &status(&river).await["ingestion"]["streams"][0];
    assert_eq!(stream["kind"], "jetstream");
    assert!(stream["loss"].as_str().unwrap().starts_with("undetectable"));
    river.stop().await;
    network.stop().await;
}

/// Version 2 refuses such a cursor before the stream begins.
#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_too_old_for_version_2_is_given_up_and_all_accounts_are_fetched() {
    let network = network_without(STANDING, 50, NetworkOptions::default()).await;
    let since_us = Clock::Wall.now_us();
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite://{}", folder.path().join("store.db").display());
    let source = source(&network, VERSION_2, "");
    let backfill = format!("[intake]\nbackfill = \"{}\"\n", network.relay_url);
    let config = config(
        &network,
        &store,
        &[(&firehose(&network), &source), ("[intake]\n", &backfill)],
    );
    let river = start(&config).await;
    network.emit(100);
    equal(&river, &network, since_us).await;
    river.stop().await;

    network.emit(200);
    network.trim_backlog(3);
    let river = start(&config).await;
    equal(&river, &network, since_us).await;
    river.stop().await;
    network.stop().await;
}
