//! Backfill: what a stream does not say is found in the lists of its host.

use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::RawQuery;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use feedmill::clock::Clock;
use sim::faults::{Fault, Faults};
use sim::network::NetworkOptions;

use crate::bed::{STANDING, config, equal, network, network_without, start, status, until};

fn intake(url: &str) -> String {
    format!("[intake]\nbackfill = \"{url}\"\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_that_the_relay_no_longer_streams_are_found_in_its_list() {
    let network = network_without(STANDING, 61, NetworkOptions::default()).await;
    let since_us = Clock::Wall.now_us();
    network.emit(300);
    network.trim_backlog(0);
    let changes = [("[intake]\n", intake(&network.relay_url))];
    let changes = changes.each_ref().map(|(old, new)| (*old, new.as_str()));
    let river = start(&config(&network, "sqlite::memory:", &changes)).await;
    equal(&river, &network, since_us).await;
    let told = status(&river).await;
    assert!(told["backfill"]["adopted"].as_u64().unwrap() > 0, "{told}");
    river.stop().await;
    network.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_was_read_is_not_read_again_at_the_next_start() {
    let network = network(62, NetworkOptions::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite://{}", folder.path().join("store.db").display());
    let backfill = intake(&network.relay_url);
    let config = config(&network, &store, &[("[intake]\n", &backfill)]);
    for listed in [true, false] {
        let river = start(&config).await;
        let state = river.status.clone();
        until(|| !state.listing.load(Ordering::Relaxed)).await;
        assert_eq!(state.listed.load(Ordering::Relaxed) > 0, listed);
        river.stop().await;
    }
    network.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outdated_cursor_is_noticed_and_healed_for_accounts_known_and_new() {
    let network = network_without(STANDING, 63, NetworkOptions::default()).await;
    let since_us = Clock::Wall.now_us();
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite://{}", folder.path().join("store.db").display());
    let backfill = intake(&network.relay_url);
    let config = config(&network, &store, &[("[intake]\n", &backfill)]);
    let river = start(&config).await;
    equal(&river, &network, since_us).await;
    let state = river.status.clone();
    until(|| !state.listing.load(Ordering::Relaxed)).await;
    river.stop().await;

    network.emit(400);
    network.trim_backlog(1);
    let river = start(&config).await;
    equal(&river, &network, since_us).await;
    river.stop().await;
    network.stop().await;
}

/// Nothing in the stream tells that such an account matters.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_whose_first_commits_were_lost_is_found_again() {
    let network = network(64, NetworkOptions::default()).await;
    network.set_faults(
        Faults {
            seed: 64,
            ..Faults::none()
        }
        .with(Fault::Drop, 1.0),
    );
    let since_us = Clock::Wall.now_us();
    network.emit(200);
    let backfill = intake(&network.relay_url);
    let config = config(&network, "sqlite::memory:", &[("[intake]\n", &backfill)]);
    let river = start(&config).await;
    equal(&river, &network, since_us).await;
    assert!(network.faults_done(Fault::Drop) > 0);
    river.stop().await;
    network.stop().await;
}

/// A host that knows only `listRepos`.
async fn old_host(relay: String) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let list = get(async move |RawQuery(query): RawQuery| {
        let query = query.unwrap_or_default();
        let address = format!("{relay}/xrpc/com.atproto.sync.listRepos?{query}");
        match reqwest::get(address).await {
            Ok(answer) => {
                let text = answer.text().await.unwrap_or_default();
                ([(header::CONTENT_TYPE, "application/json")], text).into_response()
            }
            Err(_) => StatusCode::BAD_GATEWAY.into_response(),
        }
    });
    let router = Router::new().route("/xrpc/com.atproto.sync.listRepos", list);
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_cannot_list_by_collection_is_asked_for_all_accounts() {
    let network = network_without(STANDING, 65, NetworkOptions::default()).await;
    let since_us = Clock::Wall.now_us();
    network.emit(100);
    network.trim_backlog(0);
    let host = old_host(network.relay_url.clone()).await;
    let backfill = intake(&host);
    let config = config(&network, "sqlite::memory:", &[("[intake]\n", &backfill)]);
    let river = start(&config).await;
    equal(&river, &network, since_us).await;
    river.stop().await;
    network.stop().await;
}
