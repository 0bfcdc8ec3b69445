//! `examples/bluesky.toml` end to end, by the real binary: a signed firehose,
//! accounts fetched from their hosts, and every reader's feed.

use std::path::Path;

use feedmill::oracle::Oracle;
use sim::network::{Network, NetworkOptions};
use sim::world::{World, WorldOptions};

use crate::life::{Home, Life, adds_up};

/// The example as its comments say, with lexicons, on a network of our own.
fn example(network: &Network, home: &Home) -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(here.join("../../examples/bluesky.toml")).unwrap();
    let lexicons = here.join("../sim/lexicons");
    let store = home.file.with_file_name("bluesky.db");
    let changes = [
        (
            "lexicons = []".to_owned(),
            format!("lexicons = [{lexicons:?}]"),
        ),
        ("validate = false\n".to_owned(), String::new()),
        ("validate = false\n".to_owned(), String::new()),
        (
            "firehose = \"wss://bsky.network\"".to_owned(),
            format!("name = \"sim\"\nfirehose = \"{}\"", network.relay_ws_url()),
        ),
        (
            "sqlite://bluesky.db".to_owned(),
            format!("sqlite://{}", store.display()),
        ),
    ];
    let mut text = text;
    for (old, new) in changes {
        assert!(text.contains(&old), "{old:?} is not in the example");
        text = text.replacen(&old, &new, 1);
    }
    format!(
        "{text}[intake]\nplc_url = \"{}\"\ndid_web_url = \"{}\"\n[serve]\nbind = \"{}\"\n",
        network.plc_url, network.web_url, home.address
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bluesky_example_gives_every_reader_its_timeline() {
    let since_us = feedmill::clock::Clock::Wall.now_us();
    let world = World::new(WorldOptions {
        seed: 2026,
        accounts: 20,
        ..WorldOptions::default()
    });
    let network = Network::start(world, NetworkOptions::default())
        .await
        .expect("a network");
    let home = Home::new(&network, &[]);
    std::fs::write(&home.file, example(&network, &home)).unwrap();
    let mut life = Life::begin("run", &home.file, None);
    network.emit(400);
    network.settle();
    let status = home.settled(network.last_seq(), &mut [&mut life]).await;
    adds_up(&status.expect("it runs")["accounting"]);
    let oracle = Oracle::new(&network, home.address.clone(), since_us).only("timeline");
    let outcome = oracle.every_feed(&|_, _| {}).await.unwrap();
    assert_eq!(outcome.first, None);
    let entries = outcome.entries;
    assert!(entries > 100, "next to nothing was compared: {entries}");
    assert!(life.end().success());
    network.stop().await;
}
