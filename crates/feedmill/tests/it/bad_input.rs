//! Bad input is data: it is counted, kept with its cause, and the stream goes on.

use std::time::{Duration, Instant};

use feedmill::clock::Clock;
use feedmill::config::Config;
use feedmill::oracle::{self, Oracle};
use feedmill::river::{River, Role, Start};
use serde_json::Value;
use sim::faults::Fault;
use sim::network::{Network, NetworkOptions};
use sim::traffic::Act;
use sim::world::{World, WorldOptions};

struct Scene {
    network: Network,
    river: River,
    since_us: i64,
}

impl Scene {
    async fn begin() -> Self {
        feedmill::identity::provide_tls();
        let world = World::new(WorldOptions {
            accounts: 12,
            seed: 5,
            ..WorldOptions::default()
        });
        let network = Network::start(world, NetworkOptions::default())
            .await
            .unwrap();
        let config =
            Config::parse(&oracle::config(&network, "127.0.0.1:0", "sqlite::memory:")).unwrap();
        let start = Start {
            role: Role::All,
            clock: Clock::Wall,
            lexicons: sim::lexicons::ALL,
        };
        let since_us = Clock::Wall.now_us();
        let river = River::start(&config, start).await.unwrap();
        let scene = Self {
            network,
            river,
            since_us,
        };
        scene.settled().await;
        scene
    }

