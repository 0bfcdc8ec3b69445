//! Pages are answered while the timelines they come from are being drawn.

use std::time::Duration;

use feedmill::clock::Clock;
use sim::network::NetworkOptions;

use crate::bed::{config, equal, network, start};

/// A page that waits for a lock which its own reader holds would never come.
#[tokio::test(flavor = "multi_thread")]
async fn readers_and_the_drawer_never_wait_for_each_other() {
    let network = network(71, NetworkOptions::default()).await;
    let since_us = Clock::Wall.now_us();
    let river = start(&config(&network, "sqlite::memory:", &[])).await;
    network.emit(500);
    network.settle();
    equal(&river, &network, since_us).await;
    let dids: Vec<String> = network.world(|world| {
        let accounts = world.accounts().iter();
        accounts.map(|account| account.did.to_string()).collect()
    });
    let base = format!("http://{}/xrpc/com.example.getFeed", river.address.unwrap());
    let mut readers = tokio::task::JoinSet::new();
    for first in 0..4 {
        let (dids, base) = (dids.clone(), base.clone());
        readers.spawn(async move {
            let client = reqwest::Client::builder()
                .timeout(Duration::from_secs(60))
                .build()
                .unwrap();
            for round in 0..40 {
                let did = dids[(first + round) % dids.len()].replace('%', "%25");
                let url = format!("{base}?feed=timeline&actor={did}&limit=50");
                let answer = client.get(url).send().await.expect("an answer in time");
                assert_eq!(answer.status(), 200);
            }
        });
    }
    while !readers.is_empty() {
        network.emit(3);
        tokio::time::sleep(Duration::from_millis(2)).await;
        while let Some(done) = readers.try_join_next() {
            done.unwrap();
        }
    }
    network.settle();
    equal(&river, &network, since_us).await;
    river.stop().await;
    network.stop().await;
}