    async fn settled(&self) {
        let begun = Instant::now();
        while !self
            .river
            .settled("sim", self.network.last_seq() as i64)
            .unwrap()
        {
            assert!(
                begun.elapsed() < Duration::from_secs(120),
                "the stream stands still"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn dead(&self, stage: &str) -> usize {
        let letters = self.river.store.dead(None, 1000).unwrap();
        letters
            .iter()
            .filter(|letter| letter.stage == stage)
            .count()
    }

    /// Everything received is counted, and every feed is what it should be.
    async fn end(self) {
        self.network.emit(40);
        self.network.settle();
        self.settled().await;
        let accounting = self.river.store.accounting(None).unwrap();
        assert!(accounting.adds_up(), "{accounting:?}");
        let address = self.river.address.unwrap().to_string();
        let outcome = Oracle::new(&self.network, address, self.since_us)
            .every_feed(&|_, _| {})
            .await;
        assert_eq!(outcome.unwrap().first, None);
        self.river.stop().await;
        self.network.stop().await;
    }
}

/// Orders a fault, lets some events pass, and waits until it was done and all is read.
async fn suffer(scene: &Scene, fault: Fault) {
    scene.network.order(fault);
    let begun = Instant::now();
    while scene.network.faults_done(fault) == 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{fault:?} never happened"
        );
        scene.network.emit(5);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    scene.network.settle();
    scene.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_of_garbage_is_a_dead_letter_and_the_stream_goes_on() {
    let scene = Scene::begin().await;
    suffer(&scene, Fault::Garbage).await;
    assert_eq!(scene.dead("frame"), 1);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_event_kind_is_counted_as_filtered() {
    let scene = Scene::begin().await;
    let before = scene.river.store.accounting(None).unwrap();
    scene.network.order(Fault::Unknown);
    scene.network.emit(20);
    scene.network.settle();
    scene.settled().await;
    let after = scene.river.store.accounting(None).unwrap();
    assert_eq!(scene.network.faults_done(Fault::Unknown), 1);
    assert!(after.filtered > before.filtered);
    assert_eq!(scene.dead("frame"), 0);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_over_the_limit_is_a_dead_letter_and_costs_no_connection() {
    let scene = Scene::begin().await;
    let connections = scene.network.connections();
    suffer(&scene, Fault::Oversized).await;
    assert_eq!(scene.dead("frame"), 1);
    assert_eq!(scene.network.connections(), connections);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_block_is_refused_and_the_account_is_fetched_whole() {
    let scene = Scene::begin().await;
    suffer(&scene, Fault::Corrupt).await;
    assert!(
        scene.dead("verify") <= 1,
        "only a commit of interest is read that far"
    );
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_commit_breaks_the_chain_and_the_account_is_fetched_whole() {
    let scene = Scene::begin().await;
    suffer(&scene, Fault::Drop).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_from_the_future_is_answered_by_reading_everything_again() {
    let scene = Scene::begin().await;
    scene.network.order(Fault::Future);
    suffer(&scene, Fault::Disconnect).await;
    assert_eq!(scene.network.faults_done(Fault::Future), 1);
    let accounting = scene.river.store.accounting(None).unwrap();
    assert!(
        accounting.repeated > 0,
        "what was read again is repeated: {accounting:?}"
    );
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_breaks_its_lexicon_is_explained() {
    let scene = Scene::begin().await;
    while scene.dead("lexicon") == 0 {
        scene.network.act(Act::Spoiled);
        scene.settled().await;
    }
    let letters = scene.river.store.dead(None, 10).unwrap();
    let letter = letters
        .iter()
        .find(|letter| letter.stage == "lexicon")
        .unwrap();
    assert!(
        !letter.message.is_empty() && !letter.expected.is_empty() && !letter.received.is_empty(),
        "{letter:?}"
    );
    assert!(
        serde_json::from_str::<Value>(&letter.raw).is_ok(),
        "the record is kept: {letter:?}"
    );
    scene.end().await;
}

/// Path after /xrpc/ (FEED stands for a good getFeed), status, error name, a word of the message.
const BAD_REQUESTS: &str = "
    com.example.getFeed                                              | 400 | InvalidRequest       | feed
    com.example.getFeed?feed=nope&actor=did:web:nobody.test          | 400 | UnknownFeed          | timeline
    com.example.getFeed?feed=timeline&actor=no%20one                 | 400 | InvalidRequest       | actor
    com.example.getFeed?feed=timeline&actor=nobody.test              | 400 | InvalidRequest       | nobody.test
    com.example.getFeed?feed=timeline&actor=did:foo:baz2             | 400 | InvalidRequest       | did:plc, a did:web
    FEED&collection=note                                             | 400 | InvalidRequest       | post
    FEED&color=red                                                   | 400 | InvalidRequest       | color
    FEED&limit=0                                                     | 400 | InvalidRequest       | 1 to 200
    FEED&limit=-1                                                    | 400 | InvalidRequest       | 1 to 200
    FEED&limit=10000                                                 | 400 | InvalidRequest       | 1 to 200
    FEED&limit=abc                                                   | 400 | InvalidRequest       | 1 to 200
    FEED&limit=1&limit=2                                             | 400 | InvalidRequest       | twice
    FEED&cursor=garbage                                              | 400 | BadCursor            | cursor
    com.example.nothing                                              | 501 | MethodNotImplemented | com.example.nothing
    com.example.nope.listRecords                                     | 501 | MethodNotImplemented | com.example.post.listRecords
    ..%2f                                                            | 400 | InvalidRequest       | xrpc path
    com.example.post.getRecord?uri=at://x                            | 400 | InvalidRequest       | at://
    com.example.post.getRecord?uri=at://did:web:a.test/app.bsky.feed.post/x | 404 | RecordNotFound | no record
";

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_are_xrpc_errors_that_say_what_is_accepted() {
    let scene = Scene::begin().await;
    let base = format!("http://{}/xrpc/", scene.river.address.unwrap());
    let feed = "com.example.getFeed?feed=timeline&actor=did:web:nobody.test";
    for line in BAD_REQUESTS.lines().filter(|line| line.contains('|')) {
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let [path, status, name, word] = parts[..] else {
            panic!("{line}")
        };
        let response = reqwest::get(format!("{base}{}", path.replace("FEED", feed)))
            .await
            .unwrap();
        let code = response.status().as_u16().to_string();
        let body: Value = response.json().await.unwrap();
        assert_eq!(
            (code.as_str(), body["error"].as_str()),
            (status, Some(name)),
            "{line}: {body}"
        );
        assert!(
            body["message"].as_str().unwrap().contains(word),
            "{line}: {body}"
        );
    }
    let post = reqwest::Client::new().post(format!("{base}{feed}"));
    assert_eq!(post.send().await.unwrap().status().as_u16(), 400);
    scene.river.stop().await;
    scene.network.stop().await;
}
